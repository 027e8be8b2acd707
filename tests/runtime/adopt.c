/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adopting pages in place while other threads write beside the message, read
 * it, and have the kernel do both: nothing is lost, and no call fails. And what
 * is not adopted, by its reason.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rsched/rsched.h>

#include "tests/runtime/ranks.h"

enum {
    PAGE = 4096,
    PAGES = 48,
    BEGIN = 4 * PAGE + 100,   /* of the message in the memory */
    BYTES = 40 * PAGE + 1000, /* it ends on page 44 */
    WHOLE = 39 * PAGE,        /* pages 5 to 43 */
    ADOPT = 3,
    EPOCHS = 6,
    ROUNDS = 150 / ADOPT_SANITIZED,
};

static char value(int rank, size_t i)
{
    return (char)(rank * 29 + 17 + (int)(i + (i >> 8)));
}

/* All of a rank's message: compared in one piece, since sanitizers look at each access
 * of a loop. */
static char values[2][BYTES];

static void __attribute__((constructor)) make_values(void)
{
    for (int rank = 0; rank < 2; rank++) {
        for (size_t i = 0; i < BYTES; i++)
            values[rank][i] = value(rank, i);
    }
}

/* ---- one rank's memory and who works on it ---- */

struct work {
    int rank;
    char *memory;
    atomic_bool stop;
    atomic_uint at_work; /* threads that have begun */
    atomic_uint bad;
};

static void begin(struct work *w)
{
    atomic_fetch_add(&w->at_work, 1);
}

/* Bytes of pages that hold a part of the message, and of others. */
static const int beside[] = {0,
                             BEGIN - 1,
                             BEGIN - 50,
                             BEGIN + BYTES,
                             BEGIN + BYTES + 1000,
                             PAGES * PAGE - 1};
enum { NUM_BESIDE = sizeof(beside) / sizeof(beside[0]) };

static void *write_beside(void *arg)
{
    struct work *w = arg;
    unsigned char n = 0;

    begin(w);
    while (!atomic_load(&w->stop)) {
        n++;
        for (int i = 0; i < NUM_BESIDE; i++)
            *(volatile unsigned char *)&w->memory[beside[i]] = n;
        for (int i = 0; i < NUM_BESIDE; i++)
            w->bad += *(volatile unsigned char *)&w->memory[beside[i]] != n;
    }
    return NULL;
}

static void *read_message(void *arg)
{
    struct work *w = arg;

    begin(w);
    while (!atomic_load(&w->stop)) {
        for (size_t i = 0; i < BYTES; i += 61)
            w->bad += *(volatile char *)&w->memory[BEGIN + i] !=
                      value(w->rank, i);
    }
    return NULL;
}

