/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NOTES: file descriptors of GPU memory on their way to a peer, through a socket
 * that the connection has in each direction. A process may send its own whatever
 * namespaces the two are in, and whether or not they may look at each other, which
 * taking them (pidfd_getfd) needs.
 *
 * A note goes before the table that names its memory, so it is there when that is
 * opened. What is not opened is not kept for long, since GPU memory stays as long as
 * a descriptor of it does: notes of a lane are for its newest table, and a lane that
 * goes takes its notes back.
 */
#ifndef RS_CUDA_NOTES_H
#define RS_CUDA_NOTES_H

#include <stdint.h>

/* What is sent with a descriptor, or without. */
struct rs_cuda_note {
    uint64_t lane;    /* of the sender's, any number that it has alone */
    uint64_t version; /* of its table; higher than those before */
    uint64_t buffer;  /* which memory it is: struct rs_cuda_region */
    uint64_t start;
};

struct rs_cuda_kept;

struct rs_cuda_notes {
    int out, in; /* sockets, -1: there is none */
    struct rs_cuda_kept *kept; /* that have come */
};

/** No sockets. */
void rs_cuda_notes_init(struct rs_cuda_notes *notes);
void rs_cuda_notes_fini(struct rs_cuda_notes *notes);

/** Have a socket to send with. @return the other end, which the peer is to get as
 * its `in`; the caller closes it. -1: there is none */
int rs_cuda_notes_open(struct rs_cuda_notes *notes);

/** Send a descriptor, which stays the caller's; -1: none, but what was sent of the
 * lane with lower versions is void. Never waits. @return 0, or -1 with errno */
int rs_cuda_notes_send(struct rs_cuda_notes *notes,
                       const struct rs_cuda_note *note, int fd);

/** Take what has come: what is void by now is closed, and there is room for more.
 * One thread at a time, which may be another one than that which sends. */
void rs_cuda_notes_collect(struct rs_cuda_notes *notes);

/** The descriptor of memory; the caller owns it. Threads likewise. @return -1: none
 * has come */
int rs_cuda_notes_take(struct rs_cuda_notes *notes, uint64_t buffer,
                       uint64_t start);

#endif
