/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/coordinator.h"

enum { WORTH = 32 };

/* Of `counted`. */
enum { SEEN_BITS = 40 };
#define SEEN_MOST ((UINT64_C(1) << SEEN_BITS) - 1)
#define STARTS_MOST (UINT64_MAX >> SEEN_BITS)

const struct rs_way_costs *rs_gpu_way_costs(const struct rs_ways *ways,
                                            enum rs_way way,
                                            enum rs_distance distance)
{
    return &ways->gpu[way - RS_NUM_HOST_WAYS][distance];
}

uint64_t rs_gpu_way_time(const struct rs_way_costs *costs, uint64_t bytes,
                         uint64_t in_flight)
{
    uint64_t first = rs_way_time(costs, bytes);
    uint64_t gap = rs_way_cost_at(&costs->gap, bytes);
    uint64_t further = in_flight > 0 ? in_flight - 1 : 0, time;

    if (__builtin_mul_overflow(gap, further, &gap) ||
        __builtin_add_overflow(first, gap, &time))
        return UINT64_MAX;
    return time;
}

static bool is_possible(const struct rs_gpu_put *put, enum rs_way way)
{
    return (put->possible & RS_WAY_BIT(way)) != 0;
}

/* Without costs. */
static enum rs_way first_possible(const struct rs_gpu_put *put)
{
    static const enum rs_way order[] = {RS_WAY_CUDA_IPC, RS_WAY_STAGED,
                                        RS_WAY_GDR_LOOPBACK, RS_WAY_GDRCOPY};

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        if (is_possible(put, order[i]))
            return order[i];
    }
    return RS_WAY_STAGED;
}

/* Of the ways that have costs. */
struct cheapest {
    bool possible; /* there is one */
    enum rs_way way;
    uint64_t time;
};

static struct cheapest find_cheapest(const struct rs_ways *ways,
                                     const struct rs_gpu_put *put,
                                     uint64_t in_flight)
{
    struct cheapest best = {.time = UINT64_MAX};

    for (enum rs_way way = RS_NUM_HOST_WAYS; way < RS_NUM_WAYS; way++) {
        const struct rs_way_costs *costs =
            rs_gpu_way_costs(ways, way, put->distance);
        uint64_t time;

        if (!costs->given || !is_possible(put, way))
            continue;
        time = rs_gpu_way_time(costs, put->bytes, in_flight);
        if (!best.possible || time < best.time)
            best = (struct cheapest){true, way, time};
    }
    return best;
}

enum rs_way rs_gpu_way(const struct rs_ways *ways, const struct rs_gpu_put *put,
                       uint64_t in_flight)
{
    struct cheapest best = find_cheapest(ways, put, in_flight);

    return best.possible ? best.way : first_possible(put);
}

enum rs_way rs_gpu_way_again(const struct rs_ways *ways,
                             const struct rs_gpu_put *put, uint64_t in_flight,
                             enum rs_way now)
{
    const struct rs_way_costs *costs = rs_gpu_way_costs(ways, now,
                                                        put->distance);
    struct cheapest best;
    uint64_t time;

    if (!is_possible(put, now))
        return rs_gpu_way(ways, put, in_flight);
    best = find_cheapest(ways, put, in_flight);
    if (!best.possible)
        return now;
    if (!costs->given)
        return best.way;
    time = rs_gpu_way_time(costs, put->bytes, in_flight);
    return best.time < time - time / WORTH ? best.way : now;
}

struct question {
    const struct rs_ways *ways;
    enum rs_distance distance;
    uint32_t possible;
    uint64_t in_flight;
};

static enum rs_way way_at(const void *arg, uint64_t bytes)
{
    const struct question *q = arg;
    const struct rs_gpu_put put = {bytes, q->distance, q->possible};

    return rs_gpu_way(q->ways, &put, q->in_flight);
}

size_t rs_gpu_way_switches(const struct rs_ways *ways,
                           enum rs_distance distance, uint32_t possible,
                           uint64_t in_flight, struct rs_way_switch *list)
{
    const struct question q = {ways, distance, possible, in_flight};

    return rs_way_switches(way_at, &q, list);
}

