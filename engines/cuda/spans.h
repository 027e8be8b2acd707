/* SPDX-License-Identifier: BSD-3-Clause */
/* SPANS: which addresses of a message lie in the memory of which GPU. */
#ifndef RS_CUDA_SPANS_H
#define RS_CUDA_SPANS_H

#include <stddef.h>

#include <rsched/engine.h>

struct rs_spans {
    struct rs_span *at; /* by address */
    size_t number, room;
};

/** The first to the last byte of a piece, whose blocks lie in one allocation of this
 * GPU. @return 0 or RSCHED_ENOMEM */
int rs_spans_add(struct rs_spans *spans, const struct rsched_piece *piece, int gpu);
/** After the last one: order them, in n log n steps. */
void rs_spans_sort(struct rs_spans *spans);
/** The GPU of a block; where spans of several have it, of the one that begins last.
 * In log n steps, and one for each span around that. @return -1: of none */
int rs_spans_find(const struct rs_spans *spans, const char *address);

void rs_spans_clear(struct rs_spans *spans);
void rs_spans_fini(struct rs_spans *spans);

#endif
