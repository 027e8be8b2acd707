/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/verbs/only.h"

#include "librsched/run/run.h"
#include "tests/conformance/node.h"

int only_interpreter(struct rank *self, const struct rs_sources *sources)
{
    struct rs_engine *engines = self->context->engines;
    struct rsched_engine_env env = {.process = self->rank,
                                    .job = 1,
                                    .chunk_bytes = 65536,
                                    .ring_bytes = 524288,
                                    .sources = sources};

    for (int i = 0; i < RSCHED_MAX_ENGINES; i++) {
        if (engines[i].ops != NULL)
            engines[i].ops->close(engines[i].engine);
        engines[i].ops = NULL;
    }
    engines[0].ops = node_engine_at(0);
    return engines[0].ops->open(&env, &engines[0].engine);
}
