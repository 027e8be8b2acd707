/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process whose context is replaced by another one with the same number, in the same
 * process or in another, when that has died: the others go on with the new instance, and
 * keep nothing of the old ones.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

enum { INSTANCES = 6 };

static const struct halo_edge edges[] = {{0, 1, 20000}, {1, 0, 300}};

static int check_connections(const struct rank *self)
{
    struct rsched_context_stats stats;

    rsched_context_get_stats(self->context, &stats);
    if (stats.connections == 1)
        return 0;
    return RANK_FAIL("rank %d has %llu connections", self->rank,
                     (unsigned long long)stats.connections);
}

/* Now and then rank 0 has the exchange with the last instance until that with the next
 * one is made. */
static int run_reopened(struct rank *self)
{
    struct halo *before = NULL, *h;

    for (int i = 0; i < INSTANCES; i++) {
        if (self->rank == 1 && i > 0) {
            rank_close(self);
            RANK_CHECK(rank_open(self) == 0);
        }
        RANK_CHECK(halo_create(self, edges, 2, (uint64_t)i, 0, &h) == 0);
        if (before != NULL)
            halo_destroy(before);
        before = NULL;
        RANK_CHECK(halo_step(h, i) == 0);
        RANK_CHECK(check_connections(self) == 0);
        if (self->rank == 0 && i % 2 == 0)
            before = h;
        else
            halo_destroy(h);
    }
    return 0;
}

static int open_instance(struct rank *self, int i)
{
    struct halo *h;

    alarm(RANKS_HANG_SECONDS);
    if (rank_open(self) == 0 && halo_create(self, edges, 2, (uint64_t)i, 0, &h) == 0 &&
        halo_step(h, 0) == 0)
        return 0;
    return RANK_FAIL("instance %d: %s", i, rsched_last_error());
}

/* An instance of rank 1 that dies after an epoch, or when it is killed, if rank 0 is told
 * its number. @return what it was killed by */
static int run_instance(struct rank *self, int i, bool waits)
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        pid = getpid();
        if (open_instance(self, i) != 0 ||
            (waits && mesh_send(self->end, 0, 1, &pid, sizeof(pid)) != 0))
            _exit(1);
        if (waits)
            pause();
        raise(SIGKILL);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* Rank 0 and an instance of rank 1. */
static int run_until_dead(struct rank *self, int i)
{
    struct halo *h;

    RANK_CHECK(halo_create(self, edges, 2, (uint64_t)i, 0, &h) == 0);
    RANK_CHECK(check_connections(self) == 0);
    RANK_CHECK(halo_step(h, 0) == 0);
    RANK_CHECK(halo_step(h, 1) == RSCHED_EPEER);
    halo_destroy(h);
    return 0;
}

/* The host of rank 0 knows that instances come. */
static int expect_restarts(struct rank *self)
{
    self->restarts = true;
    rank_close(self);
    return self->rank == 0 ? rank_open(self) : 0;
}

/* Each comes when rank 0 has waited for it for some time. */
static int run_restarted(struct rank *self)
{
    enum { LATER_US = 200000 };

    RANK_CHECK(expect_restarts(self) == 0);
    for (int i = 0; i < INSTANCES / 2; i++) {
        if (self->rank == 0) {
            RANK_CHECK(run_until_dead(self, i) == 0);
        } else {
            usleep(LATER_US);
            RANK_CHECK(run_instance(self, i, false) == SIGKILL);
        }
    }
    mesh_barrier(self->end);
    return 0;
}

/* Nobody comes in its place: that is told in time, or at once. */
static int run_gone(struct rank *self)
{
    struct halo *h;

    RANK_CHECK(expect_restarts(self) == 0);
    if (self->rank == 1) {
        RANK_CHECK(run_instance(self, 0, false) == SIGKILL);
    } else {
        RANK_CHECK(run_until_dead(self, 0) == 0);
        RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == RSCHED_ETIMEOUT);
        RANK_CHECK(strstr(rsched_last_error(), "is dead") != NULL);
    }
    mesh_barrier(self->end);
    return 0;
}

/* Where nobody is expected, also if somebody has come. */
static int run_refused(struct rank *self)
{
    struct halo *h;

    if (self->rank == 1) {
        rank_close(self);
        RANK_CHECK(run_instance(self, 0, false) == SIGKILL);
        RANK_CHECK(rank_open(self) == 0);
        RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == RSCHED_EPEER);
    } else {
        RANK_CHECK(run_until_dead(self, 0) == 0);
        sleep(1); /* until it has come */
        RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == RSCHED_EPEER);
        RANK_CHECK(strstr(rsched_last_error(), "is dead") != NULL);
        RANK_CHECK(halo_create(self, edges, 2, 2, 0, &h) == RSCHED_EPEER);
    }
    mesh_barrier(self->end);
    return 0;
}

