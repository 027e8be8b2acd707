/* SPDX-License-Identifier: BSD-3-Clause */
/* Random programs of persistent and plain sends and receives, wildcards,
 * probes, cancels, MPI_Sendrecv and neighborhood collectives on communicators
 * of several kinds, with messages of a few bytes to more than any slot holds.
 * Each message says which one it is, and all its bytes are looked at; each
 * match must be one that MPI allows. What an exact program got (programs_plan.h)
 * is put into a digest, which must be the same natively: check-programs compares
 * them. The digests of others are of their neighborhood collectives alone.
 *
 * programs [--seed N] [--first N] [--programs N] [--kept FILE] [--program SEED]
 *          [--digests FILE] [--native] [--verbose]
 *
 * The programs of the seeds in FILE come first, then N that follow from the
 * seed, from number `first` on. --program runs one alone. */
#include <signal.h>
#include <unistd.h>

#include "tests/mpi/programs_run.h"

enum { HANGS = 300 /* seconds without an end */ };

/* ---- steps ---- */

static void send_step(struct program *p, int peer, int tag)
{
    int number = p->num_sent[peer]++;
    struct lane *lane = lane_find(p, true, peer, tag);
    struct end *end;
    char *memory;
    int bytes;

    if (lane != NULL && random_below(p->own, 4) > 0) {
        end = lane_free_end(p, lane);
        if (end != NULL) {
            if (random_one_in(p->own, 20)) {
                MPI_Request_free(&end->request);
                make_send(p, lane, end);
            }
            fill(end->buffer, p->plan.me, number, end->bytes, end->strided);
            end->busy = true;
            start_later(p, end->request, -1, end);
            return;
        }
    }
    start_now(p);
    bytes = random_length(p->own, tag);
    memory = program_memory(p, (size_t)bytes);
    fill(memory, p->plan.me, number, bytes, false);
    if (peer != p->plan.me && bytes <= EAGER && random_one_in(p->own, 3))
        MPI_Send(memory, bytes, MPI_BYTE, peer, tag, p->comm);
    else
        (random_one_in(p->own, 6) ? MPI_Issend : MPI_Isend)(
            memory, bytes, MPI_BYTE, peer, tag, p->comm,
            &active_add(p, -1, NULL)->request);
}

/* By a request of its own. */
static void receive_once(struct program *p, int source, int tag, bool persistent)
{
    int r = post(p, source, tag), bytes = limit(tag);
    struct active *a = active_add(p, r, NULL);

    a->buffer = program_memory(p, (size_t)bytes);
    a->once = persistent;
    if (persistent) {
        MPI_Recv_init(a->buffer, bytes, MPI_BYTE, wanted(source, MPI_ANY_SOURCE),
                      wanted(tag, MPI_ANY_TAG), p->comm, &a->request);
        MPI_Start(&a->request);
    } else {
        MPI_Irecv(a->buffer, bytes, MPI_BYTE, wanted(source, MPI_ANY_SOURCE),
                  wanted(tag, MPI_ANY_TAG), p->comm, &a->request);
    }
}

static void receive_step(struct program *p, int source, int tag)
{
    struct lane *lane = lane_find(p, false, source, tag);
    struct end *end = NULL;

    if (lane != NULL && (!p->plan.stays || random_below(p->own, 4) > 0))
        end = lane_free_end(p, lane);
    if (end != NULL) {
        if (random_one_in(p->own, 20)) {
            MPI_Request_free(&end->request);
            make_receive(p, lane, end);
        }
        end->busy = true;
        start_later(p, end->request, post(p, source, tag), end);
        return;
    }
    start_now(p);
    end = &p->wild;
    if (end->request != MPI_REQUEST_NULL && !end->busy &&
        source == p->wild_source && tag == p->wild_tag) {
        int r = post(p, source, tag);

        end->busy = true;
        MPI_Start(&end->request);
        active_add(p, r, end)->request = end->request;
        return;
    }
    receive_once(p, source, tag,
                 !p->plan.stays || random_one_in(p->own, 3));
}

/* What a probe sees is received at once, unless the matches must not depend on
 * the times. */
