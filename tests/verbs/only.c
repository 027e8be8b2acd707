/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/verbs/only.h"

#include <stdio.h>

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

int only_epochs(struct rank *self, struct halo *h, int first)
{
    for (int epoch = first; epoch < first + ONLY_EPOCHS; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    return 0;
}

int only_life(struct rank *self, const struct halo *h, uint32_t life)
{
    for (uint32_t i = 0; i < h->x->num_out; i++)
        RANK_CHECK(h->x->out[i].peer->life == life);
    for (uint32_t i = 0; i < h->x->num_in; i++)
        RANK_CHECK(h->x->in[i].peer->life == life);
    return 0;
}

int only_connections(const struct rank *self)
{
    int count = 0;

    for (struct rs_peer *p = self->context->peers; p != NULL; p = p->next)
        count++;
    return count;
}