/* Who has no edge with the one that is dead, and has come first, hears who it is. */
static int run_far(struct rank *self)
{
    enum { LATER_US = 300000 };
    static const struct halo_edge chain[] = {{0, 1, 8}, {1, 0, 8}, {1, 2, 8}, {2, 1, 8}};
    struct halo *h;
    pid_t pid;

    self->restarts = true;
    rank_close(self);
    pid = self->rank == 2 ? fork() : 0;
    if (pid == 0) {
        RANK_CHECK(rank_open(self) == 0 && halo_create(self, chain, 4, 0, 0, &h) == 0);
        RANK_CHECK(halo_step(h, 0) == 0);
        if (self->rank == 2)
            raise(SIGKILL);
    } else {
        waitpid(pid, NULL, 0);
    }
    mesh_barrier(self->end);
    if (self->rank < 2) {
        halo_destroy(h);
        if (self->rank == 1)
            usleep(LATER_US);
        RANK_CHECK(halo_create(self, chain, 4, 1, 0, &h) == RSCHED_ETIMEOUT);
        RANK_CHECK(strstr(rsched_last_error(), "process 2 did not answer") != NULL);
        RANK_CHECK(strstr(rsched_last_error(), "is dead") != NULL);
    }
    mesh_barrier(self->end);
    return 0;
}

static uint64_t shared_bytes(const struct rank *self)
{
    struct rsched_context_stats stats;

    rsched_context_get_stats(self->context, &stats);
    return stats.shared_bytes;
}

/* An instance that has been replaced, and dies after that: what it could write until then
 * is used again. */
static int run_outlived(struct rank *self)
{
    struct halo *h = NULL, *second, *third;
    uint64_t before;
    pid_t pid = 0;
    int status;

    if (self->rank == 1) {
        rank_close(self);
        pid = fork();
        if (pid == 0)
            _exit(open_instance(self, 0) != 0 || raise(SIGSTOP) != 0);
        RANK_CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
        RANK_CHECK(rank_open(self) == 0);
    } else {
        RANK_CHECK(halo_create(self, edges, 2, 0, 0, &h) == 0 && halo_step(h, 0) == 0);
        halo_destroy(h);
    }
    RANK_CHECK(halo_create(self, edges, 2, 1, 0, &second) == 0);
    RANK_CHECK(halo_step(second, 0) == 0 && check_connections(self) == 0);
    mesh_barrier(self->end);
    if (self->rank == 1) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    mesh_barrier(self->end);
    before = shared_bytes(self);
    RANK_CHECK(halo_create(self, edges, 2, 2, 0, &third) == 0 && halo_step(third, 0) == 0);
    RANK_CHECK(self->rank == 1 || shared_bytes(self) == before);
    mesh_barrier(self->end);
    halo_destroy(second);
    halo_destroy(third);
    return 0;
}

static void kill_neighbor(void *arg)
{
    const pid_t *pid = arg;

    if (*pid != 0)
        kill(*pid, SIGKILL);
}

/* One that dies while an exchange is being made is an error at once. */
static int run_dying(struct rank *self)
{
    pid_t pid = 0;
    struct halo *h;

    rank_close(self);
    if (self->rank == 1) {
        RANK_CHECK(run_instance(self, 0, true) == SIGKILL);
    } else {
        self->host_progress = kill_neighbor;
        self->host_arg = &pid;
        RANK_CHECK(rank_open(self) == 0);
        RANK_CHECK(halo_create(self, edges, 2, 0, 0, &h) == 0 && halo_step(h, 0) == 0);
        RANK_CHECK(mesh_receive(self->end, 1, 1, &pid, sizeof(pid)) == 0);
        RANK_CHECK(halo_create(self, edges, 2, 1, 0, &(struct halo *){NULL}) ==
                   RSCHED_EPEER);
        halo_destroy(h);
    }
    mesh_barrier(self->end);
    return 0;
}

int main(void)
{
    const char *const hasty[2] = {"RSCHED_SETUP_TIMEOUT=3s", "RSCHED_SETUP_TIMEOUT=3s"};
    const char *const alike[2] = {"RSCHED_RING=64k", "RSCHED_RING=64k"}; /* slots */
    int failed = ranks_run(2, false, run_reopened, NULL);

    failed |= ranks_run(2, false, run_restarted, NULL);
    failed |= ranks_run(2, false, run_dying, NULL);
    failed |= ranks_run(2, false, run_refused, NULL);
    failed |= ranks_run_with(2, false, run_gone, NULL, hasty);
    failed |= ranks_run_with(3, false, run_far, NULL, hasty);
    failed |= ranks_run_with(2, false, run_outlived, NULL, alike);
    return failed != 0;
}
