/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/prefetch.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engines/common/long_copy.h"
#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/log.h"

enum {
    LEAST = 16 << 10,     /* shorter ones are over before it tells */
    MOST_AHEAD = 1 << 20, /* longer ones do not stay in the caches */
    FIRST = 16,           /* epochs before the first trial: caches and pages are warm */
    LONG_FIRST = 4,
    WORTH_AHEAD = 16,     /* one in so many must be gained */
    WORTH_IN_TURN = 32,
};

/* Nothing is known. */
static void begin_trials(struct rs_prefetch *p)
{
    bool is_long = p->bytes > RS_PREFETCH_LONG;

    p->ahead = rs_copy_prefetch() == RS_PREFETCH_IN_TURN;
    p->run = is_long ? RS_PREFETCH_LONG_RUN : RS_PREFETCH_RUN;
    p->at = RS_PREFETCH_PERIOD - (is_long ? LONG_FIRST : FIRST);
    p->known[false] = p->known[true] = 0;
}

/* Once in a process. */
static void __attribute__((cold)) say_that_there_is_none(void)
{
    static atomic_flag was_said = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&was_said))
        rs_log(RS_LOG_WARN, "RSCHED_PREFETCH: this processor has no such way; lists are copied "
                            "one block after the other");
}

void rs_prefetch_load(struct rs_prefetch *p, const struct rs_copies *list)
{
    const struct rs_config *c = rs_config();
    struct rs_parts parts = {.begin = {0}};
    uint64_t bytes;
    enum rs_copy_prefetch how = rs_copy_prefetch();
    bool possible = how != RS_PREFETCH_NONE && rs_copies_are_long(list, &bytes);
    bool tried = possible && c->prefetch == RS_CONFIG_PREFETCH_AUTO &&
                 c->trials != RS_CONFIG_TRIALS_NO && rs_copy_prefetch_gains() &&
                 bytes >= LEAST && (how == RS_PREFETCH_IN_TURN || bytes <= MOST_AHEAD);

    if (how == RS_PREFETCH_NONE && c->prefetch == RS_CONFIG_PREFETCH_YES)
        say_that_there_is_none();
    if (possible && how == RS_PREFETCH_IN_TURN)
        rs_copies_divide(list, bytes, &parts);
    if (tried && p->tried && bytes == p->bytes) {
        p->parts = parts;
        return;
    }
    *p = (struct rs_prefetch){
        .parts = parts,
        .bytes = possible ? bytes : 0,
        .ahead = possible && c->prefetch == RS_CONFIG_PREFETCH_YES,
        .tried = tried,
        .nontemporal = list->nontemporal,
    };
    if (tried)
        begin_trials(p);
}

void rs_prefetch_load_own(struct rs_prefetch *p, const struct rs_copies *list)
{
    if (rs_copy_prefetch() == RS_PREFETCH_IN_TURN)
        rs_prefetch_load(p, list);
    else
        *p = (struct rs_prefetch){.bytes = 0};
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *ps, uint32_t number)
{
    qsort(ps, number, sizeof(*ps), compare);
    return ps[number / 2];
}

/* Of each way, in a trial. */
static uint32_t samples(const struct rs_prefetch *p)
{
    return RS_PREFETCH_RUNS / 2 * (p->run - 1);
}

static void __attribute__((noinline)) decide(struct rs_prefetch *p)
{
    uint64_t plain = median(p->ps[false], samples(p));
    uint64_t ahead = median(p->ps[true], samples(p));

    if (rs_copy_prefetch() == RS_PREFETCH_IN_TURN)
        p->ahead = p->ahead ? ahead < plain + plain / WORTH_IN_TURN
                            : ahead < plain - plain / WORTH_IN_TURN;
    else
        p->ahead = p->ahead ? ahead < plain : ahead < plain - plain / WORTH_AHEAD;
    p->known[false] = p->known[true] = 0;
}

void rs_prefetch_took(struct rs_prefetch *p, bool ahead, uint64_t ps)
{
    assert(p->known[ahead] < samples(p));
    p->ps[ahead][p->known[ahead]++] = ps;
    if (p->known[false] == samples(p) && p->known[true] == samples(p))
        decide(p);
}

