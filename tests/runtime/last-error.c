/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that succeed leave rsched_last_error() alone, whatever fails within: a peer of
 * another exchange is found dead, or one of this exchange that has done its part, another
 * exchange fails, a message goes through slots that the kernel was to read, memory is not
 * adopted.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "librsched/run/run.h"
#include "tests/runtime/halo.h"

enum { TAG = 900, BYTES = 1 << 20, EPOCHS = 3 };

static bool refuses; /* the kernel, to read another process */

/* Comes before the C library's. */
__attribute__((visibility("default"))) ssize_t
process_vm_readv(pid_t pid, const struct iovec *here, unsigned long num_here,
                 const struct iovec *there, unsigned long num_there,
                 unsigned long flags)
{
    if (refuses) {
        errno = EPERM;
        return -1;
    }
    return syscall(SYS_process_vm_readv, pid, here, num_here, there, num_there,
                   flags);
}

static bool is_left_alone(void)
{
    return strcmp(rsched_last_error(), "mine") == 0;
}

/* ---- a peer of another exchange dies ---- */

static const struct halo_edge between[] = {{0, 1, 64}, {1, 0, 64}};
static const struct halo_edge beside[] = {{0, 2, 64}, {2, 0, 64}};

struct news {
    struct rank *self;
    bool told; /* rank 1 that the dead one was found */
};

/* Rank 1 starts when rank 0 has found the dead one, while it waits for rank 1. */
static void tell(void *arg)
{
    struct news *news = arg;

    if (!news->told && atomic_load(&news->self->context->any_dead)) {
        news->told = true;
        mesh_send(news->self->end, 1, TAG, "", 1);
    }
}

static int survive(struct rank *self)
{
    const bool *tests = self->arg;
    struct news news = {.self = self};
    struct halo *alive, *dead;
    bool done = false;

    rank_close(self);
    self->host_progress = tell;
    self->host_arg = &news;
    RANK_CHECK(rank_open(self) == 0);
    RANK_CHECK(halo_create(self, between, 2, 1, 0, &alive) == 0);
    RANK_CHECK(halo_create(self, beside, 2, 2, 0, &dead) == 0);
    rsched_fail(0, "mine");
    RANK_CHECK(rsched_exchange_start(alive->x) == 0 && is_left_alone());
    while (*tests && !done) {
        RANK_CHECK(rsched_exchange_test(alive->x, &done) == 0 && is_left_alone());
        tell(&news);
    }
    RANK_CHECK(rsched_exchange_wait(alive->x) == 0 && is_left_alone());
    RANK_CHECK(news.told);
    halo_destroy(dead);
    halo_destroy(alive);
    rank_close(self);
    return 0;
}

static int run_beside_dead(struct rank *self)
{
    struct halo *halo;
    char byte;

    if (self->rank == 0)
        return survive(self);
    if (self->rank == 2) {
        RANK_CHECK(halo_create(self, beside, 2, 2, 0, &halo) == 0);
        _exit(0);
    }
    RANK_CHECK(halo_create(self, between, 2, 1, 0, &halo) == 0);
    RANK_CHECK(mesh_receive(self->end, 0, TAG, &byte, 1) == 0);
    RANK_CHECK(rsched_exchange_start(halo->x) == 0);
    RANK_CHECK(rsched_exchange_wait(halo->x) == 0);
    halo_destroy(halo);
    return 0;
}

/* ---- a peer has done all, and is gone before anybody looks ---- */

static int run_done(struct rank *self)
{
    struct halo *halo;
    char byte;

    RANK_CHECK(halo_create(self, between, 2, 1, 0, &halo) == 0);
    RANK_CHECK(rsched_exchange_start(halo->x) == 0);
    mesh_barrier(self->end); /* all is in slots */
    if (self->rank == 1) {
        RANK_CHECK(rsched_exchange_wait(halo->x) == 0);
        halo_destroy(halo);
        RANK_CHECK(mesh_send(self->end, 0, TAG, "", 1) == 0);
        return 0;
    }
    RANK_CHECK(mesh_receive(self->end, 1, TAG, &byte, 1) == 0);
    rsched_fail(0, "mine");
    RANK_CHECK(rs_exchange_check_peers(halo->x) == 0 && is_left_alone());
    RANK_CHECK(rsched_exchange_wait(halo->x) == 0 && is_left_alone());
    halo_destroy(halo);
    return 0;
}

