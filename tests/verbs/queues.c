/* SPDX-License-Identifier: BSD-3-Clause */
/* What queue pairs a process has, and in which order they carry what was
 * planned: over the interpreter. There is no thread that could post meanwhile. */
#include <stdio.h>
#include <string.h>

#include "librsched/run/run.h"
#include "tests/runtime/halo.h"
#include "tests/verbs/interpreter.h"
#include "tests/verbs/only.h"

enum { RAILS = 2, NEIGHBORS = 2, EXCHANGES = 3, FEW = 3, MANY = 12, PUTS = 10 };

/* ---- how many ---- */

/* What the registered memory of one process comes to, among few and many. */
static uint64_t bytes_among[MANY + 1];

/* Each rank has puts, some of them long, for both neighbors in a ring. */
static int make_ring(int num_ranks, struct halo_edge *edges)
{
    int n = 0;

    for (int rank = 0; rank < num_ranks; rank++) {
        int right = (rank + 1) % num_ranks;

        for (int i = 0; i < RAILS; i++) {
            edges[n++] = (struct halo_edge){rank, right, 100};
            edges[n++] = (struct halo_edge){rank, right, 100000};
            edges[n++] = (struct halo_edge){right, rank, 3000};
            edges[n++] = (struct halo_edge){right, rank, 100000};
        }
    }
    return n;
}

static int run_ring(struct rank *self)
{
    struct halo_edge edges[4 * RAILS * MANY];
    int n = make_ring(self->num_ranks, edges);
    const struct rs_engine *engine = &self->context->engines[0];
    uint64_t before = interpreter_counts().queues;
    struct halo *h[EXCHANGES];

    mesh_barrier(self->end);
    RANK_CHECK(only_interpreter(self, NULL) == 0);
    for (int i = 0; i < EXCHANGES; i++) {
        RANK_CHECK(halo_create(self, edges, n, (uint64_t)i, 0, &h[i]) == 0);
        RANK_CHECK(h[i]->x->num_out == NEIGHBORS * RAILS);
    }
    for (int i = 0; i < EXCHANGES; i++)
        RANK_CHECK(only_epochs(self, h[i], 0) == 0);
    RANK_CHECK(only_connections(self) == NEIGHBORS);
    mesh_barrier(self->end);
    if (self->rank == 0) {
        RANK_CHECK(interpreter_counts().queues - before ==
                   (uint64_t)self->num_ranks * NEIGHBORS * RAILS);
        bytes_among[self->num_ranks] = engine->ops->memory(engine->engine);
    }
    mesh_barrier(self->end);
    for (int i = 0; i < EXCHANGES; i++)
        halo_destroy(h[i]);
    return 0;
}

/* ---- in which order ---- */

/* What rank 1 receives into, and the receives that the devices wrote, by rail;
 * the rails in the order of their first writes. Ranks are threads. */
static void *const *targets;
static struct {
    uint32_t receives[RAILS][PUTS], count[RAILS];
    unsigned rails[RAILS], num_rails;
} written;

/* Other writes are those of words. */
static void watch(unsigned rail, uint64_t remote)
{
    for (uint32_t i = 0; i < PUTS; i++) {
        if ((uintptr_t)targets[i] != remote)
            continue;
        if (written.count[rail] == 0)
            written.rails[written.num_rails++] = rail;
        written.receives[rail][written.count[rail]++] = i;
    }
}

/* That the writes of each rail were those of its lane, in its order; the k-th
 * put to a process is its k-th receive. */
static int check_order(struct rank *self, const struct rsched_exchange *x)
{
    for (uint32_t i = 0; i < RAILS; i++) {
        const struct rs_edge *e = &x->out[i];

        RANK_CHECK(written.rails[i] == e->rail);
        RANK_CHECK(written.count[e->rail] == e->num_order);
        RANK_CHECK(memcmp(written.receives[e->rail], e->order,
                          e->num_order * sizeof(*e->order)) == 0);
    }
    return 0;
}

/* Rank 0 sends, which posts all of it at once: one list, one doorbell and one
 * completion for each rail. */
static int send_planned(struct rank *self, struct halo *h)
{
    struct interpreter_counts before = interpreter_counts(), after;

    memset(&written, 0, sizeof(written));
    interpreter_watch(watch);
    RANK_CHECK(rsched_exchange_start(h->x) == 0);
    interpreter_watch(NULL);
    after = interpreter_counts();
    RANK_CHECK(after.rings - before.rings == RAILS);
    RANK_CHECK(after.signals - before.signals == RAILS);
    RANK_CHECK(after.requests - before.requests == PUTS + RAILS);
    return check_order(self, h->x);
}

static int run_planned(struct rank *self)
{
    struct halo_edge edges[PUTS];
    struct halo *h;

    /* Neither in the order of their lengths nor against it. */
    for (int i = 0; i < PUTS; i++)
        edges[i] = (struct halo_edge){0, 1, 70000 + 10000u * (i * 7 % PUTS)};
    RANK_CHECK(only_interpreter(self, NULL) == 0);
    RANK_CHECK(halo_create(self, edges, PUTS, 1, 0, &h) == 0);
    for (int epoch = 0; epoch < ONLY_EPOCHS; epoch++) {
        halo_fill(h, epoch);
        if (self->rank == 1) {
            targets = h->receive;
            RANK_CHECK(rsched_exchange_start(h->x) == 0);
        }
        mesh_barrier(self->end);
        if (self->rank == 0) {
            RANK_CHECK(h->x->num_out == RAILS);
            RANK_CHECK(send_planned(self, h) == 0);
        }
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        RANK_CHECK(halo_wrong(h, epoch) == 0);
        mesh_barrier(self->end);
    }
    halo_destroy(h);
    return 0;
}

int main(void)
{
    if (ranks_run(FEW, true, run_ring, NULL) != 0 ||
        ranks_run(MANY, true, run_ring, NULL) != 0 ||
        ranks_run(2, true, run_planned, NULL) != 0)
        return 1;
    if (bytes_among[FEW] == 0 || bytes_among[FEW] != bytes_among[MANY]) {
        printf("FAILED: %llu bytes among %d processes, %llu among %d\n",
               (unsigned long long)bytes_among[FEW], FEW,
               (unsigned long long)bytes_among[MANY], MANY);
        return 1;
    }
    return 0;
}
