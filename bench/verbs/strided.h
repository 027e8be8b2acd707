/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What strided memory costs: the parameters of librsched/base/sources.h, ns.
 *
 * Between two queue pairs of one device, so that no link limits it, for n
 * blocks of 4096 bytes in all, by least squares of the relative errors:
 *
 *     one write of n entries     message + n gather_block
 *     n writes                   message + n scatter_block
 *     n blocks copied by the processor, of B bytes in all
 *                                n pack_block + B pack_byte
 */
#ifndef BENCH_VERBS_STRIDED_H
#define BENCH_VERBS_STRIDED_H

#include "bench/verbs/rails.h"

struct strided {
    double gather_message, gather_block, scatter_block;
    double pack_block, pack_byte;
};

struct strided strided_measure(struct rail *rail, size_t repetitions);

#endif
