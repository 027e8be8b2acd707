/* SPDX-License-Identifier: BSD-3-Clause */
/* Nonblocking neighborhood collectives that queue (docs/nonblocking.md) while MPI_Testall and
 * MPI_Waitall look at persistent and plain receives that are native: in an array with these,
 * and while an array has nothing else. What these are for comes when the other process has
 * completed its collectives, for which those of the queue have to start here. A persistent
 * collective that goes on meanwhile is in the array, too.
 *
 * queues [--helped]; without a helper (RSCHED_PROGRESS=0), unless so said */
#include "tests/mpi/flags.h"
#include "tests/mpi/ring.h"

enum { CHANNELS = 2, CALLS = CHANNELS + 2 }; /* RSCHED_CHANNELS */
enum { PERSISTENT = CALLS, NATIVE, PLAIN, REQUESTS };
enum { QUEUED /* flag */ };
enum { DOUBLES = 10, TIMES = 3 };

/* In an array of the first process. */
struct form {
    const char *name;
    bool tests, helped; /* only if it is */
    int num;
    int places[REQUESTS];
};

static const struct form forms[] = {
    {"test, native", true, false, 1, {NATIVE}},
    {"test, native and plain", true, false, 2, {NATIVE, PLAIN}},
    {"test, plain", true, false, 1, {PLAIN}},
    {"test, all", true, false, REQUESTS, {0, 1, 2, 3, PERSISTENT, NATIVE, PLAIN}},
    {"test, native first", true, false, REQUESTS, {NATIVE, PLAIN, 3, 2, 1, 0, PERSISTENT}},
    {"test, queued and native", true, false, 3, {NATIVE, CHANNELS, CHANNELS + 1}},
    {"test, persistent and native", true, false, 2, {PERSISTENT, NATIVE}},
    {"wait, all", false, false, REQUESTS, {0, 1, 2, 3, PERSISTENT, NATIVE, PLAIN}},
    {"wait, native first", false, false, REQUESTS, {NATIVE, PLAIN, 3, 2, 1, 0, PERSISTENT}},
    {"wait, queued and native", false, false, 3, {NATIVE, CHANNELS, CHANNELS + 1}},
    {"wait, native", false, false, 1, {NATIVE}},
    {"wait, native and plain", false, false, 2, {NATIVE, PLAIN}},
    {"wait, plain", false, true, 1, {PLAIN}},
};

enum { FORMS = (int)(sizeof(forms) / sizeof(forms[0])) };

static MPI_Comm comm;
static struct ring rings[CALLS + 1]; /* and the persistent one */
static int got[REQUESTS], sequence;  /* of NATIVE and PLAIN */

static void start_collectives(MPI_Request *requests)
{
    for (int i = 0; i <= CALLS; i++)
        ring_fill(&rings[i], world_rank, sequence * REQUESTS + i);
    for (int i = 0; i < CALLS; i++)
        MPI_Ineighbor_alltoall(rings[i].send, DOUBLES, MPI_DOUBLE, rings[i].receive, DOUBLES,
                               MPI_DOUBLE, comm, &requests[i]);
    requests[PERSISTENT] = rings[PERSISTENT].request;
    MPI_Start(&requests[PERSISTENT]);
}

static void verify_collectives(void)
{
    for (int i = 0; i <= CALLS; i++)
        ring_verify(&rings[i], sequence * REQUESTS + i);
}

static void start(const struct form *form, MPI_Request *requests)
{
    uint64_t queued = counter("queued"), ours;

    start_collectives(requests);
    CHECK(counter("queued") == queued + CALLS - CHANNELS, "%s: %" PRIu64 " queue", form->name,
          counter("queued") - queued);
    ours = counter("requests");
    got[NATIVE] = got[PLAIN] = -1;
    MPI_Recv_init(&got[NATIVE], 1, MPI_INT, 1, NATIVE, MPI_COMM_WORLD, &requests[NATIVE]);
    CHECK(counter("requests") == ours + 1, "%s: it is none of the backend's", form->name);
    MPI_Start(&requests[NATIVE]);
    MPI_Irecv(&got[PLAIN], 1, MPI_INT, 1, PLAIN, MPI_COMM_WORLD, &requests[PLAIN]);
}

static void complete(const struct form *form, MPI_Request *requests)
{
    MPI_Request array[REQUESTS];
    MPI_Status statuses[REQUESTS];

    for (int i = 0; i < form->num; i++)
        array[i] = requests[form->places[i]];
    if (!form->tests)
        MPI_Waitall(form->num, array, statuses);
    for (int flag = 0; form->tests && !flag;) {
        MPI_Testall(form->num, array, &flag, statuses);
        sched_yield();
    }
    for (int i = 0; i < form->num; i++) {
        int place = form->places[i];

        requests[place] = array[i];
        CHECK((array[i] == MPI_REQUEST_NULL) == (place != PERSISTENT && place != NATIVE),
              "%s: request %d", form->name, place);
        CHECK(place < NATIVE || statuses[i].MPI_TAG == place, "%s: tag %d of request %d",
              form->name, statuses[i].MPI_TAG, place);
        CHECK(place < NATIVE || got[place] == sequence, "%s: request %d has %d", form->name,
              place, got[place]);
    }
}

static void first(const struct form *form)
{
    MPI_Request requests[REQUESTS];

    start(form, requests);
    flag_raise(QUEUED, sequence);
    complete(form, requests);
    MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE);
    MPI_Request_free(&requests[NATIVE]);
}

static void second(void)
{
    MPI_Request requests[REQUESTS];

    flag_await(QUEUED, sequence);
    start_collectives(requests);
    MPI_Waitall(CALLS + 1, requests, MPI_STATUSES_IGNORE);
    MPI_Send(&sequence, 1, MPI_INT, 0, NATIVE, MPI_COMM_WORLD);
    MPI_Send(&sequence, 1, MPI_INT, 0, PLAIN, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    bool helped = has_option(argc, argv, "--helped");

    test_init(&argc, &argv, false);
    flags_init();
    comm = ring_comm(MPI_COMM_WORLD);
    for (int i = 0; i <= CALLS; i++)
        ring_create(&rings[i], comm, DOUBLES);
    for (int i = 0; i < TIMES * FORMS; i++) {
        const struct form *form = &forms[i % FORMS];

        if (form->helped && !helped)
            continue;
        sequence++;
        if (world_rank == 0)
            first(form);
        else
            second();
        verify_collectives();
    }
    CHECK(counter("ineighbor_alltoall.accelerated") == (uint64_t)sequence * CALLS &&
              counter("starts") == (uint64_t)sequence,
          "not accelerated");
    CHECK(world_rank > 0 || counter("recv_init.native") == (uint64_t)sequence,
          "%" PRIu64 " receives were native", counter("recv_init.native"));
    for (int i = 0; i <= CALLS; i++) {
        MPI_Request_free(&rings[i].request);
        ring_free(&rings[i]);
    }
    MPI_Comm_free(&comm);
    flags_fini();
    return test_fini("queues");
}
