/* SPDX-License-Identifier: BSD-3-Clause */
/* All engines, one line each. */
#include <rsched/engine.h>

#include "engines/engines.h"

static const struct rsched_engine_ops *const engines[] = {
    &rs_loopback_ops,
};

const struct rsched_engine_ops *rsched_engine_at(size_t index)
{
    return index < sizeof(engines) / sizeof(engines[0]) ? engines[index] : NULL;
}
