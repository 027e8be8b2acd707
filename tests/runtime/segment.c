/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments of the loopback engine: what engines of one process, and a forked
 * child, have mapped of them. */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rsched/error.h>

#include "engines/loopback/segment.h"

enum { JOB = 4711 };

static void *map_header(const struct rs_segment *segment)
{
    return rs_segment_map(segment->fd, 0, RS_HEADER_BYTES, false);
}

Test(runtime_segment, engines_of_a_process_meet_at_one_address)
{
    struct rs_segment one, other;
    struct rs_segment_header *header;
    uint64_t nonce;

    cr_assert_eq(rs_segment_init(&one, JOB), 0);
    cr_assert_eq(rs_segment_init(&other, JOB), 0);
    cr_assert_neq(one.header, other.header);
    nonce = one.header->nonce;
    header = map_header(&one);
    cr_assert_eq(header, one.header);
    cr_assert_neq(map_header(&other), header);
    rs_segment_unmap(other.header);
    rs_segment_fini(&other);
    /* A peer may still look when the owner is gone. */
    rs_segment_fini(&one);
    cr_assert_eq(header->nonce, nonce);
    rs_segment_unmap(header);
}

Test(runtime_segment, memory_that_is_not_there_is_an_error)
{
    cr_assert_null(rs_segment_map(-1, 0, RS_HEADER_BYTES, false));
}

/* The child has none of its parent's mappings, and is a peer like any other. */
Test(runtime_segment, a_forked_child_maps_for_itself)
{
    struct rs_segment segment;
    pid_t child;
    int status;

    cr_assert_eq(rs_segment_init(&segment, JOB), 0);
    child = fork();
    if (child == 0) {
        struct rs_segment_header *header = map_header(&segment);
        bool good = header != NULL && header->job == JOB;

        rs_segment_unmap(header);
        header = map_header(&segment);
        good = good && header != NULL;
        atomic_store(&header->doorbell.rings, 7);
        _exit(good ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(atomic_load(&segment.header->doorbell.rings), 7);
    rs_segment_fini(&segment);
}

static bool never(const struct rsched_connection *writer)
{
    (void)writer;
    return false;
}

/* As on kernels that a signal keeps from it: in the place of libc's. */
static unsigned reserved, interrupted;

int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    sigset_t blocked;

    reserved++;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!sigismember(&blocked, SIGPROF)) {
        interrupted++;
        return EINTR;
    }
    return fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
}

/* Those of profilers come all the time. */
Test(runtime_segment, signals_do_not_keep_memory_away)
{
    struct rs_segment segment;
    struct rs_block *block;

    cr_assert_eq(rs_segment_init(&segment, JOB), 0);
    cr_assert_eq(rs_segment_allocate(&segment, 1 << 20, false, NULL, never,
                                     &block), 0);
    cr_assert_gt(reserved, 0);
    cr_assert_eq(interrupted, 0);
    rs_segment_fini(&segment);
}

static bool always(const struct rsched_connection *writer)
{
    (void)writer;
    return true;
}

/* Who is not known any more may write its block until it closes, or is dead. */
Test(runtime_segment, blocks_of_a_writer_that_lives_are_kept)
{
    struct rs_segment segment;
    struct rsched_connection *writer = (void *)&segment; /* any */
    struct rs_block *block, *other;

    cr_assert_eq(rs_segment_init(&segment, JOB), 0);
    cr_assert_eq(rs_segment_allocate(&segment, RS_HEADER_BYTES, false, writer, never,
                                     &block), 0);
    rs_segment_release(block, true);
    cr_assert(rs_segment_forget(&segment, writer, never));
    cr_assert_eq(rs_segment_allocate(&segment, RS_HEADER_BYTES, false, NULL, never,
                                     &other), 0);
    cr_assert_neq(other, block);
    atomic_store(&block->words->closed, block->base);
    cr_assert_eq(rs_segment_allocate(&segment, RS_HEADER_BYTES, false, writer, never,
                                     &other), 0);
    cr_assert_eq(other, block);
    rs_segment_release(block, true);
    cr_assert(rs_segment_forget(&segment, writer, never));
    cr_assert_not(rs_segment_forget(&segment, writer, always));
    cr_assert_eq(rs_segment_allocate(&segment, RS_HEADER_BYTES, false, NULL, never,
                                     &other), 0);
    cr_assert_eq(other, block);
    rs_segment_fini(&segment);
}

/* Words of a block that nobody has written are 0: they must not look as if they
 * had been written for it. */
Test(runtime_segment, bases_of_blocks_are_never_zero)
{
    struct rs_segment segment;
    struct rs_block *block;
    uint64_t step;

    cr_assert_eq(rs_segment_init(&segment, JOB), 0);
    step = segment.next_base;
    segment.next_base = -step;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(rs_segment_allocate(&segment, RS_HEADER_BYTES, false, NULL,
                                         never, &block),
                     0);
        cr_assert_neq(block->base, 0, "block %d", i);
        cr_assert_neq(atomic_load(&block->words->closed), block->base);
    }
    rs_segment_fini(&segment);
}

/* Of memory: what is reserved and not mapped counts, too. */
static uint64_t pages_of(const struct rs_segment *segment)
{
    struct stat status;

    cr_assert_eq(fstat(segment->fd, &status), 0);
    return (uint64_t)status.st_blocks;
}

/* Let the process map so many bytes more. */
static void limit_mappings(uint64_t bytes)
{
    struct rlimit limit;
    unsigned long pages;
    FILE *f = fopen("/proc/self/statm", "r");

    cr_assert_not_null(f);
    cr_assert_eq(fscanf(f, "%lu", &pages), 1);
    fclose(f);
    cr_assert_eq(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = pages * (uint64_t)sysconf(_SC_PAGESIZE) + bytes;
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

static void unlimit_mappings(void)
{
    struct rlimit limit;

    cr_assert_eq(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

static void block_that_cannot_be_mapped(bool sparse)
{
    enum { MOST = 8 << 20, LONG = 64 << 20, SHORT = 1 << 20 };
    struct rs_segment segment;
    struct rs_block *block;
    uint64_t pages, bytes;

    cr_assert_eq(rs_segment_init(&segment, JOB), 0);
    bytes = segment.bytes;
    pages = pages_of(&segment);
    limit_mappings(MOST);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(rs_segment_allocate(&segment, LONG, sparse, NULL, never,
                                         &block),
                     RSCHED_ENOMEM);
    unlimit_mappings();
    cr_assert_eq(segment.bytes, bytes);
    cr_assert_eq(pages_of(&segment), pages);
    /* Others come in its place, shorter or longer. */
    for (uint64_t more = SHORT; more <= 2 * LONG; more *= 128) {
        cr_assert_eq(rs_segment_allocate(&segment, more, sparse, NULL, never,
                                         &block), 0);
        cr_assert_eq(block->offset, bytes);
        bytes += more;
    }
    rs_segment_fini(&segment);
}

Test(runtime_segment, a_block_that_cannot_be_mapped_keeps_no_memory)
{
    block_that_cannot_be_mapped(false);
}

Test(runtime_segment, nor_does_a_sparse_one)
{
    block_that_cannot_be_mapped(true);
}
