/* SPDX-License-Identifier: BSD-3-Clause */
/* Incarnations: opening and stopping. The fast path is in lane.h. */
#include "mpi/lane.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    FEW_BYTES = 4096, /* up to these a lane has many slots */
    LOOK_NS = 3000,   /* how long a store may take to be seen */
};

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + RS_LANE_LINE - 1) / RS_LANE_LINE * RS_LANE_LINE;
}

static uint64_t stride_of(uint64_t bytes)
{
    return RS_LANE_LINE + (bytes > RS_LANE_SHORT ? round_up(bytes) : 0);
}

/* The most that a lane of any shape takes. */
static size_t lane_bytes(uint64_t most)
{
    size_t few = RS_LANE_MOST_SLOTS * (size_t)stride_of(FEW_BYTES);
    size_t many = RS_LANE_LEAST_SLOTS * (size_t)stride_of(most);

    return few > many ? few : many;
}

static size_t slots_offset(unsigned index, uint64_t most)
{
    enum { PAGE = 4096 };
    /* Not all in the same set of a cache. */
    size_t skew = (index % 16) * (size_t)(4 * RS_LANE_LINE);

    return 2 * PAGE + index * ((lane_bytes(most) + 2 * PAGE) / PAGE * PAGE) +
           skew;
}
static_assert(sizeof(struct rs_pair_words) <= 8192, "before the slots");

size_t rs_pair_bytes(uint64_t most)
{
    return slots_offset(RS_LANES, most) + 4096;
}

void rs_slots_init(struct rs_slots *slots, const struct rs_pair_view *pair,
                   unsigned index, uint64_t bytes, uint64_t most)
{
    struct rs_pair_words *words = pair->words;

    *slots = (struct rs_slots){
        .memory = (char *)words + slots_offset(index, most),
        .stride = stride_of(bytes),
        .room = bytes > RS_LANE_SHORT ? round_up(bytes) : RS_LANE_SHORT,
        .num = bytes <= FEW_BYTES ? RS_LANE_MOST_SLOTS : RS_LANE_LEAST_SLOTS,
        .granted = &words->granted[index],
        .consumed = &words->consumed[index],
        .bell = &words->bells[!pair->sends].asleep,
    };
}

static uint64_t my_bit(const struct rs_pair_view *pair)
{
    return pair->sends ? RS_SENDER_READY : RS_RECEIVER_READY;
}

static void enter(struct rs_pair_view *pair, uint64_t mode)
{
    pair->open = mode;
    /* The sender has written it before its bit. */
    pair->joined =
        atomic_load_explicit(&pair->words->joined, memory_order_relaxed);
}

bool rs_pair_enter(struct rs_pair_view *pair)
{
    /* Acquire: pairs with the other side's rs_pair_ready(). */
    uint64_t mode =
        atomic_load_explicit(&pair->words->mode, memory_order_acquire);

    if ((mode & (RS_OPEN | RS_STOPPING)) != RS_OPEN)
        return false;
    enter(pair, mode);
    return true;
}

bool rs_pair_ready(struct rs_pair_view *pair, uint64_t joined)
{
    _Atomic uint64_t *word = &pair->words->mode;
    uint64_t mode = atomic_load_explicit(word, memory_order_acquire);

    if (mode & my_bit(pair))
        return rs_pair_enter(pair);
    if (mode & RS_STOPPING)
        return false;
    if (pair->sends)
        atomic_store_explicit(&pair->words->joined, joined,
                              memory_order_relaxed);
    /* Acquire and release: what each side has done before it became ready
     * must be seen by who finds the pair open. */
    mode = atomic_fetch_or_explicit(word, my_bit(pair), memory_order_acq_rel) |
           my_bit(pair);
    if ((mode & RS_OPEN) != RS_OPEN)
        return false;
    enter(pair, mode);
    return true;
}

bool rs_pair_is_ready(const struct rs_pair_view *pair)
{
    return atomic_load_explicit(&pair->words->mode, memory_order_relaxed) &
           my_bit(pair);
}

bool rs_pair_unready(struct rs_pair_view *pair)
{
    _Atomic uint64_t *word = &pair->words->mode;
    uint64_t mode = atomic_load_explicit(word, memory_order_acquire);

    while ((mode & RS_OPEN) != RS_OPEN && !(mode & RS_STOPPING)) {
        if (!(mode & my_bit(pair)) ||
            atomic_compare_exchange_weak_explicit(
                word, &mode, mode & ~my_bit(pair), memory_order_acq_rel,
                memory_order_acquire))
            return true;
    }
    /* It has been opened, and perhaps the other side stops it already. */
    enter(pair, (mode & ~(uint64_t)RS_STOPPING) | RS_OPEN);
    return false;
}

