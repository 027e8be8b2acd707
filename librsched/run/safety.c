/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The safety net: a thread that goes on with what start, test or wait had to
 * leave undone, so that a peer does not wait for a process that computes. So do
 * waits for other exchanges.
 *
 * An exchange is OWNED by the application's thread while one of its functions
 * runs and whenever nothing is deferred; then the hot path pays nothing. It is
 * OFFERED when something is left; the thread, a wait for another exchange, or the
 * application's next call takes it by compare-and-swap.
 *
 * The thread ticks while something is offered and for LINGER_TICKS afterwards
 * (so that a code that defers in every step does not wake it in every step),
 * then sleeps until it is woken. Where applications always come back before it finds
 * anything to move, ticks become up to 2^MOST_DOUBLINGS times as long. It also has
 * connections settle, so that peers are told of what was given up even if this
 * process does nothing any more.
 *
 * Streams wait for nobody else, so for them it is HURRIED: by who reaches a start, and
 * by the application when it lets go of an exchange that has such an epoch, which the
 * thread may have missed.
 */
#include "librsched/run/run.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"

enum { LINGER_TICKS = 20 };

/* So many ticks in a row that have moved nothing double the next ones. */
enum { VAIN_TICKS = 16, MOST_DOUBLINGS = 2 };

int rs_safety_init(struct rsched_context *context)
{
    pthread_mutex_init(&context->safety.lock, NULL);
    context->safety.end = &context->safety.exchanges;
    return 0;
}

static void futex_wait(atomic_uint *word, unsigned value, uint64_t limit_ps)
{
    struct timespec limit = rs_clock_timespec(limit_ps);

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value,
            limit_ps == 0 ? NULL : &limit, NULL, 0);
}

