/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/hand.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "librsched/base/descriptor.h"

#define MAGIC UINT64_C(0x31646e6168736372) /* "rcshand1" */

/* How often a queue that is full is tried again, a millisecond each. */
enum { TRIES = 10000 };

struct letter {
    uint64_t magic, from, to;
};

union control {
    struct cmsghdr header; /* for its alignment */
    char room[CMSG_SPACE((RS_HAND_FDS + 1) * sizeof(int)) +
              CMSG_SPACE(sizeof(struct ucred))];
};

socklen_t rs_hands_address(uint64_t nonce, struct sockaddr_un *address)
{
    const size_t before = offsetof(struct sockaddr_un, sun_path) + 1;

    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    return (socklen_t)(before +
                       (size_t)snprintf(address->sun_path + 1,
                                        sizeof(address->sun_path) - 1,
                                        "rsched-%016llx",
                                        (unsigned long long)nonce));
}

void rs_hands_init(struct rs_hands *hands, uint64_t nonce)
{
    struct sockaddr_un address;
    socklen_t length = rs_hands_address(nonce, &address);
    int yes = 1;

    *hands = (struct rs_hands){.nonce = nonce};
    hands->socket = rs_descriptor_keep(
        socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (hands->socket < 0)
        return;
    if (setsockopt(hands->socket, SOL_SOCKET, SO_PASSCRED, &yes,
                   sizeof(yes)) == 0 &&
        bind(hands->socket, (struct sockaddr *)&address, length) == 0)
        return;
    close(hands->socket);
    hands->socket = -1;
}

void rs_hand_destroy(struct rs_hand *hand)
{
    for (int i = 0; i < RS_HAND_FDS; i++) {
        if (hand->fds[i] >= 0)
            close(hand->fds[i]);
    }
    if (hand->pidfd >= 0)
        close(hand->pidfd);
    free(hand);
}

void rs_hands_fini(struct rs_hands *hands)
{
    while (hands->list != NULL) {
        struct rs_hand *next = hands->list->next;

        rs_hand_destroy(hands->list);
        hands->list = next;
    }
    if (hands->socket >= 0)
        close(hands->socket);
}

/* The last one is that of the process, which it may not have. There may be more than
 * we want: the kernel fills the room for credentials, too. */
static void take_descriptors(const struct cmsghdr *c, struct rs_hand *hand)
{
    size_t number = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

    for (size_t i = 0; i < number; i++) {
        int fd;

        memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
        if (i < RS_HAND_FDS)
            hand->fds[i] = rs_descriptor_keep(fd);
        else if (i == RS_HAND_FDS)
            hand->pidfd = rs_descriptor_keep(fd);
        else
            close(fd);
    }
}

/* What came with a letter, whoever sent it. */
static void read_control(struct msghdr *message, struct rs_hand *hand)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL;
         c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        if (c->cmsg_type == SCM_CREDENTIALS) {
            struct ucred from;

            memcpy(&from, CMSG_DATA(c), sizeof(from));
            hand->pid = from.pid;
            hand->uid = from.uid;
        } else if (c->cmsg_type == SCM_RIGHTS) {
            take_descriptors(c, hand);
        }
    }
}

/* @return whether there was a letter */
static bool receive(struct rs_hands *hands)
{
    struct rs_hand *hand = calloc(1, sizeof(*hand));
    struct letter letter = {0, 0, 0};
    struct iovec part = {&letter, sizeof(letter)};
    union control control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};

    if (hand == NULL)
        return false;
    hand->pidfd = -1;
    hand->uid = (uid_t)-1;
    memset(hand->fds, -1, sizeof(hand->fds));
    if (recvmsg(hands->socket, &message, MSG_CMSG_CLOEXEC) < 0) {
        free(hand);
        return false;
    }
    read_control(&message, hand);
    hand->from = letter.from;
    /* Anybody may write to the socket, and may see all nonces. */
    if (letter.magic != MAGIC || letter.to != hands->nonce || hand->uid != geteuid() ||
        hand->fds[0] < 0) {
        rs_hand_destroy(hand);
        return true;
    }
    hand->next = hands->list;
    hands->list = hand;
    return true;
}

void rs_hands_collect(struct rs_hands *hands)
{
    while (hands->socket >= 0 && receive(hands))
        ;
}

/* All that a user's processes have on its way may be no more descriptors than one of
 * them may have open (ETOOMANYREFS). */
bool rs_hand_may_be_later(int error)
{
    return error == EAGAIN || error == ETOOMANYREFS;
}

