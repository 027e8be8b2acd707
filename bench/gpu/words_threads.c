/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads in the place of a GPU's: the driver in software of the tests runs the
 * kernel by them, too. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "words.h"

enum { STACK = 256 << 10 }; /* bytes; there may be a thousand threads */

struct group {
    pthread_barrier_t barrier;
    uint64_t words[RSCHED_DEVICE_MAX_GROUP];
};

struct thread {
    pthread_t thread;
    const struct words_job *job;
    pthread_barrier_t *begin;
    struct group *of;
    uint32_t group, rank;
};

static void meet(void *group)
{
    pthread_barrier_wait(&((struct group *)group)->barrier);
}

static void *run(void *arg)
{
    struct thread *t = arg;
    const struct rsched_device_group g = {
        .kind = t->job->threads == 1 ? RSCHED_DEVICE_THREAD
                                     : RSCHED_DEVICE_WARP,
        .rank = t->rank,
        .size = t->job->threads,
        .sync = meet,
        .arg = t->of,
        .words = t->of->words};

    /* A thread is made late; none begins before the others. */
    pthread_barrier_wait(t->begin);
    words_run(t->job, &g, t->group);
    return NULL;
}

static void needs(int error, const char *what)
{
    if (error == 0)
        return;
    fprintf(stderr, "rsched-bench-words: threads for kernels: %s: error %d\n",
            what, error);
    exit(1);
}

void words_run_threads(const struct words_job *job)
{
    uint32_t num_groups = job->blocks * job->groups;
    uint32_t num = num_groups * job->threads;
    struct group *groups = calloc(num_groups, sizeof(*groups));
    struct thread *threads = calloc(num, sizeof(*threads));
    pthread_barrier_t begin;
    pthread_attr_t small;

    needs(groups == NULL || threads == NULL, "memory");
    needs(pthread_attr_init(&small), "attributes");
    needs(pthread_attr_setstacksize(&small, STACK), "stack");
    needs(pthread_barrier_init(&begin, NULL, num), "barrier");
    for (uint32_t i = 0; i < num_groups; i++)
        needs(pthread_barrier_init(&groups[i].barrier, NULL, job->threads),
              "barrier");
    for (uint32_t i = 0; i < num; i++) {
        threads[i] = (struct thread){.job = job,
                                     .begin = &begin,
                                     .of = &groups[i / job->threads],
                                     .group = i / job->threads,
                                     .rank = i % job->threads};
        needs(pthread_create(&threads[i].thread, &small, run, &threads[i]),
              "start");
    }
    for (uint32_t i = 0; i < num; i++)
        pthread_join(threads[i].thread, NULL);
    for (uint32_t i = 0; i < num_groups; i++)
        pthread_barrier_destroy(&groups[i].barrier);
    pthread_barrier_destroy(&begin);
    pthread_attr_destroy(&small);
    free(threads);
    free(groups);
}