uint64_t rs_prefetch_run(struct rs_prefetch *p, const struct rs_copies *list, bool measured,
                         uint64_t *nontemporal)
{
    bool ahead, timed = false;
    uint64_t begin = 0;

    if (p->bytes == 0 || (list->nontemporal && rs_copy_prefetch() == RS_PREFETCH_AHEAD)) {
        *nontemporal += rs_copies_run_pair(list);
        return 0;
    }
    if (p->tried && p->nontemporal != list->nontemporal) {
        p->nontemporal = list->nontemporal;
        begin_trials(p);
    }
    ahead = p->ahead;
    if (p->tried && !measured) {
        if (p->at == RS_PREFETCH_PERIOD)
            p->at = 0;
        if (p->at < RS_PREFETCH_RUNS * p->run) {
            ahead = p->at / p->run % 2 != 0;
            timed = p->at % p->run != 0;
        }
        p->at++;
    }
    if (timed)
        begin = rs_clock_now();
    if (!ahead)
        *nontemporal += rs_copies_run_pair(list);
    else if (rs_copy_prefetch() == RS_PREFETCH_AHEAD)
        rs_copies_run_ahead(list);
    else
        *nontemporal += rs_copies_run_in_turn(list, &p->parts);
    if (timed) {
        atomic_thread_fence(memory_order_seq_cst); /* stores wait in the processor */
        rs_prefetch_took(p, ahead, rs_clock_now() - begin);
    }
    return ahead ? p->bytes : 0;
}

/* Whether the blocks of so many bytes in all are long on average: chunks end within blocks, so
 * some are short. */
static bool has_long_blocks(const struct rs_copies *list, uint64_t bytes)
{
    uint64_t most = bytes / RS_COPY_AHEAD, blocks = 0;

    if (list->num_copies > most)
        return false;
    for (uint32_t i = 0; i < list->num_copies; i++)
        blocks += list->copies[i].count;
    return blocks <= most;
}

static bool chunks_go_in_turn(uint64_t bytes)
{
    const struct rs_config *c = rs_config();

    if (rs_copy_prefetch() != RS_PREFETCH_IN_TURN || c->prefetch == RS_CONFIG_PREFETCH_NO)
        return false;
    return c->prefetch == RS_CONFIG_PREFETCH_YES ||
           (c->trials != RS_CONFIG_TRIALS_NO && rs_copy_prefetch_gains() && bytes >= LEAST);
}

static struct rs_copies chunk_of(const struct rs_copies *list, uint32_t number)
{
    const struct rs_chunk *chunk = &list->chunks[number];

    return (struct rs_copies){.copies = list->copies + chunk->first,
                              .num_copies = chunk->end - chunk->first,
                              .nontemporal = list->nontemporal};
}

static bool make_room(struct rs_prefetch_chunks *chunks, uint32_t wanted)
{
    if (chunks->room < wanted) {
        rs_prefetch_fini_chunks(chunks);
        chunks->parts = malloc(wanted * sizeof(*chunks->parts));
        chunks->room = chunks->parts != NULL ? wanted : 0;
    }
    return chunks->room >= wanted;
}

void rs_prefetch_load_chunks(struct rs_prefetch_chunks *chunks, const struct rs_copies *list)
{
    if (rs_copy_prefetch() != RS_PREFETCH_IN_TURN || !make_room(chunks, list->num_chunks))
        return;
    for (uint32_t i = 0; i < list->num_chunks; i++) {
        struct rs_copies part = chunk_of(list, i);
        uint64_t bytes = list->chunks[i].bytes;

        chunks->parts[i] = (struct rs_parts){.begin = {0}};
        if (chunks_go_in_turn(bytes) && has_long_blocks(&part, bytes))
            rs_copies_divide(&part, bytes, &chunks->parts[i]);
    }
}

void rs_prefetch_fini_chunks(struct rs_prefetch_chunks *chunks)
{
    free(chunks->parts);
    *chunks = (struct rs_prefetch_chunks){.room = 0};
}

uint64_t rs_prefetch_run_chunk(const struct rs_prefetch_chunks *chunks,
                               const struct rs_copies *list, uint32_t number,
                               uint64_t *nontemporal)
{
    struct rs_copies part;

    if (number >= chunks->room || chunks->parts[number].begin[RS_COPY_PARTS] == 0) {
        *nontemporal += rs_copies_run_chunk(list, &list->chunks[number]);
        return 0;
    }
    part = chunk_of(list, number);
    *nontemporal += rs_copies_run_in_turn(&part, &chunks->parts[number]);
    return list->chunks[number].bytes;
}
