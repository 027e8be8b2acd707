/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent messages under fire: thousands of rounds while the application
 * frees, moves and maps memory, forks, and runs other programs, between rounds
 * and in the middle of them, and in another thread. Every byte is compared, and
 * what has been sent is spoilt at once. By the costs of pulled.yaml messages are
 * copied out of mappings, read by the kernel, packed, and put into slots. A
 * neighborhood collective goes on beside them.
 *
 * fire [--rounds N] [--adopted]: the settings have memory of malloc adopted, in
 * the second start after it has been given to requests. */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rsched/memory.h>

#include "tests/mpi/hope.h"

#pragma weak rsched_alloc
#pragma weak rsched_free

/* Rounds, and in how many something happens. */
enum { ROUNDS = 3000, MOVE = 10, SPLIT = 500, FORK = 100, RUN = 150 };
enum { MOST = 160000, PERIOD = 251 };
/* So many messages of each kind at least. */
enum { ENOUGH = 500 };
/* Of the collective's two messages. With those of malloc below, bytes of which so
 * many times the whole pages are to be adopted, where they are. */
enum { PART = 40000, PAGE = 4096, ADOPTIONS = 100 };

enum memory { GIVEN, HEAP, MAPPED, NUM_MEMORIES };

/* Blocks of bytes. */
static const struct message {
    enum memory memory;
    int blocks, length, stride;
} messages[] = {
    {GIVEN, 1, 100000, 100000}, {HEAP, 1, 70000, 70000},
    {MAPPED, 1, 90000, 90000},  {GIVEN, 20, 5000, 6000},
    {MAPPED, 12, 5000, 7000},   {HEAP, 500, 160, 240},
    {HEAP, 1, 3000, 3000},      {HEAP, 1, 8, 8},
};

enum { NUM = sizeof(messages) / sizeof(messages[0]) };

static bool adopted;
static MPI_Comm comm, ring;
static int left, right;
static char *out[NUM], *in[NUM];
static char *parts_out, *parts_in; /* to and from the left, then the right */
static MPI_Request requests[2 * NUM]; /* receives, then sends */
static MPI_Request collective;

/* ---- contents ---- */

static char pattern[MOST + PERIOD];

static const char *content(int sender, int message, int round)
{
    return pattern + (sender * 101 + message * 37 + round * 13) % PERIOD;
}

static int bytes_of(const struct message *m)
{
    return m->blocks * m->length;
}

static size_t extent_of(const struct message *m)
{
    return (size_t)(m->blocks - 1) * (size_t)m->stride + (size_t)m->length;
}

static const char *part(int sender, int side, int round)
{
    return content(sender, NUM + side, round);
}

static void fill(int round)
{
    for (int side = 0; side < 2; side++)
        memcpy(parts_out + (ptrdiff_t)side * PART, part(world_rank, side, round),
               PART);
    memset(parts_in, 0x55, 2 * PART);
    for (int i = 0; i < NUM; i++) {
        const struct message *m = &messages[i];
        const char *from = content(world_rank, i, round);

        for (int b = 0; b < m->blocks; b++, from += m->length)
            memcpy(out[i] + (ptrdiff_t)b * m->stride, from, (size_t)m->length);
        memset(in[i], 0x55, (size_t)bytes_of(m));
    }
}

static bool is_sent(int i, int round)
{
    const struct message *m = &messages[i];
    const char *from = content(world_rank, i, round);
    bool same = true;

    for (int b = 0; b < m->blocks; b++, from += m->length)
        same &= memcmp(out[i] + (ptrdiff_t)b * m->stride, from,
                       (size_t)m->length) == 0;
    return same;
}

static bool is_received(int i, int round)
{
    return memcmp(in[i], content(left, i, round),
                  (size_t)bytes_of(&messages[i])) == 0;
}

static bool parts_are_sent(int round)
{
    return memcmp(parts_out, part(world_rank, 0, round), PART) == 0 &&
           memcmp(parts_out + PART, part(world_rank, 1, round), PART) == 0;
}

static bool parts_are_received(int round)
{
    return memcmp(parts_in, part(left, 1, round), PART) == 0 &&
           memcmp(parts_in + PART, part(right, 0, round), PART) == 0;
}

static void spoil(void)
{
    memset(parts_out, 0xdd, 2 * PART);
    for (int i = 0; i < NUM; i++)
        memset(out[i], 0xdd, extent_of(&messages[i]));
}

