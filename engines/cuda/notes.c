/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/cuda/notes.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "librsched/base/descriptor.h"

struct rs_cuda_kept {
    struct rs_cuda_kept *next;
    struct rs_cuda_note note;
    int fd;
};

union control {
    struct cmsghdr header; /* for its alignment */
    char room[CMSG_SPACE(sizeof(int))];
};

void rs_cuda_notes_init(struct rs_cuda_notes *notes)
{
    *notes = (struct rs_cuda_notes){.out = -1, .in = -1};
}

static struct rs_cuda_kept *drop(struct rs_cuda_kept *k)
{
    struct rs_cuda_kept *next = k->next;

    close(k->fd);
    free(k);
    return next;
}

void rs_cuda_notes_fini(struct rs_cuda_notes *notes)
{
    while (notes->kept != NULL)
        notes->kept = drop(notes->kept);
    if (notes->out >= 0)
        close(notes->out);
    if (notes->in >= 0)
        close(notes->in);
    rs_cuda_notes_init(notes);
}

int rs_cuda_notes_open(struct rs_cuda_notes *notes)
{
    int ends[2], why;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                   ends) != 0)
        return -1;
    for (int i = 0; i < 2; i++)
        ends[i] = rs_descriptor_keep(ends[i]);
    why = errno;
    if (ends[0] >= 0 && ends[1] >= 0) {
        notes->out = ends[0];
        return ends[1];
    }
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
    }
    errno = why;
    return -1;
}

int rs_cuda_notes_send(struct rs_cuda_notes *notes,
                       const struct rs_cuda_note *note, int fd)
{
    struct rs_cuda_note copy = *note;
    struct iovec part = {&copy, sizeof(copy)};
    union control control = {.header = {.cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS,
                                        .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
        message.msg_control = &control;
        message.msg_controllen = sizeof(control.room);
    }
    return sendmsg(notes->out, &message, MSG_NOSIGNAL) == sizeof(copy) ? 0 : -1;
}

/* Of a lane, what is older than its newest note. */
static void drop_void(struct rs_cuda_notes *notes,
                      const struct rs_cuda_note *newest)
{
    struct rs_cuda_kept **at = &notes->kept;

    while (*at != NULL) {
        const struct rs_cuda_note *n = &(*at)->note;

        if (n->lane == newest->lane && n->version < newest->version)
            *at = drop(*at);
        else
            at = &(*at)->next;
    }
}

/* @return whether there was a note */
static bool receive(struct rs_cuda_notes *notes)
{
    struct rs_cuda_kept *k = calloc(1, sizeof(*k));
    struct iovec part = {NULL, sizeof(k->note)};
    union control control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control.room)};
    const struct cmsghdr *c;

    if (k == NULL)
        return false;
    part.iov_base = &k->note;
    if (recvmsg(notes->in, &message, MSG_CMSG_CLOEXEC) !=
        (ssize_t)sizeof(k->note)) {
        free(k);
        return false;
    }
    drop_void(notes, &k->note);
    c = CMSG_FIRSTHDR(&message);
    if (c == NULL || c->cmsg_level != SOL_SOCKET ||
        c->cmsg_type != SCM_RIGHTS) {
        free(k);
        return true;
    }
    memcpy(&k->fd, CMSG_DATA(c), sizeof(k->fd));
    k->fd = rs_descriptor_keep(k->fd);
    if (k->fd < 0) { /* as if it had not come */
        free(k);
        return true;
    }
    k->next = notes->kept;
    notes->kept = k;
    return true;
}

void rs_cuda_notes_collect(struct rs_cuda_notes *notes)
{
    while (notes->in >= 0 && receive(notes))
        ;
}

int rs_cuda_notes_take(struct rs_cuda_notes *notes, uint64_t buffer,
                       uint64_t start)
{
    struct rs_cuda_kept **at = &notes->kept, *k;
    int fd;

    rs_cuda_notes_collect(notes);
    while (*at != NULL &&
           ((*at)->note.buffer != buffer || (*at)->note.start != start))
        at = &(*at)->next;
    k = *at;
    if (k == NULL)
        return -1;
    *at = k->next;
    fd = k->fd;
    free(k);
    return fd;
}
