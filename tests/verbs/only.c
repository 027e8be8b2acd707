/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/verbs/only.h"

#include <stdio.h>
#include <string.h>

#include "engines/rdma/rdma.h"
#include "tests/conformance/node.h"

static int open_interpreter(struct rank *self, struct rs_engine *engine,
                            const struct rs_sources *sources)
{
    struct rsched_engine_env env = {.process = self->rank,
                                    .job = 1,
                                    .chunk_bytes = 65536,
                                    .ring_bytes = 524288,
                                    .sources = sources};

    engine->ops = node_engine_at(0);
    return engine->ops->open(&env, &engine->engine);
}

int only_interpreter(struct rank *self, const struct rs_sources *sources)
{
    struct rs_engine *engines = self->context->engines;

    for (int i = 0; i < RSCHED_MAX_ENGINES; i++) {
        if (engines[i].ops != NULL)
            engines[i].ops->close(engines[i].engine);
        engines[i].ops = NULL;
    }
    return open_interpreter(self, &engines[0], sources);
}

struct rs_engine *only_engine(struct rank *self, const char *name)
{
    for (size_t i = 0; rsched_engine_at(i) != NULL; i++) {
        if (strcmp(rsched_engine_at(i)->name, name) == 0)
            return &self->context->engines[i];
    }
    return NULL;
}

int only_for_verbs(struct rank *self)
{
    struct rs_engine *verbs = only_engine(self, "verbs");

    RANK_CHECK(verbs != NULL);
    if (verbs->ops != NULL)
        verbs->ops->close(verbs->engine);
    return open_interpreter(self, verbs, NULL);
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

unsigned only_rails(const struct halo *h)
{
    unsigned rails = 0;

    for (uint32_t i = 0; i < h->x->num_out; i++)
        rails |= 1u << h->x->out[i].rail;
    for (uint32_t i = 0; i < h->x->num_in; i++)
        rails |= 1u << h->x->in[i].rail;
    return rails;
}

uint32_t only_link(const struct rsched_lane *lane)
{
    const struct rs_rdma_lane *l = (const struct rs_rdma_lane *)lane;

    return (uint32_t)(l->link - lane->connection->links);
}

unsigned only_links(const struct halo *h)
{
    unsigned links = 0;

    for (uint32_t i = 0; i < h->x->num_out; i++)
        links |= 1u << only_link(h->x->out[i].lane);
    for (uint32_t i = 0; i < h->x->num_in; i++)
        links |= 1u << only_link(h->x->in[i].lane);
    return links;
}
