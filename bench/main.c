/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * rsched-bench: makes exchanges, in blocks, when it is told to.
 *
 *   mpirun -np N rsched-bench FOLDER
 *       Rank r reads commands from the pipe FOLDER/command.r and sleeps in
 *       read() between them, so that several such jobs, of different MPIs, can
 *       take turns on the same cores. Rank 0 answers on FOLDER/reply:
 *         case NAME ARGUMENT MEMORY
 *                                  ok MESSAGES BYTES, or error TEXT. MEMORY
 *                                  is "plain", or "given": the buffers are of
 *                                  MPI_Alloc_mem
 *         check CALL               ok, or error TEXT: whether an exchange brings
 *                                  the right bytes
 *         block CALL BATCHES N HOW ok RTT_BEFORE RTT_AFTER NS: BATCHES times N
 *                                  exchanges, NS for one: each rank's median
 *                                  over the batches, of these the largest.
 *                                  HOW is "plain", or "rewrite": the send
 *                                  buffer is written before each exchange,
 *                                  which is not timed
 *         counter NAME             ok VALUE: the sum over all ranks of what
 *                                  rsched_mpi_counter() says, or error TEXT
 *         quit
 *   mpirun -np N rsched-bench --once NAME ARGUMENT CALL N
 *       1000 exchanges, and then N between callgrind's marks, to count their
 *       instructions.
 *
 * bench/run is the driver.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_ZERO_STATS (void)0
#define CALLGRIND_DUMP_STATS (void)0
#endif

#include <mpi.h>

#include "calls.h"
#include "librsched/base/line.h"
#include "work.h"

enum { MAX_BATCHES = 4096, WARM_UP = 3, ONCE_WARM_UP = 1000 };

/* Sparse; only what a case needs is ever touched. */
static const size_t shared_size = (size_t)1 << 30;

struct job {
    int rank, ranks;
    struct shared *shared;
    struct work work;
    unsigned salt;
    uint64_t measured; /* lines, by the commands alone: the same on all ranks */
    uint64_t meetings; /* likewise */
    FILE *commands, *reply;
};

