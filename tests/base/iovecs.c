/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists for process_vm_readv(): the process reads itself. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engines/common/iovecs.h"

#define PIECE ((size_t)256 << 10)

static unsigned calls;
static size_t allowed = SIZE_MAX; /* bytes of one call */

/* Comes before the C library's. */
__attribute__((visibility("default"))) ssize_t
process_vm_readv(pid_t pid, const struct iovec *here, unsigned long num_here,
                 const struct iovec *there, unsigned long num_there,
                 unsigned long flags)
{
    struct iovec less = {here->iov_base, allowed};

    calls++;
    if (here->iov_len > allowed) {
        here = &less;
        num_here = 1;
    }
    return syscall(SYS_process_vm_readv, pid, here, num_here, there, num_there,
                   flags);
}

static char *filled(size_t bytes, char first)
{
    char *memory = malloc(bytes);

    cr_assert_not_null(memory);
    for (size_t i = 0; i < bytes; i++)
        memory[i] = (char)(first + (char)(i % 251));
    return memory;
}

static size_t longest(const struct rs_iovecs *v, size_t *sum)
{
    size_t most = 0;

    *sum = 0;
    for (size_t i = 0; i < v->number; i++) {
        cr_assert_eq(v->here[i].iov_len, v->there[i].iov_len);
        if (v->here[i].iov_len > most)
            most = v->here[i].iov_len;
        *sum += v->here[i].iov_len;
    }
    return most;
}

Test(iovecs, long_blocks_are_read_in_pieces)
{
    size_t bytes = 2 * PIECE + 4711, sum;
    char *from = filled(bytes, 1), *to = filled(bytes, 2);
    struct rs_iovecs v = {0};

    cr_assert_eq(rs_iovecs_add(&v, &(struct rs_copy){.user = from,
                                                     .bytes = bytes,
                                                     .count = 1,
                                                     .other = to}), 0);
    cr_assert_eq(v.number, 3);
    cr_assert_eq(longest(&v, &sum), PIECE);
    cr_assert_eq(sum, bytes);
    cr_assert_eq(rs_iovecs_read(&v, getpid()), 0);
    cr_assert_eq(memcmp(from, to, bytes), 0);
    rs_iovecs_fini(&v);
    free(from);
    free(to);
}

/* Blocks that touch become one, but none longer than a piece. */
Test(iovecs, blocks_that_touch_are_joined)
{
    size_t block = 24 << 10, count = 30, bytes = block * count, sum;
    char *from = filled(bytes, 3), *to = filled(bytes, 4);
    struct rs_iovecs v = {0};

    cr_assert_eq(rs_iovecs_add(&v, &(struct rs_copy){
                                       .user = from,
                                       .bytes = block,
                                       .count = count,
                                       .stride = (int64_t)block,
                                       .other = to,
                                       .other_stride = (int64_t)block}), 0);
    cr_assert_eq(v.number, (bytes + PIECE - 1) / PIECE);
    cr_assert_eq(longest(&v, &sum), PIECE);
    cr_assert_eq(sum, bytes);
    cr_assert_eq(rs_iovecs_read(&v, getpid()), 0);
    cr_assert_eq(memcmp(from, to, bytes), 0);
    rs_iovecs_fini(&v);
    free(from);
    free(to);
}

/* Those that touch on one side only stay apart. */
static void read_blocks(size_t block, size_t count)
{
    size_t sum;
    char *from = filled(2 * block * count, 7), *to = filled(block * count, 8);
    struct rs_iovecs v = {0};

    cr_assert_eq(rs_iovecs_add(&v, &(struct rs_copy){
                                       .user = from,
                                       .bytes = block,
                                       .count = count,
                                       .stride = (int64_t)(2 * block),
                                       .other = to,
                                       .other_stride = (int64_t)block}), 0);
    cr_assert_eq(v.number, count);
    cr_assert_eq(longest(&v, &sum), block);
    calls = 0;
    cr_assert_eq(rs_iovecs_read(&v, getpid()), 0);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(memcmp(from + 2 * i * block, to + i * block, block), 0);
    rs_iovecs_fini(&v);
    free(from);
    free(to);
}

Test(iovecs, a_call_reads_as_many_as_the_kernel_takes)
{
    read_blocks(2048, IOV_MAX);
    cr_assert_eq(calls, 1);
    read_blocks(2048, IOV_MAX + 1);
    cr_assert_eq(calls, 2);
    read_blocks(2048, 2 * IOV_MAX + 1);
    cr_assert_eq(calls, 3);
}

/* The kernel may read less than it was asked for. */
Test(iovecs, reading_goes_on_in_the_middle_of_a_block)
{
    allowed = 1000;
    read_blocks(2048, 3);
    cr_assert_eq(calls, 9);
}
