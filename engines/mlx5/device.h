/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a queue pair of libibverbs to one that is driven here.
 *
 * Compiled against libmlx5, and run with a softnic in the device's place; not
 * run on hardware yet.
 */
#ifndef RS_MLX5_DEVICE_H
#define RS_MLX5_DEVICE_H

#include <infiniband/verbs.h>

#include "engines/mlx5/memory.h"

/** Whether queue pairs of this device can be driven here.
 * @return 0, or RSCHED_ENOTSUP with the reason */
int rs_mlx5_device_check(struct ibv_device *device);

/**
 * Take the sending side of a queue pair and its send completion queue away from
 * libibverbs: after this neither ibv_post_send() on the one nor ibv_poll_cq()
 * on the other may be used. Receives, with a completion queue of their own,
 * stay with libibverbs.
 *
 * @param qp  RC, nothing was posted to it yet; its send completion queue is
 *            used by nothing else
 * @param cap what was granted when it was made
 * @param[out] memory
 * @return 0, RSCHED_ENOTSUP with the reason, RSCHED_ESYS
 */
int rs_mlx5_device_describe(struct ibv_qp *qp, const struct ibv_qp_cap *cap,
                            struct rs_mlx5_memory *memory);

#endif
