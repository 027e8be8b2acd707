/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that others can map: where it lies, what a fork and a free do. */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "librsched/base/shared.h"
#include "tests/base/entries.h"

enum { HUGE = 2 << 20 };

Test(base_shared, memory_is_aligned_zero_and_its_own)
{
    const size_t sizes[] = {1, 4096, 5000, HUGE, 3 * HUGE + 1};
    char *memory[5];

    for (int i = 0; i < 5; i++) {
        cr_assert_eq(rsched_alloc(sizes[i], (void **)&memory[i]), 0);
        cr_assert_eq((uintptr_t)memory[i] % (sizes[i] < HUGE ? 4096 : HUGE), 0);
        for (size_t b = 0; b < sizes[i]; b++)
            cr_assert_eq(memory[i][b], 0);
        memset(memory[i], i + 1, sizes[i]);
    }
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(memory[i][sizes[i] - 1], i + 1);
        cr_assert_eq(rsched_free(memory[i]), 0);
    }
    cr_assert_eq(rsched_free(NULL), 0);
    cr_assert_eq(rsched_free(memory[0]), RSCHED_EINVAL);
    cr_assert_eq(rsched_alloc(0, (void **)&memory[0]), RSCHED_EINVAL);
    cr_assert_eq(rsched_alloc(SIZE_MAX, (void **)&memory[0]), RSCHED_EINVAL);
}

Test(base_shared, regions_are_found_by_any_of_their_bytes)
{
    struct rs_place place;
    char *memory, *end;

    cr_assert_eq(rsched_alloc(8192, (void **)&memory), 0);
    end = memory + 8192;
    cr_assert(rs_shared_find(memory, memory + 1, &place));
    cr_assert_eq(place.address, memory);
    cr_assert_eq(place.bytes, 8192);
    cr_assert(rs_shared_find(memory - 10, memory + 1, &place));
    cr_assert(rs_shared_find(end - 1, end + 10, &place));
    cr_assert_not(rs_shared_find(end, end + 10, &place));
    cr_assert_not(rs_shared_find(memory - 10, memory, &place));
    cr_assert_eq(rs_shared_resolve(&place), memory);
    cr_assert_eq(rsched_free(memory), 0);
    cr_assert_not(rs_shared_find(memory, end, &place));
    cr_assert_null(rs_shared_resolve(&place));
}

/* What somebody has mapped of freed memory is never another's. */
Test(base_shared, places_are_not_used_again)
{
    struct rs_shared_file file;
    struct rs_place first, second;
    uint64_t changes;
    char *memory, *seen;

    cr_assert_eq(rs_shared_open(&file), 0);
    cr_assert_eq(rsched_alloc(4096, (void **)&memory), 0);
    cr_assert(rs_shared_find(memory, memory + 1, &first));
    seen = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file.fd,
                (off_t)first.offset);
    cr_assert_neq(seen, MAP_FAILED);
    memory[0] = 5;
    cr_assert_eq(seen[0], 5);
    changes = atomic_load(&rs_shared_changes);
    cr_assert_eq(rsched_free(memory), 0);
    cr_assert_neq(atomic_load(&rs_shared_changes), changes);
    cr_assert_eq(seen[0], 0);
    cr_assert_eq(rsched_alloc(4096, (void **)&memory), 0);
    cr_assert(rs_shared_find(memory, memory + 1, &second));
    cr_assert_neq(second.offset, first.offset);
    memory[0] = 6;
    cr_assert_eq(seen[0], 0);
    rsched_free(memory);
    munmap(seen, 4096);
    rs_shared_close();
}

