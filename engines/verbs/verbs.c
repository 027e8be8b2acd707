/* SPDX-License-Identifier: BSD-3-Clause */
/* The verbs engine: RDMA between nodes through libibverbs. */
#include "engines/verbs/verbs.h"

#include "engines/mlx5/ring.h"
#include "engines/rdma/rdma.h"

extern const struct rsched_engine_ops rs_verbs_ops;

static int verbs_open(const struct rsched_engine_env *env,
                      struct rsched_engine **engine)
{
    return rs_rdma_open("verbs", env, rs_verbs_ports_open, engine);
}

const struct rsched_engine_ops rs_verbs_ops = {
    .name = "verbs",
    .help = "between nodes over InfiniBand and RoCE: prepared work requests, "
            "landing slots and direct writes",
    .reconnects = true,
    .also_gpus = true,
    RS_RDMA_ENGINE_OPS,
    RS_RDMA_LANE_OPS,
    RS_MLX5_RING_OPS,
    .open = verbs_open,
};