/* The queue is short, and peers that wait for room in ours empty theirs. */
static int send_letter(struct rs_hands *hands, const struct msghdr *message)
{
    for (int i = 0; i < TRIES; i++) {
        struct pollfd p = {.fd = hands->socket, .events = POLLIN};

        if (sendmsg(hands->socket, message, MSG_NOSIGNAL) >= 0)
            return 0;
        if (!rs_hand_may_be_later(errno))
            break;
        rs_hands_collect(hands);
        poll(&p, 1, 1);
    }
    return -1;
}

/* A letter with descriptors, and what it is made of. */
struct parcel {
    struct letter letter;
    struct sockaddr_un address;
    struct iovec part;
    struct msghdr message;
    union control control; /* last, as it ends with an array of no length */
};

static void pack(struct parcel *parcel, uint64_t from, uint64_t to, const int *fds,
                 size_t count)
{
    struct cmsghdr *header = &parcel->control.header;

    *parcel = (struct parcel){.letter = {MAGIC, from, to}};
    parcel->part = (struct iovec){&parcel->letter, sizeof(parcel->letter)};
    parcel->message = (struct msghdr){
        .msg_name = &parcel->address,
        .msg_namelen = rs_hands_address(to, &parcel->address),
        .msg_iov = &parcel->part,
        .msg_iovlen = 1,
        .msg_control = &parcel->control,
        .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, count * sizeof(int));
}

int rs_hand_try(uint64_t to, uint64_t from, int fd)
{
    int from_here = rs_descriptor_keep(
        socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    struct parcel parcel;
    int result, why;

    if (from_here < 0)
        return -1;
    pack(&parcel, from, to, &fd, 1);
    result = sendmsg(from_here, &parcel.message, MSG_NOSIGNAL) >= 0 ? 0 : -1;
    why = errno;
    close(from_here);
    errno = why;
    return result;
}

int rs_hands_send(struct rs_hands *hands, uint64_t to,
                  const int fds[RS_HAND_FDS])
{
    int all[RS_HAND_FDS + 1], result;
    size_t count = RS_HAND_FDS;
    struct parcel parcel;

    if (hands->socket < 0) {
        errno = ENOTSOCK;
        return -1;
    }
    memcpy(all, fds, RS_HAND_FDS * sizeof(int));
    all[count] =
        rs_descriptor_keep((int)syscall(SYS_pidfd_open, getpid(), 0));
    count += all[count] >= 0;
    pack(&parcel, hands->nonce, to, all, count);
    result = send_letter(hands, &parcel.message);
    if (count > RS_HAND_FDS)
        close(all[RS_HAND_FDS]); /* leaves errno alone: it is open */
    return result;
}

struct rs_hand *rs_hands_take(struct rs_hands *hands, uint64_t from)
{
    struct rs_hand **at = &hands->list, *found;

    rs_hands_collect(hands);
    while (*at != NULL && (*at)->from != from)
        at = &(*at)->next;
    found = *at;
    if (found != NULL)
        *at = found->next;
    return found;
}

static uint64_t mix(uint64_t spaces, uint64_t value)
{
    return spaces * UINT64_C(0x9e3779b97f4a7c15) + value;
}

/* Who looks needs in effect all that the other is permitted, ...
 * @return false: not even one with the same may be looked at, or it is not known */
static bool mix_capabilities(uint64_t *spaces)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

    if (syscall(SYS_capget, &header, data) != 0)
        return false;
    for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
        if ((data[i].permitted & ~data[i].effective) != 0)
            return false;
        *spaces = mix(*spaces, data[i].permitted);
    }
    return true;
}

/* ... and be the user and group that the other is in effect, really and by what it has
 * saved. @return as above */
static bool mix_users(uint64_t *spaces)
{
    uid_t user, effective_user, saved_user;
    gid_t group, effective_group, saved_group;

    if (getresuid(&user, &effective_user, &saved_user) != 0 ||
        getresgid(&group, &effective_group, &saved_group) != 0 ||
        user != effective_user || user != saved_user ||
        group != effective_group || group != saved_group)
        return false;
    *spaces = mix(mix(*spaces, user), group);
    return true;
}

/* @return false: they are not known, as where there is no /proc */
static bool mix_namespaces(uint64_t *spaces)
{
    static const char *const names[] = {"/proc/self/ns/user",
                                        "/proc/self/ns/pid",
                                        "/proc/self/ns/mnt"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct stat status;

        if (stat(names[i], &status) != 0)
            return false;
        *spaces = mix(*spaces, status.st_ino);
    }
    return true;
}

uint64_t rs_hands_spaces(uint64_t nonce)
{
    uint64_t spaces = 0;

    return prctl(PR_GET_DUMPABLE) == 1 && mix_namespaces(&spaces) &&
                   mix_capabilities(&spaces) && mix_users(&spaces)
               ? spaces
               : nonce;
}
