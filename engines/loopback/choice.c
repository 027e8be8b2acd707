/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way each epoch of a lane goes: by the costs, by what is tried out, or as the peer
 * does, which tries it out for both. */
#include <sys/mman.h>
#include <unistd.h>

#include "engines/loopback/lane.h"

static uint64_t bytes_of(const struct rs_pieces *pieces)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < pieces->number; i++)
        bytes += pieces->at[i].bytes * pieces->at[i].count;
    return bytes;
}

/* What is told: the way, plus 1, and whether one copy would be out of mapped memory, not by
 * the kernel. */
enum { TOLD_MAPPED = 2 * RS_TRIAL_WAYS };

static uint64_t in_words(const struct lane *l, unsigned way)
{
    return (way + 1) | (l->maps ? TOLD_MAPPED : 0);
}

/* Let the peer follow. */
static void tell_way(struct lane *l, uint64_t told)
{
    if (l->told == told)
        return;
    l->told = told;
    atomic_store_explicit(&l->ring.words->way, told, memory_order_relaxed);
}

/* All slots: those that have never been read are written in no time. */
static uint32_t starts_until_used(const struct lane *l)
{
    uint32_t chunks = l->copies.num_chunks > 0 ? l->copies.num_chunks : 1;

    return (l->ring.num_slots + chunks - 1) / chunks;
}

/* Slots that have never been used take as long as the kernel needs to make their pages:
 * not in a trial. From Linux 5.14 on; else the next trials have them. */
static void have_pages(struct lane *l)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t low = (uintptr_t)l->ring.slots / page * page;
    uintptr_t high = (uintptr_t)l->ring.slots + l->ring.stride * l->ring.num_slots;

    if (!l->has_pages)
        madvise((void *)low, high - low, MADV_POPULATE_WRITE);
    l->has_pages = true;
}

/* The times of the kernel say nothing of what is mapped. */
static void note_kind(struct lane *l)
{
    bool maps = l->pull.table.reachable > l->pull.readable;

    if (maps != l->maps)
        rs_trial_forget(&l->trial);
    l->maps = maps;
}

void rs_lane_load_trial(struct lane *l)
{
    const struct rs_pull *p = &l->pull;
    unsigned twice = rs_stores_ways(l->bytes), once, ways = twice, guess = twice;

    if (p->possible)
        note_kind(l);
    if (p->possible && (l->prepared || rs_lane_may_pull(l))) {
        once = rs_stores_ways_once(bytes_of(&p->slots));
        ways = p->worth_trials ? twice | once : once;
        guess = p->guess ? once : twice;
    }
    rs_trial_load(&l->trial, ways, rs_stores_first(guess), starts_until_used(l));
    if (l->trial.possible && (rs_stores_first(guess) & RS_TRIAL_ONCE) != 0)
        have_pages(l);
    l->chooses = p->possible || l->trial.possible || l->trial.way != 0;
    if (!l->chooses)
        tell_way(l, 0);
}

/* The way of this epoch, where there are several. */
static unsigned start_trial(struct lane *l)
{
    struct rs_trial *t = &l->trial;
    struct rs_words *words = l->ring.words;
    struct rs_trial_start start;

    if (t->pending) {
        /* Acquire: the time is read after that. */
        l->consumed =
            atomic_load_explicit(&words->consumed, memory_order_acquire);
        if (l->consumed >= l->timed_end)
            rs_trial_took(t, l->took +
                                 atomic_load_explicit(&words->took,
                                                      memory_order_relaxed));
        l->lane.stats.trials = t->trials;
        l->lane.stats.trial_changes = t->changes;
    }
    start = rs_trial_start(t);
    if (start.timed) {
        l->timed = META_TIMED;
        l->took = 0;
    }
    return start.way;
}

/* The way that the peer goes, if it leads: it sends us about as much as we send it, and if
 * the receiver copied its message once, that would be as it would copy ours, out of mapped
 * memory or by the kernel. What it has told when it last sent says nothing of when it sends no
 * more. */
static bool find_leader(struct lane *l, unsigned *way)
{
    const struct lane *back = (const struct lane *)l->lane.back;
    const struct rsched_connection *c = l->lane.connection;
    uint64_t told;

    if (back == NULL || c->peer > c->engine->env.process ||
        back->bytes / 2 > l->bytes || l->bytes / 2 > back->bytes ||
        back->ring.sequence + 1 == l->led_at)
        return false;
    l->led_at = back->ring.sequence + 1;
    /* Relaxed: it goes with nothing. */
    told = atomic_load_explicit(&back->ring.words->way, memory_order_relaxed);
    *way = (unsigned)(told % TOLD_MAPPED) - 1;
    return *way < RS_TRIAL_WAYS && told == in_words(l, *way) &&
           (l->trial.ways & RS_TRIAL_SET(*way)) != 0;
}

unsigned rs_lane_choose_way(struct lane *l)
{
    unsigned way;

    if (!l->trial.possible) {
        tell_way(l, 0);
        return l->trial.way;
    }
    if (find_leader(l, &way)) {
        rs_trial_follow(&l->trial, way);
        tell_way(l, 0);
        return way;
    }
    way = start_trial(l);
    tell_way(l, in_words(l, way));
    return way;
}
