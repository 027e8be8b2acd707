/* SPDX-License-Identifier: BSD-3-Clause */
/* What tx and rx lanes have in common. */
#include "engines/rdma/lane.h"

#include <stdlib.h>

#include "engines/rdma/rdma.h"
#include "librsched/base/clock.h"
#include "librsched/base/error.h"
#include "librsched/base/sources.h"

/* Destroying and abandoning wait at most so long for the device. */
#define DRAIN_PS (100 * UINT64_C(1000000000))
#define DRAIN_STEP_PS (50 * UINT64_C(1000000))

int rs_rdma_lane_new(struct rsched_connection *connection, uint32_t rail,
                     size_t size, void (*dispose)(struct rs_rdma_lane *),
                     struct rs_rdma_lane **lane)
{
    struct rs_rdma_link *link;
    struct rs_rdma_lane *l;

    if (rail >= connection->num_links)
        return rs_fail(RSCHED_EMISMATCH, "%s: peer %d: there is no rail %u",
                       connection->engine->name, connection->peer, rail);
    link = rs_rdma_find_link(connection, rail);
    if (rs_rdma_link_is_broken(link))
        return rs_rdma_link_failed(link);
    l = calloc(1, size);
    if (l == NULL)
        return rs_fail(RSCHED_ENOMEM, "%s: no memory for a lane",
                       connection->engine->name);
    l->lane.connection = connection;
    l->link = link;
    l->dispose = dispose;
    *lane = l;
    return 0;
}

int rs_rdma_lane_join(struct rs_rdma_lane *lane,
                      const struct rsched_lane_spec *spec,
                      struct rs_rdma_bundle **list, uint32_t leader)
{
    bool any = leader == RS_RDMA_ANY_LEADER;
    uint32_t rail = any ? spec->rail : leader;

    if (list == NULL && rail != spec->rail)
        return rs_fail(RSCHED_EMISMATCH,
                       "%s: peer %d: a lane that another one leads",
                       lane->link->engine, lane->link->peer);
    lane->alone.rail = rail;
    lane->bundle = list == NULL
                       ? &lane->alone
                       : rs_rdma_bundle_join(list, lane->lane.connection, rail,
                                             any);
    if (lane->bundle == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a bundle of lanes");
    lane->leads = lane->bundle->rail == spec->rail;
    return 0;
}

const struct rs_sources *rs_rdma_lane_costs(const struct rs_rdma_lane *lane)
{
    const struct rs_sources *said = lane->lane.connection->engine->env.sources;

    return said != NULL ? said : &rs_sources_usual;
}

void rs_rdma_lane_lock(struct rs_rdma_lane *lane)
{
    pthread_mutex_lock(&lane->lane.connection->engine->lock);
}

void rs_rdma_lane_unlock(struct rs_rdma_lane *lane)
{
    pthread_mutex_unlock(&lane->lane.connection->engine->lock);
}

void rs_rdma_lane_free(struct rs_rdma_lane *lane)
{
    if (lane->last != NULL)
        lane->link->queue->ops->list_destroy(lane->last);
    rs_rdma_regions_release(lane->link->memory, &lane->regions);
    rs_rdma_block_release(lane->block);
    rs_copies_fini(&lane->copies);
    free(lane);
}

bool rs_rdma_lane_is_idle(const struct rs_rdma_lane *lane)
{
    /* Acquire: the device has let go of what the lists read. */
    return atomic_load_explicit(&lane->completed, memory_order_acquire) ==
           lane->posted;
}

/* Nothing that comes before a word may be seen behind it. */
static bool may_write_word(const struct rs_rdma_lane *lane)
{
    return !lane->serial || rs_rdma_lane_is_idle(lane);
}

/* To a broken link nothing can be said. */
static bool has_said_last(const struct rs_rdma_lane *lane)
{
    return lane->last == NULL || atomic_load(&lane->said_ps) != 0 ||
           rs_rdma_link_is_broken(lane->link);
}

static bool is_through(const struct rs_rdma_lane *lane)
{
    if (rs_rdma_link_is_broken(lane->link))
        return true;
    return rs_rdma_lane_is_idle(lane) &&
           (atomic_load(&lane->said_ps) == 0 ||
            atomic_load_explicit(&lane->said_through,
                                 memory_order_acquire) != 0);
}

void rs_rdma_lanes_say_last(struct rs_rdma_link *link)
{
    struct rs_rdma_lane *lane;
    bool posted = false;

    /* Lanes of a broken link are not touched: they may be gone. */
    if (rs_rdma_link_is_broken(link))
        link->owing = NULL;
    while ((lane = link->owing) != NULL && may_write_word(lane) &&
           rs_rdma_link_post(link, lane->last, 1 + lane->counted,
                             &lane->said_through)) {
        link->owing = lane->next_owing;
        atomic_store(&lane->said_ps, rs_clock_now());
        posted = true;
    }
    if (posted)
        rs_rdma_link_ring(link);
}

void rs_rdma_lane_abandon(struct rs_rdma_lane *lane)
{
    struct rs_rdma_link *link = lane->link;

    lane->asked_ps = rs_clock_now();
    if (has_said_last(lane))
        return;
    rs_rdma_link_lock(link);
    if (!lane->owes) {
        lane->owes = true;
        lane->next_owing = link->owing;
        link->owing = lane;
    }
    rs_rdma_link_poll(link);
    rs_rdma_link_note(link);
    rs_rdma_lanes_say_last(link);
    rs_rdma_link_unlock(link);
}

static void poll_link(struct rs_rdma_link *link)
{
    rs_rdma_link_lock(link);
    rs_rdma_link_poll(link);
    rs_rdma_lanes_say_last(link);
    rs_rdma_link_unlock(link);
}

void rs_rdma_lanes_bury(struct rs_rdma_link *link)
{
    struct rs_rdma_lane **at = &link->zombies;

    if (*at != NULL)
        poll_link(link);
    while (*at != NULL) {
        struct rs_rdma_lane *lane = *at;

        /* Its peer may still wait to hear that nothing follows. */
        if (!is_through(lane) || !has_said_last(lane) ||
            (lane->stays != NULL && lane->stays(lane))) {
            at = &lane->next;
            continue;
        }
        *at = lane->next;
        lane->dispose(lane);
    }
}

bool rs_rdma_lane_drain(struct rs_rdma_lane *lane, uint64_t until_ps)
{
    for (;;) {
        poll_link(lane->link);
        if (is_through(lane))
            return true;
        if (rs_clock_now() >= until_ps)
            return false;
        rs_clock_sleep(DRAIN_STEP_PS);
    }
}

/* Which destroyed lanes of a link have promised what is not through yet. */
struct promises {
    bool any;
    bool by_immediates;
    uint64_t since_ps; /* when the last of them was destroyed */
};

static struct promises find_promises(struct rs_rdma_link *link,
                                     struct rsched_engine *engine)
{
    struct promises found = {0};

