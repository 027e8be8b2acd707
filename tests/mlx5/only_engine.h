/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank whose peers are reached over the engine that is linked with the test, and
 * itself over loopback. */
#ifndef TESTS_ONLY_ENGINE_H
#define TESTS_ONLY_ENGINE_H

#include <string.h>

#include "librsched/run/run.h"
#include "tests/conformance/node.h"
#include "tests/runtime/ranks.h"

/** Change the engines of a context that has no connections. */
static inline int only_engine(struct rank *self)
{
    struct rs_engine *engines = self->context->engines, loopback = {0};
    struct rsched_engine_env env = {.process = self->rank,
                                    .job = 1,
                                    .chunk_bytes = 65536,
                                    .ring_bytes = 524288};

    for (int i = 0; i < RSCHED_MAX_ENGINES; i++) {
        if (engines[i].ops != NULL &&
            strcmp(engines[i].ops->name, "loopback") == 0)
            loopback = engines[i];
        else if (engines[i].ops != NULL)
            engines[i].ops->close(engines[i].engine);
        engines[i] = (struct rs_engine){0};
    }
    engines[0].ops = node_engine_at(0);
    engines[1] = loopback;
    return engines[0].ops->open(&env, &engines[0].engine);
}

#endif