/* The kernel reads pages that move, and writes beside the message. */
static void *call_kernel(void *arg)
{
    enum { PART = 2 * PAGE };
    struct work *w = arg;
    char *into = w->memory + BEGIN + BYTES + 8; /* the message's last page */
    char got[PART];
    int ends[2];

    begin(w);
    if (pipe(ends) != 0) {
        w->bad++;
        return NULL;
    }
    for (size_t at = 0; !atomic_load(&w->stop);
         at = (at + 3333) % (BYTES - PART)) {
        if (write(ends[1], w->memory + BEGIN + at, PART) != PART ||
            read(ends[0], got, PART) != PART) {
            w->bad++;
            break;
        }
        for (size_t i = 0; i < PART; i++)
            w->bad += got[i] != value(w->rank, at + i);
        if (write(ends[1], got, 100) != 100 ||
            read(ends[0], into, 100) != 100) {
            w->bad++;
            break;
        }
        w->bad += memcmp(into, got, 100) != 0;
    }
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

/* ---- an exchange of two ranks ---- */

static char receive[BYTES + 1];

static int make_exchange(struct rank *self, const char *send, char *to,
                         struct rsched_exchange **x)
{
    struct rsched_put put = {.bytes = BYTES, .source = self->rank};
    const void *from[] = {send};
    void *into[] = {to};
    struct rsched_exchange_params params = {.send = from, .receive = into};
    struct rsched_pattern *pattern;

    put.destination = 1 - self->rank;
    RANK_CHECK(rsched_pattern_create("pair", &pattern) == 0);
    RANK_CHECK(rsched_pattern_add_put(pattern, &put) >= 0);
    put.source = 1 - self->rank;
    put.destination = self->rank;
    RANK_CHECK(rsched_pattern_add_receive(pattern, &put) >= 0);
    params.pattern = pattern;
    RANK_CHECK(rsched_exchange_create(self->context, &params, x) == 0);
    rsched_pattern_destroy(pattern);
    return 0;
}

static int bind_to(struct rank *self, struct rsched_exchange *x,
                   const char *send, char *to)
{
    const void *from[] = {send};
    void *into[] = {to};

    RANK_CHECK(rsched_exchange_bind(x, from, into) == 0);
    return 0;
}

static uint64_t pulled(const struct rsched_exchange *x)
{
    struct rsched_stats stats;

    rsched_exchange_get_stats(x, &stats);
    return stats.way_bytes[RSCHED_WAY_PULL] +
           stats.way_bytes[RSCHED_WAY_DIRECT];
}

static int run_epochs(struct rank *self, struct rsched_exchange *x, char *to,
                      int epochs)
{
    for (int epoch = 0; epoch < epochs; epoch++) {
        memset(to, 0x55, BYTES + 1);
        RANK_CHECK(rsched_exchange_start(x) == 0);
        RANK_CHECK(rsched_exchange_wait(x) == 0);
        RANK_CHECK(memcmp(to, values[1 - self->rank], BYTES) == 0);
        RANK_CHECK(to[BYTES] == 0x55);
    }
    return 0;
}

static char *map_memory(int rank)
{
    char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        abort();
    memcpy(memory + BEGIN, values[rank], BYTES);
    return memory;
}

static int count_adopted(const char *memory)
{
    void *first;
    size_t bytes = rsched_memory_adopted(memory, PAGES * PAGE, &first);

    return bytes == 0 || first == memory + 5 * PAGE ? (int)bytes : -1;
}

static int fork_once(struct rank *self, char *memory)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        int bad = memory[BEGIN + 5 * PAGE] != value(self->rank, 5 * PAGE);

        memset(memory, 0x77, PAGES * PAGE);
        bad |= rsched_memory_reclaim(memory) != 0 ||
               munmap(memory, PAGES * PAGE) != 0;
        _exit(bad);
    }
    RANK_CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}

/* What was taken back is private again: the child has it, and to itself. */
static int fork_after(struct rank *self, char *memory)
{
    pid_t child;
    int status;

    memset(memory, 0x11, PAGES * PAGE);
    child = fork();
    if (child == 0) {
        memset(memory, 0x22, PAGES * PAGE);
        _exit(0);
    }
    RANK_CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < PAGES * PAGE; i++)
        RANK_CHECK(memory[i] == 0x11);
    return 0;
}

static int run_round(struct rank *self, struct rsched_exchange *x, char *to,
                     bool forks)
{
    void *(*const workers[])(void *) = {write_beside, read_message,
                                        call_kernel};
    enum { NUM_WORKERS = sizeof(workers) / sizeof(workers[0]) };
    struct work w = {.rank = self->rank, .memory = map_memory(self->rank)};
    uint64_t before = pulled(x);
    pthread_t threads[NUM_WORKERS];

    rsched_memory_offer(w.memory, PAGES * PAGE);
    if (bind_to(self, x, w.memory + BEGIN, to) != 0)
        return 1;
    for (int i = 0; i < NUM_WORKERS; i++)
        pthread_create(&threads[i], NULL, workers[i], &w);
    while (atomic_load(&w.at_work) < NUM_WORKERS)
        sched_yield();
    if (run_epochs(self, x, to, EPOCHS) != 0)
        return 1;
    atomic_store(&w.stop, true);
    for (int i = 0; i < NUM_WORKERS; i++)
        pthread_join(threads[i], NULL);
    RANK_CHECK(atomic_load(&w.bad) == 0);
    RANK_CHECK(count_adopted(w.memory) == WHOLE);
    RANK_CHECK(pulled(x) - before == (EPOCHS - ADOPT + 1) * WHOLE);
    if (forks && fork_once(self, w.memory) != 0)
        return 1;
    RANK_CHECK(memcmp(w.memory + BEGIN, values[self->rank], BYTES) == 0);
    RANK_CHECK(rsched_memory_reclaim(w.memory) == 0);
    RANK_CHECK(count_adopted(w.memory) == 0);
    for (int i = 5 * PAGE; i < 44 * PAGE; i++)
        RANK_CHECK(w.memory[i] == 0);
    for (int i = BEGIN; i < 5 * PAGE; i++)
        RANK_CHECK(w.memory[i] == value(self->rank, (size_t)(i - BEGIN)));
    if (forks && fork_after(self, w.memory) != 0)
        return 1;
    munmap(w.memory, PAGES * PAGE);
    return 0;
}

