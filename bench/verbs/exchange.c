/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executes plans as exchanges of rsched: two processes on two hosts send each
 * other the same puts, each plan's queues as the schedule. MPI starts the
 * processes and carries what rsched says while it makes exchanges.
 *
 * Usage: mpirun -np 2 exchange FILE MACHINE REPETITIONS (plans.h has the
 * format). Lines of stdout:
 *     NAME RUN NS              until all has arrived and is acknowledged
 */
#include <inttypes.h>
#include <mpi.h>
#include <rsched/engine.h>
#include <rsched/rsched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/verbs/plans.h"
#include "bench/verbs/together.h"

static int rank;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "exchange: %s: %s\n", what, rsched_last_error());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    abort();
}

static void *get_memory(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);

    if (memory == NULL)
        die("no memory");
    return memory;
}

/* ---- out of band, by MPI; one exchange is made at a time ---- */

struct rsched_oob_request {
    MPI_Request request;
};

static int oob_isend(void *arg, int peer, uint64_t tag, const void *buffer,
                     size_t length, struct rsched_oob_request **request)
{
    (void)arg;
    *request = get_memory(1, sizeof(**request));
    MPI_Isend(buffer, (int)length, MPI_BYTE, peer, (int)tag, MPI_COMM_WORLD,
              &(*request)->request);
    return 0;
}

static int oob_irecv(void *arg, int peer, uint64_t tag, void *buffer,
                     size_t length, struct rsched_oob_request **request)
{
    (void)arg;
    *request = get_memory(1, sizeof(**request));
    MPI_Irecv(buffer, (int)length, MPI_BYTE, peer, (int)tag, MPI_COMM_WORLD,
              &(*request)->request);
    return 0;
}

static int oob_test(void *arg, struct rsched_oob_request *request, bool *done)
{
    int flag;

    (void)arg;
    MPI_Test(&request->request, &flag, MPI_STATUS_IGNORE);
    *done = flag != 0;
    if (*done)
        free(request);
    return 0;
}

static void oob_cancel(void *arg, struct rsched_oob_request *request)
{
    (void)arg;
    MPI_Cancel(&request->request);
    MPI_Wait(&request->request, MPI_STATUS_IGNORE);
    free(request);
}

/* ---- exchanges ---- */

/* A plan that is ready to be run. */
struct prepared {
    struct rsched_exchange *x;
    uint64_t bytes;
    char *buffers;
};

static size_t count_puts(const struct plan *plan, uint64_t *bytes)
{
    size_t count = 0;

    for (size_t r = 0; r < PLAN_RAILS_MOST; r++) {
        count += plan->rails[r].num_puts;
        for (size_t i = 0; i < plan->rails[r].num_puts; i++)
            *bytes += plan->rails[r].bytes[i];
    }
    return count;
}

/* Both ways of each put, rail by rail; where each is and its place. */
static void add_puts(const struct plan *plan, struct rsched_pattern *pattern,
                     uint32_t *engines, uint32_t *positions, uint64_t *offsets)
{
    uint64_t offset = 0;
    size_t n = 0;

    for (uint32_t r = 0; r < PLAN_RAILS_MOST; r++) {
        for (uint32_t i = 0; i < plan->rails[r].num_puts; i++, n++) {
            struct rsched_put put = {.bytes = plan->rails[r].bytes[i],
                                     .source = rank,
                                     .destination = 1 - rank};

            if (rsched_pattern_add_put(pattern, &put) < 0)
                die(plan->name);
            put.source = 1 - rank;
            put.destination = rank;
            if (rsched_pattern_add_receive(pattern, &put) < 0)
                die(plan->name);
            engines[n] = r;
            positions[n] = i;
            offsets[n] = offset;
            offset += put.bytes;
        }
    }
}

