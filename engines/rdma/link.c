/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/rdma/link.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/rdma/lane.h"
#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"

/* Between two probes of an idle link. */
#define PROBE_PS (100 * UINT64_C(1000000000))

/* Between two looks of who destroys. */
#define WAIT_STEP_PS (50 * UINT64_C(1000000))

/* A device has so long to say that it has let go of a queue pair that was stopped. */
#define STOP_PS (100 * UINT64_C(1000000000))

bool rs_rdma_link_is_broken(const struct rs_rdma_link *link)
{
    /* Acquire: the text was written before. */
    return atomic_load_explicit(&link->broken, memory_order_acquire);
}

void rs_rdma_link_doubt(struct rs_rdma_link *link)
{
    atomic_store(&link->doubtful, true);
}

bool rs_rdma_link_is_whole(const struct rs_rdma_link *link)
{
    return !rs_rdma_link_is_broken(link) && !atomic_load(&link->doubtful);
}

static void __attribute__((cold)) fail(struct rs_rdma_link *link,
                                       const char *cause)
{
    if (rs_rdma_link_is_broken(link))
        return; /* the first cause counts */
    snprintf(link->why, sizeof(link->why), "%s", cause);
    atomic_store_explicit(&link->broken, true, memory_order_release);
}

int rs_rdma_link_init(struct rs_rdma_link *link, struct rs_rdma_memory *memory,
                      int peer, const char *engine,
                      struct rs_rdma_link_offer *offer)
{
    struct rs_rdma_port *port = memory->port;
    struct rs_rdma_link l = {
        .memory = memory, .peer = peer, .engine = engine, .lock = ATOMIC_FLAG_INIT};
    int error;

    error = rs_rdma_block_allocate(memory, sizeof(uint64_t), false, NULL,
                                   &l.probed);
    if (error != 0)
        return error;
    *offer = (struct rs_rdma_link_offer){
        .probed = (uintptr_t)l.probed->memory, .rkey = l.probed->keys->rkey};
    error = port->ops->queue_create(port, &offer->endpoint, &l.queue);
    if (error != 0) {
        rs_rdma_block_release(l.probed);
        return error;
    }
    l.number = offer->endpoint.number;
    *link = l;
    return 0;
}

void rs_rdma_link_init_broken(struct rs_rdma_link *link,
                              struct rs_rdma_memory *memory, int peer,
                              const char *engine,
                              struct rs_rdma_link_offer *offer)
{
    *link = (struct rs_rdma_link){
        .memory = memory, .peer = peer, .engine = engine, .lock = ATOMIC_FLAG_INIT};
    *offer = (struct rs_rdma_link_offer){0};
    fail(link, rsched_last_error());
}

static bool is_up(struct rs_rdma_port *port)
{
    return port->ops->is_active == NULL || port->ops->is_active(port);
}

bool rs_rdma_link_has_come_up(const struct rs_rdma_link *link)
{
    return link->was_down && is_up(link->memory->port);
}

static int connect_queue(struct rs_rdma_link *link, const unsigned char *address,
                         const struct rs_rdma_link_offer *offer)
{
    int error;

    if (rs_rdma_link_is_broken(link))
        return rs_rdma_link_failed(link);
    if (offer->endpoint.number == 0)
        error = rs_fail(RSCHED_EPEER, "the peer could not make a queue pair");
    else
        error = link->memory->port->ops->queue_connect(link->queue, address,
                                                       &offer->endpoint);
    if (error == 0)
        error = rs_rdma_link_word(link, offer->probed, offer->rkey,
                                  &link->probe);
    if (error != 0)
        fail(link, rsched_last_error());
    return error;
}

int rs_rdma_link_connect(struct rs_rdma_link *link,
                         const unsigned char *address,
                         const struct rs_rdma_link_offer *offer)
{
    int error = connect_queue(link, address, offer);

    link->was_down = error != 0 && !is_up(link->memory->port);
    return error;
}

void rs_rdma_link_fini(struct rs_rdma_link *link)
{
    if (link->probe != NULL)
        link->queue->ops->list_destroy(link->probe);
    /* Lists go before their queue. What those of the zombies read stays
     * registered for as long as the engine lives. */
    atomic_store(&link->broken, true);
    rs_rdma_lanes_bury(link);
    if (link->queue != NULL)
        link->memory->port->ops->queue_destroy(link->queue);
    rs_rdma_block_release(link->probed);
    rs_rdma_memory_forget(link->memory, link);
    free(link->listeners);
}

void rs_rdma_link_lock(struct rs_rdma_link *link)
{
    while (atomic_flag_test_and_set_explicit(&link->lock, memory_order_acquire))
        sched_yield();
}

