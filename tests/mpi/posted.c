/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs to which attempts to open a pair are of no use (T4 of docs/persistent.md). They
 * become rare, and the short sends that they make synchronous (O1), which a stand-in counts
 * (refusing.c). What goes better later is found. */
#include <time.h>

#include "tests/mpi/lanes.h"

extern int synchronous_sends;
#pragma weak synchronous_sends

/* One in so many sends may be synchronous. */
enum { STEPS = 2000, RARE = 8, STANDING = 99, EARLIER = 20, ROUNDS = 400, BURST = 20, ROUND = 1000 };

static MPI_Request next_receives[TAGS], next_sends[TAGS];
static int next_got[TAGS], next_sent[TAGS];

static void are_rare(int before)
{
    CHECK(synchronous_sends - before < STEPS * TAGS / RARE,
          "%d of %d sends are synchronous", synchronous_sends - before, STEPS * TAGS);
}

static void are_posted(const char *name, uint64_t least)
{
    CHECK(counter(name) >= least, "%" PRIu64 " are %s", counter(name), name);
}

/* The next receives are started before the current ones are complete, so one is posted whenever
 * another one starts (O2). */
static void double_buffered_step(int number)
{
    bool even = number % 2 == 0;
    const int *in = even ? got : next_got;

    MPI_Startall(TAGS, even ? next_receives : receives);
    for (int tag = 0; tag < TAGS; tag++)
        sent[tag] = number * TAGS + tag;
    MPI_Startall(TAGS, sends);
    MPI_Waitall(TAGS, even ? receives : next_receives, MPI_STATUSES_IGNORE);
    MPI_Waitall(TAGS, sends, MPI_STATUSES_IGNORE);
    for (int tag = 0; tag < TAGS; tag++)
        CHECK(in[tag] == number * TAGS + tag, "step %d, tag %d: %d", number, tag, in[tag]);
}

/* R0: they wait for the sender instead of being posted, once what is posted is to be over. The
 * end of a round stops the incarnation (N4). */
static void double_buffered(void)
{
    struct hope hope = {0};
    uint64_t s, r;
    int number = 0;

    lanes_init();
    for (int tag = 0; tag < TAGS; tag++)
        MPI_Recv_init(&next_got[tag], 1, MPI_INT, left, tag, MPI_COMM_WORLD,
                      &next_receives[tag]);
    MPI_Startall(TAGS, receives);
    do {
        CHECK(number < ROUNDS * ROUND, "no incarnation");
        s = counter("lane_sends");
        r = counter("lane_receives");
        for (int i = 0; i < ROUND; i++)
            double_buffered_step(number++);
    } while (!all_have(&hope, counter("lane_sends") - s > ROUND * TAGS / 2 &&
                                  counter("lane_receives") - r > ROUND * TAGS / 2));
    MPI_Startall(TAGS, sends);
    MPI_Waitall(TAGS, sends, MPI_STATUSES_IGNORE);
    MPI_Waitall(TAGS, receives, MPI_STATUSES_IGNORE);
    for (int tag = 0; tag < TAGS; tag++)
        MPI_Request_free(&next_receives[tag]);
    lanes_fini();
}

/* A message is under way whenever another one starts (O1). */
static void ahead(void)
{
    uint64_t before = counter("lane_sends");
    int synchronous = synchronous_sends;

    lanes_init();
    for (int tag = 0; tag < TAGS; tag++)
        MPI_Send_init(&next_sent[tag], 1, MPI_INT, right, tag, MPI_COMM_WORLD,
                      &next_sends[tag]);
    MPI_Startall(TAGS, sends);
    for (int number = 1; number < STEPS; number++) {
        bool even = number % 2 == 0;

        MPI_Barrier(MPI_COMM_WORLD);
        for (int tag = 0; tag < TAGS; tag++)
            *(even ? &sent[tag] : &next_sent[tag]) = number;
        MPI_Startall(TAGS, even ? sends : next_sends);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Startall(TAGS, receives);
        MPI_Waitall(TAGS, receives, MPI_STATUSES_IGNORE);
        MPI_Waitall(TAGS, even ? next_sends : sends, MPI_STATUSES_IGNORE);
    }
    MPI_Startall(TAGS, receives);
    MPI_Waitall(TAGS, receives, MPI_STATUSES_IGNORE);
    for (int tag = 0; tag < TAGS; tag++)
        CHECK(got[tag] == STEPS - 1, "tag %d: %d", tag, got[tag]);
    MPI_Waitall(TAGS, STEPS % 2 == 0 ? next_sends : sends, MPI_STATUSES_IGNORE);
    are_rare(synchronous);
    for (int tag = 0; tag < TAGS; tag++)
        MPI_Request_free(&next_sends[tag]);
    lanes_fini();
    CHECK(counter("lane_sends") == before, "%" PRIu64 " through lanes",
          counter("lane_sends") - before);
    are_posted("send_init.native.posted", 2 * TAGS);
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
    ahead();
    double_buffered();
    standing_receive();
    late_receiver();
    return test_fini("posted");
}
