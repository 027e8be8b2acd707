/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks in namespaces of their own, as in containers, of groups of their own, without
 * a /proc, or whose memory is nobody's to look at, or that die. Run as `spaces NAME [cma]`, one of the kinds below; with `cma` the
 * kernel reads wherever it may. They share memory all the same, and what must not work
 * between some of them (sockets of other network namespaces) is an error that
 * says so; over RDMA devices they exchange all the same. SKIP where the kernel does
 * not let us make such a namespace.
 */
#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rsched/engine.h>

#include "tests/runtime/apart.h"
#include "tests/runtime/halo.h"

enum { BYTES = 200000, EPOCHS = 5, SKIPPED = 77 };

/* From and to each of two ranks, in memory of both kinds. */
static const struct halo_edge edges[] = {{0, 1, BYTES | HALO_SHARED},
                                         {1, 0, BYTES | HALO_SHARED},
                                         {0, 1, 8},
                                         {0, 1, BYTES},
                                         {1, 0, BYTES}};

enum { NUM_EDGES = sizeof(edges) / sizeof(edges[0]) };

static bool may_read; /* ranks read each other, if they may be dumped */

struct kind {
    const char *name;
    int spaces; /* CLONE_NEW* */
    bool unreachable;
    bool devices; /* all that both can use are RDMA devices */
    bool secret; /* not to be dumped: /proc is closed, and its memory */
    bool crowd;  /* many ranks, not two */
    bool groups; /* each rank has one of its own; none is root */
    bool bare;   /* there is no /proc */
    bool dies;   /* rank 1 does */
};

static const struct kind kinds[] = {
    {.name = "none"},
    {.name = "ipc", .spaces = CLONE_NEWIPC},
    {.name = "mount", .spaces = CLONE_NEWNS},
    {.name = "user", .spaces = CLONE_NEWUSER},
    {.name = "pid", .spaces = CLONE_NEWPID | CLONE_NEWNS},
    {.name = "container",
     .spaces = CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUSER},
    {.name = "crowd",
     .spaces = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUSER, .crowd = true},
    {.name = "secret", .secret = true},
    {.name = "groups", .groups = true},
    {.name = "bare", .spaces = CLONE_NEWNS, .bare = true},
    {.name = "dead", .spaces = CLONE_NEWPID | CLONE_NEWNS, .dies = true},
    /* Nothing is left that both could use. */
    {.name = "network",
     .spaces = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWNET,
     .unreachable = true},
    /* But devices. A user's memory that is locked is limited in a namespace of his own. */
    {.name = "devices",
     .spaces = CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET,
     .devices = true},
};

/* The kernel is asked to read wherever it may. */
static uint64_t expected_reads(void)
{
    return may_read && prctl(PR_GET_DUMPABLE) == 1 ? EPOCHS * BYTES : 0;
}

static bool with_cma;
static int ends[2]; /* with credentials; of the two ranks */

/* Where a word of the peer lies, and the number that the peer has here. */
static pid_t receive_place(int end, const uint64_t **place)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(struct ucred))];
    } control = {0};
    struct iovec part = {place, sizeof(*place)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    struct ucred from = {0};

    if (recvmsg(end, &message, 0) == (ssize_t)sizeof(*place) &&
        control.header.cmsg_type == SCM_CREDENTIALS)
        memcpy(&from, CMSG_DATA(&control.header), sizeof(from));
    return from.pid;
}

/* Whether the kernel lets the peer read this process, by the number that it has there. */
static bool is_read_by_peer(const struct rank *self)
{
    static uint64_t word;
    const uint64_t *place = &word;
    uint64_t found = 0;
    int end = ends[self->rank];
    struct iovec here = {&found, sizeof(found)}, there = {NULL, sizeof(found)};
    pid_t peer;
    char reads, is_read = 0;

    word = 0x123456 + (unsigned)self->rank;
    if (send(end, &place, sizeof(place), 0) < 0)
        return false;
    peer = receive_place(end, &place);
    there.iov_base = (void *)(uintptr_t)place;
    reads = process_vm_readv(peer, &here, 1, &there, 1, 0) == (ssize_t)sizeof(found) &&
            found == 0x123456 + 1 - (unsigned)self->rank;
    return send(end, &reads, 1, 0) == 1 && recv(end, &is_read, 1, 0) == 1 && is_read;
}

