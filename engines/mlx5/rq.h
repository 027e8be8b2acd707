/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receive queue, for immediates only: each receive is one data segment of
 * no bytes, written once. Posting receives is one store to the doorbell record;
 * a receive queue has no doorbell.
 */
#ifndef RS_MLX5_RQ_H
#define RS_MLX5_RQ_H

#include "engines/mlx5/memory.h"

struct rs_rq {
    uint32_t entries;
    uint32_t posted, taken;
    _Atomic uint32_t *dbrec;
};

/** Write all receives; none is posted. */
void rs_rq_init(struct rs_rq *rq, const struct rs_mlx5_memory *memory);

/** Post up to `count` receives, as many as there is room for. */
void rs_rq_post(struct rs_rq *rq, uint32_t count);

/** A completion has taken the oldest one. */
void rs_rq_take(struct rs_rq *rq);

void rs_rq_reset(struct rs_rq *rq);

#endif
