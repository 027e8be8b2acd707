/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether waits know that processes outnumber cores, where those have nothing but
 * persistent messages, which tell nobody on which cores the others are.
 *
 *     bound CORES:CROWDED ...   for each rank: the digits of the cores that it binds
 *                               itself to before MPI_Init, none: it stays where the
 *                               launcher has put it; 1: it is crowded
 */
#include <sched.h>

#include "librsched/base/quota.h"
#include "tests/mpi/hope.h"
#include "tests/mpi/launched.h"

static int messages[2];
static MPI_Request requests[2];

static int skip(const char *why)
{
    printf("SKIP: %s\n", why);
    return SKIP;
}

/* @return -1: there are not so many */
static int nth_core(const cpu_set_t *cores, int n)
{
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, cores) && n-- == 0)
            return core;
    }
    return -1;
}

static bool bind_to(const char *digits)
{
    cpu_set_t allowed, mine;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return false;
    CPU_ZERO(&mine);
    for (; *digits != ':'; digits++) {
        int core = nth_core(&allowed, *digits - '0');

        if (core < 0)
            return false;
        CPU_SET(core, &mine);
    }
    return sched_setaffinity(0, sizeof(mine), &mine) == 0;
}

/* Whether a launcher that was asked to bind each rank to a core has done so. */
static bool are_bound_apart(void)
{
    int core = -1, cores[2];
    cpu_set_t own;

    if (sched_getaffinity(0, sizeof(own), &own) == 0 && CPU_COUNT(&own) == 1)
        core = nth_core(&own, 0);
    PMPI_Allgather(&core, 1, MPI_INT, cores, 1, MPI_INT, MPI_COMM_WORLD);
    return cores[0] >= 0 && cores[1] >= 0 && cores[0] != cores[1];
}

/* Whether there may be such as are not crowded: not where all share a quota that is less
 * than a core for each, as in a container, whatever cores they are bound to. */
static bool have_time(void)
{
    struct rs_quotas quotas;

    rs_quotas_find(&quotas);
    for (int i = 0; i < RS_QUOTAS; i++) {
        if (quotas.of[i].group != 0 && quotas.of[i].cores < (uint64_t)world_size)
            return false;
    }
    return true;
}

static bool all_do(bool does)
{
    PMPI_Allreduce(MPI_IN_PLACE, &does, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
    return does;
}

static void exchange(void)
{
    struct hope hope = {0};
    uint64_t before;

    do {
        before = counter("lane_receives");
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        go_on(&hope, "a ring");
    } while (!all_have(&hope, counter("lane_receives") > before));
}

static void make_ring(void)
{
    MPI_Send_init(&messages[0], 1, MPI_INT, (world_rank + 1) % world_size, 0,
                  MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(&messages[1], 1, MPI_INT,
                  (world_rank + world_size - 1) % world_size, 0, MPI_COMM_WORLD,
                  &requests[1]);
}

static void free_ring(void)
{
    for (int i = 0; i < 2; i++)
        MPI_Request_free(&requests[i]);
}

int main(int argc, char **argv)
{
    const char *rank = launched_rank(), *place;
    bool possible, timely, crowded;

    if (rank == NULL || atoi(rank) + 1 >= argc)
        return skip("the launcher does not tell ranks");
    place = argv[atoi(rank) + 1];
    possible = *place == ':' || bind_to(place);
    test_init(&argc, &argv, false);
    crowded = strcmp(strchr(place, ':'), ":1") == 0;
    possible = all_do(*place != ':' ? possible : are_bound_apart());
    timely = all_do(crowded || have_time());
    if (!possible || !timely) {
        MPI_Finalize();
        return skip(timely ? "processes cannot be bound to these cores"
                           : "a quota of processor time is less than a core for each process");
    }
    make_ring();
    exchange();
    CHECK(counter("crowded") == crowded,
          "%" PRIu64 " of %s", counter("crowded"), place);
    free_ring();
    return test_fini("bound");
}
