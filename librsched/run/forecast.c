/* SPDX-License-Identifier: BSD-3-Clause */
/* Which puts will probably go through the node's NIC and back, for the plan. What
 * is not known before the lanes are made (how far the ends are apart, whether
 * devices get at them) is taken to be as it is for those that do. */
#include "librsched/run/talk.h"

#include <stdlib.h>

#include "librsched/base/config.h"
#include "librsched/base/error.h"

static bool is_on_gpu(const struct rs_creation *c, uint32_t put)
{
    return c->puts[put].kind == RSCHED_PLACE_GPU;
}

/* What goes to one process from GPU memory is one message. */
static uint64_t message_bytes(const struct rs_creation *c, int process)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < c->x->num_puts; i++) {
        const struct rsched_put *put = rsched_pattern_put(c->pattern, i);

        if (put->destination == process && is_on_gpu(c, i) &&
            __builtin_add_overflow(bytes, put->bytes, &bytes))
            return UINT64_MAX;
    }
    return bytes;
}

static uint64_t count_messages(const struct rs_creation *c)
{
    uint64_t count = c->self.on_gpu > 0;

    for (uint32_t i = 0; i < c->num_talks; i++)
        count += message_bytes(c, c->talks[i].process) > 0;
    return count;
}

static bool is_cheapest(const struct rs_ways *ways, uint64_t bytes,
                        uint64_t in_flight)
{
    struct rs_gpu_put put = {.bytes = bytes, .possible = RS_GPU_WAYS};

    if (!rs_config()->gdrcopy)
        put.possible &= ~RS_WAY_BIT(RS_WAY_GDRCOPY);
    for (int d = 0; d < RS_NUM_DISTANCES; d++) {
        put.distance = (enum rs_distance)d;
        if (rs_gpu_way_costs(ways, RS_WAY_GDR_LOOPBACK, put.distance)->given &&
            rs_gpu_way(ways, &put, in_flight) == RS_WAY_GDR_LOOPBACK)
            return true;
    }
    return false;
}

static bool loops(const struct rs_creation *c, const struct rs_talk *t,
                  uint64_t in_flight)
{
    uint64_t bytes = message_bytes(c, t->process);

    if (t->peers[RS_USE_LOOPBACK] == NULL || bytes == 0)
        return false;
    return rs_config()->gpu_way == RS_CONFIG_GPU_WAY_LOOPBACK ||
           is_cheapest(&c->context->ways, bytes, in_flight);
}

static bool is_any_near(const struct rs_creation *c)
{
    uint32_t t = 0;

    while (t < c->num_talks && c->talks[t].peers[RS_USE_LOOPBACK] == NULL)
        t++;
    return t < c->num_talks;
}

int rs_creation_forecast(const struct rs_creation *c, bool **twice)
{
    uint64_t in_flight;
    bool *found;

    *twice = NULL;
    if (!is_any_near(c))
        return 0;
    in_flight = rs_coordinator_in_flight(&c->context->coordinator,
                                         count_messages(c));
    found = calloc((size_t)c->x->num_puts + 1, sizeof(*found));
    if (found == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for an exchange");
    for (uint32_t t = 0; t < c->num_talks; t++) {
        if (!loops(c, &c->talks[t], in_flight))
            continue;
        for (uint32_t i = 0; i < c->x->num_puts; i++)
            found[i] = found[i] ||
                       (is_on_gpu(c, i) &&
                        rsched_pattern_put(c->pattern, i)->destination ==
                            c->talks[t].process);
    }
    *twice = found;
    return 0;
}
