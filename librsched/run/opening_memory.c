/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/run/opening.h"

/* Processors in the place of a GPU: all memory is theirs. */
static int plain_create(struct rsched_gpu_memory *m, uint64_t host_bytes,
                        uint64_t gpu_bytes)
{
    void *host = aligned_alloc(64, (host_bytes + 63) / 64 * 64);
    void *gpu = malloc(gpu_bytes);

    if (host == NULL || gpu == NULL) {
        free(host);
        free(gpu);
        return rs_fail(RSCHED_ENOMEM, "no memory for an opening");
    }
    *m = (struct rsched_gpu_memory){.host = host,
                                    .host_of_kernels = (uintptr_t)host,
                                    .gpu = (uintptr_t)gpu};
    return 0;
}

/* With all rings that there are by now; some may be dropped later. */
int rs_opening_memory_create(struct rsched_opening *o, int gpu)
{
    uint64_t bytes = sizeof(struct rs_opening_gpu);

    for (uint32_t i = 0; i < o->neighbors.number; i++) {
        const struct rs_neighbor *n = &o->neighbors.of[i];

        if (n->ring != NULL)
            bytes += sizeof(struct rsched_device_lane) +
                     n->ops->ring_words(n->ring) * sizeof(uint32_t);
    }
    o->gpu_bytes = bytes;
    if (o->gpus == NULL)
        return plain_create(&o->memory, sizeof(*o->host), bytes);
    return o->gpus->memory_create(gpu, sizeof(*o->host), bytes, &o->memory);
}

void rs_opening_memory_destroy(struct rsched_opening *o)
{
    if (o->gpus != NULL) {
        o->gpus->memory_destroy(&o->memory);
    } else {
        free(o->memory.host);
        free((void *)(uintptr_t)o->memory.gpu);
    }
}

/* A member as kernels see it. */
#define IN_HOST(o, member)                                                   \
    RS_OF_KERNELS((o)->memory.host_of_kernels +                              \
                  offsetof(struct rs_opening_host, member))
#define IN_GPU(o, member)                                                    \
    RS_OF_KERNELS((o)->memory.gpu + offsetof(struct rs_opening_gpu, member))

static struct rs_opening_gpu image_of(const struct rsched_opening *o)
{
    return (struct rs_opening_gpu){
        .view = {.lanes = IN_GPU(o, lanes),
                 .num_lanes = o->num_rings,
                 .proxied = IN_HOST(o, lane),
                 .num_proxied = o->proxied,
                 .stop = IN_HOST(o, stop),
                 .told = IN_HOST(o, told),
                 .proxy = o->proxied ? IN_GPU(o, proxy) : NULL},
        .proxy = {.requests = IN_HOST(o, requests),
                  .mask = RS_OPENING_REQUESTS - 1,
                  .asked = IN_GPU(o, asked),
                  .taken = IN_HOST(o, taken),
                  .stop = IN_HOST(o, stop)}};
}

static void fill_lanes(const struct rsched_opening *o,
                       struct rs_opening_gpu *image)
{
    struct rsched_device_lane *lane = image->lanes;
    uint32_t *table = (uint32_t *)(lane + o->num_rings);

    for (uint32_t i = 0; i < o->neighbors.number; i++) {
        const struct rs_neighbor *n = &o->neighbors.of[i];
        uint64_t offset = (uint64_t)((char *)table - (char *)image);

        if (n->ring == NULL)
            continue;
        n->ops->ring_fill(n->ring, lane++, table,
                          RS_OF_KERNELS(o->memory.gpu + offset));
        table += n->ops->ring_words(n->ring);
    }
}

int rs_opening_memory_fill(struct rsched_opening *o)
{
    struct rs_opening_gpu *image = calloc(1, o->gpu_bytes);
    int error = 0;

    if (image == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for an opening");
    *image = image_of(o);
    fill_lanes(o, image);
    memset(o->host, 0, sizeof(*o->host));
    o->host->lane.arrived = IN_HOST(o, lane.completed);
    if (o->gpus != NULL)
        error = o->gpus->memory_fill(&o->memory, image, o->gpu_bytes);
    else
        memcpy(RS_OF_KERNELS(o->memory.gpu), image, o->gpu_bytes);
    free(image);
    return error;
}

int rs_opening_memory_look(const struct rsched_opening *o,
                           const struct rs_opening_gpu **own)
{
    struct rs_opening_gpu *copy;
    int error;

    if (o->gpus == NULL) {
        *own = RS_OF_KERNELS(o->memory.gpu);
        return 0;
    }
    copy = malloc(o->gpu_bytes);
    if (copy == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to look at an opening's");
    error = o->gpus->memory_read(&o->memory, copy, o->gpu_bytes);
    if (error != 0)
        free(copy);
    else
        *own = copy;
    return error;
}

void rs_opening_memory_looked(const struct rsched_opening *o,
                              const struct rs_opening_gpu *own)
{
    if (o->gpus != NULL)
        free((void *)(uintptr_t)own);
}
