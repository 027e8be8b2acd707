/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A small stencil code with the halo exchange of SCALE-LES3's dynamics: steps
 * of advection and diffusion, then the exchange alone, timed.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

#include "counters.h"
#include "exchange.h"
#include "field.h"

enum { MAX_TIMES = 1 << 20 };

struct options {
    int levels, width; /* cells of a process's part: levels x width x width */
    int steps;
    int exchanges;     /* timed ones at most */
    double seconds;    /* spent on them at most */
    enum call call;
    bool verify, rsched, csv, progress;
};

struct result {
    uint64_t hash;
    double integral, drift; /* conserved quantity; relative change in all steps */
    double steps_seconds;   /* of all steps with their exchanges */
    double median_us, mean_us; /* of one exchange, the slowest process's */
    int exchanges;
    uint64_t bytes; /* that one process sends in an exchange */
    uint64_t all_bytes; /* that all processes have sent in all exchanges */
    struct counters counters;
};

static const char usage[] =
    "usage: mpirun -np N halo [options]\n"
    "  --grid K        levels (60); a process has K x 16 x 16 cells\n"
    "  --width N       columns along x and y (16)\n"
    "  --steps N       steps to compute (20)\n"
    "  --exchanges N   exchanges to time after the steps, at most (1000)\n"
    "  --seconds T     time to spend on them, at most (2)\n"
    "  --call persistent|blocking   MPI_Neighbor_alltoallw_init or not\n"
    "  --verify        compute it again on one process and compare\n"
    "  --rsched        fail unless rsched has carried every exchange\n"
    "  --progress      show steps (on when standard error is a terminal)\n"
    "  --csv           print one line: mpi,call,ranks,grid,steps,\n"
    "                  bytes_per_exchange,exchanges,median_us,mean_us,\n"
    "                  steps_s,integral,hash,all_bytes,rsched_bytes,\n"
    "                  accelerated,native,edges (rsched's counters, sums over\n"
    "                  all processes, 0 without rsched)\n";

static void quit(int rank, int status, const char *why, const char *what)
{
    if (rank == 0 && status == 0)
        fputs(usage, stdout);
    else if (rank == 0)
        fprintf(stderr, "halo: %s%s\n", why, what);
    MPI_Finalize();
    exit(status);
}

static double number(int rank, const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value >= least && value <= most))
        quit(rank, 2, "not a number in the allowed range: ", text);
    return value;
}

static int count(int rank, const char *text, int least, int most)
{
    double value = number(rank, text, least, most);

    if (value != (int)value)
        quit(rank, 2, "not a whole number: ", text);
    return (int)value;
}

static enum call parse_call(int rank, const char *text)
{
    if (strcmp(text, "persistent") != 0 && strcmp(text, "blocking") != 0)
        quit(rank, 2, "--call is persistent or blocking, not ", text);
    return text[0] == 'p' ? CALL_PERSISTENT : CALL_BLOCKING;
}

static void parse(int argc, char **argv, int rank, struct options *o)
{
    static const struct option names[] = {
        {"grid", 1, NULL, 'k'},    {"width", 1, NULL, 'w'},
        {"steps", 1, NULL, 's'},   {"exchanges", 1, NULL, 'n'},
        {"seconds", 1, NULL, 't'}, {"call", 1, NULL, 'c'},
        {"verify", 0, NULL, 'v'},  {"csv", 0, NULL, 'm'},
        {"rsched", 0, NULL, 'r'},
        {"progress", 0, NULL, 'p'}, {"help", 0, NULL, 'h'},
        {NULL, 0, NULL, 0}};

    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 'k': o->levels = count(rank, optarg, 1, 1 << 20); break;
        case 'w': o->width = count(rank, optarg, HALO, 1 << 12); break;
        case 's': o->steps = count(rank, optarg, 0, 1 << 30); break;
        case 'n': o->exchanges = count(rank, optarg, 0, MAX_TIMES); break;
        case 't': o->seconds = number(rank, optarg, 0, 1e6); break;
        case 'c': o->call = parse_call(rank, optarg); break;
        case 'v': o->verify = true; break;
        case 'r': o->rsched = true; break;
        case 'm': o->csv = true; break;
        case 'p': o->progress = true; break;
        case 'h': quit(rank, 0, "", ""); break;
        default: quit(rank, 2, "not understood: ", argv[optind - 1]);
        }
    }
    if (optind < argc)
        quit(rank, 2, "not understood: ", argv[optind]);
}