/* Nobody has said that they are on two nodes. */
static int exchange_by_devices(struct rank *self)
{
    struct rsched_stats stats;
    uint64_t by_devices = 0;
    struct halo *halo;

    RANK_CHECK(getenv("RSCHED_NODE") == NULL);
    RANK_CHECK(halo_create(self, edges, NUM_EDGES, 3, 0, &halo) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(halo, epoch) == 0);
    rsched_exchange_get_stats(halo->x, &stats);
    for (size_t i = 0; rsched_engine_at(i) != NULL; i++) {
        if (!rsched_engine_at(i)->within_node)
            by_devices += stats.engine_bytes[i];
    }
    printf("rank %d has sent %llu bytes, %llu over devices\n", self->rank,
           (unsigned long long)stats.bytes, (unsigned long long)by_devices);
    RANK_CHECK(by_devices >= (uint64_t)EPOCHS * 2 * BYTES &&
               by_devices == stats.bytes);
    halo_destroy(halo);
    return 0;
}

static int exchange(struct rank *self)
{
    const struct kind *kind = self->arg;
    struct rsched_stats stats;
    struct halo *halo;
    bool is_read = with_cma && is_read_by_peer(self);

    RANK_CHECK(halo_create(self, edges, NUM_EDGES, 3, 0, &halo) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(halo, epoch) == 0);
    rsched_exchange_get_stats(halo->x, &stats);
    RANK_CHECK(stats.way_bytes[RSCHED_WAY_PULL] +
                   stats.way_bytes[RSCHED_WAY_DIRECT] ==
               (uint64_t)EPOCHS * BYTES);
    RANK_CHECK(!kind->secret ||
               stats.way_bytes[RSCHED_WAY_CMA] == expected_reads());
    RANK_CHECK(!with_cma || stats.way_bytes[RSCHED_WAY_CMA] ==
                                (is_read ? (uint64_t)EPOCHS * BYTES : 0));
    printf("rank %d is process %d here, %s, %llu bytes were read by the kernel\n",
           self->rank, (int)getpid(), !with_cma ? "-" : is_read ? "is read" : "is not read",
           (unsigned long long)stats.way_bytes[RSCHED_WAY_CMA]);
    halo_destroy(halo);
    return 0;
}

static int fail_to_exchange(struct rank *self)
{
    struct halo *halo;

    RANK_CHECK(halo_create(self, edges, NUM_EDGES, 3, 0, &halo) ==
               RSCHED_EUNREACH);
    printf("%s\n", rsched_last_error());
    RANK_CHECK(strstr(rsched_last_error(), "other namespaces") != NULL);
    return 0;
}

/* A star: what all hand to rank 0 is more than a socket's queue has room for, while
 * that waits for the last of them. */
enum { CROWD = 24, CROWD_BYTES = 100 };

static int exchange_in_crowd(struct rank *self)
{
    struct halo_edge star[2 * (CROWD - 1)];
    struct halo *halo;

    for (int i = 1; i < CROWD; i++) {
        star[2 * i - 2] = (struct halo_edge){0, i, CROWD_BYTES};
        star[2 * i - 1] = (struct halo_edge){i, 0, CROWD_BYTES};
    }
    RANK_CHECK(halo_create(self, star, 2 * (CROWD - 1), 3, 0, &halo) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(halo, epoch) == 0);
    halo_destroy(halo);
    return 0;
}

