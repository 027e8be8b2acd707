/* SPDX-License-Identifier: BSD-3-Clause */
/* The lanes of RDMA engines over the interpreter, as an engine of its own for
 * the conformance cases; its instances are threads of one process. */
#include "engines/rdma/rdma.h"
#include "tests/conformance/node.h"
#include "tests/verbs/interpreter.h"

static int interpreter_open(const struct rsched_engine_env *env,
                            struct rsched_engine **engine)
{
    return rs_rdma_open("interpreter", env, interpreter_ports, engine);
}

static const struct rsched_engine_ops interpreter_ops = {
    .name = "interpreter",
    .help = "RDMA lanes over a device that is none",
    .reconnects = true,
    .also_gpus = true,
    RS_RDMA_ENGINE_OPS,
    RS_RDMA_LANE_OPS,
    .open = interpreter_open,
};

const struct rsched_engine_ops *node_engine_at(size_t index)
{
    return index == 0 ? &interpreter_ops : NULL;
}

bool node_device_outlives_process(void)
{
    return false;
}