/* ---- memory ---- */

static char *obtain(enum memory memory, size_t bytes)
{
    char *at = NULL;

    if (memory == GIVEN)
        MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &at);
    else if (memory == HEAP)
        at = malloc(bytes);
    else
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != NULL && at != MAP_FAILED, "no memory");
    return at;
}

static void release(enum memory memory, char *at, size_t bytes)
{
    if (memory == GIVEN)
        MPI_Free_mem(at);
    else if (memory == HEAP)
        free(at);
    else
        munmap(at, bytes);
}

static void obtain_all(void)
{
    parts_out = obtain(HEAP, 2 * PART);
    parts_in = obtain(HEAP, 2 * PART);
    for (int i = 0; i < NUM; i++) {
        out[i] = obtain(messages[i].memory, extent_of(&messages[i]));
        in[i] = obtain(HEAP, (size_t)bytes_of(&messages[i]));
    }
}

static void release_all(void)
{
    free(parts_out);
    free(parts_in);
    for (int i = 0; i < NUM; i++) {
        release(messages[i].memory, out[i], extent_of(&messages[i]));
        free(in[i]);
    }
}

/* Other memory, mostly at addresses that had another purpose. */
static void move_all(int round)
{
    if (round % 4 == 0) {
        parts_out = realloc(parts_out, 2 * PART + (size_t)(round % 7) * 1000);
        CHECK(parts_out != NULL, "no memory");
    } else {
        free(parts_out);
        parts_out = obtain(HEAP, 2 * PART);
    }
    for (int i = NUM - 1; i >= 0; i--) {
        enum memory memory = messages[i].memory;
        size_t bytes = extent_of(&messages[i]);
        char *larger;

        in[i] = realloc(in[i], (size_t)bytes_of(&messages[i]) +
                                   (size_t)(round % 7) * 1000);
        CHECK(in[i] != NULL, "no memory");
        if (memory == HEAP && round % 3 == 0) {
            larger = realloc(out[i], 3 * bytes);
            CHECK(larger != NULL, "no memory");
            out[i] = realloc(larger, bytes);
        } else {
            release(memory, out[i], bytes);
            out[i] = obtain(memory, bytes);
        }
    }
}

/* ---- requests ---- */

static void make_requests(void)
{
    INIT(Neighbor_alltoall)(parts_out, PART, MPI_BYTE, parts_in, PART, MPI_BYTE,
                            ring, MPI_INFO_NULL, &collective);
    for (int i = 0; i < NUM; i++) {
        const struct message *m = &messages[i];
        MPI_Datatype type;

        MPI_Type_vector(m->blocks, m->length, m->stride, MPI_CHAR, &type);
        MPI_Type_commit(&type);
        MPI_Recv_init(in[i], bytes_of(m), MPI_CHAR, left, i, comm,
                      &requests[i]);
        MPI_Send_init(out[i], 1, type, right, i, comm, &requests[NUM + i]);
        MPI_Type_free(&type);
    }
}

static void free_requests(void)
{
    MPI_Request_free(&collective);
    for (int i = 0; i < 2 * NUM; i++)
        MPI_Request_free(&requests[i]);
}

/* ---- what else an application does ---- */

/* The child sees what was there, and spoils what it has. */
static void fork_once(int round, bool over)
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        bool good = parts_are_sent(round) && (!over || parts_are_received(round));

        for (int i = 0; i < NUM; i++) {
            good &= is_sent(i, round) && (!over || is_received(i, round));
            memset(in[i], 0xcc, (size_t)bytes_of(&messages[i]));
        }
        spoil();
        _exit(!good);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "no child");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "round %d: the child sees something else: %#x", round,
          (unsigned)status);
}

static void *use(void *memory, size_t bytes)
{
    CHECK(memory != NULL && memory != MAP_FAILED, "no memory");
    return memset(memory, 0xee, bytes);
}