void rs_rdma_link_unlock(struct rs_rdma_link *link)
{
    atomic_flag_clear_explicit(&link->lock, memory_order_release);
}

static void __attribute__((cold)) fail_of_peer(struct rs_rdma_link *link)
{
    char cause[RS_LINK_WHY_BYTES];

    snprintf(cause, sizeof(cause),
             "the peer has taken no notification for %llu ms (RSCHED_DESTROY_TIMEOUT) "
             "of what was sent to it, which is given up",
             (unsigned long long)(rs_config()->destroy_timeout_ps / 1000000000));
    fail(link, cause);
}

/* The first status that is not a flush is the cause. */
static void __attribute__((cold)) fail_of_post(struct rs_rdma_link *link,
                                               const struct rs_rdma_done *done)
{
    char cause[RS_LINK_WHY_BYTES];

    if (link->given_up) {
        fail_of_peer(link);
        return;
    }
    if (done->flushed && atomic_load(&link->doubtful))
        snprintf(cause, sizeof(cause), "the peer was still writing what had "
                                       "been given up");
    else
        snprintf(cause, sizeof(cause), "%s (vendor code %#x)", done->cause,
                 done->vendor_error);
    fail(link, cause);
}

void rs_rdma_link_poll(struct rs_rdma_link *link)
{
    struct rs_rdma_done done;
    int got = 0;

    /* Lanes of a broken link do not wait for their counts any more. */
    if (link->posted == link->completed || rs_rdma_link_is_broken(link))
        return;
    while (!rs_rdma_link_is_broken(link) &&
           (got = link->queue->ops->poll(link->queue, &done)) == 1) {
        atomic_uint_fast64_t *count = (void *)(uintptr_t)done.id;

        link->completed++;
        if (count != NULL)
            /* Release: whoever sees it may give the lane's memory away. */
            atomic_fetch_add_explicit(count, 1, memory_order_release);
        /* After that: nobody waits for the counts of a broken link, and they
         * may be gone. */
        if (__builtin_expect(done.failed, 0))
            fail_of_post(link, &done);
    }
    if (got < 0)
        fail(link, rsched_last_error());
}

enum { MAX_LISTENERS = 65536, FIRST_LISTENERS = 8 };

static uint32_t find_free(const struct rs_rdma_link *link)
{
    uint32_t i = 0;

    while (i < link->num_listeners && link->listeners[i].count != NULL)
        i++;
    return i;
}

static int add_listeners(struct rs_rdma_link *link)
{
    uint32_t old = link->num_listeners;
    uint32_t wanted = old == 0 ? FIRST_LISTENERS : 2 * old;
    struct rs_rdma_listener *more;

    if (old == MAX_LISTENERS)
        return rs_fail(RSCHED_ELIMIT, "%s %s: more than %u lanes with peer %d",
                       link->engine, link->memory->port->name, old, link->peer);
    more = realloc(link->listeners, wanted * sizeof(*more));
    if (more == NULL)
        return rs_fail(RSCHED_ENOMEM, "%s: no memory for listeners",
                       link->engine);
    memset(more + old, 0, (wanted - old) * sizeof(*more));
    link->listeners = more;
    link->num_listeners = wanted;
    return 0;
}

int rs_rdma_link_listen(struct rs_rdma_link *link, atomic_uint_fast64_t *count,
                        uint32_t *imm)
{
    uint32_t index;
    int error = 0;

    rs_rdma_link_lock(link);
    index = find_free(link);
    if (index == link->num_listeners)
        error = add_listeners(link);
    if (error == 0) {
        struct rs_rdma_listener *l = &link->listeners[index];

        l->count = count;
        *imm = (uint32_t)++l->turn << 16 | index;
    }
    rs_rdma_link_unlock(link);
    return error;
}

void rs_rdma_link_unlisten(struct rs_rdma_link *link, uint32_t imm)
{
    rs_rdma_link_lock(link);
    link->listeners[imm & 0xffff].count = NULL;
    rs_rdma_link_unlock(link);
}

static void count_imm(struct rs_rdma_link *link, uint32_t imm)
{
    uint32_t index = imm & 0xffff;
    const struct rs_rdma_listener *l;

    if (index >= link->num_listeners)
        return;
    l = &link->listeners[index];
    /* Release: whoever sees it sees the data before it, which the completion
     * came after. */
    if (l->count != NULL && l->turn == imm >> 16)
        atomic_fetch_add_explicit(l->count, 1, memory_order_release);
}

