/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors on their way to a peer: what arrives, and what is not kept. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engines/cuda/notes.h"
#include "tests/base/entries.h"

static void join(struct rs_cuda_notes *from, struct rs_cuda_notes *to)
{
    rs_cuda_notes_init(from);
    rs_cuda_notes_init(to);
    to->in = rs_cuda_notes_open(from);
    cr_assert(to->in >= 0);
}

static int send_one(struct rs_cuda_notes *from, uint64_t lane, uint64_t version,
                    uint64_t buffer, int fd)
{
    const struct rs_cuda_note note = {lane, version, buffer, 4096};

    return rs_cuda_notes_send(from, &note, fd);
}

static void take_none(struct rs_cuda_notes *to, uint64_t buffer)
{
    cr_assert_eq(rs_cuda_notes_take(to, buffer, 4096), -1, "of buffer %d",
                 (int)buffer);
}

static void take_one(struct rs_cuda_notes *to, uint64_t buffer)
{
    int fd = rs_cuda_notes_take(to, buffer, 4096);

    cr_assert(fd > 2, "of buffer %d", (int)buffer);
    close(fd);
}

Test(notes, descriptors_are_found_by_their_memory)
{
    struct rs_cuda_notes from, to;
    int ends[2], before = count_descriptors(), fd;
    struct stat sent, got;

    join(&from, &to);
    cr_assert_eq(pipe(ends), 0);
    take_none(&to, 1);
    cr_assert_eq(send_one(&from, 1, 1, 1, 0), 0);
    cr_assert_eq(send_one(&from, 1, 1, 2, ends[0]), 0);
    cr_assert_eq(rs_cuda_notes_take(&to, 2, 8192), -1);
    fd = rs_cuda_notes_take(&to, 2, 4096);
    cr_assert(fd > 2);
    cr_assert_eq(fstat(ends[0], &sent), 0);
    cr_assert_eq(fstat(fd, &got), 0);
    cr_assert(sent.st_ino == got.st_ino && sent.st_dev == got.st_dev);
    cr_assert((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    close(fd);
    take_none(&to, 2);
    take_one(&to, 1);
    close(ends[0]);
    close(ends[1]);
    rs_cuda_notes_fini(&from);
    take_none(&to, 1);
    rs_cuda_notes_fini(&to);
    cr_assert_eq(count_descriptors(), before);
}

/* Where it is free the kernel gives the number of standard input first. */
Test(notes, descriptors_are_no_standard_ones)
{
    struct rs_cuda_notes from, to;

    close(0);
    join(&from, &to);
    cr_assert(from.out > 2 && to.in > 2);
    cr_assert_eq(send_one(&from, 1, 1, 1, 1), 0);
    take_one(&to, 1);
    rs_cuda_notes_fini(&from);
    rs_cuda_notes_fini(&to);
}

Test(notes, those_for_older_tables_are_closed)
{
    struct rs_cuda_notes from, to;
    int before;

    join(&from, &to);
    before = count_descriptors();
    for (uint64_t version = 1; version <= 50; version++) {
        cr_assert_eq(send_one(&from, 1, version, 2 * version, 0), 0);
        cr_assert_eq(send_one(&from, 1, version, 2 * version + 1, 0), 0);
        take_none(&to, 1000);
        cr_assert_eq(count_descriptors(), before + 2);
    }
    cr_assert_eq(send_one(&from, 2, 1, 500, 0), 0);
    take_none(&to, 98);
    take_one(&to, 100);
    take_one(&to, 101);
    cr_assert_eq(count_descriptors(), before + 1);
    /* The lane has gone. */
    cr_assert_eq(send_one(&from, 2, UINT64_MAX, 0, -1), 0);
    take_none(&to, 500);
    cr_assert_eq(count_descriptors(), before);
    rs_cuda_notes_fini(&to);
    cr_assert_eq(send_one(&from, 2, 1, 1, 0), -1, "nobody has the other end");
    rs_cuda_notes_fini(&from);
}

Test(notes, who_sends_does_not_wait)
{
    struct rs_cuda_notes from, to;
    uint64_t sent = 0;

    join(&from, &to);
    while (send_one(&from, 1, 1, sent, 0) == 0)
        sent++;
    cr_assert(sent > 50, "only %d fit", (int)sent);
    for (uint64_t i = 0; i < sent; i++)
        take_one(&to, i);
    take_none(&to, sent);
    cr_assert_eq(send_one(&from, 1, 1, sent, 0), 0);
    rs_cuda_notes_fini(&to);
    rs_cuda_notes_fini(&from);
}
