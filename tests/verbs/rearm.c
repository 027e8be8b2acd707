/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections that fail and are replaced: exchanges over the interpreter, whose
 * wires are cut and joined again. The ranks are threads. */
#include <stdio.h>
#include <string.h>

#include "librsched/run/run.h"
#include "tests/conformance/node.h"
#include "tests/runtime/halo.h"
#include "tests/verbs/interpreter.h"

/* Landing in one chunk and in several, and direct; both ways. */
static const struct halo_edge edges[] = {
    {0, 1, 100},    {1, 0, 5000},   {0, 1, 0},
    {0, 1, 500000}, {1, 0, 500000}, {1, 0, 8},
};

enum { NUM_EDGES = sizeof(edges) / sizeof(edges[0]), EPOCHS = 4 };

/* The interpreter, and no other engine. */
static int use_interpreter(struct rank *self)
{
    struct rs_engine *engines = self->context->engines;
    struct rsched_engine_env env = {.process = self->rank,
                                    .job = 1,
                                    .chunk_bytes = 65536,
                                    .ring_bytes = 524288};

    for (int i = 0; i < RSCHED_MAX_ENGINES; i++) {
        if (engines[i].ops != NULL)
            engines[i].ops->close(engines[i].engine);
        engines[i].ops = NULL;
    }
    engines[0].ops = node_engine_at(0);
    return engines[0].ops->open(&env, &engines[0].engine);
}

static int create(struct rank *self, uint64_t tag, struct halo **h)
{
    return halo_create(self, edges, NUM_EDGES, tag, 0, h);
}

static int run_epochs(struct rank *self, struct halo *h, int first)
{
    for (int epoch = first; epoch < first + EPOCHS; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    return 0;
}

/* Rank 0 does something to the wires between two meetings. */
static void set_wires(struct rank *self, bool cut)
{
    mesh_barrier(self->end);
    if (self->rank == 0)
        interpreter_cut(cut);
    mesh_barrier(self->end);
}

/* The error says what failed, and stays. */
static int fails(struct rank *self, struct halo *h)
{
    char peer[32];

    snprintf(peer, sizeof(peer), "to peer %d: nobody answers", 1 - self->rank);
    RANK_CHECK(halo_step(h, 0) == RSCHED_EPEER);
    RANK_CHECK(strstr(rsched_last_error(), "interpreter interpreter: qp 0x") !=
               NULL);
    RANK_CHECK(strstr(rsched_last_error(), peer) != NULL);
    RANK_CHECK(rsched_exchange_start(h->x) == RSCHED_EPEER);
    return 0;
}

static int count_connections(const struct rank *self)
{
    int count = 0;

    for (struct rs_peer *p = self->context->peers; p != NULL; p = p->next)
        count++;
    return count;
}

static int check_life(struct rank *self, const struct halo *h, uint32_t life)
{
    for (uint32_t i = 0; i < h->x->num_out; i++)
        RANK_CHECK(h->x->out[i].peer->life == life);
    for (uint32_t i = 0; i < h->x->num_in; i++)
        RANK_CHECK(h->x->in[i].peer->life == life);
    return 0;
}

/* Both know of the failure. */
static int run_both(struct rank *self)
{
    struct halo *old, *during, *after;

    RANK_CHECK(use_interpreter(self) == 0);
    RANK_CHECK(create(self, 1, &old) == 0);
    RANK_CHECK(run_epochs(self, old, 0) == 0);
    set_wires(self, true);
    RANK_CHECK(fails(self, old) == 0);
    /* Whoever tries again too early does so in vain. */
    mesh_barrier(self->end);
    RANK_CHECK(create(self, 2, &during) == 0);
    RANK_CHECK(fails(self, during) == 0);
    halo_destroy(during);
    set_wires(self, false);
    RANK_CHECK(create(self, 3, &after) == 0);
    RANK_CHECK(run_epochs(self, after, 0) == 0);
    RANK_CHECK(check_life(self, after, 2) == 0);
    RANK_CHECK(rsched_exchange_start(old->x) == RSCHED_EPEER);
    RANK_CHECK(count_connections(self) == 2);
    halo_destroy(old);
    RANK_CHECK(count_connections(self) == 1);
    RANK_CHECK(run_epochs(self, after, EPOCHS) == 0);
    mesh_barrier(self->end);
    halo_destroy(after);
    return 0;
}

/* Rank 0 alone was there when it happened. */
static int run_one(struct rank *self)
{
    struct halo *old, *after;

    RANK_CHECK(use_interpreter(self) == 0);
    RANK_CHECK(create(self, 1, &old) == 0);
    RANK_CHECK(run_epochs(self, old, 0) == 0);
    set_wires(self, true);
    if (self->rank == 0)
        RANK_CHECK(fails(self, old) == 0);
    set_wires(self, false);
    RANK_CHECK(create(self, 2, &after) == 0);
    RANK_CHECK(check_life(self, after, 1) == 0);
    RANK_CHECK(run_epochs(self, after, 0) == 0);
    /* The other one learns of it when it uses what has failed. */
    RANK_CHECK(halo_step(old, EPOCHS) == RSCHED_EPEER);
    RANK_CHECK(run_epochs(self, after, EPOCHS) == 0);
    mesh_barrier(self->end);
    halo_destroy(old);
    halo_destroy(after);
    RANK_CHECK(count_connections(self) == 1);
    return 0;
}

int main(void)
{
    int failed = 0;

    if (ranks_run(2, true, run_both, NULL) != 0)
        failed = puts("FAILED: both");
    if (ranks_run(2, true, run_one, NULL) != 0)
        failed = puts("FAILED: one");
    return failed != 0;
}
