/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send buffers of malloc are adopted in place, and remain memory of malloc:
 * every way to allocate and to free it, zeros where zeros are promised, forks
 * and other programs, while threads allocate, fork and run programs as well.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rsched/memory.h>

#include "common.h"

#pragma weak rsched_memory_adopted

enum { PAGE = 4096, MAX_BYTES = 400000, ROUNDS = 24 };

static MPI_Comm ring;
static char statics[200000];

static char value(int sender, int side, int epoch, int i)
{
    return (char)(sender * 29 + side * 7 + epoch * 13 + i + (i >> 8));
}

/* Two messages in each direction of the ring; side 0 goes to the left. */
static int neighbor(int side)
{
    return (world_rank + (side == 0 ? world_size - 1 : 1)) % world_size;
}

static uint64_t pulled(void)
{
    return counter("ways.pull") + counter("ways.direct");
}

static void fill(char *send, int bytes, int epoch)
{
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < bytes; i++)
            send[side * bytes + i] = value(world_rank, side, epoch, i);
}

static int count_wrong(const char *receive, int bytes, int epoch)
{
    int wrong = 0;

    for (int side = 0; side < 2; side++)
        for (int i = 0; i < bytes; i++)
            wrong += receive[side * bytes + i] !=
                     value(neighbor(side), 1 - side, epoch, i);
    return wrong;
}

static int count_differing(const char *send, int bytes, int epoch)
{
    int wrong = 0;

    for (int side = 0; side < 2; side++)
        for (int i = 0; i < bytes; i++)
            wrong += send[side * bytes + i] !=
                     value(world_rank, side, epoch, i);
    return wrong;
}

/* The child has what its parent had, to itself. */
static void fork_once(char *send, int bytes, int epoch)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        int bad = count_differing(send, bytes, epoch) != 0;

        fill(send, bytes, epoch + 1);
        usleep(2000);
        bad |= count_differing(send, bytes, epoch + 1) != 0;
        free(malloc(300000));
        _exit(bad);
    }
    fill(send, bytes, epoch + 2);
    CHECK(waitpid(child, &status, 0) == child, "no child");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "the child sees its parent's memory: %#x", (unsigned)status);
    CHECK(count_differing(send, bytes, epoch + 2) == 0,
          "the parent sees its child's memory");
    fill(send, bytes, epoch);
}

/* Exchange as often as it takes to adopt, and some; all that the pages hold is
 * pulled then. */
static void exchange(char *send, int bytes, bool adopted, bool fork)
{
    static int epoch;
    char *receive = malloc(2 * (size_t)bytes);
    uint64_t before, whole = 0;
    MPI_Request request;

    CHECK(receive != NULL, "out of memory");
    for (int side = 0; side < 2; side++) {
        uintptr_t low = (uintptr_t)send + (uintptr_t)side * (uintptr_t)bytes;
        uintptr_t first = (low + PAGE - 1) / PAGE * PAGE;
        uintptr_t end = (low + (uintptr_t)bytes) / PAGE * PAGE;

        whole += end > first ? end - first : 0;
    }
    INIT(Neighbor_alltoall)(send, bytes, MPI_BYTE, receive, bytes, MPI_BYTE,
                            ring, MPI_INFO_NULL, &request);
    for (int i = 0; i < 4; i++, epoch++) {
        before = pulled();
        fill(send, bytes, epoch);
        memset(receive, 0x55, 2 * (size_t)bytes);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(count_wrong(receive, bytes, epoch) == 0, "epoch %d: %d bytes",
              epoch, count_wrong(receive, bytes, epoch));
        CHECK(count_differing(send, bytes, epoch) == 0,
              "the send buffer has changed");
        if (i >= 1)
            CHECK(adopted ? pulled() - before >= whole
                          : pulled() == before,
                  "%" PRIu64 " bytes of %" PRIu64, pulled() - before, whole);
        if (fork && i == 2)
            fork_once(send, bytes, epoch);
        if (i == 2) /* what is adopted may be taken for free memory by none */
            malloc_trim(0);
    }
    MPI_Request_free(&request);
    free(receive);
}

static void test_allocators(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        int bytes = 20000 + (round * 7919) % (MAX_BYTES - 20000);
        size_t size = 2 * (size_t)bytes;
        void *aligned = NULL;
        char *send, *larger;

        send = malloc(size);
        exchange(send, bytes, true, round % 8 == 0);
        fill(send, bytes, 7);
        larger = realloc(send, size + 100000);
        CHECK(larger != NULL && count_differing(larger, bytes, 7) == 0,
              "realloc");
        exchange(larger, bytes, true, false);
        fill(larger, bytes, 8);
        larger = realloc(larger, size / 2);
        for (int i = 0; i < bytes; i++)
            CHECK(larger[i] == value(world_rank, 0, 8, i), "byte %d", i);
        free(larger);
        send = calloc(2, (size_t)bytes);
        for (size_t i = 0; i < size; i++)
            CHECK(send[i] == 0, "calloc: byte %zu", i);
        exchange(send, bytes, true, false);
        free(send);
        CHECK(posix_memalign(&aligned, 64, size) == 0, "posix_memalign");
        exchange(aligned, bytes, true, false);
        free(aligned);
        aligned = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE);
        exchange(aligned, bytes, true, false);
        free(aligned);
        if (round % 4 == 0)
            malloc_trim(0);
        if (round % 8 == 1)
            CHECK(system("true") == 0, "system");
    }
}

