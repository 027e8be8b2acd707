/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conformance cases over the lanes of RDMA engines whose memory is a GPU's: at
 * either end, and at both. The device is an interpreter of work requests, the
 * driver the one in software; instances are threads of one process. What they
 * refuse (the environment) decides whether memory is a dma-buf's, peer memory, or
 * staged.
 */
#include "engines/rdma/rdma.h"
#include "tests/cuda/device_shapes.h"
#include "tests/verbs/interpreter.h"

static int direct_open(const struct rsched_engine_env *env,
                       struct rsched_engine **engine)
{
    return rs_rdma_open("direct", env, interpreter_ports, engine);
}

static const struct rsched_engine_ops direct_ops = {
    .name = "direct",
    .help = "RDMA lanes of GPU memory over a device that is none",
    .gpus = true,
    .reconnects = true,
    RS_RDMA_ENGINE_OPS,
    RS_RDMA_GPU_LANE_OPS,
    .open = direct_open,
};

const struct rsched_engine_ops *node_engine_at(size_t index)
{
    device_shapes(false);
    return index == 0 ? &direct_ops : NULL;
}

bool node_device_outlives_process(void)
{
    return false;
}