static void probe_step(struct program *p, int source, int tag)
{
    int from = wanted(source, MPI_ANY_SOURCE), with = wanted(tag, MPI_ANY_TAG);
    int flag = 0, bytes;
    bool plain = p->plan.exact || random_one_in(p->own, 2);
    MPI_Message message;
    MPI_Status status;
    char *memory;

    if (plain)
        MPI_Iprobe(from, with, p->comm, &flag, &status);
    else
        MPI_Improbe(from, with, p->comm, &flag, &message, &status);
    if (!flag)
        return;
    EXPECT((source == ANY || status.MPI_SOURCE == source) &&
              (tag == ANY || status.MPI_TAG == tag),
          "a probe from %d, tag %d sees a message from %d, tag %d", source, tag,
          status.MPI_SOURCE, status.MPI_TAG);
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    EXPECT(bytes >= (int)sizeof(struct header) && bytes <= limit(status.MPI_TAG),
          "a probe sees %d bytes", bytes);
    if (p->plan.exact)
        return;
    memory = program_memory(p, (size_t)bytes);
    if (plain) {
        int r = post(p, status.MPI_SOURCE, status.MPI_TAG);

        MPI_Recv(memory, bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG,
                 p->comm, &status);
        got(p, r, memory, false, &status);
    } else {
        int r = post(p, source, tag);

        MPI_Mrecv(memory, bytes, MPI_BYTE, &message, &status);
        got(p, r, memory, false, &status);
    }
}

static void cancel_step(struct program *p)
{
    for (int i = 0; i < p->num_active; i++) {
        struct active *a = &p->active[i];

        if (a->receive < 0 || a->cancelled)
            continue;
        MPI_Cancel(&a->request);
        a->cancelled = true;
        return;
    }
}

/* A send that nobody asks about any more; its buffer stays. (MPICH 4.0 may lose
 * one to the process itself.) */
static void forget_step(struct program *p)
{
    for (int i = 0; i < p->num_active; i++) {
        struct active *a = &p->active[i];

        if (a->receive >= 0 || a->end == NULL || a->end->lane == NULL ||
            a->end->lane->peer == p->plan.me)
            continue;
        MPI_Request_free(&a->request);
        make_send(p, a->end->lane, a->end);
        a->end->busy = false;
        *a = p->active[--p->num_active];
        return;
    }
}

static void look_step(struct program *p)
{
    MPI_Request requests[MOST_ACTIVE];
    MPI_Status statuses[MOST_ACTIVE];
    int indices[MOST_ACTIVE], n = p->num_active, num = 0, flag = 0, index;

    if (n == 0)
        return;
    for (int i = 0; i < n; i++)
        requests[i] = p->active[i].request;
    index = random_below(p->own, n);
    switch (random_below(p->own, 5)) {
    case 0:
        MPI_Testany(n, requests, &index, &flag, statuses);
        if (flag && index != MPI_UNDEFINED)
            completed(p, index, requests[index], statuses);
        return;
    case 1:
        MPI_Testsome(n, requests, &num, indices, statuses);
        completed_some(p, num, requests, indices, statuses);
        return;
    case 2:
        if (library_keeps_asked())
            MPI_Request_get_status(requests[index], &flag, statuses);
        if (!flag)
            return;
        MPI_Wait(&requests[index], statuses);
        completed(p, index, requests[index], statuses);
        return;
    case 3:
        MPI_Testall(n, requests, &flag, statuses);
        for (int i = n - 1; i >= 0 && flag; i--)
            completed(p, i, requests[i], &statuses[i]);
        return;
    default:
        MPI_Test(&requests[index], &flag, statuses);
        if (flag)
            completed(p, index, requests[index], statuses);
        return;
    }
}

static void neighbors_step(struct program *p)
{
    struct neighbors *n = &p->neighbors;
    int way;

    neighbors_finish(p);
    way = p->num_calls++ % 3; /* the same in all processes */
    for (int i = 0; i < MOST_RANKS; i++)
        n->out[i] = p->num_calls * 100 + p->plan.me;
    if (way == 0) {
        MPI_Neighbor_allgather(n->out, 1, MPI_INT, n->in, 1,
                               MPI_INT, n->graph);
    } else if (way == 1) {
        MPI_Ineighbor_alltoall(n->out, 1, MPI_INT, n->in, 1, MPI_INT, n->graph,
                               &n->request);
    } else {
        MPI_Start(&n->persistent);
    }
    n->way = way;
    if (way == 0)
        neighbors_finish(p);
}

