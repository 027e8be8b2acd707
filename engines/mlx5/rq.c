/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/mlx5/rq.h"

#include <stddef.h>

#include "engines/mlx5/wqe.h"

/* Ends a list of data segments that is shorter than its entry. */
enum { INVALID_LKEY = 0x100 };

void rs_rq_init(struct rs_rq *rq, const struct rs_mlx5_memory *memory)
{
    *rq = (struct rs_rq){
        .entries = memory->receive_entries,
        .dbrec = &memory->dbrec[RS_MLX5_DBREC_RECEIVE],
    };
    for (uint32_t i = 0; i < memory->receive_entries; i++)
        rs_wqe_set_data((void *)((char *)memory->receive_ring +
                                 (size_t)i * memory->receive_stride),
                        0, INVALID_LKEY, 0);
}

void rs_rq_post(struct rs_rq *rq, uint32_t count)
{
    uint32_t room = rq->entries - (rq->posted - rq->taken);

    rq->posted += count < room ? count : room;
    /* The device sees the receives before the record that counts them. */
    rs_mlx5_to_device();
    atomic_store_explicit(rq->dbrec, htobe32(rq->posted & 0xffff),
                          memory_order_release);
}

void rs_rq_take(struct rs_rq *rq)
{
    rq->taken++;
}

void rs_rq_reset(struct rs_rq *rq)
{
    rq->posted = rq->taken = 0;
}
