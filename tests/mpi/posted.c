/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs to which attempts to open a pair are of no use (T4 of docs/persistent.md). They
 * become rare, and the short sends that they make synchronous (O1), which a stand-in counts
 * (refusing.c). What goes better later is found. */
#include <time.h>

#include "tests/mpi/lanes.h"

extern int synchronous_sends;
#pragma weak synchronous_sends

/* One in so many sends may be synchronous. */
enum { STEPS = 2000, RARE = 8, STANDING = 99, EARLIER = 20, ROUNDS = 400, BURST = 20 };

static MPI_Request next_receives[TAGS];
static int next_got[TAGS];

/* A receive is posted whenever another one starts (O2): the next receives are started before
 * the current ones are complete. */
static void double_buffered_step(int number)
{
    MPI_Request *current = number % 2 == 0 ? receives : next_receives;
    const int *in = number % 2 == 0 ? got : next_got;

    MPI_Startall(TAGS, number % 2 == 0 ? next_receives : receives);
    for (int tag = 0; tag < TAGS; tag++)
        sent[tag] = number * TAGS + tag;
    MPI_Startall(TAGS, sends);
    MPI_Waitall(TAGS, current, MPI_STATUSES_IGNORE);
    MPI_Waitall(TAGS, sends, MPI_STATUSES_IGNORE);
    for (int tag = 0; tag < TAGS; tag++)
        CHECK(in[tag] == number * TAGS + tag, "step %d, tag %d: %d", number, tag, in[tag]);
}

static void are_rare(int before)
{
    CHECK(synchronous_sends - before < STEPS * TAGS / RARE,
          "%d of %d sends are synchronous", synchronous_sends - before, STEPS * TAGS);
}

static void are_posted(const char *name, uint64_t least)
{
    CHECK(counter(name) >= least, "%" PRIu64 " are %s", counter(name), name);
}

static void double_buffered(void)
{
    int before = synchronous_sends;

    lanes_init();
    for (int tag = 0; tag < TAGS; tag++)
        MPI_Recv_init(&next_got[tag], 1, MPI_INT, left, tag, MPI_COMM_WORLD,
                      &next_receives[tag]);
    MPI_Startall(TAGS, receives);
    for (int number = 0; number < STEPS; number++)
        double_buffered_step(number);
    MPI_Startall(TAGS, sends);
    MPI_Waitall(TAGS, sends, MPI_STATUSES_IGNORE);
    MPI_Waitall(TAGS, receives, MPI_STATUSES_IGNORE);
    are_rare(before);
    for (int tag = 0; tag < TAGS; tag++)
        MPI_Request_free(&next_receives[tag]);
    lanes_fini();
    CHECK(counter("incarnations") == 0, "%" PRIu64 " incarnations", counter("incarnations"));
    are_posted("send_init.native.posted", TAGS);
    are_posted("recv_init.native.posted", 2 * TAGS);
}

/* One receive, of a tag of its own, stays posted for long: the others get on without it (N3).
 * Then it is complete. */
static void standing_receive(void)
{
    int in, out = 0, flag, before;
    MPI_Request seldom[2];

    lanes_init();
    MPI_Recv_init(&in, 1, MPI_INT, left, STANDING, MPI_COMM_WORLD, &seldom[0]);
    MPI_Send_init(&out, 1, MPI_INT, right, STANDING, MPI_COMM_WORLD, &seldom[1]);
    for (int i = 0; i < EARLIER; i++) {
        MPI_Startall(2, seldom);
        MPI_Waitall(2, seldom, MPI_STATUSES_IGNORE);
    }
    promote();
    MPI_Start(&seldom[0]);
    MPI_Iprobe(left, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    before = synchronous_sends;
    for (int i = 0; i < STEPS; i++) {
        start_all();
        finish_all();
    }
    are_rare(before);
    promote();
    MPI_Start(&seldom[1]);
    MPI_Waitall(2, seldom, MPI_STATUSES_IGNORE);
    promote();
    lanes_fini();
    MPI_Request_free(&seldom[0]);
    MPI_Request_free(&seldom[1]);
}

/* Short messages go to a receiver that is late each time, and nothing comes from there: their
 * sender is not to wait for it, which natively it would not. */
static void late_receiver(void)
{
    uint64_t before = counter("lane_sends"), carried;
    MPI_Request request;

    if (world_rank == 0)
        MPI_Send_init(&sent[0], 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
    else
        MPI_Recv_init(&got[0], 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &request);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (world_rank == 1)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        for (int i = 0; i < BURST; i++) {
            sent[0] = round * BURST + i;
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            CHECK(world_rank == 0 || got[0] == round * BURST + i, "round %d, %d: %d", round,
                  i, got[0]);
        }
    }
    MPI_Request_free(&request);
    carried = counter("lane_sends") - before;
    CHECK(counter("crowded") > 0 || carried < ROUNDS * BURST / 2, "%" PRIu64 " waited for",
          carried);
}

int main(int argc, char **argv)
{
    test_init(&argc, &argv, false);
    uses_lanes = true;
    double_buffered();
    standing_receive();
    late_receiver();
    return test_fini("posted");
}