static void run_step(struct program *p, const struct step *step)
{
    bool starts = step->kind == SEND || step->kind == RECEIVE;

    if (!starts || random_one_in(p->own, 3))
        start_now(p);
    switch (step->kind) {
    case SEND:
        send_step(p, step->peer, step->tag);
        return;
    case RECEIVE:
        receive_step(p, step->peer, step->tag);
        return;
    case PROBE:
        probe_step(p, step->peer, step->tag);
        return;
    case CANCEL:
        cancel_step(p);
        return;
    case NEIGHBORS:
        neighbors_step(p);
        return;
    default:
        if (random_one_in(p->own, 20))
            forget_step(p);
        look_step(p);
        return;
    }
}

/* ---- between the phases ---- */

/* Until incarnations are likely to be open. */
static void warm_up(struct program *p, int times)
{
    MPI_Request requests[MOST_LANES];
    MPI_Status statuses[MOST_LANES];
    struct end *ends[MOST_LANES];

    for (int i = 0; i < times; i++) {
        int n = 0;

        for (struct lane *lane = p->lanes; lane < &p->lanes[p->num_lanes];
             lane++) {
            if (!lane->whole)
                continue;
            ends[n] = &lane->ends[0];
            requests[n++] = lane->ends[0].request;
            if (lane->sends)
                fill(lane->ends[0].buffer, p->plan.me, -7 - i,
                     lane->ends[0].bytes, lane->ends[0].strided);
        }
        MPI_Startall(n, requests);
        MPI_Waitall(n, requests, statuses);
        for (int k = 0; k < n; k++) {
            int m;

            if (ends[k]->lane->sends)
                continue;
            m = number_of(ends[k]->buffer, ends[k]->lane->peer,
                          ends[k]->strided, &statuses[k]);
            EXPECT(m == -7 - i, "warming up: %d, not %d", m, -7 - i);
        }
    }
}

/* Each process sends to one other, when nothing else is under way. */
static void shift(struct program *p, int by)
{
    int to = (p->plan.me + by) % p->plan.size, tag = TAGS - 1, bytes;
    int from = (p->plan.me + p->plan.size - by) % p->plan.size;
    struct incoming *in = &p->h.from[from];
    char *out = program_memory(p, LONGEST), *memory = out;
    int r = post(p, from, tag);
    MPI_Status status;

    EXPECT(in->num < MOST_MESSAGES, "%d messages", in->num);
    in->tags[in->num++] = tag;
    p->h.num_messages++;
    bytes = random_length(p->own, tag);
    fill(out, p->plan.me, p->num_sent[to]++, bytes, false);
    if (by % 2 == 0) {
        memory = program_memory(p, LONGEST);
        MPI_Sendrecv(out, bytes, MPI_BYTE, to, tag, memory, LONGEST, MPI_BYTE,
                     p->plan.stays ? MPI_ANY_SOURCE : from, tag, p->comm,
                     &status);
    } else {
        fill(out, p->plan.me, p->num_sent[to] - 1, LONGEST, false);
        MPI_Sendrecv_replace(out, LONGEST, MPI_BYTE, to, tag, from, tag,
                             p->comm, &status);
    }
    got(p, r, memory, false, &status);
    MPI_Barrier(p->comm); /* no other message may come before */
}

/* One message that no receive so far will take. */
static void receive_left(struct program *p, int sender)
{
    char *memory = program_memory(p, LONGEST);
    int bytes, r = post(p, sender, ANY);
    MPI_Message message;
    MPI_Status status;

    switch (random_below(p->own, 3)) {
    case 0:
        MPI_Recv(memory, LONGEST, MPI_BYTE, sender, MPI_ANY_TAG, p->comm,
                 &status);
        break;
    case 1:
        MPI_Probe(sender, MPI_ANY_TAG, p->comm, &status);
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        MPI_Recv(memory, bytes, MPI_BYTE, sender, status.MPI_TAG, p->comm,
                 &status);
        break;
    default:
        MPI_Mprobe(sender, MPI_ANY_TAG, p->comm, &message, &status);
        MPI_Mrecv(memory, LONGEST, MPI_BYTE, &message, &status);
        break;
    }
    got(p, r, memory, false, &status);
}

