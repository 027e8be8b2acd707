/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/iovecs.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"

/* The kernel pins the pages of an iovec, up to 4 MiB of them, copies, and lets go
 * of them. Of 24 MiB in one piece what it keeps of each page has left the caches by
 * then: on an EPYC iovecs of 256 KiB took 0.93 to 0.96 of the time, longer and
 * shorter ones more. */
#define PIECE (UINT64_C(256) << 10)

static bool touches(const struct rs_iovecs *v, const char *here,
                    const char *there)
{
    const struct iovec *h = &v->here[v->number - 1];
    const struct iovec *t = &v->there[v->number - 1];

    return (char *)h->iov_base + h->iov_len == here &&
           (char *)t->iov_base + t->iov_len == there;
}

static int append(struct rs_iovecs *v, char *here, char *there, uint64_t bytes)
{
    struct iovec *larger;

    larger = rs_array_grow(v->here, &v->room_here, v->number + 1,
                           sizeof(*larger));
    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a copy list");
    v->here = larger;
    larger = rs_array_grow(v->there, &v->room_there, v->number + 1,
                           sizeof(*larger));
    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a copy list");
    v->there = larger;
    v->here[v->number] = (struct iovec){here, bytes};
    v->there[v->number++] = (struct iovec){there, bytes};
    return 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int add(struct rs_iovecs *v, char *here, char *there, uint64_t bytes)
{
    int error = 0;

    if (v->number > 0 && touches(v, here, there)) {
        uint64_t more = least(bytes, PIECE - v->here[v->number - 1].iov_len);

        v->here[v->number - 1].iov_len += more;
        v->there[v->number - 1].iov_len += more;
        here += more;
        there += more;
        bytes -= more;
    }
    while (bytes > 0 && error == 0) {
        uint64_t piece = least(bytes, PIECE);

        error = append(v, here, there, piece);
        here += piece;
        there += piece;
        bytes -= piece;
    }
    return error;
}

int rs_iovecs_add(struct rs_iovecs *v, const struct rs_copy *copy)
{
    int error = 0;

    for (uint64_t i = 0; i < copy->count && error == 0; i++)
        error = add(v, copy->other + (int64_t)i * copy->other_stride,
                    copy->user + (int64_t)i * copy->stride, copy->bytes);
    return error;
}

/* Parts of a call, which the kernel limits to IOV_MAX; those that begin in
 * the middle of an iovec are read alone. @return bytes read, or -1 */
static ssize_t read_some(pid_t pid, const struct rs_iovecs *v, size_t first,
                         size_t within)
{
    size_t number = v->number - first;
    struct iovec here = v->here[first], there = v->there[first];

    if (within == 0)
        return process_vm_readv(pid, &v->here[first],
                                number < IOV_MAX ? number : IOV_MAX,
                                &v->there[first],
                                number < IOV_MAX ? number : IOV_MAX, 0);
    here.iov_base = (char *)here.iov_base + within;
    there.iov_base = (char *)there.iov_base + within;
    here.iov_len = there.iov_len = here.iov_len - within;
    return process_vm_readv(pid, &here, 1, &there, 1, 0);
}

int rs_iovecs_read(const struct rs_iovecs *v, pid_t pid)
{
    size_t at = 0, within = 0;

    while (at < v->number) {
        ssize_t got = read_some(pid, v, at, within);

        if (got == 0)
            errno = EIO;
        if (got <= 0)
            return -1;
        within += (size_t)got;
        while (at < v->number && within >= v->here[at].iov_len)
            within -= v->here[at++].iov_len;
    }
    return 0;
}

void rs_iovecs_fini(struct rs_iovecs *v)
{
    free(v->here);
    free(v->there);
    *v = (struct rs_iovecs){0};
}