/* So many are left that what can be done without is not opened. */
static bool use_up_descriptors(void)
{
    const struct rlimit limit = {100, 100};
    int fd = 0;

    while (fd >= 0 && fd < 80)
        fd = dup(STDOUT_FILENO);
    return fd >= 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static int outlive(struct rank *self)
{
    struct halo *halo;

    RANK_CHECK(use_up_descriptors());
    RANK_CHECK(halo_create(self, edges, NUM_EDGES, 3, 0, &halo) == 0);
    mesh_barrier(self->end);
    if (self->rank == 1)
        _exit(0);
    RANK_CHECK(halo_step(halo, 0) == RSCHED_EPEER);
    halo_destroy(halo);
    return 0;
}

/* Rank 1 stays where the test is: a container and its host. */
static int run(struct rank *self)
{
    const struct kind *kind = self->arg;

    if (kind->crowd)
        return exchange_in_crowd(self);
    if (kind->devices)
        return exchange_by_devices(self);
    if (kind->dies)
        return outlive(self);
    return kind->unreachable ? fail_to_exchange(self) : exchange(self);
}

enum { NOBODY = 65534 };

/* Nothing is secret from root. */
static bool become_ordinary(gid_t group)
{
    return setgroups(0, NULL) == 0 && setresgid(group, group, group) == 0 &&
           setresuid(NOBODY, NOBODY, NOBODY) == 0 &&
           prctl(PR_SET_DUMPABLE, 1) == 0;
}

static bool lose_proc(void)
{
    return unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/proc", "tmpfs", 0, NULL) == 0;
}

static int enter(struct rank *self)
{
    const struct kind *kind = self->arg;

    if (kind->secret)
        prctl(PR_SET_DUMPABLE, 0);
    RANK_CHECK(!kind->groups || become_ordinary((gid_t)(NOBODY - 1 - self->rank)));
    RANK_CHECK(!kind->bare || lose_proc());
    return apart_run(self, kind->bare ? 0 : kind->spaces, run);
}

static int play(struct rank *self)
{
    return self->rank == 0 ? enter(self) : run(self);
}

/* Both ranks in namespaces of their own, which do not see each other. */
static int play_apart(struct rank *self)
{
    return enter(self);
}

int main(int argc, char **argv)
{
    const struct kind *kind = NULL;

    with_cma = argc == 3 && strcmp(argv[2], "cma") == 0;
    for (size_t i = 0; argc == 2 + with_cma && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, argv[1]) == 0)
            kind = &kinds[i];
    }
    if (kind == NULL)
        return 2;
    if (!apart_is_possible(kind->spaces)) {
        printf("SKIP: no namespaces (%s): %s\n", kind->name, strerror(EPERM));
        return SKIPPED;
    }
    if (kind->secret) {
        if (geteuid() == 0 && !become_ordinary(NOBODY)) {
            printf("SKIP: nothing is secret from this user: %s\n",
                   strerror(errno));
            return SKIPPED;
        }
        may_read = ranks_may_read();
        setenv("RSCHED_CMA", "1", 1);
    }
    if (kind->groups && geteuid() != 0) {
        printf("SKIP: only root may choose groups\n");
        return SKIPPED;
    }
    if (with_cma) {
        const int yes = 1;

        setenv("RSCHED_CMA", "1", 1);
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0 ||
            setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) != 0 ||
            setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) != 0) {
            perror("socketpair");
            return 1;
        }
    }
    setenv("RSCHED_MAPPED", "1", 1);
    /* Devices do not see whose namespaces they are, and a guest takes long. */
    if (!kind->crowd && !kind->groups && !kind->devices &&
        ranks_run(2, false, play, (void *)(uintptr_t)kind) != 0) {
        fprintf(stderr, "failed: one in namespaces of its own\n");
        return 1;
    }
    if (ranks_run(kind->crowd ? CROWD : 2, false, play_apart,
                  (void *)(uintptr_t)kind) != 0) {
        fprintf(stderr, "failed: both in namespaces of their own\n");
        return 1;
    }
    return 0;
}