static int run_under_way(struct rank *self)
{
    char *memory = map_memory(self->rank), *to = malloc(BYTES + 1);
    const int *forks = self->arg;
    struct rsched_exchange *x;

    if (make_exchange(self, memory + BEGIN, to, &x) != 0)
        return 1;
    for (int round = 0; round < ROUNDS; round++) {
        if (run_round(self, x, to, *forks && round % 10 == 0) != 0)
            return 1;
    }
    mesh_barrier(self->end);
    rsched_exchange_destroy(x);
    munmap(memory, PAGES * PAGE);
    free(to);
    return 0;
}

/* ---- what is not adopted ---- */

static int open_userfaultfd(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

    return fd >= 0 ? fd : socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}

static bool place_page(char *page)
{
    const unsigned long nodes = 1;

    return syscall(SYS_mbind, page, PAGE, MPOL_PREFERRED, &nodes,
                   8 * sizeof(nodes), 0) == 0;
}

/* `bytes` of it have that result, and the first part that is adopted has `adopted`. */
static int expect_parts(struct rank *self, struct rsched_exchange *x,
                        char *memory, enum rsched_adoption reason,
                        uint64_t bytes, int adopted)
{
    uint64_t before = rsched_memory_adoptions(reason);

    if (bind_to(self, x, memory + BEGIN, receive) != 0 ||
        run_epochs(self, x, receive, EPOCHS) != 0)
        return 1;
    if (rsched_memory_adoptions(reason) - before != bytes ||
        count_adopted(memory) != adopted)
        return RANK_FAIL("rank %d: not %s", self->rank,
                         rsched_adoption_name(reason));
    RANK_CHECK(rsched_memory_reclaim(memory) == 0);
    munmap(memory, PAGES * PAGE);
    return 0;
}

/* All of it has that result. */
static int expect(struct rank *self, struct rsched_exchange *x, char *memory,
                  enum rsched_adoption reason)
{
    return expect_parts(self, x, memory, reason, WHOLE,
                        reason == RSCHED_ADOPTED ? WHOLE : 0);
}

static bool says_no(void)
{
    return false;
}

static int run_refused(struct rank *self)
{
    char *memory = map_memory(self->rank);
    struct rsched_exchange *x;
    int fd, error;

    if (make_exchange(self, memory + BEGIN, receive, &x) != 0)
        return 1;
    rsched_memory_offer(memory, PAGES * PAGE);
    if (expect(self, x, memory, RSCHED_ADOPTED) != 0)
        return 1;

    memory = map_memory(self->rank); /* not offered */
    if (expect(self, x, memory, RSCHED_ADOPT_ORIGIN) != 0)
        return 1;

    memory = map_memory(self->rank);
    rsched_memory_offer(memory, PAGES * PAGE);
    rsched_memory_bar(memory + 20 * PAGE, 1);
    if (expect(self, x, memory, RSCHED_ADOPT_ORIGIN) != 0)
        return 1;

    /* A part of a pool that is offered, too: whoever takes it back does not know of
     * the other one. */
    memory = map_memory(self->rank);
    rsched_memory_offer(memory, PAGES * PAGE);
    rsched_memory_offer(memory + 20 * PAGE, 2 * PAGE);
    if (expect_parts(self, x, memory, RSCHED_ADOPT_ORIGIN, 2 * PAGE,
                     15 * PAGE) != 0)
        return 1;
    RANK_CHECK(rsched_memory_reclaim(memory + 20 * PAGE) == 0);

    memory = map_memory(self->rank);
    rsched_memory_offer(memory, 20 * PAGE); /* not all of the message */
    if (expect_parts(self, x, memory, RSCHED_ADOPT_ORIGIN, WHOLE - 15 * PAGE,
                     15 * PAGE) != 0)
        return 1;

    memory = map_memory(self->rank);
    rsched_memory_offer(memory, PAGES * PAGE);
    rsched_memory_guard(says_no);
    error = expect(self, x, memory, RSCHED_ADOPT_GUARD);
    rsched_memory_guard(NULL);
    if (error != 0)
        return 1;

    memory = map_memory(self->rank);
    rsched_memory_offer(memory, PAGES * PAGE);
    RANK_CHECK(mprotect(memory + 20 * PAGE, PAGE, PROT_READ) == 0);
    if (expect(self, x, memory, RSCHED_ADOPT_MAPPING) != 0)
        return 1;

    memory = map_memory(self->rank);
    rsched_memory_offer(memory, PAGES * PAGE);
    /* A sanitizer's mlock() does nothing; RLIMIT_MEMLOCK may be 0. */
    if (syscall(SYS_mlock, memory + 20 * PAGE, PAGE) == 0) {
        if (expect(self, x, memory, RSCHED_ADOPT_MAPPING) != 0)
            return 1;
    }

    memory = map_memory(self->rank);
    rsched_memory_offer(memory, PAGES * PAGE);
    /* Not every container may say where memory is to lie. */
    if (place_page(memory + 20 * PAGE)) {
        if (expect(self, x, memory, RSCHED_ADOPT_MAPPING) != 0)
            return 1;
    }

    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memcpy(memory + BEGIN, values[self->rank], BYTES);
    rsched_memory_offer(memory, PAGES * PAGE);
    if (expect(self, x, memory, RSCHED_ADOPT_MAPPING) != 0)
        return 1;

    fd = open_userfaultfd();
    if (fd >= 0) {
        memory = map_memory(self->rank);
        rsched_memory_offer(memory, PAGES * PAGE);
        error = expect(self, x, memory, RSCHED_ADOPT_DEVICE);
        close(fd);
        if (error != 0)
            return 1;
    }
    mesh_barrier(self->end);
    rsched_exchange_destroy(x);
    return 0;
}

