/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of neighbors that kernels put words to, by a queue pair for each. */
#include <stdlib.h>
#include <string.h>

#include <rsched/device.h>
#include <rsched/device_open.h>

#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/run/kernel_memory.h"
#include "librsched/run/rings.h"

struct rsched_targets {
    struct rsched_context *context;
    struct rs_neighbors neighbors;
    uint32_t number; /* of those that there are rings to */
    struct rs_kernel_memory memory; /* a target for each of these */
    struct rsched_device_target *image; /* as they were opened */
};

/* Of the neighbor's target, if there is one, among them. */
static bool find_target(const struct rsched_targets *t, int process,
                        uint32_t *index)
{
    *index = 0;
    for (uint32_t i = 0; i < t->neighbors.number; i++) {
        const struct rs_neighbor *n = &t->neighbors.of[i];

        if (n->process == process)
            return n->ring != NULL;
        *index += n->ring != NULL;
    }
    return false;
}

/* As far as it has been made. */
static void destroy(struct rsched_targets *t, enum rsched_ring_end end)
{
    pthread_mutex_lock(&t->context->lock);
    /* All learn of it before one of them is waited for. */
    for (uint32_t i = 0; i < t->neighbors.number; i++) {
        if (t->neighbors.of[i].ring != NULL)
            t->neighbors.of[i].ops->ring_abandon(t->neighbors.of[i].ring);
    }
    for (uint32_t i = 0; i < t->neighbors.number; i++) {
        if (t->neighbors.of[i].ring != NULL)
            t->neighbors.of[i].ops->ring_destroy(t->neighbors.of[i].ring, end);
    }
    pthread_mutex_unlock(&t->context->lock);
    if (t->number > 0)
        rs_safety_watch(t->context);
    rs_kernel_memory_destroy(&t->memory);
    rs_neighbors_fini(&t->neighbors);
    free(t->image);
    free(t);
}

/* Once it is known which rings there are. */
static int fill(struct rsched_targets *t)
{
    for (uint32_t i = 0; i < t->neighbors.number; i++) {
        const struct rs_neighbor *n = &t->neighbors.of[i];

        if (n->ring != NULL)
            n->ops->ring_target(n->ring, &t->image[t->number++]);
    }
    return rs_kernel_memory_fill(&t->memory, t->image);
}