/* The matches are known: blocking calls that can only end when all is there. */
static void drain_exactly(struct program *p)
{
    static struct receive expected[MOST_RECEIVES];
    static bool taken[MOST_RANKS][MOST_MESSAGES];

    exact_matches(&p->h, expected, taken, p->plan.size);
    for (int i = 0; i < p->h.num; i++) {
        const struct receive *r = &p->h.receives[i], *e = &expected[i];

        EXPECT(r->sender < 0 ||
                   (r->sender == e->sender && r->number == e->number),
               "receive %d from %d, tag %d got message %d of %d, not %d of %d",
               i, r->source, r->tag, r->number, r->sender, e->number,
               e->sender);
    }
    for (int s = 0; s < p->plan.size; s++) {
        for (int m = 0; m < p->h.from[s].num; m++) {
            if (!taken[s][m])
                receive_left(p, s);
        }
    }
    for (int i = 0; i < p->num_active; i++) {
        struct active *a = &p->active[i];

        if (a->receive < 0 || expected[a->receive].sender != NOBODY)
            continue;
        MPI_Cancel(&a->request);
        a->cancelled = true;
    }
}

/* Until all has come, wherever it went. */
static void drain(struct program *p)
{
    for (int i = p->num_active - 1; i >= 0; i--) {
        struct active *a = &p->active[i];
        MPI_Status status;

        if (!a->cancelled)
            continue;
        MPI_Wait(&a->request, &status);
        completed(p, i, a->request, &status);
    }
    while (p->h.num_received < p->h.num_messages) {
        char *memory = program_memory(p, LONGEST);
        MPI_Message message;
        MPI_Status status;
        int flag, r;

        for (int i = random_below(p->own, 30); i >= 0; i--)
            look_step(p);
        MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, p->comm, &flag, &message,
                    &status);
        if (!flag)
            continue;
        r = post(p, ANY, ANY);
        MPI_Mrecv(memory, LONGEST, MPI_BYTE, &message, &status);
        got(p, r, memory, false, &status);
    }
    for (int i = 0; i < p->num_active; i++) {
        struct active *a = &p->active[i];

        if (a->receive < 0)
            continue;
        MPI_Cancel(&a->request);
        a->cancelled = true;
    }
}

/* What is left is complete or will be, whatever anybody does. */
static void finish(struct program *p)
{
    MPI_Request requests[MOST_ACTIVE];
    MPI_Status statuses[MOST_ACTIVE];
    int indices[MOST_ACTIVE], index, num;

    while (p->num_active > 0) {
        int n = p->num_active;

        for (int i = 0; i < n; i++)
            requests[i] = p->active[i].request;
        index = random_below(p->own, n);
        switch (random_below(p->own, 4)) {
        case 0:
            MPI_Waitall(n, requests, statuses);
            for (int i = n - 1; i >= 0; i--)
                completed(p, i, requests[i], &statuses[i]);
            break;
        case 1:
            MPI_Waitany(n, requests, &index, statuses);
            completed(p, index, requests[index], statuses);
            break;
        case 2:
            MPI_Waitsome(n, requests, &num, indices, statuses);
            completed_some(p, num, requests, indices, statuses);
            break;
        default:
            MPI_Wait(&requests[index], statuses);
            completed(p, index, requests[index], statuses);
            break;
        }
    }
}

static void run_phase(struct program *p, const struct phase *phase)
{
    for (int i = 0; i < phase->num_steps; i++)
        run_step(p, &phase->steps[i]);
    start_now(p);
    neighbors_finish(p);
    if (phase->barrier)
        MPI_Barrier(p->comm);
    if (p->plan.exact)
        drain_exactly(p);
    else
        drain(p);
    finish(p);
    MPI_Barrier(p->comm);
}

/* ---- programs ---- */

static uint64_t run_program(uint64_t seed)
{
    struct random shared = {.state = seed};
    struct random own = {.state = seed * 7919 + (uint64_t)world_rank};
    struct program *p = program_create(&shared, &own);
    static struct phase phase;
    uint64_t result;

    for (int i = 0; i < p->plan.num_phases; i++) {
        int by = random_below(&shared, 2 * p->plan.size);

        if (by < p->plan.size)
            shift(p, by);
        plan_phase(&p->plan, &shared, &p->h, &phase);
        warm_up(p, phase.warm);
        run_phase(p, &phase);
    }
    check_matches(&p->h, p->plan.size);
    result = mixed_up(digest(&p->h, &p->plan), p->neighbors.digest);
    program_destroy(p);
    return result;
}

struct run {
    FILE *digests;
    bool verbose;
    uint64_t programs;
};

