/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue (engines/rdma/queue.h) that writes WQEs itself. */
#ifndef RS_MLX5_QUEUE_H
#define RS_MLX5_QUEUE_H

#include "engines/mlx5/cq.h"
#include "engines/mlx5/sq.h"

struct rs_mlx5_queue {
    struct rs_rdma_queue base;
    struct rs_mlx5_memory memory;
    struct rs_wqe_limits limits;
    struct rs_sq sq;
    struct rs_cq cq;
    bool failed; /* nothing is posted any more */
};

/** After an error of poll() nothing is posted any more; that the queue pair stops is
 * up to whoever has made it. */
extern const struct rs_rdma_queue_ops rs_mlx5_queue_ops;

/**
 * Take over the sending side of a queue pair that is reset or new, and the
 * completion queue that it shares with no other.
 *
 * @param recur lists are padded so that they meet the same slots again
 * @return 0, RSCHED_ENOMEM, or RSCHED_ENOTSUP: the memory is not of a form that
 *         can be driven
 */
int rs_mlx5_queue_init(struct rs_mlx5_queue *queue,
                       const struct rs_mlx5_memory *memory, bool recur);

/** All lists have been destroyed. */
void rs_mlx5_queue_fini(struct rs_mlx5_queue *queue);

#endif
