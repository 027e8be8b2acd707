/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sender that has been stopped while it helps to copy its message. Who destroys the
 * exchange waits for it if it has a part of the receive buffers to write; nothing else of
 * the receiver waits. A table that it reads is left to it.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

enum { BYTES = 8 << 20, AT_IT_US = 50000 };

/* Rank 0 stops; rank 2, another neighbor of rank 1, never starts, and gives up. */
static const struct halo_edge edges[] = {{0, 1, BYTES | HALO_SHARED}, {2, 1, 8}};
static const struct halo_edge other[] = {{1, 1, 100}};

struct scene {
    const char *failpoints;
    bool writes; /* it has a part to write */
};

/* By the kernel's letters. */
enum state { STOPPED = 'T', ZOMBIE = 'Z', GONE = 'X' };

static enum state state_of(pid_t pid)
{
    char path[64], line[256] = "";
    const char *name_end;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    if (f == NULL)
        return GONE;
    if (fgets(line, sizeof(line), f) == NULL)
        line[0] = '\0';
    fclose(f);
    name_end = strstr(line, ") ");
    return name_end == NULL ? GONE : (enum state)name_end[2];
}

/* What has nothing to do with the sender. */
static int run_other(struct rank *self)
{
    struct halo *h;

    RANK_CHECK(halo_create(self, other, 1, 2, 0, &h) == 0);
    for (int epoch = 0; epoch < 3; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    halo_destroy(h);
    return 0;
}

struct end {
    struct halo *halo;
    atomic_bool is_over;
};

static void *destroy(void *arg)
{
    struct end *end = arg;

    halo_destroy(end->halo);
    atomic_store(&end->is_over, true);
    return NULL;
}

/* While the exchange is destroyed by another thread. */
static int check_end(struct rank *self, struct halo *h, pid_t pid)
{
    const struct scene *scene = self->arg;
    struct end end = {.halo = h};
    pthread_t thread;
    int failed;

    pthread_create(&thread, NULL, destroy, &end);
    usleep(AT_IT_US);
    failed = run_other(self);
    if (scene->writes && atomic_load(&end.is_over))
        failed |= RANK_FAIL("the sender has a part of what is destroyed");
    if (!scene->writes)
        pthread_join(thread, NULL);
    if (state_of(pid) != STOPPED)
        failed |= RANK_FAIL("the sender goes on");
    kill(pid, SIGCONT);
    if (scene->writes)
        pthread_join(thread, NULL);
    return failed;
}

static int run_receiver(struct rank *self, struct halo *h)
{
    enum state state;
    bool done = false;
    pid_t pid;

    RANK_CHECK(mesh_receive(self->end, 0, 1, &pid, sizeof(pid)) == 0);
    RANK_CHECK(rsched_exchange_start(h->x) == 0);
    while ((state = state_of(pid)) != STOPPED) {
        if (state == ZOMBIE || state == GONE)
            return RANK_FAIL("the sender has ended and was not stopped");
        RANK_CHECK(rsched_exchange_test(h->x, &done) == 0 && !done);
    }
    RANK_CHECK(mesh_send(self->end, 2, 1, &pid, sizeof(pid)) == 0);
    RANK_CHECK(rsched_exchange_wait(h->x) == RSCHED_EPEER);
    return check_end(self, h, pid);
}

static atomic_bool was_stopped;

static void note_end_of_stop(int signal)
{
    (void)signal;
    atomic_store(&was_stopped, true);
}

/* It must not go on in vain where it has not been stopped: rank 1 waits for that. */
static int run_sender(struct rank *self, struct halo *h)
{
    int error = 0;

    for (int epoch = 0; error == 0; epoch++) {
        error = halo_step(h, epoch);
        RANK_CHECK(error != 0 || atomic_load(&was_stopped));
    }
    RANK_CHECK(error == RSCHED_EPEER);
    return 0;
}

static int run(struct rank *self)
{
    struct halo *h;
    pid_t pid = getpid();

    RANK_CHECK(halo_create(self, edges, 2, 1, 0, &h) == 0);
    halo_fill(h, 0);
    if (self->rank == 1)
        return run_receiver(self, h);
    if (self->rank == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* should nobody continue it */
        signal(SIGCONT, note_end_of_stop);
        RANK_CHECK(mesh_send(self->end, 1, 1, &pid, sizeof(pid)) == 0);
        if (run_sender(self, h) != 0)
            return 1;
    } else {
        RANK_CHECK(mesh_receive(self->end, 1, 1, &pid, sizeof(pid)) == 0);
    }
    halo_destroy(h);
    return 0;
}

int main(void)
{
    struct scene scenes[] = {{"rx:offered@1=delay:1s,tx:claimed@0=stop", true},
                             {"rx:offered@1=delay:1s,rx:table@0=stop", false}};

    /* By costs that share the work. */
    setenv("RSCHED_WAYS", "host", 1);
    for (int i = 0; i < 2; i++) {
        setenv("RSCHED_FAILPOINTS", scenes[i].failpoints, 1);
        if (ranks_run(3, false, run, &scenes[i]) != 0)
            return RANK_FAIL("failed: %s", scenes[i].failpoints);
    }
    return 0;
}
