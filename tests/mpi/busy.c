/* SPDX-License-Identifier: BSD-3-Clause */
/* The first process completes what the third one sends, in calls that never find
 * anything to wait for. It ends when the third one says so, and that when the second
 * one has received, plainly, what the first one has started: which must see that
 * an incarnation has ended. Or it calls MPI_Win_sync only, until the second one has
 * received.
 *
 * busy [--native] */
#include "tests/mpi/flags.h"
#include "tests/mpi/hope.h"

enum { BUSY, TAKER, GIVER };
enum { PUT, TAKEN, READY, GIVEN }; /* flags */
enum { TO_TAKER = 11, FROM_GIVER = 12 };
enum { MOST_ROUNDS = 20000 };

typedef void complete_function(MPI_Request *request);

static void by_Wait(MPI_Request *request)
{
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

static void by_Waitall(MPI_Request *request)
{
    MPI_Waitall(1, request, MPI_STATUSES_IGNORE);
}

static void by_Test(MPI_Request *request)
{
    for (int flag = 0; !flag;)
        MPI_Test(request, &flag, MPI_STATUS_IGNORE);
}

static void by_Waitany(MPI_Request *request)
{
    int index;

    MPI_Waitany(1, request, &index, MPI_STATUS_IGNORE);
}

static void by_Testall(MPI_Request *request)
{
    for (int flag = 0; !flag;)
        MPI_Testall(1, request, &flag, MPI_STATUSES_IGNORE);
}

static void by_Testany(MPI_Request *request)
{
    for (int flag = 0, index; !flag;)
        MPI_Testany(1, request, &index, &flag, MPI_STATUS_IGNORE);
}

static void by_Waitsome(MPI_Request *request)
{
    int num, index;

    MPI_Waitsome(1, request, &num, &index, MPI_STATUSES_IGNORE);
}

static void by_Testsome(MPI_Request *request)
{
    for (int num = 0, index; num == 0;)
        MPI_Testsome(1, request, &num, &index, MPI_STATUSES_IGNORE);
}

static const struct {
    const char *name;
    complete_function *complete;
} families[] = {
    {"Wait", by_Wait},
    {"Waitall", by_Waitall},
    {"Test", by_Test},
    {"Testall", by_Testall},
    {"Waitany", by_Waitany},
    {"Testany", by_Testany},
    {"Waitsome", by_Waitsome},
    {"Testsome", by_Testsome},
    {"Win_sync", NULL}, /* completes nothing */
};

static MPI_Comm comm;
static MPI_Request to_taker, from_giver;
static int number, last, sequence;
static int given; /* messages of the giver */

static void make(void)
{
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    to_taker = from_giver = MPI_REQUEST_NULL;
    if (world_rank == BUSY) {
        MPI_Send_init(&number, 1, MPI_INT, TAKER, TO_TAKER, comm, &to_taker);
        MPI_Recv_init(&last, 1, MPI_INT, GIVER, FROM_GIVER, comm, &from_giver);
    } else if (world_rank == TAKER) {
        MPI_Recv_init(&number, 1, MPI_INT, BUSY, TO_TAKER, comm, &to_taker);
    } else {
        MPI_Send_init(&last, 1, MPI_INT, BUSY, FROM_GIVER, comm, &from_giver);
    }
}

static void both(void)
{
    MPI_Request requests[2] = {to_taker, from_giver};

    for (int i = 0; i < 2; i++) {
        if (requests[i] != MPI_REQUEST_NULL)
            MPI_Start(&requests[i]);
    }
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void open_lanes(void)
{
    for (struct hope hope = {0};;) {
        uint64_t before = counter("lane_sends") + counter("lane_receives");
        int expected = world_rank == BUSY ? 2 : 1;

        both();
        if (all_have(&hope, !is_accelerated() ||
                                counter("lane_sends") +
                                        counter("lane_receives") ==
                                    before + (uint64_t)expected))
            return;
        go_on(&hope, "no incarnation");
    }
}

/* Returns whether the message to the taker was put into a lane. */
static bool be_busy(const char *name, complete_function *complete)
{
    uint64_t before = counter("lane_sends");
    bool put;

    MPI_Start(&to_taker);
    put = counter("lane_sends") > before;
    flag_raise(PUT, sequence);
    for (int round = 0; last != sequence; round++) {
        CHECK(round < MOST_ROUNDS, "%s: the taker has got nothing", name);
        MPI_Start(&from_giver);
        flag_raise(READY, ++given);
        flag_await(GIVEN, given);
        complete(&from_giver);
    }
    MPI_Wait(&to_taker, MPI_STATUS_IGNORE);
    return put;
}

static void sync_window(void)
{
    MPI_Win_sync(flags_window);
}

/* The same of a process that calls nothing but MPI_Win_sync meanwhile. */
static bool be_syncing(void)
{
    uint64_t before = counter("lane_sends");
    bool put;

    MPI_Win_lock_all(MPI_MODE_NOCHECK, flags_window);
    MPI_Start(&to_taker);
    put = counter("lane_sends") > before;
    flag_raise(PUT, sequence);
    flag_await_by(TAKEN, sequence, sync_window);
    MPI_Wait(&to_taker, MPI_STATUS_IGNORE);
    MPI_Win_unlock_all(flags_window);
    return put;
}

static void take(void)
{
    flag_await(PUT, sequence);
    MPI_Recv(&number, 1, MPI_INT, BUSY, TO_TAKER, comm, MPI_STATUS_IGNORE);
    flag_raise(TAKEN, sequence);
}

static void give(void)
{
    bool taken;

    do {
        flag_await(READY, ++given);
        taken = atomic_load(&flags[TAKEN]) >= sequence;
        last = taken ? sequence : -1;
        MPI_Start(&from_giver);
        flag_raise(GIVEN, given);
        MPI_Wait(&from_giver, MPI_STATUS_IGNORE);
    } while (!taken);
}

static bool run(const char *name, complete_function *complete)
{
    bool good = true;

    make();
    open_lanes();
    sequence++;
    if (world_rank == BUSY)
        good = (complete != NULL ? be_busy(name, complete) : be_syncing()) ||
               !is_accelerated();
    else if (world_rank == TAKER)
        take();
    else if (complete != NULL)
        give();
    if (to_taker != MPI_REQUEST_NULL)
        MPI_Request_free(&to_taker);
    if (from_giver != MPI_REQUEST_NULL)
        MPI_Request_free(&from_giver);
    MPI_Comm_free(&comm);
    return good;
}

int main(int argc, char **argv)
{
    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    flags_init();
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        struct hope hope = {0};

        while (!all_have(&hope, run(families[i].name, families[i].complete)))
            go_on(&hope, families[i].name);
    }
    flags_fini();
    return test_fini("busy");
}
