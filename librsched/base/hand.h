/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors handed to processes in other namespaces. There a process's number
 * means another process or none, and the kernel does not let one look into
 * /proc/PID/fd of another, nor of one of another group or with more capabilities, nor
 * anybody into that of a process that must not be dumped (PR_SET_DUMPABLE), nor is there
 * always a /proc; but descriptors that are sent to a socket arrive.
 * The sockets are abstract ones, which all processes of a network namespace
 * reach, and nobody else: their names, made of the nonces, are those of no other
 * node's either. The kernel shows them to all users, so letters of others are thrown
 * away. A process sends its own before it tells that its half of a connection
 * is there, so that they lie in the peer's queue when that looks for them. A queue
 * is short; so whoever waits for peers that may send to it takes what has come
 * (the engine's `collect`).
 */
#ifndef RS_BASE_HAND_H
#define RS_BASE_HAND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

enum { RS_HAND_FDS = 2 };

/* What one process hands to another. */
struct rs_hand {
    struct rs_hand *next;
    uint64_t from; /* its nonce */
    pid_t pid;     /* its number in the namespace of this process; 0: it has
                      none here */
    uid_t uid;            /* its user, likewise; (uid_t)-1: not known */
    int pidfd;            /* of it, or -1; owned, as these */
    int fds[RS_HAND_FDS]; /* what it has sent, the first one at least; else -1 */
};

struct rs_hands {
    int socket;           /* -1: there is none */
    uint64_t nonce;       /* of this process */
    struct rs_hand *list; /* that have come */
};

/** Where a process has its socket. @return the length */
socklen_t rs_hands_address(uint64_t nonce, struct sockaddr_un *address);

/** Have a socket; without one nothing can be handed over. */
void rs_hands_init(struct rs_hands *hands, uint64_t nonce);
void rs_hands_fini(struct rs_hands *hands);

/** Hand descriptors, which stay the caller's, and that of this process, to the one
 * whose nonce is `to`. Waits for room in its queue, not for ever.
 * @return 0, or -1 with errno */
int rs_hands_send(struct rs_hands *hands, uint64_t to,
                  const int fds[RS_HAND_FDS]);

/** Hand one descriptor, which stays the caller's, to the process whose nonce is `to`, as
 * if it came from the nonce `from`, of which its memory may be told. Needs no socket of this
 * process and never waits. @return 0, or -1 with errno; where rs_hand_may_be_later() there may
 * be room for it later */
int rs_hand_try(uint64_t to, uint64_t from, int fd);
bool rs_hand_may_be_later(int error);

/** Make room for what others have to send. Never waits. */
void rs_hands_collect(struct rs_hands *hands);

/** What a process has handed over; the caller owns it. @return NULL: nothing */
struct rs_hand *rs_hands_take(struct rs_hands *hands, uint64_t from);

/** Close and free. */
void rs_hand_destroy(struct rs_hand *hand);

/** A number for what decides who sees whom through /proc: processes with
 * different ones may not see each other. That is the namespaces that matter, users,
 * groups and capabilities (ptrace(2)); a process whose memory is nobody's to look at,
 * as that of a program that may be executed but not read, has one of its own, and so
 * has one for which these are not known, having no /proc. @param nonce of this process */
uint64_t rs_hands_spaces(uint64_t nonce);

#endif
