/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/conformance/node.h"

const struct rsched_engine_ops *node_engine_at(size_t index)
{
    return rsched_engine_at(index);
}

bool node_device_outlives_process(void)
{
    return true;
}