/* The other side is between two statements of rs_pair_stop(). */
static void await_decision(const struct rs_pair_view *pair)
{
    for (unsigned i = 0;
         /* Acquire: pairs with the end of rs_pair_stop(). */
         atomic_load_explicit(&pair->words->mode, memory_order_acquire) ==
         (pair->open | RS_STOPPING);
         i++) {
        if (i > 1000)
            sched_yield();
    }
}

/* The highest number that the other side has reached on a lane since the pair
 * opened. */
static uint64_t other_number(const struct rs_pair_view *pair,
                             const struct rs_slots *slots, unsigned index)
{
    uint64_t highest = 0;

    if (pair->sends) {
        /* Acquire: a slot is used again after it. */
        highest = atomic_load_explicit(&pair->words->granted[index],
                                       memory_order_acquire);
        return (highest ^ rs_pair_base(pair)) >> 32 == 0 ? highest : 0;
    }
    for (unsigned i = 0; i < slots->num; i++) {
        /* Acquire: the bytes are read after it. */
        uint64_t number = atomic_load_explicit(
            &rs_slots_at(slots, i)->number, memory_order_acquire);

        if ((number ^ rs_pair_base(pair)) >> 32 == 0 && number > highest)
            highest = number;
    }
    return highest;
}

bool rs_pair_stop(struct rs_pair_view *pair, const struct rs_slots *slots,
                  unsigned num)
{
    struct rs_pair_words *words = pair->words;
    uint64_t mode = pair->open;
    bool mine = atomic_compare_exchange_strong_explicit(
        &words->mode, &mode, pair->open | RS_STOPPING, memory_order_seq_cst,
        memory_order_acquire);

    if (mine) {
        /* With the swap before it: see rs_lane_fence(). */
        atomic_thread_fence(memory_order_seq_cst);
        for (unsigned i = 0; i < num; i++) {
            uint64_t other, least = slots[i].number;

            if (!(pair->joined >> i & 1))
                continue;
            other = other_number(pair, &slots[i], i);
            if (other < least)
                least = other;
            atomic_store_explicit(&words->final[i], least,
                                  memory_order_relaxed);
        }
        /* Release: `final` must be seen with it. */
        atomic_store_explicit(&words->mode,
                              ((pair->open >> RS_MODE_BITS) + 1)
                                  << RS_MODE_BITS,
                              memory_order_release);
        /* The other side may wait for what we do natively now. */
        if (atomic_load(&words->bells[!pair->sends].asleep) != 0)
            rs_bell_ring(&words->bells[!pair->sends].asleep);
    } else {
        await_decision(pair);
    }
    pair->open = pair->joined = 0;
    return mine;
}

void rs_pair_bar(struct rs_pair_view *pair, unsigned index)
{
    /* Release: seen by a sender that finds the receiver ready. */
    atomic_fetch_or_explicit(&pair->words->barred, UINT64_C(1) << index,
                             memory_order_release);
}

/* ---- sleeping ---- */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void rs_pair_sleep(const struct rs_pair_view *pair, uint64_t limit_ns,
                   bool (*ready)(void *arg), void *arg)
{
    _Atomic uint32_t *asleep = &pair->words->bells[pair->sends].asleep;
    struct timespec limit = {.tv_sec = (time_t)(limit_ns / 1000000000),
                             .tv_nsec = (long)(limit_ns % 1000000000)};
    uint64_t begin = now_ns();
    bool is_ready;

    /* Who writes a word for us looks at `asleep` afterwards, without a fence,
     * and may miss it while his word is on its way: look again until that is
     * there. */
    atomic_store(asleep, 1);
    do
        is_ready = ready(arg);
    while (!is_ready && now_ns() - begin < LOOK_NS);
    if (!is_ready)
        syscall(SYS_futex, asleep, FUTEX_WAIT, 1, &limit, NULL, 0);
    atomic_store_explicit(asleep, 0, memory_order_relaxed);
}

void rs_bell_ring(_Atomic uint32_t *bell)
{
    if (atomic_exchange(bell, 0) != 0)
        syscall(SYS_futex, bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}
