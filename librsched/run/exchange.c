/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting, testing and waiting: the hot path. */
#include "librsched/run/run.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/clock.h"
#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"

const char *rsched_way_name(enum rsched_way way)
{
    static const char *const names[RSCHED_NUM_WAYS] = {
        [RSCHED_WAY_SELF] = "self",
        [RSCHED_WAY_LANDING] = "landing",
        [RSCHED_WAY_DIRECT] = "direct",
        [RSCHED_WAY_PULL] = "pull",
        [RSCHED_WAY_CMA] = "cma",
        [RSCHED_WAY_STAGED] = "staged",
        [RSCHED_WAY_CUDA_IPC] = "cuda-ipc",
        [RSCHED_WAY_GDRCOPY] = "gdrcopy",
        [RSCHED_WAY_GDR_LOOPBACK] = "gdr-loopback",
    };

    return (unsigned)way < RSCHED_NUM_WAYS ? names[way] : NULL;
}

/* Between two looks at the clock by a program that tests and tests. */
enum { VAIN_TESTS = 32 };

/* Bring the state of the exchange to this thread. */
static inline void own(struct rsched_exchange *x)
{
    if (unlikely(x->offered))
        rs_safety_reclaim(x);
}

bool rs_exchange_is_deferred(const struct rsched_exchange *x)
{
    if (x->pending_tx.count > 0)
        return true;
    for (uint32_t i = 0; i < x->pending_rx.count; i++) {
        if (x->pending_rx.lanes[i]->streams)
            return true;
    }
    return false;
}

/* The application's thread leaves the library with the epoch unfinished. */
static inline void leave(struct rsched_exchange *x)
{
    if (unlikely(x->order != NULL))
        rs_stream_offer(x);
    else if (unlikely(rs_exchange_is_deferred(x)))
        rs_safety_offer(x);
}

void rs_exchange_own(struct rsched_exchange *x)
{
    own(x);
}

void rs_exchange_leave(struct rsched_exchange *x)
{
    leave(x);
}

void rs_exchange_abandon(struct rsched_exchange *x)
{
    for (uint32_t i = 0; i < x->num_out; i++)
        rs_edge_abandon(&x->out[i], true);
    for (uint32_t i = 0; i < x->num_in; i++)
        rs_edge_abandon(&x->in[i], false);
}

const struct rs_edge *rs_exchange_written(const struct rsched_exchange *x)
{
    for (uint32_t i = 0; i < x->num_in; i++) {
        struct rsched_lane *lane = x->in[i].lane;

        if (lane != NULL && lane->ops->rx_is_over != NULL &&
            !lane->ops->rx_is_over(lane))
            return &x->in[i];
    }
    return NULL;
}

/* So long is waited for neighbors that write into receive buffers when an epoch fails: they
 * need moments, if they have not been stopped. */
#define WRITERS_PS (100 * UINT64_C(1000000000))

bool rs_exchange_awaits_writers(const struct rsched_exchange *x)
{
    return x->error != 0 && rs_exchange_written(x) != NULL &&
           rs_clock_now() < x->writers_until_ps;
}

int rs_exchange_fail(struct rsched_exchange *x, int error)
{
    if (x->error == 0) {
        x->error = error;
        x->error_text = strdup(rsched_last_error());
        rs_exchange_abandon(x);
        x->writers_until_ps = rs_clock_after(WRITERS_PS);
        rs_safety_watch(x->context);
    }
    x->pending_tx.count = x->pending_rx.count = 0;
    return error;
}

void rs_exchange_await_writers(const struct rsched_exchange *x)
{
    while (rs_exchange_awaits_writers(x))
        sched_yield();
}

int rs_exchange_failed(const struct rsched_exchange *x)
{
    rs_exchange_await_writers(x);
    return rs_fail(x->error, "exchange %llu: %s", (unsigned long long)x->tag,
                   x->error_text != NULL ? x->error_text : "failed");
}

/* Progress the lanes of a list and keep those that are still pending, in
 * order. @return whether a chunk moved, or an error */
