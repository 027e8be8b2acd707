/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RING: the rings of an engine over RDMA ports (rsched/engine.h), where the port
 * says that kernels can be given its queues.
 *
 * A ring is a lane of engines/rdma that moves nothing itself: its block holds the
 * word by which the peer's kernel announces its epochs, and the one by which the
 * peer's host says, over the link, that nothing follows. Its queue pair is its
 * own, and stays until the peer has said so: it acknowledges what the peer has
 * sent, and who has sent it waits for that.
 */
#ifndef RS_MLX5_RING_H
#define RS_MLX5_RING_H

#include "engines/rdma/rdma.h"

int rs_mlx5_ring_create(struct rsched_connection *,
                        const struct rsched_ring_spec *,
                        unsigned char *descriptor, struct rsched_ring **);
int rs_mlx5_ring_join(struct rsched_ring *,
                      const struct rsched_message *const send[2],
                      const unsigned char *descriptor);
uint32_t rs_mlx5_ring_words(const struct rsched_ring *);
void rs_mlx5_ring_fill(struct rsched_ring *, struct rsched_device_lane *,
                       uint32_t *table, const uint32_t *there);
int rs_mlx5_ring_check(struct rsched_ring *);
int rs_mlx5_ring_status(const struct rsched_ring *,
                        const struct rsched_device_lane *);
void rs_mlx5_ring_target(const struct rsched_ring *,
                         struct rsched_device_target *);
int rs_mlx5_ring_target_status(const struct rsched_ring *,
                               const struct rsched_device_target *);
void rs_mlx5_ring_abandon(struct rsched_ring *);
void rs_mlx5_ring_destroy(struct rsched_ring *, enum rsched_ring_end);

/** Of an engine's table. */
#define RS_MLX5_RING_OPS                                                    \
    .ring_abandon = rs_mlx5_ring_abandon,                                   \
    .ring_check = rs_mlx5_ring_check,                                       \
    .ring_create = rs_mlx5_ring_create,                                     \
    .ring_destroy = rs_mlx5_ring_destroy,                                   \
    .ring_fill = rs_mlx5_ring_fill,                                         \
    .ring_join = rs_mlx5_ring_join,                                         \
    .ring_status = rs_mlx5_ring_status,                                     \
    .ring_target = rs_mlx5_ring_target,                                     \
    .ring_target_status = rs_mlx5_ring_target_status,                       \
    .ring_words = rs_mlx5_ring_words

#endif