void rs_rdma_link_take(struct rs_rdma_link *link)
{
    uint32_t imm;
    int got = 0;

    if (link->memory->port->notify != RS_NOTIFY_IMM)
        return;
    while (!rs_rdma_link_is_broken(link) &&
           (got = link->queue->ops->take(link->queue, &imm)) == 1)
        count_imm(link, imm);
    if (got < 0)
        fail(link, rsched_last_error());
}

bool rs_rdma_link_post(struct rs_rdma_link *link, struct rs_rdma_list *list,
                       uint64_t epoch, atomic_uint_fast64_t *count)
{
    if (rs_rdma_link_is_broken(link) ||
        !link->queue->ops->post(list, epoch, (uintptr_t)count))
        return false;
    link->posted++;
    return true;
}

void rs_rdma_link_ring(struct rs_rdma_link *link)
{
    if (link->queue->ops->ring(link->queue) != 0)
        fail(link, rsched_last_error());
}

int rs_rdma_link_failed(const struct rs_rdma_link *link)
{
    return rs_fail(RSCHED_EPEER, "%s %s: qp %#x to peer %d: %s", link->engine,
                   link->memory->port->name, link->number, link->peer,
                   link->why);
}

/* A receiver would wait for ever for a peer that is gone: only those who send
 * are answered, or not. */
static void probe(struct rs_rdma_link *link, uint64_t now_ps)
{
    if (!atomic_load(&link->in_use) || link->posted != link->completed ||
        now_ps < link->next_probe_ps)
        return;
    link->next_probe_ps = now_ps + PROBE_PS;
    if (rs_rdma_link_post(link, link->probe, 1, NULL))
        rs_rdma_link_ring(link);
}

int rs_rdma_link_check(struct rs_rdma_link *link)
{
    struct rs_rdma_port *port = link->memory->port;

    if (!rs_rdma_link_is_broken(link)) {
        rs_rdma_link_lock(link);
        rs_rdma_link_poll(link);
        rs_rdma_link_take(link); /* else its peer may have to wait */
        rs_rdma_lanes_say_last(link);
        if (port->ops->check(port) != 0)
            fail(link, rsched_last_error());
        else
            probe(link, rs_clock_now());
        rs_rdma_link_unlock(link);
    }
    return rs_rdma_link_is_broken(link) ? rs_rdma_link_failed(link) : 0;
}

void rs_rdma_link_note(struct rs_rdma_link *link)
{
    if (link->moved == link->completed)
        return;
    link->moved = link->completed;
    link->moved_ps = rs_clock_now();
}

/* A device tries an immediate for which its peer has no receive again and again, for
 * ever, and what is behind it waits. Whoever gets memory back now relies on it that
 * the device has ended; the lock is held so long. */
static void __attribute__((cold)) give_up(struct rs_rdma_link *link)
{
    uint64_t until_ps = rs_clock_now() + STOP_PS;

    link->given_up = true;
    link->queue->ops->stop(link->queue);
    rs_rdma_link_poll(link);
    while (!rs_rdma_link_is_broken(link) && rs_clock_now() < until_ps) {
        rs_clock_sleep(WAIT_STEP_PS);
        rs_rdma_link_poll(link);
    }
    fail_of_peer(link);
    rs_log(RS_LOG_WARN, "%s %s: qp %#x to peer %d: %s", link->engine,
           link->memory->port->name, link->number, link->peer, link->why);
}

static bool is_late(const struct rs_rdma_link *link, uint64_t since_ps)
{
    uint64_t most_ps = rs_config()->destroy_timeout_ps;
    uint64_t from_ps = link->moved_ps > since_ps ? link->moved_ps : since_ps;

    return most_ps != 0 && rs_clock_now() - from_ps > most_ps;
}

bool rs_rdma_link_wait(struct rs_rdma_link *link, uint64_t since_ps,
                       bool by_immediates)
{
    /* The look is for the peer, too: it may wait for receives here. */
    if (rs_rdma_link_check(link) != 0)
        return false;
    rs_rdma_link_lock(link);
    rs_rdma_link_note(link);
    if (by_immediates && !rs_rdma_link_is_broken(link) && is_late(link, since_ps))
        give_up(link);
    rs_rdma_link_unlock(link);
    rs_clock_sleep(WAIT_STEP_PS);
    return !rs_rdma_link_is_broken(link);
}

int rs_rdma_link_word(struct rs_rdma_link *link, uint64_t remote, uint32_t rkey,
                      struct rs_rdma_list **list)
{
    struct rs_rdma_op op = {.opcode = RS_RDMA_WRITE,
                            .stamp = RS_STAMP_EPOCH,
                            .inlined = true,
                            .remote = remote,
                            .rkey = rkey};

    return link->queue->ops->list_create(link->queue, &op, 1, list);
}