static struct place find_place(int rank, int size)
{
    int dims[2] = {0, 0};

    MPI_Dims_create(size, 2, dims);
    return (struct place){.px = dims[0], .py = dims[1],
                          .x = rank % dims[0], .y = rank / dims[0]};
}

static struct field make_field(const struct options *o,
                               const struct place *place, bool whole)
{
    int width = o->width;
    struct field f = {.nx = whole ? width * place->px : width,
                      .ny = whole ? width * place->py : width,
                      .nz = o->levels,
                      .x0 = whole ? 0 : width * place->x,
                      .y0 = whole ? 0 : width * place->y,
                      .gx = width * place->px, .gy = width * place->py};

    if (field_init(&f) != 0) {
        fprintf(stderr, "halo: out of memory for %d x %d x %d cells\n", f.nx,
                f.ny, f.nz);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return f;
}

static double global_integral(const struct field *f)
{
    int64_t part = field_integral(f), sum;

    MPI_Allreduce(&part, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return (double)sum * 0x1p-36;
}

static void show(const struct options *o, int rank, const char *what, int done,
                 int all)
{
    if (!o->progress || rank != 0)
        return;
    fprintf(stderr, "\r%s %d of %d%s", what, done, all,
            done == all ? "\n" : "");
    fflush(stderr);
}

static void run_steps(const struct options *o, int rank, struct field *f,
                      struct exchange *e, struct result *r)
{
    double before = global_integral(f), start = MPI_Wtime();

    for (int i = 0; i < o->steps; i++) {
        field_close_top_and_bottom(f);
        exchange_run(e);
        field_step(f);
        if ((i + 1) % 10 == 0 || i + 1 == o->steps)
            show(o, rank, "step", i + 1, o->steps);
    }
    r->steps_seconds = MPI_Wtime() - start;
    r->integral = global_integral(f);
    r->drift = (r->integral - before) / before;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* How many exchanges to make before looking at the clock again: as many as have
 * been made, so that there are few such breaks, in which ranks of an MPI that
 * never yields take each other's time; but not beyond the time allowed. */
static int next_batch(const struct options *o, int done, double elapsed)
{
    double left = (o->seconds - elapsed) / (elapsed / done);
    int batch = done;

    if (left < batch)
        batch = left < 1 ? 0 : (int)left;
    return batch < o->exchanges - done ? batch : o->exchanges - done;
}

/* Exchanges with nothing between them change nothing, as the halo is up to
 * date. Rank 0 decides after each batch whether there is another. */
static void time_exchanges(const struct options *o, int rank,
                           struct exchange *e, struct result *r)
{
    double *times = malloc((size_t)(o->exchanges + 1) * sizeof(*times));
    double begin = MPI_Wtime(), mine[2] = {0, 0}, slowest[2];
    int done = 0, batch = 1;

    if (times == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    while (batch > 0) {
        for (int end = done + batch; done < end; done++) {
            double start = MPI_Wtime();

            exchange_run(e);
            times[done] = MPI_Wtime() - start;
            mine[1] += times[done];
        }
        show(o, rank, "exchange", done, o->exchanges);
        batch = next_batch(o, done, MPI_Wtime() - begin);
        MPI_Bcast(&batch, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (o->progress && rank == 0 && done < o->exchanges)
        fputc('\n', stderr);
    qsort(times, (size_t)done, sizeof(*times), compare);
    mine[0] = times[done / 2];
    mine[1] /= done;
    MPI_Allreduce(mine, slowest, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    r->median_us = slowest[0] * 1e6;
    r->mean_us = slowest[1] * 1e6;
    r->exchanges = done;
    free(times);
}

/* Whether the whole grid, computed by rank 0 alone, has the same hash. */
static bool verify(const struct options *o, int rank,
                   const struct place *place, uint64_t hash)
{
    int good = 1;

    if (rank == 0) {
        struct field f = make_field(o, place, true);

        for (int i = 0; i < o->steps; i++) {
            field_close_top_and_bottom(&f);
            field_wrap(&f);
            field_step(&f);
            show(o, rank, "verify: step", i + 1, o->steps);
        }
        good = field_hash(&f) == hash;
        fprintf(stderr, "halo: verify: %s\n",
                good ? "equal to the serial result, to the bit"
                     : "DIFFERS from the serial result");
        field_fini(&f);
    }
    MPI_Bcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return good;
}

static const char *mpi_name(void)
{
#if defined(OPEN_MPI)
    return "openmpi";
#elif defined(MPICH_VERSION)
    return "mpich";
#else
    return "mpi";
#endif
}

static void print_csv(const char *call, const struct options *o,
                      const struct place *p, const struct result *r)
{
    printf("%s,%s,%d,%d,%d,%" PRIu64 ",%d,%.3f,%.3f,%.6f,%.9g,%016" PRIx64
           ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n",
           mpi_name(), call, p->px * p->py, o->levels, o->steps, r->bytes,
           r->exchanges, r->median_us, r->mean_us, r->steps_seconds,
           r->integral, r->hash, r->all_bytes, r->counters.bytes,
           r->counters.accelerated, r->counters.native, r->counters.edges);
}

static void print(const struct options *o, const struct place *p,
                  const struct result *r)
{
    const char *call = o->call == CALL_PERSISTENT ? "persistent" : "blocking";

    if (o->csv) {
        print_csv(call, o, p, r);
        return;
    }
    printf("%d processes (%d x %d), each %d x %d x %d cells, %s calls of %s\n",
           p->px * p->py, p->px, p->py, o->levels, o->width, o->width, call,
           mpi_name());
    printf("%d steps in %.3f s\n", o->steps, r->steps_seconds);
    printf("integral %.9g, changed by %.1e in all\n", r->integral, r->drift);
    printf("one exchange: %d messages, %" PRIu64 " bytes out of each process, "
           "median %.2f us, mean %.2f us (%d timed)\n",
           NUM_MESSAGES, r->bytes, r->median_us, r->mean_us, r->exchanges);
    if (r->counters.loaded)
        printf("rsched carried %" PRIu64 " of %" PRIu64 " bytes over %" PRIu64
               " edges\n",
               r->counters.bytes, r->all_bytes, r->counters.edges);
    printf("hash %016" PRIx64 "\n", r->hash);
}

/* What the result must be, however it was computed; false if it is not. */
static bool check(const struct options *o, int rank, const struct result *r)
{
    const char *wrong = NULL;

    if (r->drift > 1e-9 || r->drift < -1e-9)
        wrong = "the integral is not conserved";
    else if (o->rsched && !r->counters.loaded)
        wrong = "rsched is not loaded";
    else if (o->rsched && r->counters.bytes != r->all_bytes)
        wrong = "rsched has not carried all bytes";
    if (wrong != NULL && rank == 0)
        fprintf(stderr, "halo: %s\n", wrong);
    return wrong == NULL;
}

static void run(const struct options *o, int rank, int size, struct field *f,
                struct exchange *e, struct result *r)
{
    uint64_t hash;

    r->bytes = exchange_bytes(e);
    run_steps(o, rank, f, e, r);
    hash = field_hash(f);
    MPI_Allreduce(&hash, &r->hash, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (o->exchanges > 0)
        time_exchanges(o, rank, e, r);
    r->all_bytes = r->bytes * (uint64_t)size *
                   (uint64_t)(o->steps + r->exchanges);
    r->counters = counters_read();
}

int main(int argc, char **argv)
{
    struct options o = {.levels = 60, .width = 16, .steps = 20,
                        .exchanges = 1000, .seconds = 2,
                        .progress = isatty(STDERR_FILENO)};
    struct result r = {0};
    struct exchange e;
    struct place place;
    struct field f;
    int rank, size;
    bool good;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    parse(argc, argv, rank, &o);
    place = find_place(rank, size);
    f = make_field(&o, &place, false);
    exchange_init(&e, &f, &place, o.call);
    run(&o, rank, size, &f, &e, &r);
    if (rank == 0)
        print(&o, &place, &r);
    good = check(&o, rank, &r);
    if (o.verify)
        good = verify(&o, rank, &place, r.hash) && good;
    exchange_fini(&e);
    field_fini(&f);
    MPI_Finalize();
    return good ? 0 : 1;
}
