/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A request that never goes through its lane leaves the pair's other lanes alone, whichever
 * end it is at. Process 0 sends to process 1; the request's start comes first and last.
 *
 * natives --send    a datatype that is not taken apart, at the sender
 * natives --receive at the receiver
 * natives --long    longer than slots may be, and settings leave no other way
 *                   (RSCHED_CMA=0 RSCHED_MAPPED=0)
 */
#include "tests/mpi/hope.h"

enum {
    SHORTS = 4,
    NEVER = SHORTS,
    BLOCKS = 33000, /* more than are taken apart: of one byte, of two, ... */
    LONG = 1 << 20, /* more than RSCHED_CHUNK */
    EARLIER = 30, /* rounds; a lane is offered at the fourth start */
};

static char memory[LONG];
static int numbers[SHORTS];
static bool at_sender, at_receiver;

static MPI_Datatype of_many_runs(void)
{
    static int lengths[BLOCKS], offsets[BLOCKS];
    MPI_Datatype type;

    for (int i = 0; i < BLOCKS; i++) {
        lengths[i] = 1 + i % 2;
        offsets[i] = 4 * i;
    }
    MPI_Type_indexed(BLOCKS, lengths, offsets, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

/* The message that never goes through its lane, or what may: both have its tag. */
static void never_init(MPI_Datatype type, bool never, MPI_Request *request)
{
    int bytes = !at_sender && !at_receiver ? LONG : BLOCKS / 2 * 3, count = bytes;

    if (never && (world_rank == 0 ? at_sender : at_receiver))
        count = 1;
    else
        type = MPI_BYTE;
    if (world_rank == 0)
        MPI_Send_init(memory, count, type, 1, NEVER, MPI_COMM_WORLD, request);
    else
        MPI_Recv_init(memory, count, type, 0, NEVER, MPI_COMM_WORLD, request);
}

static void step(int round, int num, MPI_Request *requests)
{
    for (int i = 0; i < SHORTS; i++)
        numbers[i] = world_rank == 0 ? round * SHORTS + i : -1;
    MPI_Startall(num, requests);
    MPI_Waitall(num, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < SHORTS; i++)
        CHECK(numbers[i] == round * SHORTS + i, "round %d, message %d: %d", round, i,
              numbers[i]);
}

/* Until all the others go through lanes. */
static void run(MPI_Request *requests)
{
    const char *lanes = world_rank == 0 ? "lane_sends" : "lane_receives";
    struct hope hope = {0};
    uint64_t before;
    int round = 0;

    do {
        before = counter(lanes);
        step(round++, SHORTS + 1, requests);
        go_on(&hope, "they are native");
    } while (!all_have(&hope, counter(lanes) - before == SHORTS));
}

/* The lane is attached, by another request, before the one that is native is made. */
static void use(bool first)
{
    MPI_Request requests[SHORTS + 1], *never = &requests[first ? 0 : SHORTS];
    MPI_Datatype type = of_many_runs();

    for (int i = 0; i < SHORTS; i++) {
        MPI_Request *request = &requests[i + first];

        if (world_rank == 0)
            MPI_Send_init(&numbers[i], 1, MPI_INT, 1, i, MPI_COMM_WORLD, request);
        else
            MPI_Recv_init(&numbers[i], 1, MPI_INT, 0, i, MPI_COMM_WORLD, request);
    }
    never_init(type, false, never);
    for (int round = 0; round < EARLIER; round++)
        step(round, SHORTS + 1, requests);
    MPI_Request_free(never);
    never_init(type, true, never);
    run(requests);
    for (int i = 0; i <= SHORTS; i++)
        MPI_Request_free(&requests[i]);
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    char reason[64];

    test_init(&argc, &argv, false);
    at_sender = has_option(argc, argv, "--send");
    at_receiver = has_option(argc, argv, "--receive");
    use(false);
    use(true);
    snprintf(reason, sizeof(reason), "%s_init.native.%s", world_rank == 0 ? "send" : "recv",
             (world_rank == 0 ? at_sender : at_receiver) ? "layout"
             : world_rank == 0 && !at_receiver           ? "size"
                                                         : "covered");
    CHECK(counter(reason) >= 2, "%" PRIu64 " are %s", counter(reason), reason);
    return test_fini("natives");
}
