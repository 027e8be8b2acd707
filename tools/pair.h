/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes of this node, each on a core of its own, that exchange and
 * take the time. Both run the same program; what one of them must know of the
 * other goes through memory that they share.
 */
#ifndef RS_TOOLS_PAIR_H
#define RS_TOOLS_PAIR_H

#include <stdbool.h>
#include <stdint.h>

#include <rsched/exchange.h>

#include "librsched/base/numa.h"
#include "librsched/base/ways.h"

struct pair;

/** What each of the two does. */
typedef int pair_fn(struct pair *pair, void *arg);

/** Run `main` in this process and in a forked one, each on one of the two cores;
 * the forked one goes when it has returned, as when this one dies. Afterwards
 * this thread may use the cores again that it might use before.
 * @return the status of this one, or TOOL_FAILED if there cannot be two */
int pair_run(const struct rs_numa_pair *where, pair_fn *main, void *arg);

/** The same of two that share nothing that exchanges may use, as on two nodes, so
 * that devices are needed between them. This process is one of them from then on.
 * @param settings names and values, NULL behind them, that are in force in both */
int pair_run_strangers(const struct rs_numa_pair *where, const char *const *settings,
                       pair_fn *main, void *arg);

/** Whether this is the caller's process, that which prints. */
bool pair_is_first(const struct pair *pair);

/** The cores of the two. */
const struct rs_numa_pair *pair_where(const struct pair *pair);

/** Blocks are to be of one class of a line's round trip: "near" or "far", or
 * NULL for the one that there is now; or of "any". */
void pair_choose_class(struct pair *pair, const char *name);

/** The class, and the median one-way time of a line in its blocks, in ps. */
const char *pair_class(const struct pair *pair);
uint64_t pair_line(struct pair *pair);

/** Blocks in all, and those that did not keep to the class however often they
 * were repeated. */
void pair_blocks(const struct pair *pair, unsigned *all, unsigned *mixed);

enum { PAIR_MESSAGES = 16, PAIR_WINDOW = 16 };

/** What an epoch moves. Each message begins on a line of its own. */
struct pair_work {
    uint64_t bytes[PAIR_MESSAGES];
    bool self[PAIR_MESSAGES]; /* to the process itself */
    unsigned messages;
    bool mapped;  /* the buffers are of rsched_alloc() */
    bool huge;    /* the send buffers are put into huge pages */
    bool one_way; /* from side 0 to side 1 only */
    bool on_gpu;  /* the buffers are in the memory of these GPUs, side 0's first */
    int gpus[2];
    unsigned window; /* exchanges that are in flight together, at most
                        PAIR_WINDOW, each of these messages; 0 counts as 1 */
    bool reads;   /* what has come is read, which is timed too */
    bool updates; /* the ways of GPU memory are chosen again for what is in flight in
                     the first epochs, which do not count */
    bool settles; /* how slots are written, or whether lines are asked for in advance, is
                     tried out in the first epochs, and they do not count */
};

/** What it took. */
struct pair_time {
    bool huge; /* both sides have got the huge pages that were asked for */
    double ps; /* of an epoch of all of the window, of the slower side: the least
                  of the blocks, since other work on the machine only adds to it */
    uint64_t way_bytes[RSCHED_NUM_WAYS]; /* that side 0 has sent in one exchange of
                                            the window: in all epochs, or since the
                                            ways of GPU memory were updated. Of
                                            strangers, what each side has sent */
};

/** The costs that decide how messages in GPU memory go, from now on. */
void pair_set_gpu_ways(struct pair *pair, const struct rs_ways *ways);

/**
 * Time epochs, in a few blocks. Send buffers in host memory are written before
 * every second epoch, which is not timed: programs that write all that they send,
 * and those that write little of it, count alike.
 *
 * @param ways the costs that decide how messages in host memory go; NULL: they
 *             stay as they are
 * @return TOOL_OK, or a status after a line on standard error
 */
int pair_measure(struct pair *pair, const struct pair_work *work,
                 const struct rs_host_ways *ways, struct pair_time *time);

/**
 * Time what an exchange in one direction cannot be faster than: side 1 copies so many
 * bytes that side 0 writes before every second time, in memory that both have
 * mapped, or each side copies half of them.
 *
 * @param ps of the slower side, the least of the blocks
 * @return as pair_measure()
 */
int pair_measure_copies(struct pair *pair, uint64_t bytes, bool halves, double *ps);

/** Measure what both wait for once they have started an epoch of such work at a time.
 * @param ps the mean of both, the least of the blocks
 * @return as pair_measure() */
int pair_measure_wait(struct pair *pair, const struct pair_work *work, double *ps);

#endif
