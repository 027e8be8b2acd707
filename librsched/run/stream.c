/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts and waits in streams of GPUs.
 *
 * An exchange that has been started on a stream is offered to the progress
 * thread whenever no function of the application runs on it. The thread, or
 * whoever owns the exchange, begins an epoch for each start that a stream has
 * reached, goes on with it, and says when it is complete; the stream's wait
 * waits for that. An epoch that fails is complete too: a stream that waited for
 * ever could not be destroyed.
 */
#include "librsched/run/run.h"

#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"

/* Between two looks at the clock, for dead peers, in one epoch. */
enum { STEPS_PER_LOOK = 64 };

/* A stream has reached a start: in a thread of the driver's. */
static void reached(void *arg)
{
    rs_safety_wake(arg);
}

static bool is_asked(const struct rsched_exchange *x)
{
    return rsched_gpus()->order_reached(x->order) != x->begun;
}

static void complete(struct rsched_exchange *x)
{
    rs_exchange_end(x);
    x->by_stream = false;
    rsched_gpus()->order_complete(x->order);
}

static void begin(struct rsched_exchange *x)
{
    x->begun++;
    x->by_stream = true;
    /* A load may have failed since it was enqueued. */
    if (!x->loaded)
        rs_exchange_fail(x, rs_fail(RSCHED_ESTATE,
                                    "a stream has started it while nothing is "
                                    "loaded"));
    rs_exchange_begin(x);
}

bool rs_stream_step(struct rsched_exchange *x, bool *moved)
{
    *moved = false;
    if (!x->active && !x->by_stream) {
        if (!is_asked(x))
            return false;
        begin(x);
        *moved = true;
        return true;
    }
    if (x->active) {
        *moved = rs_exchange_progress(x);
        if (!x->by_stream)
            return rs_exchange_is_deferred(x);
        if (!*moved && ++x->vain_tests % STEPS_PER_LOOK == 0) {
            rs_context_look(x->context);
            rs_exchange_check_peers(x);
        }
    }
    /* What a stream does next may use the receive buffers. */
    if (x->pending_tx.count == 0 && x->pending_rx.count == 0 &&
        !rs_exchange_awaits_writers(x))
        complete(x);
    return true;
}

bool rs_stream_is_busy(const struct rsched_exchange *x)
{
    return x->by_stream || is_asked(x);
}

void rs_stream_offer(struct rsched_exchange *x)
{
    /* Its state is the thread's once it is offered. */
    uint64_t begun = x->begun;
    bool by_stream = x->by_stream;

    rs_safety_offer(x);
    /* The thread may have come by and found that it could not have the exchange, also
     * for a start that was reached meanwhile. Asked after the offer: whoever reaches
     * one later wakes a thread that can. */
    if (by_stream || rsched_gpus()->order_reached(x->order) != begun)
        rs_safety_wake(&x->context->safety);
}

static int check(const struct rsched_exchange *x)
{
    if ((x->active && !x->by_stream) || !x->loaded)
        return rs_fail(RSCHED_ESTATE,
                       "exchange %llu: started on a stream while %s",
                       (unsigned long long)x->tag,
                       x->active ? "active" : "nothing is loaded");
    return x->error == 0 ? 0 : rs_exchange_failed(x);
}

static int make_order(struct rsched_exchange *x)
{
    if (rsched_gpus() == NULL)
        return rs_fail(RSCHED_ENOTSUP, "exchange %llu: streams: built without "
                                       "cuda.h",
                       (unsigned long long)x->tag);
    if (!rsched_gpus()->attach())
        return rs_fail(RSCHED_ENOTSUP, "exchange %llu: streams: no driver of "
                                       "GPUs is loaded",
                       (unsigned long long)x->tag);
    if (!rs_safety_start(x->context))
        return rs_fail(RSCHED_ENOTSUP, "exchange %llu: streams need the progress "
                                       "thread (RSCHED_PROGRESS)",
                       (unsigned long long)x->tag);
    return rsched_gpus()->order_create(reached, &x->context->safety, &x->order);
}

/* Whether the next epoch may open memory of others. */
static bool opens(const struct rsched_exchange *x)
{
    bool pulls = false;

    if (x->stats.epochs != x->loaded_at ||
        rs_config()->gpu_way == RS_CONFIG_GPU_WAY_STAGED)
        return false;
    for (uint32_t i = 0; i < x->num_in; i++) {
        const struct rs_edge *e = &x->in[i];

        pulls = pulls || (e->bytes > 0 && !e->lane->passive &&
                          rs_peer_has_gpus(e->peer) &&
                          e->peer->ops->within_node);
    }
    return pulls;
}

static void warn_of_opening(const struct rsched_exchange *x)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    if (opens(x) && !atomic_flag_test_and_set(&told))
        rs_log(RS_LOG_WARN,
               "exchange %llu: a stream starts the first epoch since it was "
               "loaded, for which GPU memory is opened: a driver may wait for that "
               "stream then, so have the host start one before",
               (unsigned long long)x->tag);
}

static int check_start(struct rsched_exchange *x)
{
    int error;

    rs_exchange_own(x);
    error = check(x);
    if (error == 0 && x->order == NULL)
        error = make_order(x);
    if (error == 0)
        warn_of_opening(x);
    rs_exchange_leave(x);
    return error;
}

static int told(const struct rsched_exchange *x, int error)
{
    return error == 0 ? 0
                      : rs_fail_within(error, "exchange %llu",
                                       (unsigned long long)x->tag);
}

/* Until there may be room for another start. */
static int pause_start(struct rsched_exchange *x, struct rsched_pause *pause)
{
    int error;

    rsched_context_pause(x->context, pause);
    rs_exchange_own(x);
    error = x->error == 0 ? 0 : rs_exchange_failed(x);
    rs_exchange_leave(x);
    return error;
}

/* The driver may block where a stream is full, until epochs are complete: so the
 * exchange is the progress thread's meanwhile. */
int rsched_exchange_start_on(struct rsched_exchange *x, void *stream)
{
    struct rsched_pause pause = {0};
    int error = check_start(x);

    if (error != 0)
        return error;
    while ((error = rsched_gpus()->order_start(x->order, stream)) ==
           RSCHED_ORDER_FULL) {
        error = pause_start(x, &pause);
        if (error != 0)
            return error;
    }
    return told(x, error);
}

int rsched_exchange_wait_on(struct rsched_exchange *x, void *stream)
{
    if (x->order == NULL)
        return rs_fail(RSCHED_ESTATE,
                       "exchange %llu: no start on a stream to wait for",
                       (unsigned long long)x->tag);
    return told(x, rsched_gpus()->order_wait(x->order, stream));
}
