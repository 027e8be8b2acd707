/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PREFETCH: whether the lines of a message that is copied once, straight out of another
 * process's memory, are asked for in advance (rs_copy_ahead()).
 *
 * The lines are in the cache of the other core, which has just written them, and what fetches
 * them unasked stays some twenty lines ahead within a page. Two threads of a Xeon (Sapphire Rapids)
 * that both copy what the other one has just written; of the time of `rep movsb`:
 *
 *   bytes                               16 KiB  32 KiB  64 KiB  128 KiB  384 KiB  1 MiB  3 MiB
 *   a line takes 0.12 to 0.25 us         0.95    0.9     0.85    0.88     0.88     0.93   1
 *   cores that share caches (0.05 us)    1.0             1.14    1.16     1.16
 *
 * So it is tried out, by the receiver alone, who times nothing but its own copy: of each
 * RS_PREFETCH_PERIOD epochs RS_PREFETCH_RUNS runs of RS_PREFETCH_RUN go the two ways by turns, and
 * lines are asked for in the others if the median of that is a sixteenth less, and until it is no
 * longer less. That costs about a thousandth, and two processes that send each other the same
 * mostly try at the same time. (A trial of trial.h has two epochs of each way, of which the best count, so
 * that it is over soon: too few for ways that differ by a tenth.)
 *
 * On processors of AMD it has not been measured, and is done on request only
 * (RSCHED_PREFETCH=yes). Nothing is asked for in advance where rs_copy_asks_ahead() says so, what
 * two processes copy together, what goes past the caches, and what is the process's own.
 */
#ifndef RS_COMMON_PREFETCH_H
#define RS_COMMON_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "engines/common/copy.h"

enum {
    RS_PREFETCH_PERIOD = 2048,
    RS_PREFETCH_RUNS = 4,
    RS_PREFETCH_RUN = 8, /* the first of which is not timed */
    RS_PREFETCH_SAMPLES = RS_PREFETCH_RUNS / 2 * (RS_PREFETCH_RUN - 1),
};

/* Of a list of pairs. Zero it to initialise. */
struct rs_prefetch {
    uint64_t bytes; /* of the list, if it can be asked for in advance; else 0 */
    bool ahead;     /* it is, where nothing is tried out */
    bool tried;     /* that is tried out */
    uint32_t at;    /* epochs of a period that are over */
    uint32_t known[2]; /* samples, plain and ahead, */
    uint64_t ps[2][RS_PREFETCH_SAMPLES];
};

/** A list has been made. What is known is kept if it has as many bytes as the one before, of
 * whatever blocks: the next trial finds out. */
void rs_prefetch_load(struct rs_prefetch *p, const struct rs_copies *list);

/** Run the list that was loaded, as it has been decided if somebody else measures this
 * epoch (`measured`). @return the bytes that were asked for in advance */
uint64_t rs_prefetch_run(struct rs_prefetch *p, const struct rs_copies *list, bool measured,
                         uint64_t *nontemporal /* these are added */);

/** Of a run that is timed: how long it took. For tests, too. */
void rs_prefetch_took(struct rs_prefetch *p, bool ahead, uint64_t ps);

#endif