static void wake_thread(struct rs_safety *safety)
{
    atomic_fetch_add(&safety->word, 1);
    syscall(SYS_futex, &safety->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Whoever is not the first need not wake: the thread takes this back before it
 * looks. */
void rs_safety_wake(struct rs_safety *safety)
{
    if (!atomic_exchange(&safety->hurry, true))
        wake_thread(safety);
}

/* Until the thread is woken, but not while a stream waits for it. `word` was loaded
 * before: who hurries it later than it looks here has changed that. */
static void doze(struct rs_safety *safety, unsigned word, uint64_t limit_ps)
{
    if (!atomic_load(&safety->hurry))
        futex_wait(&safety->word, word, limit_ps);
}

static bool take(struct rsched_exchange *x)
{
    int offered = RS_OFFERED;

    /* Acquire: all that its last owner did is visible. Sequentially consistent
     * for the sake of `idle`: see thread_main(). */
    return atomic_compare_exchange_strong(&x->owner, &offered, RS_TAKEN);
}

static void give(struct rsched_exchange *x)
{
    /* Release: what this thread did is visible to the next owner. */
    atomic_store_explicit(&x->owner, RS_OFFERED, memory_order_release);
}

/* What a round has found that is still to be done. */
enum round {
    ROUND_NOTHING,
    ROUND_DEFERRED, /* of an application that may come back for it */
    ROUND_STREAMS,  /* of streams, who wait for this thread only */
    ROUND_STREAMS_MOVED
};

static enum round go_on(struct rsched_exchange *x, bool *moved)
{
    if (x->order != NULL) {
        if (!rs_stream_step(x, moved))
            return ROUND_NOTHING;
        if (x->by_stream)
            return *moved ? ROUND_STREAMS_MOVED : ROUND_STREAMS;
        return ROUND_DEFERRED;
    }
    *moved = rs_exchange_progress(x);
    return rs_exchange_is_deferred(x) ? ROUND_DEFERRED : ROUND_NOTHING;
}

/* @return whether a connection has something left to say */
static bool settle(struct rsched_context *context)
{
    struct rs_safety *safety = &context->safety;
    bool left = true;

    if (!atomic_exchange(&safety->owed, false))
        return false;
    /* Whoever makes or destroys an exchange is not waited for. */
    if (pthread_mutex_trylock(&context->lock) == 0) {
        left = rs_context_settle(context);
        pthread_mutex_unlock(&context->lock);
    }
    if (left)
        atomic_store(&safety->owed, true);
    return left;
}

static enum round tick(struct rsched_context *context)
{
    struct rs_safety *safety = &context->safety;
    enum round most = ROUND_NOTHING;

    pthread_mutex_lock(&safety->lock);
    for (struct rsched_exchange *x = safety->exchanges; x != NULL;
         x = x->next) {
        enum round found;
        bool moved;

        if (!take(x))
            continue;
        found = go_on(x, &moved);
        if (moved) {
            x->stats.thread_moves++;
            atomic_fetch_add_explicit(&safety->moves, 1, memory_order_relaxed);
        }
        most = found > most ? found : most;
        give(x);
    }
    pthread_mutex_unlock(&safety->lock);
    atomic_fetch_add_explicit(&safety->ticks, 1, memory_order_relaxed);
    if (settle(context) && most == ROUND_NOTHING)
        most = ROUND_DEFERRED;
    return most;
}

static bool is_offered(const struct rsched_exchange *x)
{
    return atomic_load_explicit(&x->owner, memory_order_relaxed) == RS_OFFERED;
}

/* Who waits for something else has no time for long lists. */
enum { MOST_LOOKS = 16 };

/* In turn, in the order of the list; none that streams start.
 * @return NULL: none of those looked at is offered; else it is taken */
static struct rsched_exchange *take_next(struct rs_safety *safety)
{
    struct rsched_exchange *x = safety->next, *first = NULL;

    for (unsigned i = 0; i < MOST_LOOKS; i++) {
        if (x == NULL)
            x = safety->exchanges;
        if (x == NULL || x == first)
            return NULL;
        if (first == NULL)
            first = x;
        safety->next = x->next;
        if (is_offered(x) && take(x)) {
            if (x->order == NULL)
                return x;
            give(x);
        }
        x = x->next;
    }
    return NULL;
}

/* Who has the lock goes on with them, or will have it for a moment only. What is taken
 * is not destroyed. */
bool rs_safety_help(struct rsched_context *context)
{
    struct rs_safety *safety = &context->safety;
    struct rs_error_text kept;
    struct rsched_exchange *x;
    bool moved;

    if (pthread_mutex_trylock(&safety->lock) != 0)
        return false;
    x = take_next(safety);
    pthread_mutex_unlock(&safety->lock);
    if (x == NULL)
        return false;
    rs_error_save(&kept);
    moved = rs_exchange_progress(x);
    rs_error_restore(&kept);
    /* The thread may have found it taken, and gone to sleep. */
    atomic_store(&x->owner, RS_OFFERED);
    if (unlikely(atomic_load(&safety->idle)))
        wake_thread(safety);
    return moved;
}

/* The thread's. Whoever hurries it from here on may have come too late for this
 * one. */
static enum round look(struct rsched_context *context)
{
    atomic_exchange(&context->safety.hurry, false);
    return tick(context);
}

/* Streams wait: look often at first, then less often. */
enum { SPINS = 200, YIELDS = 2000 };
#define SLICE_PS (50 * UINT64_C(1000000))

static void pause_for_streams(struct rs_safety *safety, unsigned vain,
                              unsigned word)
{
    if (vain < SPINS)
        rs_cpu_relax();
    else if (vain < YIELDS)
        sched_yield();
    else
        doze(safety, word, SLICE_PS);
}

/* After so many ticks that have moved nothing. A connection that has something left
 * to say is not kept waiting. */
static uint64_t next_tick(struct rs_safety *safety, unsigned idle)
{
    unsigned doublings = idle / VAIN_TICKS;

    if (atomic_load_explicit(&safety->owed, memory_order_relaxed))
        doublings = 0;
    return rs_config()->progress_ps
           << (doublings < MOST_DOUBLINGS ? doublings : MOST_DOUBLINGS);
}

static void *thread_main(void *arg)
{
    struct rsched_context *context = arg;
    struct rs_safety *safety = &context->safety;
    unsigned lingered = 0, vain = 0, idle = 0;
    enum round found = ROUND_NOTHING;

    while (!atomic_load(&safety->stop)) {
        unsigned word = atomic_load(&safety->word);
        uint64_t moves = atomic_load_explicit(&safety->moves, memory_order_relaxed);

        /* A tick late, so that an application that goes straight into its
         * wait does the work itself. */
        if (found >= ROUND_STREAMS)
            pause_for_streams(safety, vain, word);
        else
            doze(safety, word, next_tick(safety, idle));
        found = look(context);
        if (atomic_load_explicit(&safety->moves, memory_order_relaxed) != moves)
            idle = 0;
        else if (idle < VAIN_TICKS * MOST_DOUBLINGS)
            idle++;
        vain = found == ROUND_STREAMS ? vain + 1 : 0;
        lingered = found != ROUND_NOTHING ? 0 : lingered + 1;
        if (lingered <= LINGER_TICKS)
            continue;
        /* Whoever offers, or watches, looks at `idle` after that; look for it
         * after `idle` (sequentially consistent on both sides). */
        word = atomic_load(&safety->word);
        atomic_store(&safety->idle, true);
        found = look(context);
        if (found == ROUND_NOTHING && !atomic_load(&safety->stop))
            doze(safety, word, 0);
        atomic_store(&safety->idle, false);
        lingered = idle = 0;
    }
    return NULL;
}

/* Without a thread the application's own calls still make progress. Several threads
 * may be here at once, and the new one too. */
static void start_thread(struct rsched_context *context)
{
    struct rs_safety *safety = &context->safety;
    int state = RS_THREAD_NONE;
    sigset_t all, old;
    int error;

    if (rs_config()->progress_ps == 0)
        return;
    if (!atomic_compare_exchange_strong(&safety->thread_state, &state,
                                        RS_THREAD_STARTS)) {
        while (atomic_load(&safety->thread_state) == RS_THREAD_STARTS)
            sched_yield();
        return;
    }
    /* Signals are the application's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&safety->thread, NULL, thread_main, context);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    atomic_store(&safety->thread_state,
                 error == 0 ? RS_THREAD_RUNS : RS_THREAD_NONE);
}

bool rs_safety_start(struct rsched_context *context)
{
    start_thread(context);
    return atomic_load(&context->safety.thread_state) == RS_THREAD_RUNS;
}

void rs_safety_watch(struct rsched_context *context)
{
    struct rs_safety *safety = &context->safety;

    atomic_store(&safety->owed, true);
    start_thread(context);
    if (atomic_load(&safety->idle))
        wake_thread(safety);
}

void rs_safety_offer(struct rsched_exchange *x)
{
    struct rs_safety *safety = &x->context->safety;

    if (unlikely(!x->listed)) {
        pthread_mutex_lock(&safety->lock);
        *safety->end = x;
        safety->end = &x->next;
        x->listed = true;
        atomic_store_explicit(&safety->any, true, memory_order_relaxed);
        pthread_mutex_unlock(&safety->lock);
        start_thread(x->context);
    }
    x->offered = true;
    atomic_store(&x->owner, RS_OFFERED);
    if (unlikely(atomic_load(&safety->idle)))
        wake_thread(safety);
}

void rs_safety_reclaim(struct rsched_exchange *x)
{
    int offered = RS_OFFERED;

    while (!atomic_compare_exchange_weak_explicit(
        &x->owner, &offered, RS_OWNED, memory_order_acquire,
        memory_order_relaxed)) {
        offered = RS_OFFERED;
        sched_yield();
    }
    x->offered = false;
}

void rs_safety_remove(struct rsched_exchange *x)
{
    struct rs_safety *safety = &x->context->safety;

    if (!x->listed)
        return;
    pthread_mutex_lock(&safety->lock);
    for (struct rsched_exchange **p = &safety->exchanges; *p != NULL;
         p = &(*p)->next) {
        if (*p == x) {
            *p = x->next;
            if (safety->end == &x->next)
                safety->end = p;
            break;
        }
    }
    if (safety->next == x)
        safety->next = x->next; /* NULL: the first one */
    x->next = NULL;
    x->listed = false;
    pthread_mutex_unlock(&safety->lock);
}

void rs_safety_fini(struct rsched_context *context)
{
    struct rs_safety *safety = &context->safety;

    if (atomic_load(&safety->thread_state) == RS_THREAD_RUNS) {
        atomic_store(&safety->stop, true);
        wake_thread(safety);
        pthread_join(safety->thread, NULL);
    }
    pthread_mutex_destroy(&safety->lock);
}

void rsched_context_progress(struct rsched_context *context)
{
    struct rs_error_text kept;

    /* What fails is told by the exchange's own calls. */
    rs_error_save(&kept);
    tick(context);
    rs_error_restore(&kept);
}