    pthread_mutex_lock(&engine->lock);
    for (struct rs_rdma_lane *l = link->zombies; l != NULL; l = l->next) {
        if (atomic_load_explicit(&l->completed, memory_order_relaxed) >= l->promised)
            continue;
        found.any = true;
        found.by_immediates = found.by_immediates || l->notify == RS_NOTIFY_IMM;
        if (l->asked_ps > found.since_ps)
            found.since_ps = l->asked_ps;
    }
    pthread_mutex_unlock(&engine->lock);
    return found;
}

void rs_rdma_lanes_keep_promises(struct rs_rdma_link *link,
                                 struct rsched_engine *engine)
{
    struct promises left;

    do {
        left = find_promises(link, engine);
    } while (left.any &&
             rs_rdma_link_wait(link, left.since_ps, left.by_immediates));
}

void rs_rdma_lane_drop(struct rs_rdma_lane *lane)
{
    struct rs_rdma_link *link = lane->link;
    struct rsched_engine *engine = lane->lane.connection->engine;

    rs_rdma_lane_drain(lane, lane->asked_ps + DRAIN_PS);
    pthread_mutex_lock(&engine->lock);
    rs_rdma_regions_retire(&lane->regions);
    lane->next = link->zombies;
    link->zombies = lane;
    rs_rdma_lanes_bury(link);
    pthread_mutex_unlock(&engine->lock);
}

bool rs_rdma_lane_add(struct rs_rdma_lane *lane, struct rs_rdma_list *list,
                      uint64_t epoch)
{
    bool posted =
        may_write_word(lane) &&
        rs_rdma_link_post(lane->link, list, epoch, &lane->completed);

    lane->posted += posted;
    return posted;
}

bool rs_rdma_lane_post(struct rs_rdma_lane *lane, struct rs_rdma_list *list,
                       uint64_t epoch)
{
    struct rs_rdma_link *link = lane->link;
    bool posted;

    rs_rdma_link_lock(link);
    rs_rdma_link_poll(link);
    posted = rs_rdma_lane_add(lane, list, epoch);
    if (posted)
        rs_rdma_link_ring(link);
    rs_rdma_link_unlock(link);
    return posted;
}

int rs_rdma_lane_check(struct rs_rdma_lane *lane,
                       const atomic_uint_fast64_t *last)
{
    const struct rs_rdma_link *link = lane->link;

    /* Acquire: whoever looks for data after this sees all there will be. */
    if (atomic_load_explicit(last, memory_order_acquire) != 0)
        return rs_fail(RSCHED_EPEER, "%s: peer %d has given up the exchange",
                       link->engine, link->peer);
    return rs_rdma_link_is_broken(link) ? rs_rdma_link_failed(link) : 0;
}

int rs_rdma_lane_load(struct rs_rdma_lane *lane,
                      const struct rsched_message *message)
{
    if (message->bytes >> 48 != 0)
        return rs_fail(RSCHED_ELIMIT, "%s: a message of %llu bytes",
                       lane->link->engine, (unsigned long long)message->bytes);
    lane->bytes = message->bytes;
    lane->meta = message->bytes | (uint64_t)message->signature << 48;
    return 0;
}

uint64_t rs_rdma_ring_stride(uint64_t chunk_bytes)
{
    uint64_t bytes = sizeof(struct rs_rdma_slot) + chunk_bytes;

    return (bytes + RS_RDMA_LINE - 1) / RS_RDMA_LINE * RS_RDMA_LINE;
}

void rs_rdma_ring_load(struct rs_rdma_ring *ring, uint32_t num_chunks)
{
    ring->num_chunks = num_chunks;
    ring->aligned = ring->fixed && num_chunks > 1;
    ring->next = num_chunks;
}

uint32_t rs_rdma_ring_starts(const struct rs_rdma_ring *ring)
{
    return ring->aligned ? 1 : ring->num_slots;
}

void rs_rdma_ring_finish(struct rs_rdma_ring *ring)
{
    ring->position += ring->num_chunks;
    if (ring->aligned)
        ring->position = (ring->position + ring->num_slots - 1) /
                         ring->num_slots * ring->num_slots;
}