/* ---- what nobody has set ---- */

/* What is offered is adopted in the 4th start, if that pays, and nothing else ever. */
static int run_by_default(struct rank *self)
{
    enum { DEFAULT = 4 };
    char *memory = map_memory(self->rank), *other = map_memory(self->rank);
    struct rsched_exchange *x;

    rsched_memory_offer(memory, PAGES * PAGE);
    if (make_exchange(self, memory + BEGIN, receive, &x) != 0 ||
        run_epochs(self, x, receive, DEFAULT - 1) != 0)
        return 1;
    RANK_CHECK(count_adopted(memory) == 0);
    if (run_epochs(self, x, receive, 1) != 0)
        return 1;
    RANK_CHECK(count_adopted(memory) == WHOLE);
    if (bind_to(self, x, other + BEGIN, receive) != 0 ||
        run_epochs(self, x, receive, DEFAULT) != 0)
        return 1;
    RANK_CHECK(count_adopted(other) == 0);
    RANK_CHECK(rsched_memory_adoptions(RSCHED_ADOPT_ORIGIN) == WHOLE);
    RANK_CHECK(rsched_memory_reclaim(memory) == 0);
    mesh_barrier(self->end);
    rsched_exchange_destroy(x);
    munmap(memory, PAGES * PAGE);
    munmap(other, PAGES * PAGE);
    return 0;
}

/* ---- no more than so much ---- */

static int run_budget(struct rank *self)
{
    enum { PIECES = (300 << 20) / WHOLE };
    static char *all[PIECES];
    struct rsched_exchange *x = NULL;
    uint64_t adopted;

    for (int i = 0; i < PIECES; i++) {
        all[i] = map_memory(self->rank);
        rsched_memory_offer(all[i], PAGES * PAGE);
        if (x == NULL ? make_exchange(self, all[i] + BEGIN, receive, &x) != 0
                      : bind_to(self, x, all[i] + BEGIN, receive) != 0)
            return 1;
        if (run_epochs(self, x, receive, ADOPT) != 0)
            return 1;
    }
    adopted = rsched_memory_adoptions(RSCHED_ADOPTED);
    RANK_CHECK(adopted <= 256 << 20 && adopted > (256 << 20) - WHOLE);
    RANK_CHECK(rsched_memory_adoptions(RSCHED_ADOPT_BUDGET) ==
               (uint64_t)PIECES * WHOLE - adopted);
    for (int i = 0; i < PIECES; i++) {
        RANK_CHECK(rsched_memory_reclaim(all[i]) == 0);
        munmap(all[i], PAGES * PAGE);
    }
    mesh_barrier(self->end);
    rsched_exchange_destroy(x);
    return 0;
}

int main(int argc, char **argv)
{
    bool threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    int forks = !threads;

    setenv("RSCHED_MAPPED", "12k", 1); /* not what costs say */
    setenv("RSCHED_CMA", "0", 1);
    unsetenv("RSCHED_ADOPT");
    if (!threads && ranks_run(2, false, run_by_default, NULL) != 0)
        return 1;
    setenv("RSCHED_ADOPT", "3", 1);
    if (ranks_run(2, threads, run_under_way, &forks) != 0)
        return 1;
    if (!threads && (ranks_run(2, false, run_refused, NULL) != 0 ||
                     ranks_run(2, false, run_budget, NULL) != 0))
        return 1;
    printf("%d rounds\n", ROUNDS);
    return 0;
}
