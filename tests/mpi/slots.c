/* SPDX-License-Identifier: BSD-3-Clause */
/* How many slots lanes have: those of a process together about as many bytes as
 * rsched_slots_bytes() says, however many lanes there are, of up to four sets of requests
 * that are made one after the other, and few where RSCHED_RING says how many an edge has; that memory is not counted any more when its requests are gone; and
 * bytes are right when slots are used again and again.
 *
 * slots [--native] [--ring] */
#include <rsched/context.h>

#include "tests/mpi/hope.h"

#pragma weak rsched_slots_bytes

enum { MOST = 32, TAG = 3, ROUNDS = 600, LONGEST = 16384 };

static unsigned char *out[MOST], *in[MOST];
static MPI_Request requests[2 * MOST];
static bool by_ring; /* RSCHED_RING has a number */

static unsigned char value(int rank, int round, int lane, int i)
{
    return (unsigned char)(rank + 7 * round + 13 * lane + i % 251);
}

static void exchange(int first, int lanes, int bytes, int round)
{
    int peer = 1 - world_rank;

    for (int r = first; r < first + lanes; r++) {
        for (int i = 0; i < bytes; i++)
            out[r][i] = value(world_rank, round, r, i);
    }
    MPI_Startall(2 * lanes, requests + 2 * first);
    MPI_Waitall(2 * lanes, requests + 2 * first, MPI_STATUSES_IGNORE);
    for (int r = first; r < first + lanes; r++) {
        for (int i = 0; i < bytes; i++)
            CHECK(in[r][i] == value(peer, round, r, i), "round %d, lane %d, byte %d", round,
                  r, i);
    }
}

static void begin(MPI_Comm comm, int first, int lanes, int bytes)
{
    int peer = 1 - world_rank;

    for (int r = first; r < first + lanes; r++) {
        MPI_Recv_init(in[r], bytes, MPI_BYTE, peer, TAG + r, comm, &requests[2 * r]);
        MPI_Send_init(out[r], bytes, MPI_BYTE, peer, TAG + r, comm, &requests[2 * r + 1]);
    }
}

/* Until all of them have gone through slots, and have been used round and round. */
static void go_round(int first, int lanes, int bytes)
{
    struct hope hope = {0};
    uint64_t before = counter("lane_receives");

    for (int round = 0;; round++) {
        bool enough =
            !is_accelerated() || counter("lane_receives") - before > ROUNDS * (uint64_t)lanes;

        exchange(first, lanes, bytes, round);
        if (round >= ROUNDS && all_have(&hope, enough))
            return;
        if (round >= ROUNDS)
            go_on(&hope, "they do not go through slots");
    }
}

/* With its number. */
static uint64_t slot_bytes(int bytes)
{
    return 16 + (bytes <= 48 ? 48 : ((uint64_t)bytes + 15) / 16 * 16);
}

static void check_bytes(int lanes, int bytes)
{
    uint64_t has = counter("lane_slot_bytes");
    uint64_t all = slot_bytes(bytes) * (uint64_t)lanes; /* one of each lane */
    uint64_t whole = is_accelerated() ? rsched_slots_bytes() : 0;
    uint64_t few = (bytes <= 4096 ? 8 : 2) * all;

    if (!is_accelerated())
        return;
    CHECK((whole == 0) == by_ring, "%" PRIu64, whole);
    if (whole > 256 * all)
        whole = 256 * all;
    if (bytes <= 512 || whole < few) {
        CHECK(has == few, "%d lanes of %d: %" PRIu64, lanes, bytes, has);
        return;
    }
    CHECK(has >= whole / 2 && has <= 2 * whole, "%d lanes of %d: %" PRIu64 " of %" PRIu64,
          lanes, bytes, has, whole);
}

static void end(int lanes)
{
    for (int r = 0; r < 2 * lanes; r++)
        MPI_Request_free(&requests[r]);
    CHECK(counter("lane_slot_bytes") == 0, "%" PRIu64 " are left",
          counter("lane_slot_bytes"));
}

static void run(int lanes, int bytes)
{
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    begin(comm, 0, lanes, bytes);
    go_round(0, lanes, bytes);
    check_bytes(lanes, bytes);
    end(lanes);
    MPI_Comm_free(&comm);
}

/* Sets of requests, each made before the first start of any, or when those before have been
 * started; in that case all but the last few have as many slots as if they were alone. */
static void run_sets(bool apart)
{
    enum { SETS = 8, LANES = MOST / SETS, BYTES = 3000, PAIR = 12 << 20 /* may have so much */ };
    uint64_t whole = is_accelerated() ? rsched_slots_bytes() : 0, has, least;
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int set = 0; set < SETS; set++) {
        begin(comm, set * LANES, LANES, BYTES);
        if (apart)
            go_round(set * LANES, LANES, BYTES);
    }
    if (!apart)
        go_round(0, MOST, BYTES);
    has = counter("lane_slot_bytes");
    least = apart ? 3 * whole : whole / 2;
    CHECK(has >= (least < PAIR ? least : PAIR), "%" PRIu64, has);
    CHECK(whole == 0 || has <= (apart ? 5 : 2) * whole, "%" PRIu64, has);
    end(MOST);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    static const struct {
        int lanes, bytes;
    } cases[] = {{1, 1024}, {1, 3000}, {3, 3000}, {8, 512}, {8, 1000}, {8, 3000},
                 {32, 2048}, {32, 8}, {2, 3000}, {8, LONGEST}};

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    CHECK(world_size == 2, "two processes");
    by_ring = has_option(argc, argv, "--ring");
    for (int r = 0; r < MOST; r++) {
        out[r] = allocate(LONGEST);
        in[r] = allocate(LONGEST);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        run(cases[i].lanes, cases[i].bytes);
    run_sets(false);
    run_sets(true);
    for (int r = 0; r < MOST; r++) {
        free(out[r]);
        free(in[r]);
    }
    return test_fini("slots");
}
