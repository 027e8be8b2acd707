/* SPDX-License-Identifier: BSD-3-Clause */
/* What a device has is not moved, and what is being moved no device gets. With a main of
 * its own, so that it runs under the thread sanitizer. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rsched/memory.h>

#include "librsched/base/error.h"
#include "librsched/base/pin.h"
#include "librsched/base/shared.h"

#define CHECK(that)                                                          \
    do {                                                                     \
        if (!(that)) {                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #that);       \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

enum { PAGE = 4096, PAGES = 16, ROUNDS = 400, MOST_ROUNDS = 100000, THREADS = 3 };

static char area[64];

static bool holds(int low, int high)
{
    return rs_pin_holds(area + low, area + high);
}

/* ---- one thread ---- */

static void from_pin_to_unpin(void)
{
    int handles[2];
    struct rsched_pin *p = rsched_memory_pin(area + 10, 10), *q;

    CHECK(holds(0, 11) && holds(19, 64) && holds(12, 13));
    CHECK(!holds(0, 10) && !holds(20, 64));
    rsched_memory_pinned(p, NULL);
    CHECK(!holds(0, 64));
    p = rsched_memory_pin(area + 10, 10);
    rsched_memory_pinned(p, &handles[0]);
    q = rsched_memory_pin(area + 30, 10);
    rsched_memory_pinned(q, &handles[1]);
    CHECK(holds(10, 11) && holds(30, 31) && !holds(20, 30));
    p = rsched_memory_unpin(&handles[0]);
    CHECK(p != NULL && holds(10, 11)); /* until it has been done */
    CHECK(rsched_memory_unpin(&handles[0]) == NULL);
    rsched_memory_pinned(p, &handles[0]); /* it has not */
    CHECK(holds(10, 11));
    rsched_memory_pinned(rsched_memory_unpin(&handles[0]), NULL);
    CHECK(!holds(0, 30) && holds(39, 64));
    rsched_memory_pinned(rsched_memory_unpin(&handles[1]), NULL);
    CHECK(!holds(0, 64));
    CHECK(rsched_memory_unpin(NULL) == NULL && rsched_memory_unpin(area) == NULL);
    /* All of a handle's, and to the end of memory. */
    rsched_memory_pinned(rsched_memory_pin(area, 1), area);
    rsched_memory_pinned(rsched_memory_pin(area + 63, SIZE_MAX), area);
    CHECK(holds(0, 1) && !holds(1, 63) && holds(63, 64));
    rsched_memory_pinned(rsched_memory_unpin(area), NULL);
    CHECK(!holds(0, 64));
}

static void moves(void)
{
    struct rs_pin_move one, other, third;
    struct rsched_pin *p;

    CHECK(rs_pin_move_begin(&one, area, area + 10));
    CHECK(rs_pin_move_begin(&other, area + 5, area + 20));
    rs_pin_move_end(&one);
    p = rsched_memory_pin(area + 20, 10); /* it does not wait */
    CHECK(!rs_pin_move_begin(&third, area + 19, area + 21));
    CHECK(rs_pin_move_begin(&third, area + 30, area + 31));
    rs_pin_move_end(&other);
    rs_pin_move_end(&third);
    rsched_memory_pinned(p, NULL);
}

static void devices(void)
{
    int ends[2];
    struct stat status, other;

    CHECK(pipe(ends) == 0 && fstat(ends[0], &status) == 0);
    CHECK(!rs_pin_any_device() && !rs_pin_knows(ends[0], &status));
    rsched_memory_device(ends[0], true);
    rsched_memory_device(ends[0], true);
    CHECK(rs_pin_any_device() && rs_pin_knows(ends[0], &status));
    CHECK(!rs_pin_knows(ends[1], &status));
    CHECK(fstat(STDIN_FILENO, &other) == 0 && !rs_pin_knows(ends[0], &other));
    rsched_memory_device(ends[0], false);
    rsched_memory_device(ends[0], false);
    rsched_memory_device(-1, true);
    CHECK(!rs_pin_any_device() && !rs_pin_knows(ends[0], &status));
    close(ends[0]);
    close(ends[1]);
}

