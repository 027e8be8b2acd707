/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * As `rsched run` has it, nothing set: ordinary memory is adopted, for persistent
 * collectives and messages, and is to the program what it was: what it does with the
 * mapping of a block that it sends from, it finds done. With --patched somebody has
 * overwritten what dlsym() finds of such functions, as MPI libraries do; with --hidden
 * what programs call, so that nothing can be adopted.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rsched/memory.h>

#include "common.h"

#pragma weak rsched_memory_adopted

enum {
    PAGE = 4096,
    BYTES = 64 * PAGE, /* to each of two neighbors */
    ALL = 2 * BYTES,
    SETTLED = 300, /* starts after which all that pays has been done */
};

static MPI_Comm ring;
static char *receive;
static int epoch;

static char value(int sender, int side, int i)
{
    return (char)(sender * 29 + side * 7 + epoch * 13 + i + (i >> 8));
}

/* Side 0 goes to the left. */
static int neighbor(int side)
{
    return (world_rank + (side == 0 ? world_size - 1 : 1)) % world_size;
}

static void fill(char *send)
{
    for (int i = 0; i < ALL; i++)
        send[i] = value(world_rank, i / BYTES, i % BYTES);
}

static bool holds(const char *memory, int first, int end)
{
    for (int i = first; i < end; i++) {
        if (memory[i] != value(world_rank, i / BYTES, i % BYTES))
            return false;
    }
    return true;
}

static bool is_zero(const char *memory, int first, int end)
{
    for (int i = first; i < end; i++) {
        if (memory[i] != 0)
            return false;
    }
    return true;
}

static uint64_t adopted(void)
{
    return counter("adoptions.adopted");
}

/* ---- exchanges of both kinds ---- */

struct transfer {
    MPI_Request requests[4];
    int number;
};

static void make_collective(struct transfer *t, char *send)
{
    t->number = 1;
    INIT(Neighbor_alltoall)(send, BYTES, MPI_BYTE, receive, BYTES, MPI_BYTE, ring,
                            MPI_INFO_NULL, &t->requests[0]);
}

static void make_messages(struct transfer *t, char *send)
{
    t->number = 4;
    for (int side = 0; side < 2; side++) {
        /* What comes from a side its sender has sent to the other one. */
        MPI_Recv_init(receive + side * BYTES, BYTES, MPI_BYTE, neighbor(side),
                      1 - side, ring, &t->requests[side]);
        MPI_Send_init(send + side * BYTES, BYTES, MPI_BYTE, neighbor(side), side,
                      ring, &t->requests[2 + side]);
    }
}

static void step(struct transfer *t, char *send, bool fills)
{
    if (fills) {
        epoch++;
        fill(send);
    }
    memset(receive, 0x55, ALL);
    MPI_Startall(t->number, t->requests);
    MPI_Waitall(t->number, t->requests, MPI_STATUSES_IGNORE);
}

static void check_received(void)
{
    for (int i = 0; i < ALL; i++)
        CHECK(receive[i] == value(neighbor(i / BYTES), 1 - i / BYTES, i % BYTES),
              "byte %d of epoch %d", i, epoch);
}

static void run(struct transfer *t, char *send, int steps)
{
    for (int i = 0; i < steps; i++) {
        step(t, send, true);
        check_received();
    }
}

static void release(struct transfer *t)
{
    for (int i = 0; i < t->number; i++)
        MPI_Request_free(&t->requests[i]);
}

/* ---- what the program does ---- */

static void empty(struct transfer *t, char *send, int advice)
{
    const int first = 10 * PAGE, bytes = 5 * PAGE;

    run(t, send, 1);
    CHECK(madvise(send + first, (size_t)bytes, advice) == 0, "madvise: %m");
    CHECK(is_zero(send, first, first + bytes) || advice == MADV_FREE,
          "advice %d", advice);
    CHECK(holds(send, 0, first) && holds(send, first + bytes, ALL),
          "what is around");
    /* Zeros are sent, then. */
    step(t, send, false);
    CHECK(is_zero(receive, BYTES + first, BYTES + first + bytes) ||
              advice == MADV_FREE,
          "other bytes are sent");
    run(t, send, 2);
}