static inline int progress_list(struct rs_pending *pending, bool tx)
{
    uint32_t kept = 0;
    bool moved = false;

    for (uint32_t i = 0; i < pending->count; i++) {
        struct rsched_lane *lane = pending->lanes[i];
        uint64_t chunks = lane->stats.chunks;
        int status = tx ? lane->ops->tx_progress(lane)
                        : lane->ops->rx_progress(lane);

        if (unlikely(status < 0))
            return status;
        moved = moved || lane->stats.chunks != chunks;
        if (status == RSCHED_LANE_PENDING)
            pending->lanes[kept++] = lane;
    }
    pending->count = kept;
    return moved;
}

/* What the lanes have left to be begun together. */
static inline int flush(struct rsched_exchange *x)
{
    int error = 0;

    for (uint32_t i = 0; i < x->num_groups && likely(error == 0); i++) {
        if (x->groups[i].ops->group_flush != NULL)
            error = x->groups[i].ops->group_flush(x->groups[i].group);
    }
    return error;
}

bool rs_exchange_progress(struct rsched_exchange *x)
{
    int moved_in = progress_list(&x->pending_rx, false);
    int moved_out = 0;

    if (likely(moved_in >= 0) && unlikely(x->pending_tx.count > 0))
        moved_out = progress_list(&x->pending_tx, true);
    if (unlikely(moved_in < 0 || moved_out < 0)) {
        rs_exchange_fail(x, moved_in < 0 ? moved_in : moved_out);
        return true;
    }
    if (unlikely(x->flushes)) {
        int error = flush(x);

        if (error != 0) {
            rs_exchange_fail(x, error);
            return true;
        }
    }
    return moved_in || moved_out;
}

static inline bool is_complete(const struct rsched_exchange *x)
{
    return x->pending_tx.count == 0 && x->pending_rx.count == 0;
}

static int finish(struct rsched_exchange *x)
{
    int error;

    rs_exchange_end(x);
    error = likely(x->error == 0) ? 0 : rs_exchange_failed(x);
    if (unlikely(x->order != NULL))
        rs_stream_offer(x);
    return error;
}

static int __attribute__((cold)) give_up(struct rsched_exchange *x, int error)
{
    rs_exchange_end(x);
    return rs_exchange_fail(x, error);
}

/* What is in flight decides the ways at the next update; here nothing. */
static void count_start(struct rsched_exchange *x)
{
    x->gpu_messages = x->epoch_gpu_messages;
    rs_coordinator_started(&x->context->coordinator, x->gpu_messages);
}

int rs_exchange_begin(struct rsched_exchange *x)
{
    int status;

    /* A peer may have died while nobody waited for it. */
    if (unlikely(x->error != 0 ||
                 (atomic_load_explicit(&x->context->any_dead,
                                       memory_order_relaxed) &&
                  rs_exchange_check_peers(x) != 0)))
        return x->error;
    RS_FAILPOINT("start");
    x->active = true;
    x->stats.epochs++;
    x->stats.puts += x->epoch_puts;
    x->stats.bytes += x->epoch_bytes;
    x->stats.self_bytes += x->epoch_self_bytes;
    if (unlikely(x->epoch_gpu_messages > 0))
        count_start(x);
    for (uint32_t i = 0; i < x->num_rx; i++) {
        x->rx[i]->ops->rx_start(x->rx[i]);
        x->pending_rx.lanes[i] = x->rx[i];
    }
    x->pending_rx.count = x->num_rx;
    if (unlikely(x->adopt.in != 0) && --x->adopt.in == 0) {
        status = rs_exchange_adopt(x);
        if (status != 0)
            return give_up(x, status);
    }
    for (uint32_t i = 0; i < x->num_tx; i++) {
        status = x->tx[i]->ops->tx_start(x->tx[i]);
        if (unlikely(status != RSCHED_LANE_DONE)) {
            if (status < 0)
                return give_up(x, status);
            x->pending_tx.lanes[x->pending_tx.count++] = x->tx[i];
        }
    }
    status = unlikely(x->flushes) ? flush(x) : 0;
    if (unlikely(status != 0))
        return give_up(x, status);
    if (unlikely(x->pending_tx.count > 0))
        x->stats.deferred++;
    RS_FAILPOINT("started");
    return 0;
}

