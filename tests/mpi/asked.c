/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts the keys of other processes that one asks MPICH's process manager for
 * (mpi/presence.c), and how often it reads for that; with ASKED_PIECES the answers come
 * in pieces, with ASKED_LATE one of them comes later than process 1 would wait, if it waited
 * for a limited time. A preload object: MPICH itself is handed on. */
#include <dlfcn.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { PIECE = 5 /* bytes */ };

static int keys, reads;
static bool is_ours; /* what was asked last */

static bool is_manager(int fd)
{
    const char *descriptor = getenv("PMI_FD");

    return descriptor != NULL && atoi(descriptor) == fd;
}

EXPORT ssize_t write(int fd, const void *buffer, size_t bytes)
{
    static ssize_t (*next)(int, const void *, size_t);

    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "write");
    if (is_manager(fd)) {
        is_ours = memmem(buffer, bytes, "cmd=get ", 8) != NULL &&
                  memmem(buffer, bytes, "key=rsched-", 11) != NULL;
        keys += is_ours;
    }
    return next(fd, buffer, bytes);
}

EXPORT ssize_t read(int fd, void *buffer, size_t bytes)
{
    static ssize_t (*next)(int, void *, size_t);

    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "read");
    if (is_ours && is_manager(fd)) {
        reads++;
        if (getenv("ASKED_PIECES") != NULL && bytes > PIECE)
            bytes = PIECE;
    }
    return next(fd, buffer, bytes);
}

static bool is_late(void)
{
    const char *rank = getenv("PMI_RANK");

    return getenv("ASKED_LATE") != NULL && rank != NULL && strcmp(rank, "1") == 0;
}

EXPORT int poll(struct pollfd *fds, nfds_t num, int timeout_ms)
{
    static int (*next)(struct pollfd *, nfds_t, int);

    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "poll");
    if (is_ours && num == 1 && is_manager(fds->fd) && timeout_ms >= 0 && is_late())
        return 0;
    return next(fds, num, timeout_ms);
}

__attribute__((destructor)) static void say(void)
{
    if (keys > 0)
        printf("asked: %d keys, %d reads\n", keys, reads);
}
