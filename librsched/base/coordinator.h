/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * COORDINATOR: which way a put takes of which an end lies in GPU memory.
 *
 * It takes the cheapest of the ways that are possible, by the costs of ways.h
 * at the distance of the two ends. Of n puts of B bytes that are in flight
 * together, the last one is done after
 *
 *     L + S + o + O(B) + (n - 1) (g + G(B))
 *
 * n = 1 is what a latency benchmark measures, a large n what a bandwidth
 * benchmark does; the cheapest ways differ (Zhang et al.: C-GDR, IPDPS 2019,
 * table III, which the machine `cgdr-k80-edr` reproduces). C-GDR counts
 * blocking and nonblocking calls to tell which of the two a program is like.
 * A persistent pattern says it beforehand: all its puts are in flight at once.
 *
 * What a pattern does not know is what else the process has in flight. That is
 * counted, and looked at in an update only: between updates each put keeps its
 * way, so a start decides nothing.
 *
 * Thread-safety: the functions of the ways look at what does not change; updates
 * are called with the lock of whoever owns the coordinator. All else may be
 * called by any thread at any time.
 */
#ifndef RS_BASE_COORDINATOR_H
#define RS_BASE_COORDINATOR_H

#include <stdatomic.h>

#include "librsched/base/ways.h"

/* A put as the coordinator sees it. */
struct rs_gpu_put {
    uint64_t bytes;
    enum rs_distance distance;
    uint32_t possible; /* RS_WAY_BIT of each way that could move it */
};

/* The ways of GPU memory as sets. */
#define RS_WAY_BIT(way) (UINT32_C(1) << (way))
#define RS_GPU_WAYS (RS_WAY_BIT(RS_NUM_WAYS) - RS_WAY_BIT(RS_NUM_HOST_WAYS))

/** The costs of a way of GPU memory. */
const struct rs_way_costs *rs_gpu_way_costs(const struct rs_ways *ways,
                                            enum rs_way way,
                                            enum rs_distance distance);

/** The time of `in_flight` puts by the formula above, in ps; UINT64_MAX if it
 * is more. */
uint64_t rs_gpu_way_time(const struct rs_way_costs *costs, uint64_t bytes,
                         uint64_t in_flight);

/**
 * The cheapest possible way; of equally cheap ones the first in enum rs_way.
 * If there are no costs for any possible way: CUDA IPC, which copies once, else
 * staged, else loopback, else GDRCopy.
 *
 * @param in_flight puts of this size that are on their way together, itself
 *                  included; 0 counts as 1
 * @return RS_WAY_STAGED also if nothing is possible
 */
enum rs_way rs_gpu_way(const struct rs_ways *ways, const struct rs_gpu_put *put,
                       uint64_t in_flight);

/** The way of a put that goes the way `now`: another one must gain a thirty-second,
 * so that a put does not go to and fro. A way that is not possible any more is
 * left at once. */
enum rs_way rs_gpu_way_again(const struct rs_ways *ways,
                             const struct rs_gpu_put *put, uint64_t in_flight,
                             enum rs_way now);

/**
 * From which size on which way is the cheapest, of puts of equal size.
 *
 * @param list room for RS_WAY_SWITCHES; the first one begins at 1 byte
 * @return how many there are
 */
size_t rs_gpu_way_switches(const struct rs_ways *ways,
                           enum rs_distance distance, uint32_t possible,
                           uint64_t in_flight, struct rs_way_switch *list);

/* How many puts were in flight: counters of one process. */
struct rs_coordinator {
    _Atomic uint64_t now;       /* in flight */
    _Atomic uint64_t since;     /* starts since an epoch has ended */
    /* Those before, since the last update, in the upper bits; in the lower 40 the
     * puts in flight with each of them, added up. One word, since an update must
     * not have one without the other. */
    _Atomic uint64_t counted;
    _Atomic uint64_t in_flight; /* of the last update; 0: there was none */
};

/** What counters must have seen before an update believes them. */
enum { RS_COORDINATOR_STARTS = 16 };

void rs_coordinator_init(struct rs_coordinator *coordinator);

/** An epoch has started that has so many puts in GPU memory. */
void rs_coordinator_started(struct rs_coordinator *coordinator, uint64_t puts);

/** It is complete, or given up. */
void rs_coordinator_ended(struct rs_coordinator *coordinator, uint64_t puts);

/** What is in flight just now. */
uint64_t rs_coordinator_now(const struct rs_coordinator *coordinator);

/**
 * Take over what was counted since the last update: the mean over the starts of the
 * puts that were in flight when an epoch ended next, rounded. So of n that are
 * started together each has n, and of n of which each is started when another one
 * has ended. After fewer than RS_COORDINATOR_STARTS
 * starts nothing changes, and counting goes on; also where another thread is about to
 * count the last of them. Of millions of starts the later ones count more.
 *
 * @return whether the number is another one than before
 */
bool rs_coordinator_update(struct rs_coordinator *coordinator);

/** How many puts are in flight with one of a pattern that has `puts` of them:
 * these, or what the last update has found if that is more. */
uint64_t rs_coordinator_in_flight(const struct rs_coordinator *coordinator,
                                  uint64_t puts);

#endif