/* ---- several ---- */

static atomic_bool is_pinned;

static void *pin_area(void *arg)
{
    struct rsched_pin *p = rsched_memory_pin(area, sizeof(area));

    atomic_store(&is_pinned, true);
    rsched_memory_pinned(p, NULL);
    return arg;
}

static void whoever_pins_waits_for_moves(void)
{
    struct rs_pin_move move;
    pthread_t thread;
    int status = -1;
    pid_t child;

    CHECK(rs_pin_move_begin(&move, area + 8, area + 9));
    CHECK(pthread_create(&thread, NULL, pin_area, NULL) == 0);
    usleep(20000);
    CHECK(!atomic_load(&is_pinned));
    /* In a child nobody moves anything. */
    child = fork();
    if (child == 0) {
        alarm(20);
        pin_area(NULL);
        _exit(!atomic_load(&is_pinned));
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!atomic_load(&is_pinned));
    rs_pin_move_end(&move);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&is_pinned));
}

/* Threads pin pages of memory that is adopted meanwhile. */
static char *memory;
static atomic_bool is_over, round_over;
static atomic_uint moved_while_pinned, pinned_while_adopted;
static pthread_barrier_t barrier;

static size_t adopted(const char *page)
{
    void *first;

    return rsched_memory_adopted(page, PAGE, &first);
}

static void pin_pages(unsigned *seed)
{
    while (!atomic_load(&round_over)) {
        const char *page = memory + (size_t)(rand_r(seed) % PAGES) * PAGE;
        struct rsched_pin *p = rsched_memory_pin(page + 100, 10);
        size_t before = adopted(page);

        sched_yield();
        if (adopted(page) != before)
            atomic_fetch_add(&moved_while_pinned, 1);
        if (before > 0)
            atomic_fetch_add(&pinned_while_adopted, 1);
        rsched_memory_pinned(p, page);
        rsched_memory_pinned(rsched_memory_unpin(page), NULL);
    }
}

static void *pin_all_rounds(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;

    for (;;) {
        pthread_barrier_wait(&barrier);
        if (atomic_load(&is_over))
            return NULL;
        pin_pages(&seed);
        pthread_barrier_wait(&barrier);
    }
}

/* Whose turn it is when, is the kernel's affair. */
static bool goes_on(int round, unsigned taken, unsigned refused)
{
    return round < ROUNDS ||
           (round < MOST_ROUNDS && (taken == 0 || refused == 0 ||
                                    atomic_load(&pinned_while_adopted) == 0));
}

static void under_fire(void)
{
    pthread_t threads[THREADS];
    unsigned taken = 0, refused = 0;

    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, pin_all_rounds, (void *)(i + 1)) == 0);
    for (int round = 0; goes_on(round, taken, refused); round++) {
        memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        memset(memory, round, PAGES * PAGE);
        atomic_store(&round_over, false);
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < PAGES; i++) {
            int error = rs_shared_adopt(memory + i * PAGE, PAGE);

            CHECK(error == 0 || error == RSCHED_ESTATE);
            *(error == 0 ? &taken : &refused) += 1;
            if (i % 4 == 0)
                sched_yield();
        }
        atomic_store(&round_over, true);
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < PAGES * PAGE; i++)
            CHECK(memory[i] == (char)round);
        CHECK(rs_shared_unadopt(memory, memory + PAGES * PAGE) == 0);
        munmap(memory, PAGES * PAGE);
    }
    atomic_store(&is_over, true);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    printf("%u pages adopted, %u pinned; %u pins of adopted ones\n", taken, refused,
           atomic_load(&pinned_while_adopted));
    CHECK(atomic_load(&moved_while_pinned) == 0);
    CHECK(taken > 0 && refused > 0 && atomic_load(&pinned_while_adopted) > 0);
}

int main(void)
{
    from_pin_to_unpin();
    moves();
    devices();
    whoever_pins_waits_for_moves();
    under_fire();
    return 0;
}