static void *churn(void *arg)
{
    atomic_bool *stop = arg;
    unsigned seed = (unsigned)world_rank;

    for (int round = 0; !atomic_load(stop); round++) {
        size_t bytes = (size_t)rand_r(&seed) % 400000 + 1;
        char *mapped = obtain(MAPPED, bytes);
        void *heap = use(malloc(bytes), bytes), *shared = NULL;
        pid_t child;

        use(mapped, bytes);
        free(use(realloc(heap, 2 * bytes), bytes));
        release(MAPPED, mapped, bytes);
        CHECK(rsched_alloc(bytes, &shared) == 0, "no shared memory");
        use(shared, bytes);
        rsched_free(shared);
        if (round % 20 == 10)
            malloc_trim(0);
        if (round % 100 == 50) {
            child = fork();
            if (child == 0)
                _exit(0);
            CHECK(child > 0 && waitpid(child, NULL, 0) == child, "no child");
        }
        usleep(500);
    }
    return NULL;
}

/* ---- rounds ---- */

static void exchange(int round)
{
    fill(round);
    MPI_Start(&collective);
    if (round % 2 == 0) {
        MPI_Startall(2 * NUM, requests);
    } else {
        MPI_Startall(NUM, requests + NUM);
        MPI_Startall(NUM, requests);
    }
    if (round % FORK == FORK / 4)
        fork_once(round, false);
    if (round % RUN == RUN / 3)
        CHECK(system("true") == 0, "system");
    if (round % 5 == 0)
        MPI_Waitall(NUM, requests + NUM, MPI_STATUSES_IGNORE);
    MPI_Waitall(2 * NUM, requests, MPI_STATUSES_IGNORE);
    MPI_Wait(&collective, MPI_STATUS_IGNORE);
    if (round % FORK == FORK / 2)
        fork_once(round, true);
    spoil();
    CHECK(parts_are_received(round), "round %d, collective", round);
    for (int i = 0; i < NUM; i++)
        CHECK(is_received(i, round), "round %d, message %d", round, i);
}

/* At least, wherever it lies. */
static uint64_t whole_pages(uint64_t bytes)
{
    return bytes < 2 * PAGE ? 0 : bytes / PAGE * PAGE - PAGE;
}

/* All whole pages of malloc's memory, often, those of messages too: the
 * collective's alone are not as many. */
static bool is_adopted_enough(void)
{
    uint64_t once = whole_pages(2 * PART);

    for (int i = 0; i < NUM; i++)
        if (messages[i].memory == HEAP && messages[i].blocks == 1)
            once += whole_pages((uint64_t)messages[i].length);
    return counter("adoptions.adopted") >= ADOPTIONS * once &&
           counter("ways.pull") >= ENOUGH * 2 * whole_pages(PART) &&
           counter("lane_mapped") >= ENOUGH &&
           counter("lane_receives") >= counter("lane_pulls") + ENOUGH;
}

/* Where it is the native MPI that carries them nothing is tested. */
static bool is_enough(void)
{
    uint64_t pulls = counter("lane_pulls"), mapped = counter("lane_mapped");
    bool itself = world_size == 1;

    return counter("lane_receives") >= pulls + ENOUGH && mapped >= ENOUGH &&
           (itself || (pulls >= mapped + ENOUGH &&
                       counter("lane_packed") >= ENOUGH / 2));
}

static void run(int rounds)
{
    struct hope hope = {0};

    make_requests();
    for (int round = 1;; round++) {
        exchange(round);
        if (round % MOVE == 0) {
            free_requests();
            move_all(round);
            if (round % SPLIT == 0) {
                MPI_Comm_free(&comm);
                MPI_Comm_dup(MPI_COMM_WORLD, &comm);
            }
            make_requests();
        }
        if (round < rounds)
            continue;
        if (all_have(&hope, adopted ? is_adopted_enough() : is_enough()))
            break;
        go_on(&hope, "not enough of each way");
    }
    free_requests();
}

int main(int argc, char **argv)
{
    atomic_bool stop = false;
    pthread_t other;
    int provided, periodic = 1;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    CHECK(is_accelerated(), "the backend is not loaded");
    unsetenv("LD_PRELOAD"); /* programs that are run need none of it */
    left = (world_rank + world_size - 1) % world_size;
    right = (world_rank + 1) % world_size;
    for (int i = 0; i < MOST + PERIOD; i++)
        pattern[i] = (char)(i % PERIOD);
    adopted = has_option(argc, argv, "--adopted");
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &periodic, 0, &ring);
    obtain_all();
    pthread_create(&other, NULL, churn, &stop);
    run((int)number_option(argc, argv, "--rounds", ROUNDS));
    atomic_store(&stop, true);
    pthread_join(other, NULL);
    release_all();
    MPI_Comm_free(&comm);
    MPI_Comm_free(&ring);
    return test_fini("fire");
}