int rsched_exchange_start(struct rsched_exchange *x)
{
    int error;

    own(x);
    if (unlikely(x->active || !x->loaded ||
                 (x->order != NULL && rs_stream_is_busy(x))))
        error = rs_fail(RSCHED_ESTATE, "exchange %llu: started while %s",
                        (unsigned long long)x->tag,
                        x->loaded ? "active" : "nothing is loaded");
    else
        error = likely(rs_exchange_begin(x) == 0) ? 0 : rs_exchange_failed(x);
    leave(x);
    return error;
}

/* Those who only test must learn of a dead peer too. */
static inline bool is_hopeless(struct rsched_exchange *x)
{
    if (likely(++x->vain_tests % VAIN_TESTS != 0))
        return false;
    rs_context_look(x->context);
    return rs_exchange_check_peers(x) != 0;
}

/* Whether the epoch under way, or that before the next, is not of
 * rsched_exchange_start(). */
static inline bool is_for_streams(const struct rsched_exchange *x)
{
    return unlikely(x->order != NULL) && (x->by_stream || !x->active);
}

/* Go on with epochs that streams have started. @return whether one is left */
static bool go_on_for_streams(struct rsched_exchange *x)
{
    bool moved;

    while (rs_stream_is_busy(x) && rs_stream_step(x, &moved) && moved)
        ;
    return rs_stream_is_busy(x);
}

static int leave_streams(struct rsched_exchange *x)
{
    int error = x->error == 0 ? 0 : rs_exchange_failed(x);

    leave(x);
    return error;
}

static int __attribute__((cold))
test_streams(struct rsched_exchange *x, bool *done)
{
    *done = !go_on_for_streams(x);
    return leave_streams(x);
}

static int __attribute__((cold)) wait_streams(struct rsched_exchange *x)
{
    struct rsched_pause pause = {0};

    while (go_on_for_streams(x)) {
        if (is_complete(x)) /* but for who writes: it has failed */
            sched_yield();
        else
            rs_wait_step(x, &pause);
    }
    return leave_streams(x);
}

int rsched_exchange_test(struct rsched_exchange *x, bool *done)
{
    *done = true;
    own(x);
    if (is_for_streams(x))
        return test_streams(x, done);
    if (!x->active)
        return 0;
    rs_exchange_progress(x);
    if (is_complete(x) || is_hopeless(x))
        return finish(x);
    *done = false;
    leave(x);
    return 0;
}

int rsched_exchange_wait(struct rsched_exchange *x)
{
    struct rsched_pause pause = {0};

    own(x);
    if (is_for_streams(x))
        return wait_streams(x);
    if (!x->active)
        return 0;
    RS_FAILPOINT("wait");
    for (;;) {
        rs_exchange_progress(x);
        if (is_complete(x))
            return finish(x);
        if (unlikely(rs_wait_step(x, &pause) != 0))
            return finish(x);
    }
}

static bool peer_is_pending(const struct rs_pending *pending, int process)
{
    for (uint32_t i = 0; i < pending->count; i++) {
        if (pending->lanes[i]->peer->process == process)
            return true;
    }
    return false;
}

int rsched_exchange_test_peer(struct rsched_exchange *x, int peer, bool *done)
{
    *done = true;
    own(x);
    if (is_for_streams(x))
        return test_streams(x, done);
    if (!x->active)
        return 0;
    rs_exchange_progress(x);
    *done = !peer_is_pending(&x->pending_tx, peer) &&
            !peer_is_pending(&x->pending_rx, peer);
    if (unlikely(x->error != 0 || (!*done && is_hopeless(x)))) {
        *done = true;
        return finish(x);
    }
    leave(x);
    return 0;
}

static bool is_dead(const struct rs_peer *peer)
{
    return atomic_load_explicit(&peer->dead, memory_order_relaxed);
}

/* The connection still knows, and has the text. */
static int fail_of_peer(struct rsched_exchange *x, const struct rs_peer *peer)
{
    int error = peer->ops->check(peer->connection);

    return rs_exchange_fail(x, error != 0 ? error : RSCHED_EPEER);
}

/* Whether there is nothing more to come from a lane's peer: not a failure where there
 * need not be. */
