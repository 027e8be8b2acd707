/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs of cores on machines that hwloc makes up. */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "librsched/base/numa.h"

static bool refused; /* to say which cores a thread may use */
static unsigned asked;

/* Comes before the C library's. */
__attribute__((visibility("default"))) int
sched_getaffinity(pid_t pid, size_t size, cpu_set_t *cores)
{
    enum { MOST_ASKED = 100 };
    long bytes;

    if (refused) {
        if (++asked > MOST_ASKED) {
            fprintf(stderr, "asked %u times in vain\n", asked);
            abort();
        }
        errno = EPERM;
        return -1;
    }
    bytes = syscall(SYS_sched_getaffinity, pid, size, cores);
    if (bytes < 0)
        return -1;
    memset((char *)cores + bytes, 0, size - (size_t)bytes);
    return 0;
}

#define SAME RS_DISTANCE_SAME_NUMA
#define OTHER RS_DISTANCE_OTHER_NUMA

struct machine {
    const char *synthetic;
    size_t num_pairs;
    struct rs_numa_pair pairs[RS_NUM_HOST_DISTANCES];
};

static const struct machine machines[] = {
    {"pu:2", 1, {{{0, 1}, SAME}}},
    {"numa:1 core:4 pu:1", 1, {{{0, 3}, SAME}}},
    {"numa:2 pu:1", 1, {{{0, 1}, OTHER}}},
    {"numa:2 core:2 pu:1", 2, {{{0, 1}, SAME}, {{0, 3}, OTHER}}},
    {"numa:4 core:2 pu:2", 2, {{{0, 3}, SAME}, {{0, 15}, OTHER}}},
    /* hardware threads that the system has numbered in two rounds (hwloc 2.9.0 does
     * not always understand `core:pu`: that depends on what is behind it in memory) */
    {"numa:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)", 2,
     {{{0, 5}, SAME}, {{0, 7}, OTHER}}},
    /* of one core alone */
    {"numa:1 core:1 pu:2", 1, {{{0, 1}, SAME}}},
    {"numa:2 core:1 pu:2", 2, {{{0, 1}, SAME}, {{0, 3}, OTHER}}},
    /* two memories beside the same cores: the first is theirs */
    {"[numa] [numa] pu:2", 1, {{{0, 1}, SAME}}},
    /* one more beside all of them */
    {"[numa] pack:2 [numa] core:2 pu:1", 2, {{{0, 1}, SAME}, {{0, 3}, OTHER}}},
};

/* Where a thread is that may use all cores of a machine. */
static const struct {
    const char *synthetic;
    int node;
} wholes[] = {
    {"pu:2", 0},
    {"[numa] [numa] pu:2", 0},
    {"pack:2 [numa] core:1 pu:1", RS_NUMA_UNKNOWN},
    {"[numa] pack:2 [numa] core:1 pu:1", RS_NUMA_UNKNOWN},
    {"[numa] pack:2 [numa] [numa] core:1 pu:1", RS_NUMA_UNKNOWN},
    /* the same cores: the first */
    {"[numa] pack:1 [numa] core:2 pu:1", 0},
};

Test(numa, pairs_of_cores)
{
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        const struct machine *m = &machines[i];
        struct rs_numa_pair pairs[RS_NUM_HOST_DISTANCES];
        size_t count;

        setenv("HWLOC_SYNTHETIC", m->synthetic, 1);
        count = rs_numa_pairs(pairs);
#ifndef RSCHED_HWLOC
        cr_assert(count <= 1);
        cr_assert(count == 0 || pairs[0].distance == OTHER);
        continue;
#endif
        cr_assert_eq(count, m->num_pairs, "%s: %zu pairs", m->synthetic, count);
        for (size_t k = 0; k < count; k++) {
            const struct rs_numa_pair *p = &pairs[k], *q = &m->pairs[k];

            cr_assert(p->cores[0] == q->cores[0] && p->cores[1] == q->cores[1] &&
                          p->distance == q->distance,
                      "%s: cores %d and %d, %s", m->synthetic, p->cores[0],
                      p->cores[1], rs_distance_name(p->distance));
        }
    }
}

Test(numa, node_of_all_cores)
{
    for (size_t i = 0; i < sizeof(wholes) / sizeof(wholes[0]); i++) {
        int node;

        setenv("HWLOC_SYNTHETIC", wholes[i].synthetic, 1);
        node = rs_numa_node(NULL);
#ifndef RSCHED_HWLOC
        cr_assert_eq(node, RS_NUMA_UNKNOWN);
        continue;
#endif
        cr_assert_eq(node, wholes[i].node, "%s: node %d", wholes[i].synthetic,
                     node);
    }
}

/* As by filters for system calls (seccomp): nothing is known then, and nobody waits. */
Test(numa, where_cores_are_not_told)
{
    struct rs_numa_pair pairs[RS_NUM_HOST_DISTANCES];
    unsigned nodes = 7;

    refused = true;
    cr_assert_eq(rs_numa_node(&nodes), RS_NUMA_UNKNOWN);
    cr_assert_eq(nodes, 0);
    cr_assert_eq(rs_numa_pairs(pairs), 0);
    cr_assert_eq(rs_numa_kept_cache(), 0);
    cr_assert_gt(asked, 0);
}
