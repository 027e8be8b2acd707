/* SPDX-License-Identifier: BSD-3-Clause */
/* Long persistent messages, which the receiver copies out of the sender's memory:
 * out of a mapping where there is one, layout to layout in one pass where the
 * blocks are long enough, packed once where they are not, and in few calls of
 * the kernel.
 *
 * pulled [--native] */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rsched/memory.h>

#include "tests/mpi/hope.h"

#pragma weak rsched_memory_add
#pragma weak rsched_memory_remove

enum { ROOM = 200000, TAG = 5 };

static atomic_uint calls;

/* Comes before the C library's. */
__attribute__((visibility("default"))) ssize_t
process_vm_readv(pid_t pid, const struct iovec *here, unsigned long num_here,
                 const struct iovec *there, unsigned long num_there,
                 unsigned long flags)
{
    if (pid != getpid()) /* a sender looks whether its memory can be read */
        atomic_fetch_add(&calls, 1);
    return syscall(SYS_process_vm_readv, pid, here, num_here, there, num_there,
                   flags);
}

/* ---- memory ---- */

enum memory { ORDINARY, GIVEN, WINDOW, NUM_MEMORIES };

static double *memories[NUM_MEMORIES], *in;
static MPI_Win window;

static void make_memories(void)
{
    const MPI_Aint bytes = ROOM * sizeof(double);

    memories[ORDINARY] = allocate((size_t)bytes);
    MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memories[GIVEN]);
    MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                            &memories[WINDOW], &window);
    in = allocate((size_t)bytes);
}

static void free_memories(void)
{
    free(memories[ORDINARY]);
    MPI_Free_mem(memories[GIVEN]);
    MPI_Win_free(&window);
    free(in);
}

/* ---- shapes ---- */

/* Blocks of doubles. */
struct shape {
    int blocks, numbers, stride;
};

static int number_of(const struct shape *s)
{
    return s->blocks * s->numbers;
}

/* Where number `i` of a message lies; a negative stride begins at the end. */
static int place_of(const struct shape *s, int i)
{
    int first = s->stride < 0 ? -s->stride * (s->blocks - 1) : 0;

    return first + i / s->numbers * s->stride + i % s->numbers;
}