static bool is_over(struct rsched_lane *lane, bool tx)
{
    struct rs_error_text kept;
    int error;

    if (is_dead(lane->peer))
        return true;
    rs_error_save(&kept);
    error = tx ? lane->ops->tx_check(lane) : lane->ops->rx_check(lane);
    if (error != 0)
        rs_error_restore(&kept);
    return error != 0;
}

/* @return 0 or RSCHED_EPEER, noted in the exchange */
static int check_list(struct rsched_exchange *x, struct rs_pending *pending,
                      bool tx)
{
    for (uint32_t i = 0; i < pending->count; i++) {
        struct rsched_lane *lane = pending->lanes[i];
        const struct rsched_engine_ops *ops = lane->ops;
        int error;

        if (!is_over(lane, tx))
            continue;
        /* It may have done all that this epoch needs before that. */
        if ((tx ? ops->tx_progress(lane) : ops->rx_progress(lane)) ==
            RSCHED_LANE_DONE)
            continue;
        /* What it left is here, so that it takes nobody to have it. */
        if (!tx && lane->copying)
            continue;
        if (is_dead(lane->peer))
            return fail_of_peer(x, lane->peer);
        error = tx ? ops->tx_check(lane) : ops->rx_check(lane);
        if (error != 0) /* not so while it is being copied */
            return rs_exchange_fail(x, error);
    }
    return 0;
}

int rs_exchange_check_peers(struct rsched_exchange *x)
{
    int error;

    if (!x->active) {
        /* Before a start. A peer that is gone may have sent this epoch ahead,
         * but it has not received it. */
        for (uint32_t i = 0; i < x->num_out; i++) {
            struct rs_edge *e = &x->out[i];

            if (e->bytes > 0 && is_dead(e->peer))
                return fail_of_peer(x, e->peer);
        }
        return 0;
    }
    error = check_list(x, &x->pending_rx, false);
    if (error == 0)
        error = check_list(x, &x->pending_tx, true);
    return error;
}

bool rsched_exchange_is_active(const struct rsched_exchange *x)
{
    struct rsched_exchange *taken = (struct rsched_exchange *)(uintptr_t)x;
    bool active;

    if (likely(x->order == NULL))
        return x->active;
    own(taken);
    active = x->active || rs_stream_is_busy(x);
    leave(taken);
    return active;
}

static int engine_of(const struct rs_edge *e, int way)
{
    return way == RSCHED_WAY_GDR_LOOPBACK && e->beside_peer != NULL
               ? e->beside_peer->engine
               : e->peer->engine;
}

/* The numbers of an exchange that this thread owns. */
static void copy_stats(const struct rsched_exchange *x,
                       struct rsched_stats *stats)
{
    *stats = x->stats;
    stats->edges_out = x->num_out;
    stats->edges_in = x->num_in;
    stats->edges_self = 0;
    for (uint32_t i = 0; i < x->num_out; i++) {
        const struct rs_edge *e = &x->out[i];

        stats->edges_self +=
            e->peer->process == x->context->params.process;
        stats->chunks_out += e->lane->stats.chunks;
        stats->credit_stalls += e->lane->stats.stalls;
        stats->nontemporal_bytes += e->lane->stats.nontemporal;
        stats->prefetched_bytes += e->lane->stats.prefetched;
        stats->trials += e->lane->stats.trials;
        stats->trial_changes += e->lane->stats.trial_changes;
        for (int way = 0; way < RSCHED_NUM_WAYS; way++) {
            stats->way_bytes[way] += e->lane->stats.bytes[way];
            stats->engine_bytes[engine_of(e, way)] += e->lane->stats.bytes[way];
        }
    }
    for (uint32_t i = 0; i < x->num_in; i++) {
        stats->chunks_in += x->in[i].lane->stats.chunks;
        stats->nontemporal_bytes += x->in[i].lane->stats.nontemporal;
        stats->prefetched_bytes += x->in[i].lane->stats.prefetched;
    }
}

void rsched_exchange_get_stats(const struct rsched_exchange *x,
                               struct rsched_stats *stats)
{
    /* The safety net counts too, so that it must be kept away meanwhile. */
    struct rsched_exchange *taken = (struct rsched_exchange *)(uintptr_t)x;

    own(taken);
    copy_stats(x, stats);
    if (x->active || x->order != NULL)
        leave(taken);
}