static struct prepared prepare(struct rsched_context *context,
                               struct rsched_machine *machine,
                               const struct plan *plan, uint64_t tag)
{
    struct prepared p = {0};
    size_t count = count_puts(plan, &p.bytes);
    uint32_t *engines = get_memory(count, sizeof(*engines));
    uint32_t *positions = get_memory(count, sizeof(*positions));
    uint64_t *offsets = get_memory(count, sizeof(*offsets));
    const void **send = get_memory(count, sizeof(*send));
    void **receive = get_memory(count, sizeof(*receive));
    struct rsched_exchange_params params = {.send = send, .receive = receive,
                                            .tag = tag};
    struct rsched_pattern *pattern;
    struct rsched_schedule *schedule;

    if (rsched_pattern_create(plan->name, &pattern) != 0)
        die(plan->name);
    add_puts(plan, pattern, engines, positions, offsets);
    p.buffers = get_memory(2, p.bytes);
    for (size_t i = 0; i < count; i++) {
        send[i] = p.buffers + offsets[i];
        receive[i] = p.buffers + p.bytes + offsets[i];
    }
    if (rsched_schedule_create_queues(pattern, machine, "given", engines,
                                      positions, &schedule) != 0)
        die(plan->name);
    params.pattern = pattern;
    params.schedule = schedule;
    if (rsched_exchange_create(context, &params, &p.x) != 0)
        die(plan->name);
    rsched_schedule_destroy(schedule);
    rsched_pattern_destroy(pattern);
    free(engines);
    free(positions);
    free(offsets);
    free(send);
    free(receive);
    return p;
}

/* Both start at a time that was agreed on; until the later one is done. */
static uint64_t run(struct prepared *p)
{
    uint64_t start, took, longest;

    memset(p->buffers + p->bytes, 0, p->bytes);
    start = together_start();
    if (rsched_exchange_start(p->x) != 0 || rsched_exchange_wait(p->x) != 0)
        die("an epoch failed");
    took = start_clock() - start;
    MPI_Allreduce(&took, &longest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    if (memcmp(p->buffers, p->buffers + p->bytes, p->bytes) != 0)
        die("something else arrived");
    return longest;
}

/* What is measured must have gone over verbs. */
static void check_engine(const struct prepared *p, unsigned long epochs)
{
    struct rsched_stats stats;
    size_t verbs = 0;

    while (strcmp(rsched_engine_at(verbs)->name, "verbs") != 0)
        verbs++;
    rsched_exchange_get_stats(p->x, &stats);
    if (stats.engine_bytes[verbs] != epochs * p->bytes)
        die("bytes went another way");
}

/* Processes of different hosts must not find out that they share a kernel. Who
 * spins takes the processors from the fabric, which they emulate. */
static struct rsched_context *open_context(void)
{
    struct rsched_context_params params = {
        .process = rank,
        .num_processes = 2,
        .num_local = 1,
        .job = 1,
        .oob = {.isend = oob_isend,
                .irecv = oob_irecv,
                .test = oob_test,
                .cancel = oob_cancel},
    };
    struct rsched_context *context;
    char name[256] = "";

    gethostname(name, sizeof(name) - 1);
    setenv("RSCHED_NODE", name, 1);
    setenv("RSCHED_SPIN", "0", 0);
    setenv("RSCHED_YIELD", "0", 0);
    setenv("RSCHED_ACK_TIMEOUT", "25", 0); /* RAIL_TIMEOUT_MEASURED */
    if (rsched_context_create(&params, &context) != 0)
        die("opening");
    return context;
}

int main(int argc, char **argv)
{
    unsigned long repetitions = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    struct rsched_context *context;
    struct rsched_machine *machine;
    struct prepared *prepared;
    struct plans all;
    int size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (repetitions == 0 || size != 2)
        die("usage: mpirun -np 2 exchange FILE MACHINE REPETITIONS");
    all = plans_read(argv[1]);
    if (rsched_machine_open(argv[2], &machine) != 0)
        die(argv[2]);
    context = open_context();
    prepared = get_memory(all.count, sizeof(*prepared));
    for (size_t i = 0; i < all.count; i++) {
        prepared[i] = prepare(context, machine, &all.plans[i], i);
        for (uint64_t b = 0; b < prepared[i].bytes; b++)
            prepared[i].buffers[b] = (char)(b * 7 + i + 1);
    }
    for (unsigned long r = 0; r < repetitions; r++) {
        for (size_t i = 0; i < all.count; i++) {
            uint64_t time = run(&prepared[i]);

            if (rank == 0)
                printf("%s %lu %" PRIu64 "\n", all.plans[i].name, r, time);
        }
    }
    for (size_t i = 0; i < all.count; i++) {
        check_engine(&prepared[i], repetitions);
        rsched_exchange_destroy(prepared[i].x);
        free(prepared[i].buffers);
    }
    free(prepared);
    rsched_context_destroy(context);
    rsched_machine_destroy(machine);
    plans_free(&all);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