static MPI_Datatype make_type(const struct shape *s)
{
    MPI_Datatype type;

    MPI_Type_vector(s->blocks, s->numbers, s->stride, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

static const struct plan {
    const char *name;
    enum memory memory;
    struct shape out, in;
    bool mapped, packed;
    unsigned calls; /* of the kernel, for a message whose layout is known */
} plans[] = {
    {"contiguous", ORDINARY, {1, 3000, 3000}, {1, 3000, 3000}, false, false, 1},
    {"contiguous, given", GIVEN, {1, 3000, 3000}, {1, 3000, 3000}, true, false, 0},
    {"contiguous, window", WINDOW, {1, 90000, 90000}, {1, 90000, 90000}, true, false, 0},
    {"to a face", ORDINARY, {1, 9000, 9000}, {9000, 1, 10}, false, false, 5},
    {"to a face, given", GIVEN, {1, 9000, 9000}, {9000, 1, 10}, true, false, 0},
    {"rows", ORDINARY, {20, 600, 1000}, {20, 600, 700}, false, false, 1},
    {"rows to other rows", ORDINARY, {20, 600, 1000}, {30, 400, 401}, false, false, 3},
    {"rows to short ones", ORDINARY, {20, 600, 1000}, {1200, 10, 12}, false, false, 6},
    {"rows backwards", GIVEN, {20, 600, -1000}, {30, 400, 401}, true, false, 0},
    {"rows, given", GIVEN, {1500, 8, 10}, {1500, 8, 9}, true, false, 0},
    {"rows, window", WINDOW, {1500, 12, 20}, {750, 24, 30}, true, false, 0},
    {"rows to a face, given", GIVEN, {1500, 8, 10}, {12000, 1, 2}, true, false, 0},
    {"face", ORDINARY, {9000, 1, 10}, {9000, 1, 12}, true, true, 0},
    {"face, given", GIVEN, {9000, 1, 10}, {9000, 1, 12}, true, true, 0},
    {"face to contiguous", ORDINARY, {9000, 1, 10}, {1, 9000, 9000}, true, true, 0},
    {"short rows", ORDINARY, {900, 20, 30}, {900, 20, 20}, true, true, 0},
    {"shorter", GIVEN, {1, 3001, 3001}, {100, 100, 110}, true, false, 0},
    {"shorter rows", ORDINARY, {7, 501, 600}, {100, 100, 110}, false, false, 2},
};

/* ---- messages ---- */

static double value(int rank, int round, int i)
{
    return rank * 1e9 + round * 1e6 + i;
}

static void write_out(const struct plan *p, int round)
{
    for (int i = 0; i < number_of(&p->out); i++)
        memories[p->memory][place_of(&p->out, i)] = value(world_rank, round, i);
}

static void fill(const struct plan *p, int round)
{
    write_out(p, round);
    for (int i = 0; i < ROOM; i++)
        in[i] = -1;
}

/* All that comes, and nothing beside it. */
static void verify(const struct plan *p, int peer, int round)
{
    int last = number_of(&p->out), touched = 0;

    for (int i = 0; i < last; i++)
        CHECK(in[place_of(&p->in, i)] == value(peer, round, i),
              "%s, round %d, number %d: %g", p->name, round, i,
              in[place_of(&p->in, i)]);
    for (int i = 0; i < ROOM; i++)
        touched += in[i] != -1;
    CHECK(touched == last, "%s: %d numbers, not %d", p->name, touched, last);
}

struct counts {
    uint64_t sends, pulls, mapped, packed;
    unsigned calls;
};

static struct counts look(void)
{
    return (struct counts){counter("lane_sends"), counter("lane_pulls"),
                           counter("lane_mapped"), counter("lane_packed"),
                           atomic_load(&calls)};
}

/* Whether this round's messages have been pulled, and in the right way. */
static bool is_pulled(const struct plan *p, const struct counts *before,
                      bool known)
{
    struct counts now = look();
    bool itself = world_size == 1;

    if (!is_accelerated())
        return true;
    /* Either may have gone natively. */
    if (now.pulls == before->pulls || now.sends == before->sends)
        return false;
    CHECK((now.mapped > before->mapped) == (p->mapped || itself),
          "%s: out of which memory?", p->name);
    CHECK(now.packed == before->packed || (p->packed && !itself),
          "%s: packed", p->name);
    CHECK(now.packed > before->packed || !p->packed || itself,
          "%s: not packed", p->name);
    CHECK(!known || now.calls - before->calls <= (itself ? 0 : p->calls),
          "%s: %u calls of the kernel", p->name, now.calls - before->calls);
    return true;
}

static bool all_of(bool mine)
{
    int good = mine, all;

    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all != 0;
}

/* Until messages have been pulled twice in a row: the second one's layout is
 * known. */
static void exchange(const struct plan *p, MPI_Request requests[2])
{
    struct hope hope = {0};
    int peer = world_size - 1 - world_rank, streak = 0;

    for (int round = 1; streak < 2; round++) {
        struct counts before;
        MPI_Status statuses[2];
        int got;

        fill(p, round);
        before = look();
        MPI_Startall(2, requests);
        MPI_Wait(&requests[1], &statuses[1]);
        write_out(p, 0); /* nobody reads it any more */
        MPI_Wait(&requests[0], &statuses[0]);
        streak = all_of(is_pulled(p, &before, streak > 0)) ? streak + 1 : 0;
        verify(p, peer, round);
        MPI_Get_count(&statuses[0], MPI_DOUBLE, &got);
        CHECK(got == number_of(&p->out), "%s: %d", p->name, got);
        if (streak == 0)
            go_on(&hope, p->name);
    }
}

static void make_requests(const struct plan *p, MPI_Comm comm,
                          MPI_Request requests[2])
{
    MPI_Datatype out = make_type(&p->out), to = make_type(&p->in);
    int peer = world_size - 1 - world_rank;
    double *first = memories[p->memory] + place_of(&p->out, 0);

    MPI_Recv_init(in + place_of(&p->in, 0), 1, to, peer, TAG, comm,
                  &requests[0]);
    MPI_Send_init(first, 1, out, peer, TAG, comm, &requests[1]);
    MPI_Type_free(&out);
    MPI_Type_free(&to);
}

static void free_requests(MPI_Request requests[2])
{
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

/* On a communicator of its own, whose slots are as short as they can be. */
static void run(const struct plan *p)
{
    MPI_Request requests[2];
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    make_requests(p, comm, requests);
    exchange(p, requests);
    free_requests(requests);
    MPI_Comm_free(&comm);
}

/* ---- memory that comes and goes ---- */

/* A request whose memory becomes one that can be mapped, and ceases to be. */
static const struct plan change_plans[] = {
    {"contiguous that comes and goes", WINDOW, {1, 3000, 3000}, {1, 3000, 3000}, false, false, 1},
    {"rows that come and go", WINDOW, {20, 600, 1000}, {20, 600, 700}, false, false, 1},
    {"short rows that come and go", WINDOW, {1500, 8, 10}, {1500, 8, 9}, true, true, 0},
};

static void come_and_go(const struct plan *unmapped, double *parts[2])
{
    static uint64_t id = 1000; /* none comes again */
    const size_t bytes = ROOM * sizeof(double);
    struct plan mapped = *unmapped;
    MPI_Request requests[2];

    mapped.mapped = true;
    mapped.packed = false;
    make_requests(unmapped, MPI_COMM_WORLD, requests);
    for (int times = 0; times < 3; times++, id += 2) {
        exchange(unmapped, requests);
        for (int rank = 0; rank < 2; rank++)
            CHECK(rsched_memory_add(id + (uint64_t)rank, parts[rank], bytes) ==
                      0, "not added");
        MPI_Barrier(MPI_COMM_WORLD);
        exchange(&mapped, requests);
        for (int rank = 0; rank < 2; rank++)
            CHECK(rsched_memory_remove(id + (uint64_t)rank) == 0,
                  "not removed");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free_requests(requests);
}

static void change_memories(void)
{
    double *before = memories[WINDOW], *parts[2];
    MPI_Win hidden;

    if (!is_accelerated() || world_size != 2)
        return;
    /* The backend does not hear of it. */
    PMPI_Win_allocate_shared(ROOM * sizeof(double), 1, MPI_INFO_NULL,
                             MPI_COMM_WORLD, &memories[WINDOW], &hidden);
    for (int rank = 0; rank < 2; rank++) {
        MPI_Aint size;
        int unit;

        PMPI_Win_shared_query(hidden, rank, &size, &unit, &parts[rank]);
    }
    for (size_t i = 0; i < sizeof(change_plans) / sizeof(change_plans[0]); i++)
        come_and_go(&change_plans[i], parts);
    PMPI_Win_free(&hidden);
    memories[WINDOW] = before;
}

int main(int argc, char **argv)
{
    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    make_memories();
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++)
        run(&plans[i]);
    change_memories();
    free_memories();
    return test_fini("pulled");
}
