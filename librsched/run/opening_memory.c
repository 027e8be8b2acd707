/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/run/opening.h"

static uint64_t host_bytes(uint32_t num_rings)
{
    return sizeof(struct rs_opening_host) + (1 + num_rings) * sizeof(int32_t);
}

/* With all rings that there are by now; some may be dropped later. */
int rs_opening_memory_create(struct rsched_opening *o, int gpu)
{
    uint64_t bytes = sizeof(struct rs_opening_gpu);
    uint32_t num_rings = 0;

    for (uint32_t i = 0; i < o->neighbors.number; i++) {
        const struct rs_neighbor *n = &o->neighbors.of[i];

        if (n->ring == NULL)
            continue;
        num_rings++;
        bytes += sizeof(struct rsched_device_lane) +
                 n->ops->ring_words(n->ring) * sizeof(uint32_t);
    }
    return rs_kernel_memory_create(&o->memory, gpu, host_bytes(num_rings),
                                   bytes);
}

/* A member as kernels see it. */
#define IN_HOST(o, member)                                                   \
    RS_OF_KERNELS((o)->memory.at.host_of_kernels +                              \
                  offsetof(struct rs_opening_host, member))
#define IN_GPU(o, member)                                                    \
    RS_OF_KERNELS((o)->memory.at.gpu + offsetof(struct rs_opening_gpu, member))

static struct rs_opening_gpu image_of(const struct rsched_opening *o)
{
    return (struct rs_opening_gpu){
        .view = {.lanes = IN_GPU(o, lanes),
                 .num_lanes = o->num_rings,
                 .proxied = IN_HOST(o, lane),
                 .num_proxied = o->proxied,
                 .stop = IN_HOST(o, stop),
                 .gone = IN_HOST(o, gone),
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
                          RS_OF_KERNELS(o->memory.at.gpu + offset));
        table += n->ops->ring_words(n->ring);
    }
}

int rs_opening_memory_fill(struct rsched_opening *o)
{
    struct rs_opening_gpu *image = calloc(1, o->memory.bytes);
    int error;

    if (image == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for an opening");
    *image = image_of(o);
    fill_lanes(o, image);
    memset(o->host, 0, host_bytes(o->num_rings));
    o->host->lane.arrived = IN_HOST(o, lane.completed);
    error = rs_kernel_memory_fill(&o->memory, image);
    free(image);
    return error;
}

int rs_opening_memory_look(const struct rsched_opening *o,
                           const struct rs_opening_gpu **own)
{
    const void *memory;
    int error = rs_kernel_memory_look(&o->memory, &memory);

    if (error == 0)
        *own = memory;
    return error;
}

void rs_opening_memory_looked(const struct rsched_opening *o,
                              const struct rs_opening_gpu *own)
{
    rs_kernel_memory_looked(&o->memory, own);
}