/* The heap gives the same addresses to blocks of other sizes. */
static void test_reuse(void)
{
    for (int round = 0; round < 50; round++) {
        char *blocks[8];

        for (int i = 0; i < 8; i++)
            blocks[i] = malloc(40000);
        exchange(blocks[3], 20000, true, false);
        exchange(blocks[5], 20000, true, false);
        for (int i = 0; i < 8; i++)
            free(blocks[i]);
        for (int i = 0; i < 8; i++) {
            blocks[i] = calloc(1, 50000 - 1000 * (size_t)(round % 9));
            for (int k = 0; k < 40000; k++)
                CHECK(blocks[i][k] == 0, "calloc: byte %d", k);
            memset(blocks[i], 0xee, 40000);
        }
        for (int i = 0; i < 8; i++)
            free(blocks[i]);
    }
}

/* Persistent messages side by side, of which none has enough whole pages alone: they are
 * adopted together, and pulled as if they lay in one region. */
static void test_side_by_side(bool at_once)
{
    enum { BYTES = 3 * PAGE + 1024, STEPS = 12 };
    char *memory = aligned_alloc(PAGE, 8 * PAGE), *send = memory + 1024;
    char *receive = malloc(2 * BYTES);
    uint64_t adopted = counter("adoptions.adopted"), mapped;
    MPI_Request requests[4];

    for (int side = 0; side < 2; side++) {
        MPI_Recv_init(receive + side * BYTES, BYTES, MPI_BYTE, neighbor(side), 1 - side, ring,
                      &requests[side]);
        MPI_Send_init(send + side * BYTES, BYTES, MPI_BYTE, neighbor(side), side, ring,
                      &requests[2 + side]);
    }
    for (int epoch = 0; epoch < STEPS; epoch++) {
        mapped = counter("lane_mapped");
        fill(send, BYTES, epoch);
        memset(receive, 0x55, 2 * BYTES);
        if (at_once)
            MPI_Startall(4, requests);
        for (int i = 0; i < 4 && !at_once; i++)
            MPI_Start(&requests[i]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        CHECK(count_wrong(receive, BYTES, epoch) == 0, "epoch %d: %d bytes", epoch,
              count_wrong(receive, BYTES, epoch));
        CHECK(count_differing(send, BYTES, epoch) == 0, "the send buffer has changed");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK(counter("adoptions.adopted") == adopted + 5 * PAGE, "%" PRIu64 " bytes",
          counter("adoptions.adopted") - adopted);
    CHECK(counter("lane_mapped") == mapped + 2, "%" PRIu64 " of the last step",
          counter("lane_mapped") - mapped);
    for (int i = 0; i < 4; i++)
        MPI_Request_free(&requests[i]);
    free(receive);
    free(memory);
}

/* Of an irregular type, whose runs nobody counts any more. */
static MPI_Datatype make_opaque(int *bytes)
{
    enum { RUNS = 100000 };
    int *at = malloc(RUNS * sizeof(*at)), next = 0;
    MPI_Datatype type;

    for (int i = 0; i < RUNS; i++) {
        at[i] = next;
        next += 2 + i * 7919 % 5;
    }
    MPI_Type_create_indexed_block(RUNS, 1, at, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    free(at);
    *bytes = RUNS;
    return type;
}

/* What lies behind a persistent send, of whose last page it has a part. */
enum beside { INACTIVE, COMPLETE, FREED, RECEIVED, STRIDED, OPAQUE, NUM_BESIDE };

static void start_beside(enum beside what, MPI_Request *mine, MPI_Request *beside)
{
    int done = 0;

    if (what == INACTIVE)
        return;
    MPI_Startall(2, beside); /* of the receive and the send of what is beside */
    if (what == FREED)
        MPI_Request_free(&beside[1]);
    while (what == COMPLETE && !done) {
        int received;

        MPI_Request_get_status(beside[0], &received, MPI_STATUS_IGNORE);
        MPI_Request_get_status(beside[1], &done, MPI_STATUS_IGNORE);
    }
    MPI_Startall(2, mine);
}

/* Bytes that somebody may write stay where they are: the page that a message shares with them is
 * not adopted, and without it the message is not worth it. */
static void test_beside(enum beside what)
{
    enum { BYTES = 3 * PAGE + 1024, ROOM = 120 * PAGE, STEPS = 12 };
    int right = neighbor(1), left = neighbor(0), bytes = 2 * PAGE, count = bytes;
    char *memory = aligned_alloc(PAGE, ROOM), *send = memory + 1024;
    char *receive = malloc(BYTES), *other = malloc(ROOM);
    char *to = what == RECEIVED ? send + BYTES : other;
    const char *from = what == RECEIVED ? other : send + BYTES;
    MPI_Request mine[2], beside[2];
    MPI_Datatype type = MPI_BYTE;
    MPI_Comm another; /* what is native there makes nothing native on the first one */
    void *first;

    MPI_Comm_dup(ring, &another);
    memset(memory, 0, ROOM);
    memset(other, 0, ROOM);
    if (what == OPAQUE) {
        type = make_opaque(&bytes);
        count = 1;
    } else if (what == STRIDED) {
        MPI_Type_vector(bytes / 8, 8, 16, MPI_BYTE, &type);
        MPI_Type_commit(&type);
        count = 1;
    }
    MPI_Recv_init(receive, BYTES, MPI_BYTE, left, 0, ring, &mine[0]);
    MPI_Send_init(send, BYTES, MPI_BYTE, right, 0, ring, &mine[1]);
    MPI_Recv_init(to, bytes, MPI_BYTE, left, 1, another, &beside[0]);
    MPI_Send_init(from, count, type, right, 1, another, &beside[1]);
    for (int step = 0; step < STEPS; step++) {
        memset(send, step + world_rank, BYTES);
        if (what == STRIDED || what == OPAQUE) {
            MPI_Request all[] = {mine[0], mine[1], beside[0], beside[1]};

            MPI_Startall(4, all);
        } else {
            start_beside(what, mine, beside);
        }
        if (what == INACTIVE)
            MPI_Startall(2, mine);
        MPI_Waitall(2, mine, MPI_STATUSES_IGNORE);
        if (what != INACTIVE)
            MPI_Waitall(what == FREED ? 1 : 2, beside, MPI_STATUSES_IGNORE);
        for (int i = 0; i < BYTES; i++)
            CHECK(receive[i] == (char)(step + left), "%d: step %d: byte %d", (int)what, step, i);
        if (what == FREED)
            MPI_Send_init(from, count, type, right, 1, another, &beside[1]);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK(rsched_memory_adopted(send, BYTES, &first) == 0, "%d: a page is adopted", (int)what);
    for (int i = 0; i < 2; i++) {
        MPI_Request_free(&mine[i]);
        MPI_Request_free(&beside[i]);
    }
    if (type != MPI_BYTE)
        MPI_Type_free(&type);
    MPI_Comm_free(&another);
    free(memory);
    free(receive);
    free(other);
}

/* Memory that stays where it is, and why. */
static void test_refused(void)
{
    uint64_t origin = counter("adoptions.origin");
    uint64_t mapping = counter("adoptions.mapping");
    char *mapped = mmap(NULL, 32 * PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *locked = aligned_alloc(PAGE, 32 * PAGE);

    exchange(mapped, 16 * PAGE, false, false);
    CHECK(world_size == 1 || counter("adoptions.origin") > origin,
          "not counted");
    munmap(mapped, 32 * PAGE);
    CHECK(mlock(locked, 32 * PAGE) == 0, "mlock: %m");
    exchange(locked, 16 * PAGE, false, false);
    CHECK(world_size == 1 || counter("adoptions.mapping") > mapping,
          "not counted");
    munlock(locked, 32 * PAGE);
    free(locked);
}

/* The rest of an application. */
static void *churn(void *arg)
{
    atomic_bool *stop = arg;
    unsigned seed = (unsigned)world_rank;
    char *kept[16] = {NULL};

    for (int round = 0; !atomic_load(stop); round++) {
        char **one = &kept[rand_r(&seed) % 16];
        size_t bytes = (size_t)rand_r(&seed) % 400000 + 1;

        for (size_t i = 0; *one != NULL && i < 1000; i++)
            CHECK((*one)[i] == (char)(1 + (one - kept)), "byte %zu", i);
        *one = realloc(*one, bytes < 1000 ? 1000 : bytes);
        memset(*one, 1 + (int)(one - kept), 1000);
        if (round % 200 == 0)
            CHECK(system("true") == 0, "system");
        if (round % 50 == 25) {
            int status;
            pid_t child = fork();

            if (child == 0)
                _exit((*one)[999] != (char)(1 + (one - kept)));
            CHECK(waitpid(child, &status, 0) == child && status == 0,
                  "child: %#x", (unsigned)status);
        }
        usleep(500);
    }
    for (int i = 0; i < 16; i++)
        free(kept[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    atomic_bool stop = false;
    pthread_t other[2];
    int one = 1, level;
    bool alone;

    setenv("RSCHED_MAPPED", "12k", 1); /* not what costs say */
    setenv("RSCHED_CMA", "0", 1);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &one, 0, &ring);
    unsetenv("LD_PRELOAD"); /* programs that are run need none of it */
    for (int i = 0; i < 2; i++)
        pthread_create(&other[i], NULL, churn, &stop);
    alone = world_size == 1;
    exchange(statics + 100, 90000, !alone, true);
    if (!alone) {
        test_allocators();
        test_reuse();
        test_side_by_side(true);
        test_side_by_side(false);
        for (int what = 0; what < NUM_BESIDE; what++)
            test_beside((enum beside)what);
        test_refused();
        CHECK(counter("adoptions.adopted") > 0, "nothing is adopted");
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(other[i], NULL);
    MPI_Comm_free(&ring);
    MPI_Finalize();
    return PASS;
}