Test(base_shared, added_memory_is_the_callers)
{
    static char memory[100];
    struct rs_place place;

    cr_assert_eq(rsched_memory_add(42, memory, sizeof(memory)), 0);
    cr_assert_eq(rsched_memory_add(42, memory, sizeof(memory)), RSCHED_EINVAL);
    cr_assert_eq(rsched_memory_add(43, NULL, 1), RSCHED_EINVAL);
    cr_assert(rs_shared_find(memory + 99, memory + 100, &place));
    cr_assert_eq(place.id, 42);
    cr_assert_eq(rs_shared_resolve(&place), memory);
    cr_assert_eq(rsched_free(memory), RSCHED_EINVAL);
    cr_assert_eq(rsched_memory_remove(42), 0);
    cr_assert_eq(rsched_memory_remove(42), RSCHED_EINVAL);
    cr_assert_not(rs_shared_find(memory, memory + 100, &place));
}

/* The child has its own, can free it and allocate; nothing is left open. */
Test(base_shared, a_forked_child_has_a_copy)
{
    struct rs_place internal;
    char *memory, *other;
    int status, done[2];
    char byte;
    pid_t child;

    cr_assert_eq(rsched_alloc(3 * HUGE, (void **)&memory), 0);
    cr_assert_eq(rs_shared_alloc(4096, &internal), 0);
    memset(memory, 7, 3 * HUGE);
    cr_assert_eq(pipe(done), 0);
    child = fork();
    if (child == 0) {
        struct rs_place place;
        int bad = memory[0] != 7 || memory[3 * HUGE - 1] != 7;

        bad |= read(done[0], &byte, 1) != 1; /* the parent has written */
        bad |= memory[0] != 7;
        memory[1] = 9;
        bad |= rs_shared_find(memory, memory + 1, &place);
        bad |= rsched_free(memory) != 0;
        bad |= rsched_alloc(100, (void **)&other) != 0;
        bad |= !rs_shared_find(other, other + 1, &place);
        _exit(bad);
    }
    memory[0] = 8;
    cr_assert_eq(write(done[1], "x", 1), 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(memory[0], 8);
    cr_assert_eq(memory[1], 7);
    cr_assert_eq(rsched_free(memory), 0);
    cr_assert_eq(rsched_free(internal.address), 0);
}

static size_t resident(char *memory, size_t bytes)
{
    static unsigned char in[HUGE / 1024];
    size_t number = 0;

    cr_assert_eq(mincore(memory, bytes, in), 0);
    for (size_t page = 0; page < bytes / 4096; page++)
        number += in[page] & 1;
    return number;
}

/* What nobody has touched costs the child nothing; and it is not adopted. */
Test(base_shared, a_forked_child_has_no_more_pages)
{
    const size_t bytes = 4 * HUGE;
    char *memory;
    int status;
    pid_t child;

    cr_assert_eq(rsched_alloc(bytes, (void **)&memory), 0);
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    memory[0] = 1;
    memory[HUGE] = 2;
    memory[bytes - 1] = 3;
    child = fork();
    if (child == 0) {
        bool right = resident(memory, bytes) <= 3 && memory[0] == 1 &&
                     memory[1] == 0 && memory[HUGE] == 2 &&
                     memory[2 * HUGE] == 0 && memory[bytes - 1] == 3 &&
                     rs_shared_adopt(memory, 4096) == RSCHED_ENOTSUP;

        _exit(right ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(rsched_free(memory), 0);
}

/* What a pool of the program's does, say. */
static pthread_mutex_t pool = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stop;

static void lock_pool(void)
{
    pthread_mutex_lock(&pool);
}

static void unlock_pool(void)
{
    pthread_mutex_unlock(&pool);
}

static void *allocate_in_pool(void *arg)
{
    void *memory;

    (void)arg;
    while (!stop) {
        lock_pool();
        if (rsched_alloc(4096, &memory) == 0)
            rsched_free(memory);
        unlock_pool();
    }
    return NULL;
}

/* Whoever forks waits for a lock whose holder must not wait for ours. */
Test(base_shared, forks_wait_for_locks_of_others_first, .timeout = 60)
{
    pthread_t thread;
    void *memory;

    cr_assert_eq(pthread_atfork(lock_pool, unlock_pool, unlock_pool), 0);
    cr_assert_eq(rsched_alloc(4096, &memory), 0);
    cr_assert_eq(pthread_create(&thread, NULL, allocate_in_pool, NULL), 0);
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();

        if (child == 0)
            _exit(0);
        cr_assert_eq(waitpid(child, NULL, 0), child);
    }
    stop = true;
    pthread_join(thread, NULL);
    cr_assert_eq(rsched_free(memory), 0);
}

/* As by malloc(): a program may ask for less then. */
Test(base_shared, what_the_machine_does_not_have_is_refused)
{
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
    void *memory;

    cr_assert_not_null(file);
    if (getc(file) != '1')
        cr_assert_eq(rsched_alloc((size_t)1 << 45, &memory), RSCHED_ENOMEM);
    fclose(file);
    cr_assert_eq(rsched_alloc(1, &memory), 0);
    cr_assert_eq(rsched_free(memory), 0);
}

static off_t bytes_of(const struct rs_shared_file *file)
{
    struct stat status;

    cr_assert_eq(fstat(file->fd, &status), 0);
    return status.st_size;
}

/* The file may not shrink, and others come in the place of what was refused. */
Test(base_shared, what_is_refused_is_not_in_the_file)
{
    const size_t too_many = (size_t)1 << 61;
    struct rs_shared_file file;
    void *memory;
    char *pages;
    off_t bytes;

    cr_assert_eq(rs_shared_open(&file), 0);
    bytes = bytes_of(&file);
    cr_assert_eq(rsched_alloc(too_many, &memory), RSCHED_ENOMEM);
    cr_assert_eq(bytes_of(&file), bytes);
    /* As where the kernel maps no more when the file is longer already. */
    cr_assert_eq(ftruncate(file.fd, 4 * HUGE), 0);
    cr_assert_eq(rsched_alloc(4096, &memory), 0);
    pages = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(pages, MAP_FAILED);
    cr_assert_eq(rs_shared_adopt(pages, 4096), 0);
    cr_assert_eq(bytes_of(&file), 4 * HUGE);
    cr_assert_eq(rsched_free(memory), 0);
    cr_assert_eq(rs_shared_unadopt(pages, pages + 4096), 0);
    munmap(pages, 4096);
    rs_shared_close();
}

Test(base_shared, the_file_goes_with_its_last_user)
{
    int before = count_descriptors();
    struct rs_shared_file file, again;
    void *memory;

    cr_assert_eq(rs_shared_open(&file), 0);
    cr_assert_eq(rsched_alloc(1, &memory), 0);
    rs_shared_close();
    cr_assert_eq(rs_shared_open(&again), 0);
    cr_assert_eq(again.id, file.id);
    rs_shared_close();
    cr_assert_eq(rsched_free(memory), 0);
    cr_assert_eq(count_descriptors(), before);
}

/* The kernel would end the process by a signal. */
Test(base_shared, a_file_that_may_not_be_so_long_is_an_error)
{
    const struct rlimit none = {0, RLIM_INFINITY}, some = {HUGE, RLIM_INFINITY};
    char *memory = NULL, *pages;
    uint64_t bytes = 4 * HUGE;

    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    cr_assert_eq(rsched_alloc(4096, (void **)&memory), RSCHED_ESYS);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &some), 0);
    cr_assert_eq(rsched_alloc(bytes, (void **)&memory), RSCHED_ENOMEM);
    cr_assert_null(memory);
    pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(pages, MAP_FAILED);
    pages[bytes - 1] = 3;
    cr_assert_eq(rs_shared_adopt(pages, bytes), RSCHED_ENOMEM);
    cr_assert_eq(pages[bytes - 1], 3);
    cr_assert_eq(rsched_alloc(4096, (void **)&memory), 0);
    cr_assert_eq(rsched_free(memory), 0);
}