/* ---- another exchange fails ---- */

static const struct halo_edge there[] = {{1, 0, BYTES}};

static int die_after_start(struct rank *self, struct halo *halo)
{
    const pid_t pid = getpid();
    char byte;

    RANK_CHECK(mesh_send(self->end, 0, TAG, &pid, sizeof(pid)) == 0);
    RANK_CHECK(mesh_receive(self->end, 0, TAG, &byte, 1) == 0);
    RANK_CHECK(rsched_exchange_start(halo->x) == 0);
    _exit(0);
}

/* Its message is announced, and is gone with it. */
static int run_failure(struct rank *self)
{
    struct pollfd end = {.events = POLLIN};
    struct halo *halo;
    bool done;
    pid_t pid;

    RANK_CHECK(halo_create(self, there, 1, 1, 0, &halo) == 0);
    if (self->rank == 1)
        return die_after_start(self, halo);
    RANK_CHECK(mesh_receive(self->end, 1, TAG, &pid, sizeof(pid)) == 0);
    RANK_CHECK(rsched_exchange_start(halo->x) == 0);
    RANK_CHECK(rsched_exchange_test(halo->x, &done) == 0 && !done);
    end.fd = (int)syscall(SYS_pidfd_open, pid, 0);
    RANK_CHECK(end.fd >= 0 && mesh_send(self->end, 1, TAG, "", 1) == 0);
    while (poll(&end, 1, -1) != 1)
        ;
    close(end.fd);
    rsched_fail(0, "mine");
    rsched_context_progress(self->context);
    RANK_CHECK(halo->x->error == RSCHED_EPEER && is_left_alone());
    RANK_CHECK(rsched_exchange_wait(halo->x) == RSCHED_EPEER);
    RANK_CHECK(strstr(rsched_last_error(), "is dead") != NULL);
    halo_destroy(halo);
    return 0;
}

/* ---- what is tried in vain; halo_step() looks at the text ---- */

static int run_refused(struct rank *self)
{
    struct rsched_stats stats;
    struct halo *halo;

    RANK_CHECK(halo_create(self, there, 1, 1, 0, &halo) == 0);
    refuses = true;
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(halo, epoch) == 0);
    rsched_exchange_get_stats(halo->x, &stats);
    RANK_CHECK(stats.way_bytes[RSCHED_WAY_CMA] == 0);
    RANK_CHECK(self->rank == 0 ||
               stats.way_bytes[RSCHED_WAY_LANDING] == EPOCHS * BYTES);
    halo_destroy(halo);
    return 0;
}

static int run_not_adopted(struct rank *self)
{
    const struct rlimit none = {4096, 4096};
    const struct halo_edge offered = {1, 0, BYTES | HALO_OFFERED};
    struct halo *halo;

    RANK_CHECK(halo_create(self, &offered, 1, 1, 0, &halo) == 0);
    RANK_CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(halo, epoch) == 0);
    RANK_CHECK(self->rank == 0 || rsched_memory_adoptions(RSCHED_ADOPT_SYSTEM) > 0);
    halo_destroy(halo);
    return 0;
}

int main(void)
{
    static bool wait = false, test = true;

    setenv("RSCHED_CMA", "0", 1);
    setenv("RSCHED_MAPPED", "1", 1);
    setenv("RSCHED_ADOPT", "1", 1);
    if (ranks_run(3, false, run_beside_dead, &wait) != 0 ||
        ranks_run(3, false, run_beside_dead, &test) != 0 ||
        ranks_run(2, false, run_done, NULL) != 0 ||
        ranks_run(2, false, run_not_adopted, NULL) != 0)
        return 1;
    printf("PASS beside the dead, and what is not adopted\n");
    if (!ranks_may_read())
        return 0;
    setenv("RSCHED_CMA", "1", 1);
    setenv("RSCHED_PROGRESS", "0", 1); /* it is this thread that goes on */
    if (ranks_run(2, false, run_failure, NULL) != 0 ||
        ranks_run(2, false, run_refused, NULL) != 0)
        return 1;
    printf("PASS what the kernel reads\n");
    return 0;
}
