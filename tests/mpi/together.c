/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages of which every message has a part only are adopted for all of them together;
 * and of long messages that begin and end within pages nothing is left for the kernel to
 * read. With --nontemporal these are written past the caches.
 */
#include <unistd.h>

#include <rsched/memory.h>

#include "tests/mpi/hope.h"

#pragma weak rsched_memory_adopted

enum {
    PAGE = 4096,
    SHORT = 5000, /* no message has a page for itself alone but by luck */
    LONG = 40 * PAGE + 100,
    SETTLED = 400, /* starts after which all that pays has been done */
    STEPS = 20,
};

static MPI_Comm ring;
static int epoch;
static bool computes; /* in each step */

static char value(int sender, int side, int i)
{
    return (char)(sender * 29 + side * 7 + epoch * 13 + i + (i >> 8));
}

static int neighbor(int side)
{
    return (world_rank + (side == 0 ? world_size - 1 : 1)) % world_size;
}

/* One buffer of both sides' messages, all of which is compared but for `gap` bytes behind each. */
static void step_apart(MPI_Request *requests, int number, char *send, char *receive, int bytes,
                       int gap)
{
    epoch++;
    for (int i = 0; i < 2 * bytes; i++)
        send[i] = value(world_rank, i / bytes, i % bytes);
    memset(receive, 0x55, 2 * (size_t)bytes);
    MPI_Startall(number, requests);
    if (computes)
        usleep(50);
    MPI_Waitall(number, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 2 * bytes; i++)
        CHECK(receive[i] == (i % bytes < bytes - gap
                                 ? value(neighbor(i / bytes), 1 - i / bytes, i % bytes)
                                 : 0x55),
              "byte %d of epoch %d", i, epoch);
    for (int i = 0; i < 2 * bytes; i++)
        CHECK(send[i] == value(world_rank, i / bytes, i % bytes),
              "sent byte %d has changed", i);
}

static void step(MPI_Request *requests, int number, char *send, char *receive, int bytes)
{
    step_apart(requests, number, send, receive, bytes, 0);
}

/* A neighbor may have adopted its pages in the last start only. */
static void step_until(int number, MPI_Request *requests, char *send, char *receive, int bytes,
                       int gap, uint64_t (*look)(void), uint64_t expected)
{
    struct hope hope = {0};
    uint64_t before;

    do {
        before = look();
        step_apart(requests, number, send, receive, bytes, gap);
        go_on(&hope, "not out of the pages");
    } while (!all_have(&hope, look() - before == expected));
}

static uint64_t pulled_bytes(void)
{
    return counter("ways.pull") + counter("ways.direct");
}

static uint64_t mapped_receives(void)
{
    return counter("lane_mapped");
}

/* The pages that lie wholly within [low, low + bytes). */
static size_t pages_of(const char *low, int bytes)
{
    uintptr_t first = ((uintptr_t)low + PAGE - 1) / PAGE;
    uintptr_t end = ((uintptr_t)low + (uintptr_t)bytes) / PAGE;

    return end > first ? (size_t)(end - first) * PAGE : 0;
}

/* Who computes while short messages are on their way does not pull them; but later, if not any
 * more. */
static void use_short(int offset, bool computes_first)
{
    char *memory = calloc(16, PAGE), *receive = malloc(2 * SHORT);
    char *page = memory + (-(uintptr_t)memory & (PAGE - 1)), *send = page + offset;
    uint64_t before;
    MPI_Request request;
    void *first;

    INIT(Neighbor_alltoall)(send, SHORT, MPI_BYTE, receive, SHORT, MPI_BYTE, ring,
                            MPI_INFO_NULL, &request);
    computes = computes_first;
    before = pulled_bytes();
    for (int i = 0; i < SETTLED; i++)
        step(&request, 1, send, receive, SHORT);
    CHECK(!computes || pulled_bytes() == before, "pulled by who computes");
    computes = false;
    CHECK(pages_of(send, 2 * SHORT) >
              pages_of(send, SHORT) + pages_of(send + SHORT, SHORT),
          "no page has a part of both");
    CHECK(rsched_memory_adopted(send, 2 * SHORT, &first) ==
              pages_of(send, 2 * SHORT),
          "offset %d", offset);
    CHECK(rsched_memory_adopted(memory, (size_t)(send - memory), &first) == 0,
          "what is before");
    step_until(1, &request, send, receive, SHORT, 0, pulled_bytes,
               pages_of(send, 2 * SHORT));
    before = pulled_bytes();
    for (int i = 0; i < STEPS; i++)
        step(&request, 1, send, receive, SHORT);
    CHECK(pulled_bytes() - before == pages_of(send, 2 * SHORT) * STEPS,
          "%" PRIu64 " bytes are pulled", pulled_bytes() - before);
    MPI_Request_free(&request);
    free(memory);
    free(receive);
}

