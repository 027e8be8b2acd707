/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs that have a receive of a pair posted whenever another one starts, so that it
 * never opens (O2 of docs/persistent.md): attempts become rare, and the short sends that
 * they make synchronous (O1), which a stand-in counts (refusing.c). What goes better later
 * is found. */
#include "tests/mpi/lanes.h"

extern int synchronous_sends;
#pragma weak synchronous_sends

/* One in so many sends may be synchronous. */
enum { STEPS = 2000, RARE = 8, STANDING = 99, EARLIER = 20 };

static MPI_Request next_receives[TAGS];
static int next_got[TAGS];

/* The next receives are started before the current ones are complete. */
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

/* On tags of its own, one receive stays posted; then it is complete. */
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
    MPI_Start(&seldom[1]);
    MPI_Waitall(2, seldom, MPI_STATUSES_IGNORE);
    promote();
    lanes_fini();
    MPI_Request_free(&seldom[0]);
    MPI_Request_free(&seldom[1]);
}

int main(int argc, char **argv)
{
    test_init(&argc, &argv, false);
    uses_lanes = true;
    double_buffered();
    standing_receive();
    return test_fini("posted");
}
