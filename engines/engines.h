/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RS_ENGINES_H
#define RS_ENGINES_H

struct rsched_engine_ops;

extern const struct rsched_engine_ops rs_loopback_ops;

#endif
