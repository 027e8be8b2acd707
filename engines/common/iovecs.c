/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/iovecs.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"

static int add(struct rs_iovecs *v, char *here, char *there, uint64_t bytes)
{
    struct iovec *last = v->number > 0 ? &v->here[v->number - 1] : NULL;
    struct iovec *larger;

    if (last != NULL && (char *)last->iov_base + last->iov_len == here &&
        (char *)v->there[v->number - 1].iov_base + last->iov_len == there) {
        last->iov_len += bytes;
        v->there[v->number - 1].iov_len += bytes;
        return 0;
    }
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