/* What a process sends to itself lies still, too, but is not what is adopted. */
static void use_self(void)
{
    enum { ALL = 3 * SHORT };
    const int to[] = {neighbor(0), world_rank, neighbor(1)};
    const int from[] = {neighbor(1), world_rank, neighbor(0)};
    const int ones[] = {1, 1, 1};
    char *memory = malloc(16 * PAGE), *receive = malloc(ALL);
    char *page = memory + (-(uintptr_t)memory & (PAGE - 1));
    char *send = page + PAGE - 1000; /* pages 1, 2 and 3 are of 0 and 1, 1, 1 and 2 */
    MPI_Request request;
    MPI_Comm graph;
    void *first;

    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 3, from, ones, 3, to, ones,
                                   MPI_INFO_NULL, 0, &graph);
    INIT(Neighbor_alltoall)(send, SHORT, MPI_BYTE, receive, SHORT, MPI_BYTE, graph,
                            MPI_INFO_NULL, &request);
    for (int step = 0; step < SETTLED; step++) {
        for (int i = 0; i < ALL; i++)
            send[i] = (char)(world_rank * 29 + step * 13 + i + (i >> 8));
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < ALL; i++)
            CHECK(receive[i] ==
                      (char)(from[i / SHORT] * 29 + step * 13 + i + (i >> 8)),
                  "byte %d of step %d", i, step);
    }
    CHECK(rsched_memory_adopted(page + PAGE, PAGE, &first) == PAGE &&
              rsched_memory_adopted(page + 2 * PAGE, PAGE, &first) == 0 &&
              rsched_memory_adopted(page + 3 * PAGE, PAGE, &first) == PAGE,
          "other pages are adopted");
    MPI_Request_free(&request);
    MPI_Comm_free(&graph);
    free(memory);
    free(receive);
}

/* Bytes of the pages of [low, low + bytes) that have been adopted. */
static size_t adopted_of(char *low, int bytes)
{
    char *page = low - ((uintptr_t)low & (PAGE - 1));
    size_t adopted = 0;
    void *first;

    for (; page < low + bytes; page += PAGE)
        adopted += rsched_memory_adopted(page, PAGE, &first);
    return adopted;
}

/* Where they touch they share a page; what they have not adopted, of both ends, is longer if they
 * do not. */
static void use_long(int gap)
{
    const int bytes = LONG - gap;
    char *memory = malloc(2 * LONG + PAGE), *receive = malloc(2 * LONG);
    char *send = memory + 72;
    uint64_t pulls, mapped;
    MPI_Request requests[4];

    for (int side = 0; side < 2; side++) {
        MPI_Recv_init(receive + side * LONG, bytes, MPI_BYTE, neighbor(side),
                      1 - side, ring, &requests[side]);
        MPI_Send_init(send + side * LONG, bytes, MPI_BYTE, neighbor(side), side,
                      ring, &requests[2 + side]);
    }
    for (int i = 0; i < SETTLED; i++)
        step_apart(requests, 4, send, receive, LONG, gap);
    CHECK(adopted_of(send, 2 * LONG) ==
              (gap == 0 ? pages_of(send, 2 * LONG)
                        : pages_of(send, bytes) + pages_of(send + LONG, bytes)),
          "%zu bytes are adopted", adopted_of(send, 2 * LONG));
    step_until(4, requests, send, receive, LONG, gap, mapped_receives, 2);
    pulls = counter("lane_pulls");
    mapped = counter("lane_mapped");
    for (int i = 0; i < STEPS; i++)
        step_apart(requests, 4, send, receive, LONG, gap);
    CHECK(counter("lane_pulls") - pulls == 2 * STEPS &&
              counter("lane_mapped") - mapped == 2 * STEPS,
          "%" PRIu64 " pulled, %" PRIu64 " mapped", counter("lane_pulls") - pulls,
          counter("lane_mapped") - mapped);
    for (int i = 0; i < 4; i++)
        MPI_Request_free(&requests[i]);
    free(memory);
    free(receive);
}

int main(int argc, char **argv)
{
    int one = 1;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &one, 0, &ring);
    use_short(PAGE - 1000, false); /* the second page is in both */
    use_short(PAGE - 1000, true);
    use_self();
    use_long(0);
    use_long(8);
#ifdef __x86_64__
    CHECK(!has_option(argc, argv, "--nontemporal") ||
              counter("lane_nontemporal") >= STEPS,
          "%" PRIu64 " past the caches", counter("lane_nontemporal"));
#endif
    MPI_Comm_free(&ring);
    MPI_Finalize();
    return PASS;
}
