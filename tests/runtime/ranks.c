/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/runtime/ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HANG_SECONDS = 280 }; /* of a forked rank */

struct start {
    struct mesh *mesh;
    int rank, num_ranks;
    rank_fn *main;
    void *arg;
    int result;
};

int rank_open(struct rank *self)
{
    struct rsched_context_params params = mesh_params(self->end);

    rsched_fail(0, "as before");
    params.job += self->job_offset;
    params.num_cores = self->num_cores;
    params.restarts = self->restarts;
    params.host_progress = self->host_progress;
    params.host_arg = self->host_arg;
    self->oob = params.oob;
    if (rsched_context_create(&params, &self->context) != 0)
        return RANK_FAIL("rank %d: %s", self->rank, rsched_last_error());
    if (strcmp(rsched_last_error(), "as before") != 0)
        return RANK_FAIL("rank %d: a context, but: %s", self->rank, rsched_last_error());
    return 0;
}

void rank_close(struct rank *self)
{
    rsched_context_destroy(self->context);
    self->context = NULL;
}

static int run_rank(struct start *start)
{
    struct rank self = {.rank = start->rank,
                        .num_ranks = start->num_ranks,
                        .arg = start->arg};
    int result;

    self.end = mesh_end_create(start->mesh, self.rank);
    result = rank_open(&self);
    if (result == 0)
        result = start->main(&self);
    if (self.context != NULL)
        rank_close(&self);
    mesh_end_destroy(self.end);
    return result;
}

/* As _exit, but the leak checker of the address sanitizer has a look. */
static void __attribute__((noreturn)) leave(int status)
{
#ifdef __SANITIZE_ADDRESS__
    exit(status);
#endif
    _exit(status);
}

static void *run_thread(void *arg)
{
    struct start *start = arg;

    start->result = run_rank(start);
    return NULL;
}

static int run_threads(struct start *starts, int num_ranks)
{
    pthread_t *threads = calloc((size_t)num_ranks, sizeof(*threads));
    int result = 0;

    for (int i = 0; i < num_ranks; i++)
        pthread_create(&threads[i], NULL, run_thread, &starts[i]);
    for (int i = 0; i < num_ranks; i++) {
        pthread_join(threads[i], NULL);
        result |= starts[i].result;
    }
    free(threads);
    return result;
}

static bool has_nodes(void)
{
    return getenv("RANKS_NODES") != NULL;
}

static int run_processes(struct start *starts, int num_ranks,
                         const char *const settings[2])
{
    int result = 0;

    fflush(NULL);
    for (int i = 0; i < num_ranks; i++) {
        if (fork() == 0) {
            int status;

            alarm(HANG_SECONDS);
            mesh_keep(starts[i].mesh, i);
            if (has_nodes())
                setenv("RSCHED_NODE", i % 2 == 0 ? "even" : "odd", 1);
            if (settings[i % 2] != NULL)
                putenv(strdup(settings[i % 2]));
            status = run_rank(&starts[i]);
            mesh_destroy(starts[i].mesh);
            free(starts);
            fflush(NULL);
            leave(status);
        }
    }
    mesh_keep(starts[0].mesh, -1);
    for (int i = 0; i < num_ranks; i++) {
        int status;

        if (wait(&status) < 0)
            result |= 1;
        else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            result |= RANKS_KILLED;
        else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            result |= 1;
    }
    return result;
}

int ranks_run(int num_ranks, bool threads, rank_fn *main, void *arg)
{
    const char *const none[2] = {NULL, NULL};

    return ranks_run_with(num_ranks, threads, main, arg, none);
}

bool ranks_share_node(int a, int b)
{
    return !has_nodes() || a % 2 == b % 2;
}

int ranks_run_with(int num_ranks, bool threads, rank_fn *main, void *arg,
                   const char *const settings[2])
{
    struct start *starts = calloc((size_t)num_ranks, sizeof(*starts));
    struct mesh *mesh = mesh_create(num_ranks);
    int result;

    for (int i = 0; i < num_ranks; i++)
        starts[i] = (struct start){mesh, i, num_ranks, main, arg, 0};
    result = threads ? run_threads(starts, num_ranks)
                     : run_processes(starts, num_ranks, settings);
    mesh_destroy(mesh);
    free(starts);
    return result;
}

/* A brother reads a brother, as ranks do. */
bool ranks_may_read(void)
{
    static char byte = 7;
    pid_t sleeper = fork(), reader;
    int status = 0;

    if (sleeper == 0) {
        pause();
        _exit(0);
    }
    reader = fork();
    if (reader == 0) {
        char got = 0;
        struct iovec here = {&got, 1}, there = {&byte, 1};

        _exit(process_vm_readv(sleeper, &here, 1, &there, 1, 0) == 1 ? 0 : 1);
    }
    waitpid(reader, &status, 0);
    kill(sleeper, SIGKILL);
    waitpid(sleeper, NULL, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