/* A program that does not end says which one it is. */
static char hang[100];

static void name_hang(int signal)
{
    (void)signal;
    if (write(STDERR_FILENO, hang, strlen(hang)) > 0)
        _exit(FAIL);
    abort();
}

static void run_one(struct run *run, uint64_t seed)
{
    uint64_t mine, sum;

    program_seed = seed;
    snprintf(hang, sizeof(hang), "rank %d: program %" PRIu64 " hangs\n",
             world_rank, seed);
    alarm(HANGS);
    if (run->verbose && world_rank == 0)
        fprintf(stderr, "program %" PRIu64 "\n", seed);
    mine = run_program(seed);
    PMPI_Reduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (run->digests != NULL && world_rank == 0)
        fprintf(run->digests, "%d ranks, program %" PRIu64 ": %016" PRIx64 "\n",
                world_size, seed, sum);
    run->programs++;
}

/* Lines: ranks seed # what it is kept for */
static void run_kept(struct run *run, const char *name)
{
    FILE *file = fopen(name, "r");
    char line[200];

    CHECK(file != NULL, "cannot read %s", name);
    while (fgets(line, sizeof(line), file) != NULL) {
        uint64_t seed;
        int ranks;

        if (sscanf(line, "%d %" SCNu64, &ranks, &seed) == 2 &&
            ranks == world_size)
            run_one(run, seed);
    }
    fclose(file);
}

static uint64_t all_of(const char *name)
{
    uint64_t mine = counter(name), sum;

    PMPI_Allreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

/* A test that passed natively has failed. */
static void report(const struct run *run, uint64_t seed)
{
    uint64_t lanes = all_of("lane_receives"), native = all_of("lane_native");
    uint64_t opened = all_of("incarnations"), stops = all_of("stops");
    uint64_t calls = all_of("neighbor_allgather.accelerated") +
                     all_of("ineighbor_alltoall.accelerated") +
                     all_of("starts");

    if (world_rank == 0)
        printf("programs: seed %" PRIu64 ", %" PRIu64 " programs of %d ranks, %s: "
               "%" PRIu64 " messages through lanes, %" PRIu64
               " native starts, %" PRIu64 " incarnations, %" PRIu64
               " stops, %" PRIu64 " neighborhood collectives\n",
               seed, run->programs, world_size,
               is_accelerated() ? "accelerated" : "native", lanes, native,
               opened, stops, calls);
    if (!is_accelerated() || run->programs < 5)
        return;
    CHECK(lanes > 10 * run->programs, "hardly any message took a lane");
#ifdef PROGRAMS_ON_GPU
    CHECK(all_of("lane_opened") > run->programs, "hardly any was opened");
    CHECK(all_of("staged") > run->programs, "hardly any came to GPU memory");
#endif
    CHECK(stops > run->programs / 4, "hardly any incarnation was stopped");
    CHECK(calls >= run->programs, "hardly any neighborhood collective");
    CHECK(counter("requests") == 0, "requests are left");
}

int main(int argc, char **argv)
{
    uint64_t seed = (uint64_t)number_option(argc, argv, "--seed", 1);
    long programs = number_option(argc, argv, "--programs", 100);
    uint64_t first = (uint64_t)number_option(argc, argv, "--first", 0);
    const char *seeds = text_option(argc, argv, "--kept");
    const char *digests = text_option(argc, argv, "--digests");
    struct run run = {.verbose = has_option(argc, argv, "--verbose")};

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    library_keeps_asked(); /* by a message that is none of theirs */
    gpu_memory_begin();
    CHECK(world_size <= MOST_RANKS, "for up to %d processes", MOST_RANKS);
    signal(SIGALRM, name_hang);
    if (digests != NULL && world_rank == 0) {
        run.digests = fopen(digests, "w");
        CHECK(run.digests != NULL, "cannot write %s", digests);
    }
    if (has_option(argc, argv, "--program")) {
        run_one(&run, (uint64_t)number_option(argc, argv, "--program", 0));
        programs = 0;
    } else if (seeds != NULL) {
        run_kept(&run, seeds);
    }
    for (long i = 0; i < programs; i++)
        run_one(&run, seed * 1000003 + first + (uint64_t)i);
    alarm(0);
    programs_fini();
    report(&run, seed);
    if (run.digests != NULL)
        fclose(run.digests);
    gpu_memory_end();
    return test_fini("programs");
}