void rs_coordinator_init(struct rs_coordinator *coordinator)
{
    atomic_init(&coordinator->now, 0);
    atomic_init(&coordinator->since, 0);
    atomic_init(&coordinator->counted, 0);
    atomic_init(&coordinator->in_flight, 0);
}

/* Counters order nothing; other threads' starts and ends between two of these
 * make a number a little wrong. */
void rs_coordinator_started(struct rs_coordinator *coordinator, uint64_t puts)
{
    atomic_fetch_add_explicit(&coordinator->now, puts, memory_order_relaxed);
    atomic_fetch_add_explicit(&coordinator->since, 1, memory_order_relaxed);
}

static uint64_t starts_of(uint64_t counted)
{
    return counted >> SEEN_BITS;
}

static uint64_t seen_of(uint64_t counted)
{
    return counted & SEEN_MOST;
}

/* Where there is no room for all the mean stays, about. */
static uint64_t counted_as(uint64_t starts, uint64_t seen)
{
    while (starts > STARTS_MOST || seen > SEEN_MOST) {
        starts /= 2;
        seen /= 2;
    }
    return starts << SEEN_BITS | seen;
}

/* All that have started since the last end have so many beside them. */
static void count(struct rs_coordinator *coordinator, uint64_t now)
{
    uint64_t starts = atomic_exchange_explicit(&coordinator->since, 0,
                                               memory_order_relaxed);
    uint64_t old = atomic_load_explicit(&coordinator->counted,
                                        memory_order_relaxed);
    uint64_t next;

    do
        next = counted_as(starts_of(old) + starts, seen_of(old) + starts * now);
    while (!atomic_compare_exchange_weak_explicit(&coordinator->counted, &old,
                                                  next, memory_order_relaxed,
                                                  memory_order_relaxed));
}

void rs_coordinator_ended(struct rs_coordinator *coordinator, uint64_t puts)
{
    uint64_t now = atomic_fetch_sub_explicit(&coordinator->now, puts,
                                             memory_order_relaxed);

    if (atomic_load_explicit(&coordinator->since, memory_order_relaxed) > 0)
        count(coordinator, now);
}

uint64_t rs_coordinator_now(const struct rs_coordinator *coordinator)
{
    return atomic_load_explicit(&coordinator->now, memory_order_relaxed);
}

static uint64_t last_update(const struct rs_coordinator *coordinator)
{
    return atomic_load_explicit(&coordinator->in_flight, memory_order_relaxed);
}

/* @return 0: too few starts are counted, and they stay */
static uint64_t take(struct rs_coordinator *coordinator)
{
    uint64_t counted = atomic_load_explicit(&coordinator->counted,
                                            memory_order_relaxed);

    while (starts_of(counted) >= RS_COORDINATOR_STARTS) {
        if (atomic_compare_exchange_weak_explicit(&coordinator->counted,
                                                  &counted, 0,
                                                  memory_order_relaxed,
                                                  memory_order_relaxed))
            return counted;
    }
    return 0;
}

bool rs_coordinator_update(struct rs_coordinator *coordinator)
{
    uint64_t counted, starts, mean;

    counted = atomic_load_explicit(&coordinator->counted, memory_order_relaxed);
    starts = starts_of(counted) +
             atomic_load_explicit(&coordinator->since, memory_order_relaxed);
    if (starts < RS_COORDINATOR_STARTS)
        return false;
    count(coordinator, rs_coordinator_now(coordinator));
    counted = take(coordinator);
    /* Who has taken starts out of `since` in the meantime counts them yet. */
    if (counted == 0)
        return false;
    starts = starts_of(counted);
    mean = (seen_of(counted) + starts / 2) / starts;
    if (mean == last_update(coordinator))
        return false;
    atomic_store_explicit(&coordinator->in_flight, mean, memory_order_relaxed);
    return true;
}

uint64_t rs_coordinator_in_flight(const struct rs_coordinator *coordinator,
                                  uint64_t puts)
{
    uint64_t others = last_update(coordinator);

    return puts > others ? puts : others;
}