static void die(const char *what)
{
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Rank 0 makes the memory; the others on the node open it through /proc, so
 * that no name can be left behind. */
static struct shared *share(int rank)
{
    int where[2] = {getpid(), -1}, fd;
    struct shared *shared;
    char path[64];

    if (rank == 0) {
        where[1] = memfd_create("rsched-bench", MFD_CLOEXEC);
        if (where[1] < 0 || ftruncate(where[1], (off_t)shared_size) != 0)
            die("rsched-bench: shared memory");
    }
    MPI_Bcast(where, 2, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", where[0], where[1]);
    fd = rank == 0 ? where[1] : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        die(path);
    shared = mmap(NULL, shared_size, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (shared == MAP_FAILED)
        die("rsched-bench: mmap");
    MPI_Barrier(MPI_COMM_WORLD);
    close(fd);
    return shared;
}

/* A barrier that sleeps. In an MPI's own, ranks that never yield would still
 * spin on cores that the first exchanges need. */
static void meet(struct job *job)
{
    uint64_t all = ++job->meetings * (uint64_t)job->ranks;

    atomic_fetch_add(&job->shared->arrived, 1);
    while (atomic_load(&job->shared->arrived) < all)
        if (job->ranks > 2)
            usleep(100);
}

/* Ranks 0 and 1 measure; the others keep off the cores meanwhile. */
static double measure_line(struct job *job)
{
    struct rs_line *line = &job->shared->line;

    if (job->ranks < 2)
        return 0;
    job->measured++;
    if (job->rank < 2)
        return rs_line_round_trip(line, job->rank);
    while (atomic_load(&line->done) < job->measured)
        usleep(200);
    return 0;
}

static struct call_state begin(struct job *job, const struct call *call)
{
    struct call_state state = {.work = &job->work, .shared = job->shared};

    call->setup(&state);
    return state;
}

static bool usable(const struct job *job, const struct call *call)
{
    return !call->pair_only ||
           (job->ranks == 2 && calls_shared_size(&job->work) <= shared_size);
}

/* A call must deliver the right bytes before it is timed. */
static void check_call(struct job *job, const char *name, char *reply, size_t size)
{
    const struct call *call = calls_find(name);
    struct call_state state;
    int bad, worst;

    if (call == NULL || job->work.send == NULL || !usable(job, call)) {
        snprintf(reply, size, "error cannot run: %s", name);
        return;
    }
    snprintf(reply, size, "ok");
    if (strcmp(name, "copy") == 0 && job->ranks > 1)
        return; /* it copies as if all messages were the process's own */
    work_fill(&job->work, ++job->salt);
    state = begin(job, call);
    call->run(&state);
    call->run(&state);
    call->teardown(&state);
    bad = work_check(&job->work, job->salt);
    MPI_Allreduce(&bad, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (worst >= 0)
        snprintf(reply, size, "error %s: wrong bytes in message %d", name, worst);
}

static void set_case(struct job *job, const char *name, long argument,
                     bool given, const struct places *places, char *reply, size_t size)
{
    long long bytes = 0;

    work_fini(&job->work);
    if (work_init(&job->work, name, argument, given, places) != 0) {
        snprintf(reply, size, "error no such case: %s %ld", name, argument);
        return;
    }
    for (int s = 0; s < job->work.messages; s++)
        bytes += job->work.counts[s];
    snprintf(reply, size, "ok %d %lld", job->work.messages, bytes);
}

static double time_plain(const struct call *call, struct call_state *state,
                         int exchanges)
{
    double start = rs_line_now();

    for (int i = 0; i < exchanges; i++)
        call->run(state);
    return (rs_line_now() - start) / exchanges;
}

/* As an application does it that computes what it sends: the lines are in this
 * core's cache, and nowhere else. */
static double time_rewritten(const struct call *call, struct call_state *state,
                             int exchanges)
{
    double sum = 0;

    for (int i = 0; i < exchanges; i++) {
        double start, clock;

        work_rewrite(state->work, state->work->send);
        if (call->rewritten != NULL)
            call->rewritten(state);
        start = rs_line_now();
        clock = rs_line_now() - start; /* what reading the clock adds */
        start = rs_line_now();
        call->run(state);
        sum += rs_line_now() - start - clock;
    }
    return sum / exchanges;
}

static double time_batches(const struct call *call, struct call_state *state,
                           int batches, int exchanges, bool rewrite)
{
    static double times[MAX_BATCHES];

    for (int i = 0; i < WARM_UP; i++)
        call->run(state);
    for (int b = 0; b < batches; b++)
        times[b] = rewrite ? time_rewritten(call, state, exchanges)
                           : time_plain(call, state, exchanges);
    qsort(times, (size_t)batches, sizeof(times[0]), rs_line_compare);
    return times[batches / 2];
}

static void run_block(struct job *job, const char *name, int batches,
                      int exchanges, bool rewrite, char *reply, size_t size)
{
    const struct call *call = calls_find(name);
    struct call_state state;
    double ns, slowest, before, after;

    if (call == NULL || job->work.send == NULL || !usable(job, call) ||
        batches < 1 || batches > MAX_BATCHES || exchanges < 1) {
        snprintf(reply, size, "error cannot run: %s %d %d", name, batches,
                 exchanges);
        return;
    }
    before = measure_line(job);
    state = begin(job, call);
    meet(job);
    ns = time_batches(call, &state, batches, exchanges, rewrite);
    meet(job);
    call->teardown(&state);
    MPI_Allreduce(&ns, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    after = measure_line(job);
    snprintf(reply, size, "ok %.1f %.1f %.2f", before, after, slowest);
}

/* rsched_mpi_counter() of rsched/mpi.h; looked up, because the job also runs
 * without the backend. */
typedef int counter_function(const char *name, uint64_t *value);

static void read_counter(const char *name, char *reply, size_t size)
{
    counter_function *counter;
    uint64_t mine[2] = {0, 0}, sum[2];
    int ranks;

    /* POSIX allows the conversion, ISO C has no word for it. */
    *(void **)(void *)&counter = dlsym(RTLD_DEFAULT, "rsched_mpi_counter");
    mine[1] = counter != NULL && counter(name, &mine[0]) == 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Allreduce(mine, sum, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (sum[1] == (uint64_t)ranks)
        snprintf(reply, size, "ok %" PRIu64, sum[0]);
    else
        snprintf(reply, size, "error no counter %s", name);
}

static void serve(struct job *job)
{
    char text[256], reply[256], name[64], how[16];
    int batches, exchanges;
    struct places places;
    long argument;

    while (fgets(text, sizeof(text), job->commands) != NULL) {
        if (sscanf(text, "case %63s %ld %15s %u %u %u", name, &argument, how,
                   &places.send, &places.receive, &places.align) == 6 &&
            places_are_valid(&places))
            set_case(job, name, argument, strcmp(how, "given") == 0, &places,
                     reply, sizeof(reply));
        else if (sscanf(text, "check %63s", name) == 1)
            check_call(job, name, reply, sizeof(reply));
        else if (sscanf(text, "block %63s %d %d %15s", name, &batches,
                        &exchanges, how) == 4)
            run_block(job, name, batches, exchanges,
                      strcmp(how, "rewrite") == 0, reply, sizeof(reply));
        else if (sscanf(text, "counter %63s", name) == 1)
            read_counter(name, reply, sizeof(reply));
        else if (strcmp(text, "quit\n") == 0)
            return;
        else
            snprintf(reply, sizeof(reply), "error not understood: %.64s", text);
        if (job->rank == 0)
            fprintf(job->reply, "%s\n", reply);
    }
}

static FILE *open_pipe(const char *folder, const char *name, const char *mode)
{
    char path[4096];
    FILE *pipe;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    pipe = fopen(path, mode);
    if (pipe == NULL)
        die(path);
    setvbuf(pipe, NULL, _IOLBF, 0);
    return pipe;
}

static void serve_folder(struct job *job, const char *folder)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING], name[32];
    int length;

    snprintf(name, sizeof(name), "command.%d", job->rank);
    job->commands = open_pipe(folder, name, "r");
    if (job->rank == 0) {
        job->reply = open_pipe(folder, "reply", "w");
        MPI_Get_library_version(version, &length);
        version[strcspn(version, "\n")] = '\0';
        fprintf(job->reply, "ok %s\n", version);
    }
    serve(job);
    fclose(job->commands);
    if (job->rank == 0)
        fclose(job->reply);
}

static void run_once(struct job *job, char **arguments)
{
    char reply[128] = "";
    const struct call *call = calls_find(arguments[2]);
    const struct places places = {.align = 1};
    long exchanges = strtol(arguments[3], NULL, 10);
    struct call_state state;

    set_case(job, arguments[0], strtol(arguments[1], NULL, 10), false, &places,
             reply, sizeof(reply));
    if (strncmp(reply, "ok", 2) == 0)
        check_call(job, arguments[2], reply, sizeof(reply));
    if (strncmp(reply, "ok", 2) != 0 || call == NULL || !usable(job, call)) {
        fprintf(stderr, "rsched-bench: --once %s %s %s: %s\n", arguments[0],
                arguments[1], arguments[2], reply);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    state = begin(job, call);
    for (long i = 0; i < ONCE_WARM_UP; i++)
        call->run(&state);
    CALLGRIND_ZERO_STATS;
    for (long i = 0; i < exchanges; i++)
        call->run(&state);
    CALLGRIND_DUMP_STATS;
    call->teardown(&state);
}

/* Ranks take turns on the cores; before MPI_Init, so that its threads follow. */
static void pin(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_LOCAL_RANK");

    if (rank == NULL)
        rank = getenv("MPI_LOCALRANKID"); /* Hydra */
    if (rank != NULL)
        rs_line_pin((int)strtol(rank, NULL, 10));
}

int main(int argc, char **argv)
{
    struct job job = {.salt = 0};
    bool once = argc == 6 && strcmp(argv[1], "--once") == 0;

    pin();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job.ranks);
    if (!once && argc != 2) {
        fprintf(stderr, "usage: rsched-bench FOLDER | --once NAME ARGUMENT "
                        "CALL EXCHANGES (see bench/README.md)\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    job.shared = share(job.rank);
    if (once)
        run_once(&job, argv + 2);
    else
        serve_folder(&job, argv[1]);
    work_fini(&job.work);
    MPI_Finalize();
    return 0;
}