static int make_memory(struct rsched_targets *t, int gpu)
{
    size_t number = (size_t)t->neighbors.number + 1;

    t->image = calloc(number, sizeof(*t->image));
    if (t->image == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for targets");
    /* The host has no part in it, but a driver gives none of no bytes. */
    return rs_kernel_memory_create(&t->memory, gpu, sizeof(uint64_t),
                                   number * sizeof(*t->image));
}

static int check_words(const struct rsched_message *words)
{
    if (words->pieces->address == NULL && words->bytes > 0)
        return rs_fail(RSCHED_EINVAL, "memory for words: %llu bytes at NULL",
                       (unsigned long long)words->bytes);
    if (words->bytes % 8 != 0 || (uintptr_t)words->pieces->address % 8 != 0)
        return rs_fail(RSCHED_EINVAL, "memory for words that is not aligned to "
                                      "8 bytes, or not a multiple of them");
    if (rs_config()->progress_ps == 0)
        return rs_fail(RSCHED_ENOTSUP, "targets for kernels need a thread "
                                       "(RSCHED_PROGRESS)");
    return 0;
}

/* @return 0, or what has failed here or at a neighbor */
static int open_targets(struct rsched_targets *t,
                        struct rsched_exchange *exchange, int gpu,
                        const struct rsched_message *words)
{
    struct rsched_exchange *const sets[2] = {exchange, exchange};
    struct rs_ring_talks talks;
    int error = rs_ring_talks_init(&talks, &t->neighbors, sets, words);

    if (error != 0)
        return error;
    /* From here on the neighbors are told. */
    error = check_words(words);
    if (error == 0)
        error = rs_kernel_memory_find(&t->memory, gpu);
    error = rs_ring_talks_begin(&talks, gpu, error);
    if (error == 0)
        error = make_memory(t, gpu);
    error = rs_ring_talks_end(&talks, error);
    rs_ring_talks_fini(&talks);
    return error == 0 ? fill(t) : error;
}

int rsched_exchange_open_targets(struct rsched_exchange *exchange, int gpu,
                                 void *memory, uint64_t bytes,
                                 struct rsched_targets **targets)
{
    const struct rsched_piece piece = {
        .address = memory, .bytes = bytes, .count = 1};
    const struct rsched_message words = {
        .pieces = &piece, .num_pieces = 1, .bytes = bytes};
    struct rsched_exchange *const sets[2] = {exchange, exchange};
    struct rsched_targets *t = calloc(1, sizeof(*t));
    int error;

    if (t == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for targets");
    t->context = exchange->context;
    error = rs_neighbors_find(&t->neighbors, sets, "");
    if (error == 0)
        error = open_targets(t, exchange, gpu, &words);
    if (error != 0) {
        destroy(t, RSCHED_RING_IDLE);
        return error;
    }
    *targets = t;
    return 0;
}

struct rsched_device_target *
rsched_targets_view(const struct rsched_targets *t, int process)
{
    uint32_t index;

    return !find_target(t, process, &index)
               ? NULL
               : RS_OF_KERNELS(t->memory.at.gpu +
                               index * sizeof(struct rsched_device_target));
}

uint64_t rsched_targets_bytes(const struct rsched_targets *t, int process)
{
    uint32_t index;

    return find_target(t, process, &index) ? t->image[index].bytes : 0;
}

const char *rsched_targets_reason(const struct rsched_targets *t, int process)
{
    const struct rs_neighbor *n = rs_neighbors_at(&t->neighbors, process);

    return n == NULL || n->ring != NULL ? NULL : n->reason;
}

int rsched_targets_check(const struct rsched_targets *t)
{
    const struct rsched_device_target *target;
    const void *own;
    int error = rs_kernel_memory_look(&t->memory, &own);

    if (error != 0)
        return error;
    target = own;
    for (uint32_t i = 0; i < t->neighbors.number && error == 0; i++) {
        const struct rs_neighbor *n = &t->neighbors.of[i];

        if (n->ring != NULL)
            error = n->ops->ring_target_status(n->ring, target++);
    }
    rs_kernel_memory_looked(&t->memory, own);
    return error;
}

void rsched_targets_get_stats(const struct rsched_targets *t,
                              struct rsched_targets_stats *stats)
{
    const struct rsched_device_target *targets;
    const void *own;

    *stats = (struct rsched_targets_stats){.targets = t->number};
    if (rs_kernel_memory_look(&t->memory, &own) != 0)
        return;
    targets = own;
    for (uint32_t i = 0; i < t->number; i++) {
        stats->puts += targets[i].puts;
        stats->wqes += targets[i].wqes;
        stats->doorbells += targets[i].queue.rings;
    }
    rs_kernel_memory_looked(&t->memory, own);
}

/* Whether all that was put has been taken. */
static bool is_idle(const struct rsched_targets *t)
{
    const struct rsched_device_target *targets;
    bool idle = true;
    const void *own;

    if (rs_kernel_memory_look(&t->memory, &own) != 0)
        return false;
    targets = own;
    for (uint32_t i = 0; i < t->number; i++)
        idle = idle && targets[i].status == 0 &&
               targets[i].retired == targets[i].published >> 6;
    rs_kernel_memory_looked(&t->memory, own);
    return idle;
}

void rsched_targets_close(struct rsched_targets *t)
{
    if (t != NULL)
        destroy(t, is_idle(t) ? RSCHED_RING_IDLE : RSCHED_RING_BUSY);
}