static void refuse(char *send)
{
    CHECK(madvise(send + PAGE, PAGE, MADV_WIPEONFORK) != 0 && errno == EINVAL,
          "MADV_WIPEONFORK");
    CHECK(mremap(send + PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED &&
              errno == ENOMEM,
          "mremap");
    CHECK(holds(send, 0, ALL), "what it had");
}

/* A child has copies, whatever was said of what it is to have. */
static void fork_after(struct transfer *t, char *send)
{
    pid_t child;
    int status;

    run(t, send, 1);
    CHECK(madvise(send, ALL, MADV_DOFORK) == 0, "MADV_DOFORK: %m");
    child = fork();
    if (child == 0) {
        bool good = holds(send, 0, ALL);

        memset(send, 0x33, ALL);
        _exit(!good);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "child: %#x",
          (unsigned)status);
    CHECK(holds(send, 0, ALL), "the child has written its parent's memory");
}

/* Other memory in the place of some pages. */
static void *map_over(char *address, int pages)
{
    return mmap(address, (size_t)pages * PAGE, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* Some libraries' own functions lose the address. */
static bool can_move(char *from, char *to)
{
    return mremap(from, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) ==
           to;
}

static void move(struct transfer *t, char *send)
{
    char *other = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    memset(other, 0x44, 2 * PAGE);
    if (!can_move(other, other + 3 * PAGE))
        return;
    run(t, send, 1);
    CHECK(can_move(other + 3 * PAGE, send + 70 * PAGE), "mremap: %m");
    CHECK(send[70 * PAGE] == 0x44 && send[72 * PAGE - 1] == 0x44, "moved");
    CHECK(holds(send, 72 * PAGE, ALL), "what is behind");
    run(t, send, 2);
}

static void replace(struct transfer *t, char *send)
{
    void *first;

    run(t, send, 1);
    CHECK(map_over(send + 20 * PAGE, 3) == send + 20 * PAGE, "mmap: %m");
    CHECK(is_zero(send, 20 * PAGE, 23 * PAGE), "new memory");
    CHECK(holds(send, 0, 20 * PAGE) && holds(send, 23 * PAGE, ALL),
          "what is around");
    run(t, send, 2);
    CHECK(munmap(send + 40 * PAGE, PAGE) == 0, "munmap: %m");
    CHECK(map_over(send + 40 * PAGE, 1) == send + 40 * PAGE, "mmap: %m");
    run(t, send, 2);
    move(t, send);
    CHECK(rsched_memory_adopted(send + 23 * PAGE, 17 * PAGE, &first) ==
              17 * PAGE,
          "what is between is not adopted any more");
    /* A call that fails takes nothing away. */
    CHECK(mmap(send + 50 * PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, -1, 0)
              == MAP_FAILED, "mmap of no file");
    CHECK(rsched_memory_adopted(send + 50 * PAGE, PAGE, &first) == PAGE,
          "it is gone");
    run(t, send, 2);
}

static void use(void (*make)(struct transfer *t, char *send))
{
    char *send = aligned_alloc(PAGE, ALL);
    uint64_t before = adopted();
    struct transfer t;
    void *first;

    CHECK(send != NULL, "out of memory");
    make(&t, send);
    run(&t, send, SETTLED);
    CHECK(adopted() - before == ALL, "%" PRIu64 " bytes of %d",
          adopted() - before, ALL);
    empty(&t, send, MADV_DONTNEED);
    empty(&t, send, MADV_FREE);
    refuse(send);
    fork_after(&t, send);
    replace(&t, send);
    release(&t);
    free(send);
    CHECK(rsched_memory_adopted(NULL, SIZE_MAX, &first) == 0, "adopted, but free");
}

/* What was said before holds on: such a block is not adopted. */
static void use_wiped(void)
{
    const int first = 8 * PAGE, end = 16 * PAGE;
    char *send = aligned_alloc(PAGE, ALL);
    uint64_t before = adopted();
    struct transfer t;
    pid_t child;
    int status;

    memset(send, 1, ALL);
    CHECK(madvise(send + first, (size_t)(end - first), MADV_WIPEONFORK) == 0,
          "MADV_WIPEONFORK: %m");
    make_collective(&t, send);
    run(&t, send, SETTLED);
    CHECK(adopted() == before, "%" PRIu64 " bytes are adopted", adopted() - before);
    child = fork();
    if (child == 0)
        _exit(!is_zero(send, first, end) || !holds(send, 0, first) ||
              !holds(send, end, ALL));
    CHECK(waitpid(child, &status, 0) == child && status == 0, "child: %#x",
          (unsigned)status);
    release(&t);
    free(send);
}

/* ---- a library that looks for such calls itself ---- */

static int their_calls;

static int their_madvise(void *address, size_t bytes, int advice)
{
    their_calls++;
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

/* As it is done on x86-64. */
static void overwrite(unsigned char *code, void *by)
{
    unsigned char jump[13] = {0x49, 0xbb, [10] = 0x41, 0xff, 0xe3};
    uintptr_t page = (uintptr_t)code & ~(uintptr_t)(PAGE - 1);

    memcpy(jump + 2, &by, sizeof(by));
    CHECK(mprotect((void *)page, 2 * PAGE,
                   PROT_READ | PROT_WRITE | PROT_EXEC) == 0, "mprotect: %m");
    memcpy(code, jump, sizeof(jump));
    CHECK(mprotect((void *)page, 2 * PAGE, PROT_READ | PROT_EXEC) == 0,
          "mprotect: %m");
}

static void patch(void *code)
{
    overwrite(code, (void *)their_madvise);
    CHECK(madvise(receive, PAGE, MADV_NORMAL) == 0 && their_calls == 1,
          "they do not see it");
}

/* Nothing would be seen of what the program does. */
static void use_hidden(void)
{
    uint64_t before = counter("adoptions.guard");
    char *send = aligned_alloc(PAGE, ALL);
    struct transfer t;

    make_collective(&t, send);
    run(&t, send, SETTLED);
    CHECK(adopted() == 0 && counter("adoptions.guard") - before == ALL,
          "%" PRIu64 " bytes are adopted", adopted());
    release(&t);
    free(send);
}

int main(int argc, char **argv)
{
    bool hidden = false;
    int one = 1;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &one, 0, &ring);
    receive = aligned_alloc(PAGE, ALL);
#ifdef __x86_64__
    if (argc > 1 && strcmp(argv[1], "--patched") == 0)
        patch(dlsym(RTLD_DEFAULT, "madvise"));
    hidden = argc > 1 && strcmp(argv[1], "--hidden") == 0;
    if (hidden)
        patch(dlvsym(RTLD_DEFAULT, "madvise", "GLIBC_2.2.5"));
#endif
    if (hidden) {
        use_hidden();
    } else {
        use(make_collective);
        use(make_messages);
        use_wiped();
    }
    free(receive);
    MPI_Comm_free(&ring);
    MPI_Finalize();
    return PASS;
}
