/* SPDX-License-Identifier: BSD-3-Clause */
/* STANDIN for libibverbs: a device that is a descriptor of a kind nobody knows, and
 * registers nothing. What is registered from here on fails while standin_fails. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "tests/mpi/standin.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

bool standin_fails;
unsigned standin_calls;

int standin_open(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

    return fd >= 0 ? fd : socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *context = calloc(1, sizeof(*context));

    standin_calls++;
    context->device = device;
    context->cmd_fd = standin_open();
    return context;
}

int ibv_close_device(struct ibv_context *context)
{
    standin_calls++;
    close(context->cmd_fd);
    free(context);
    return 0;
}

static struct ibv_mr *make(struct ibv_pd *pd, void *address, size_t bytes)
{
    struct ibv_mr *mr;

    standin_calls++;
    if (standin_fails) {
        errno = ENOMEM;
        return NULL;
    }
    mr = calloc(1, sizeof(*mr));
    mr->pd = pd;
    mr->addr = address;
    mr->length = bytes;
    return mr;
}

/* Of later libraries, whose structs not every header has. */
struct registration {
    size_t bytes;
    int access;
    uint64_t has, iova;
    void *address;
};

struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct registration *r);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct registration *r)
{
    return make(pd, r->address, r->bytes);
}

struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, void *buffer, void *address,
                              size_t bytes, int access);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, void *buffer, void *address,
                              size_t bytes, int access)
{
    (void)buffer;
    (void)access;
    return make(pd, address, bytes);
}

#ifndef STANDIN_OLDER
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t bytes,
                                uint64_t iova, unsigned access)
{
    (void)iova;
    (void)access;
    return make(pd, address, bytes);
}
#endif
/* As libibverbs has it, by the name that others have come before. */
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access)
{
#ifndef STANDIN_OLDER
    return ibv_reg_mr_iova2(pd, address, bytes, (uintptr_t)address, (unsigned)access);
#else
    (void)access;
    return make(pd, address, bytes);
#endif
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t bytes,
                               uint64_t iova, int access)
{
    (void)iova;
    (void)access;
    return make(pd, address, bytes);
}


int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address,
                 size_t bytes, int access)
{
    (void)pd;
    (void)access;
    standin_calls++;
    if (standin_fails)
        return IBV_REREG_MR_ERR_INPUT;
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
        mr->addr = address;
        mr->length = bytes;
    }
    return 0;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    standin_calls++;
    if (standin_fails)
        return EBUSY;
    free(mr);
    return 0;
}

#ifdef STANDIN_NEWER
int ibv_reg_otherwise(void);
int ibv_reg_otherwise(void)
{
    return 0;
}
#endif
