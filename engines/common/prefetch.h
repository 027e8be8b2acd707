/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PREFETCH: whether the blocks of a message that is copied once, straight out of another
 * process's memory, are copied in a way that has more of its lines under way at a time than
 * one after the other. The lines are in the cache of the other core, which has just written
 * them, and what fetches them unasked stays some twenty lines ahead within a page.
 *
 * RS_PREFETCH_AHEAD, on processors of Intel: lines are asked for in advance
 * (rs_copy_ahead()). Two threads of a Xeon (Sapphire Rapids) that both copy what the other
 * one has just written; of the time of `rep movsb`:
 *
 *   bytes                               16 KiB  32 KiB  64 KiB  128 KiB  384 KiB  1 MiB  3 MiB
 *   a line takes 0.12 to 0.25 us         0.95    0.9     0.85    0.88     0.88     0.93   1
 *   cores that share caches (0.05 us)    1.0             1.14    1.16     1.16
 *
 * RS_PREFETCH_IN_TURN, on those of AMD: a line of each of three parts of the list in turn
 * (rs_copy_in_turn()), since that many streams are fetched ahead of. Two threads of a Zen 3
 * (EPYC 7003), of the time of memcpy:
 *
 *   bytes                               16 KiB  32 KiB  64 KiB  142 KiB  256 KiB  1 MiB  4 MiB
 *   a line takes 0.40 to 0.47 us         0.88            0.75    0.72     0.72            0.79
 *   near cores (0.06 to 0.12 us)         0.96    0.96    1.0     0.93     0.94    0.92
 *
 * and of that of non-temporal stores one after the other, 32 MiB: 0.78 and 0.9, where the
 * source's lines are asked for 512 bytes in advance besides. What a process copies within
 * itself gains a twentieth to a tenth by that, too.
 *
 * So it is tried out, by the receiver alone, who times nothing but its own copy: of each
 * RS_PREFETCH_PERIOD epochs RS_PREFETCH_RUNS runs of RS_PREFETCH_RUN (RS_PREFETCH_LONG_RUN
 * of more than RS_PREFETCH_LONG bytes) go the two ways by turns. The others go ahead once
 * the median of that is a sixteenth less, until it is no longer less. They go in turn, which
 * between the cores above was never slower alone, from the beginning on, until the median of that
 * is a thirty-second more, and again once it is a thirty-second less. That costs about a
 * thousandth, and two processes that send each other the same mostly try at the same time.
 * (A trial of trial.h has two epochs of each way, of which the best count, so that it is
 * over soon: too few for ways that differ by a tenth.)
 *
 * RSCHED_PREFETCH says what is done instead. By RS_PREFETCH_AHEAD what two processes copy
 * together is copied one after the other, and so is what goes past the caches, and what is the
 * process's own.
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
    RS_PREFETCH_LONG = 1 << 20,
    RS_PREFETCH_LONG_RUN = 3,
    RS_PREFETCH_SAMPLES = RS_PREFETCH_RUNS / 2 * (RS_PREFETCH_RUN - 1),
};

/* Of a list of pairs. Zero it to initialise. */
struct rs_prefetch {
    uint64_t bytes; /* of the list, if it can be copied so; else 0 */
    bool ahead;     /* it is, where nothing is tried out */
    bool tried;     /* that is tried out */
    bool nontemporal; /* what is known is of stores past the caches */
    struct rs_parts parts; /* of it, for RS_PREFETCH_IN_TURN */
    uint32_t run;   /* epochs of a run of a trial */
    uint32_t at;    /* epochs of a period that are over */
    uint32_t known[2]; /* samples, plain and ahead, */
    uint64_t ps[2][RS_PREFETCH_SAMPLES];
};

/** A list has been made. What is known is kept if it has as many bytes as the one before, of
 * whatever blocks: the next trial finds out. It is forgotten when the list goes past the caches,
 * or does so no more. */
void rs_prefetch_load(struct rs_prefetch *p, const struct rs_copies *list);

/** The same of a list whose source is the process's own memory. */
void rs_prefetch_load_own(struct rs_prefetch *p, const struct rs_copies *list);

/** The list cannot be made, and is not what was loaded. */
static inline void rs_prefetch_drop(struct rs_prefetch *p)
{
    p->bytes = 0;
}

/** Run the list that was loaded, as it has been decided if somebody else measures this
 * epoch (`measured`). @return the bytes that were copied in the new way */
uint64_t rs_prefetch_run(struct rs_prefetch *p, const struct rs_copies *list, bool measured,
                         uint64_t *nontemporal /* these are added */);

/* Of the chunks of a list of pairs that two processes copy together. Zero it to initialise. A
 * chunk goes in turn, if that is the processor's way, from 16 KiB on and if its blocks have 2 KiB
 * or more on average; else as it comes. Nothing is tried out, since neither knows what the other
 * has copied in which way. To divide it anew in each epoch took, of a copy within the caches of a
 * Zen 3, 10 to 17 % for 16 KiB, 3 % for 64 KiB, 0.3 % for 1 MiB, and 4 to 7 % for 64 KiB to 1 MiB of
 * 2 KiB blocks that have a copy each. */
struct rs_prefetch_chunks {
    struct rs_parts *parts; /* of each chunk; those of one that goes as it comes are 0 */
    uint32_t room;
};

/** A list has been made. Without memory its chunks go as they come. */
void rs_prefetch_load_chunks(struct rs_prefetch_chunks *chunks, const struct rs_copies *list);

void rs_prefetch_fini_chunks(struct rs_prefetch_chunks *chunks);

/** Run one chunk of the list that was loaded.
 * @return the bytes that were copied in turn: all or none */
uint64_t rs_prefetch_run_chunk(const struct rs_prefetch_chunks *chunks,
                               const struct rs_copies *list, uint32_t number,
                               uint64_t *nontemporal /* these are added */);

/** Of a run that is timed: how long it took. For tests, too. */
void rs_prefetch_took(struct rs_prefetch *p, bool ahead, uint64_t ps);

#endif
