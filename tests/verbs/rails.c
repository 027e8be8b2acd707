/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes of which each can connect other ones of four rails: over the interpreter.
 * The ranks are threads. */
#include <stdio.h>
#include <string.h>

#include "tests/verbs/interpreter.h"
#include "tests/verbs/only.h"
#include "tests/verbs/warned.h"

enum { RAILS = 4, PUTS = 12, NUM_EDGES = 2 * PUTS, BYTES = 3000, LINE_BYTES = 160 };

/* The rails that either rank cannot connect, as bits. */
struct refusal {
    const char *name;
    unsigned rails[2];
};

static struct refusal refusals[] = {
    {"rank 0 not the first one", {1, 0}},
    {"rank 0 not the first one, rank 1 not the second", {1, 2}},
    {"rank 0 not the last two, rank 1 not the first", {12, 1}},
    {"rank 0 all of them, rank 1 only the third", {0, 11}},
    {"each not two, of which one is the same", {3, 6}},
};

static bool has(unsigned rails, uint32_t rail)
{
    return (rails >> rail & 1) != 0;
}

/* How many warnings say that this rail is left out because of this end, or of the other one. */
static int count_warnings(int rank, uint32_t rail, bool own)
{
    char line[LINE_BYTES];

    snprintf(line, sizeof(line),
             "interpreter interpreter: rail %u to peer %d is left out: %s", rail,
             1 - rank, own ? "interpreter: no route" : "the peer cannot connect it");
    return warned(line);
}

struct warnings {
    int own[RAILS], peers[RAILS];
};

static struct warnings all_warnings(int rank)
{
    struct warnings w;

    for (uint32_t i = 0; i < RAILS; i++) {
        w.own[i] = count_warnings(rank, i, true);
        w.peers[i] = count_warnings(rank, i, false);
    }
    return w;
}

/* Each rail that is left out is told once, by both, with what either knows of it. */
static int check_warnings(struct rank *self, const struct refusal *refusal,
                          const struct warnings *before)
{
    unsigned own = refusal->rails[self->rank], peers = refusal->rails[1 - self->rank];
    struct warnings now = all_warnings(self->rank);

    for (uint32_t i = 0; i < RAILS; i++) {
        RANK_CHECK(now.own[i] - before->own[i] == has(own, i));
        RANK_CHECK(now.peers[i] - before->peers[i] == (has(peers, i) && !has(own, i)));
    }
    return 0;
}

/* Equal puts are divided evenly among the rails that are left. */
static int check_shares(struct rank *self, const struct rs_edge *edges, uint32_t num,
                        unsigned left)
{
    uint32_t puts[RAILS] = {0}, rails = (uint32_t)__builtin_popcount(left);

    for (uint32_t i = 0; i < num; i++)
        puts[only_link(edges[i].lane)] += edges[i].num_order;
    for (uint32_t i = 0; i < RAILS; i++)
        RANK_CHECK(puts[i] == (has(left, i) ? PUTS / rails : 0));
    return 0;
}

static void make_edges(struct halo_edge *edges)
{
    for (int i = 0; i < NUM_EDGES; i++)
        edges[i] = (struct halo_edge){i % 2, 1 - i % 2, BYTES};
}

static int run_different(struct rank *self)
{
    const struct refusal *refusal = self->arg;
    unsigned left = 15 & ~(refusal->rails[0] | refusal->rails[1]);
    struct warnings before = all_warnings(self->rank);
    struct halo_edge edges[NUM_EDGES];
    struct halo *first, *second;

    make_edges(edges);
    RANK_CHECK(only_interpreter(self, NULL) == 0);
    mesh_barrier(self->end);
    interpreter_refuse(refusal->rails[self->rank]);
    RANK_CHECK(halo_create(self, edges, NUM_EDGES, 1, 0, &first) == 0);
    RANK_CHECK(halo_create(self, edges, NUM_EDGES, 2, 0, &second) == 0);
    RANK_CHECK(only_links(first) == left && only_links(second) == left);
    RANK_CHECK(only_rails(first) == left && only_rails(second) == left);
    RANK_CHECK(check_shares(self, first->x->out, first->x->num_out, left) == 0);
    RANK_CHECK(check_shares(self, first->x->in, first->x->num_in, left) == 0);
    RANK_CHECK(check_shares(self, second->x->out, second->x->num_out, left) == 0);
    RANK_CHECK(check_warnings(self, refusal, &before) == 0);
    RANK_CHECK(only_epochs(self, first, 0) == 0);
    RANK_CHECK(only_epochs(self, second, 0) == 0);
    RANK_CHECK(only_life(self, second, 0) == 0);
    RANK_CHECK(only_connections(self) == 1);
    mesh_barrier(self->end);
    halo_destroy(first);
    halo_destroy(second);
    return 0;
}

int main(void)
{
    int failed = 0;

    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        if (ranks_run(2, true, run_different, &refusals[i]) != 0)
            failed = printf("FAILED: %s\n", refusals[i].name);
    }
    return failed != 0;
}
