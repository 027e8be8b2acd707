/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent messages of which it is tried out whether one copy (by the kernel, or
 * of short blocks out of mapped memory) or two are faster: that it is done, that they
 * go both ways then, and that bytes are right, also where several requests are on one
 * lane, where plain messages stop the incarnation meanwhile, and where one is packed.
 * Those that go to one process together are tried out together. How slots are written,
 * and memory into which is packed, is tried out, too. Rank 1 sends as much as rank 0, and
 * does what that does.
 *
 * trials [--native] [--never] [--nontemporal] */
#include "tests/mpi/hope.h"

enum { MOST = 300000, TAG = 5, ROUNDS = 40,
       SLOT = 8192, /* doubles, by default */
       /* Rounds from stop to stop. A pair opens again up to 1024 rounds later (T4): that is
        * to be soon after one of these, not just before. */
       STOPS = 31 };

/* Of doubles; blocks of the kernel's kind. */
static const struct plan {
    const char *name;
    int blocks, numbers, stride;
    int requests; /* on one lane, if not apart */
    bool stops;
    bool learns; /* a slot is not used again before its time has been read */
    bool given;  /* it lies in memory of MPI_Alloc_mem */
    bool apart;  /* a lane for each request */
} plans[] = {
    {"short", 1, 1500, 1500, 1, false, true, false, false},
    {"in slots", 1, 6000, 6000, 1, false, true, false, false},
    {"packed", 1, MOST, MOST, 1, false, true, false, false},
    {"rows", 40, 600, 1000, 1, false, true, false, false},
    {"two on a lane", 1, 6000, 6000, 2, false, true, false, false},
    {"four on a lane", 1, 6000, 6000, 4, false, false, false, false},
    {"stopped", 1, 6000, 6000, 1, true, true, false, false},
    {"short blocks", 60, 64, 66, 1, false, true, true, false},
    {"apart", 1, 6000, 6000, 4, false, true, false, true},
};

enum { MOST_REQUESTS = 4 };

static double *ordinary[2 * MOST_REQUESTS], *given[2 * MOST_REQUESTS];
static double **out, **in; /* of the plan */
static MPI_Request requests[2 * MOST_REQUESTS];
static int peer;
static bool uses_lanes;
static bool past_only; /* by a setting */

static int place_of(const struct plan *p, int i)
{
    return i / p->numbers * p->stride + i % p->numbers;
}

static void run_round(const struct plan *p, MPI_Comm comm, int round)
{
    int numbers = p->blocks * p->numbers;

    for (int r = 0; r < p->requests; r++) {
        for (int i = 0; i < numbers; i++) {
            out[r][place_of(p, i)] = world_rank + 2 * i + 1e6 * round + r;
            in[r][place_of(p, i)] = -1;
        }
    }
    MPI_Startall(2 * p->requests, requests);
    if (p->stops && round % STOPS == STOPS - 1)
        MPI_Sendrecv(&round, 1, MPI_INT, peer, TAG + 1, in[1], 1, MPI_INT, peer,
                     MPI_ANY_TAG, comm, MPI_STATUS_IGNORE);
    MPI_Waitall(2 * p->requests, requests, MPI_STATUSES_IGNORE);
    for (int r = 0; r < p->requests; r++) {
        for (int i = 0; i < numbers; i++)
            CHECK(in[r][place_of(p, i)] == peer + 2 * i + 1e6 * round + r,
                  "%s: round %d, request %d, number %d: %g", p->name, round, r, i,
                  in[r][place_of(p, i)]);
    }
}

struct numbers {
    uint64_t trials, sends, receives, pulls, mapped, packed, past;
};

static struct numbers numbers_now(void)
{
    return (struct numbers){
        counter("trials"),     counter("lane_sends"),  counter("lane_receives"),
        counter("lane_pulls"), counter("lane_mapped"), counter("lane_packed"),
        counter("lane_nontemporal")};
}

/* What is longer than slots is pulled, packed or not; where it is packed, it can be
 * mapped. */
static bool went_both_ways(const struct plan *p, const struct numbers *before)
{
    const struct numbers now = numbers_now();
    uint64_t pulls = now.pulls - before->pulls;
    uint64_t mapped = now.mapped - before->mapped;
    uint64_t packed = now.packed - before->packed;

    /* No slots are made for what is copied where it lies, so it is packed, unless that is
     * found to be faster. */
    if (p->given)
        return packed > 0 && mapped > 0;
    if (p->blocks * p->numbers > SLOT)
        return mapped > 0 && pulls > mapped;
    return pulls > 0 && now.receives - before->receives > pulls;
}

/* Some are written past the caches, and not all. */
static bool was_written_both_ways(const struct numbers *before)
{
#ifdef __x86_64__
    const struct numbers now = numbers_now();
    uint64_t past = now.past - before->past;

    return past > 0 && past < now.sends - before->sends;
#else
    (void)before;
    return true;
#endif
}

static void run(const struct plan *p, bool tries)
{
    const struct numbers before = numbers_now();
    struct hope hope = {0};
    MPI_Datatype type;
    MPI_Comm comm;
    bool tried = false;

    out = p->given ? given : ordinary;
    in = out + MOST_REQUESTS;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Type_vector(p->blocks, p->numbers, p->stride, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    for (int r = 0; r < p->requests; r++) {
        int tag = p->apart ? TAG + r : TAG;

        MPI_Recv_init(in[r], 1, type, peer, tag, comm, &requests[r]);
        MPI_Send_init(out[r], 1, type, peer, tag, comm,
                      &requests[p->requests + r]);
    }
    for (int round = 0;; round++) {
        uint64_t trials;
        bool both;

        run_round(p, comm, round);
        trials = counter("trials") - before.trials;
        /* Each by itself, they would all be over now. */
        CHECK(!p->apart || tried || trials <= 1, "%s: %llu trials at a time",
              p->name, (unsigned long long)trials);
        tried = trials > 0;
        both = went_both_ways(p, &before) &&
               (past_only || was_written_both_ways(&before));
        if (round >= ROUNDS &&
            all_have(&hope, !uses_lanes || !tries || !p->learns ||
                                ((tried || world_rank == 1) && both)))
            break;
        if (round >= ROUNDS)
            go_on(&hope, p->name);
    }
    CHECK(tries || counter("trials") == 0, "%s: it was tried out", p->name);
    CHECK(tries || counter("lane_nontemporal") == 0, "%s: past the caches", p->name);
    for (int r = 0; r < 2 * p->requests; r++)
        MPI_Request_free(&requests[r]);
    MPI_Type_free(&type);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    bool native = has_option(argc, argv, "--native");
    bool never = has_option(argc, argv, "--never");

    test_init(&argc, &argv, native);
    CHECK(world_size == 2, "two processes");
    uses_lanes = !native;
    past_only = has_option(argc, argv, "--nontemporal");
    peer = 1 - world_rank;
    for (int i = 0; i < 2 * MOST_REQUESTS; i++) {
        ordinary[i] = allocate(MOST * sizeof(double));
        MPI_Alloc_mem(MOST * sizeof(double), MPI_INFO_NULL, &given[i]);
    }
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++)
        run(&plans[i], !native && !never);
#ifdef __x86_64__
    CHECK(!past_only || counter("lane_nontemporal") > 0, "none past the caches");
#endif
    for (int i = 0; i < 2 * MOST_REQUESTS; i++) {
        free(ordinary[i]);
        MPI_Free_mem(given[i]);
    }
    return test_fini("trials");
}
