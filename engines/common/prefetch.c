/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/prefetch.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engines/common/long_copy.h"
#include "librsched/base/clock.h"
#include "librsched/base/config.h"

enum {
    /* Shorter ones are over before it tells, longer ones do not stay in the caches. */
    LEAST = 16 << 10,
    MOST = 1 << 20,
    TRIED = RS_PREFETCH_RUNS * RS_PREFETCH_RUN,
    FIRST = 16, /* epochs before the first trial: caches and pages are warm */
    WORTH = 16, /* one in so many must be gained */
};

void rs_prefetch_load(struct rs_prefetch *p, const struct rs_copies *list)
{
    const struct rs_config *c = rs_config();
    uint64_t bytes;
    bool possible = rs_copy_asks_ahead() && rs_copies_are_long(list, &bytes);
    bool tried = possible && c->prefetch == RS_CONFIG_PREFETCH_AUTO &&
                 c->trials != RS_CONFIG_TRIALS_NO && rs_copy_gains_ahead() &&
                 bytes >= LEAST && bytes <= MOST;

    if (tried && p->tried && bytes == p->bytes)
        return;
    *p = (struct rs_prefetch){
        .bytes = possible ? bytes : 0,
        .ahead = possible && c->prefetch == RS_CONFIG_PREFETCH_YES,
        .tried = tried,
        .at = RS_PREFETCH_PERIOD - FIRST,
    };
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *ps)
{
    qsort(ps, RS_PREFETCH_SAMPLES, sizeof(*ps), compare);
    return ps[RS_PREFETCH_SAMPLES / 2];
}

static void __attribute__((noinline)) decide(struct rs_prefetch *p)
{
    uint64_t plain = median(p->ps[false]), ahead = median(p->ps[true]);

    p->ahead = ahead < (p->ahead ? plain : plain - plain / WORTH);
    p->known[false] = p->known[true] = 0;
}

void rs_prefetch_took(struct rs_prefetch *p, bool ahead, uint64_t ps)
{
    assert(p->known[ahead] < RS_PREFETCH_SAMPLES);
    p->ps[ahead][p->known[ahead]++] = ps;
    if (p->known[false] == RS_PREFETCH_SAMPLES && p->known[true] == RS_PREFETCH_SAMPLES)
        decide(p);
}

uint64_t rs_prefetch_run(struct rs_prefetch *p, const struct rs_copies *list, bool measured,
                         uint64_t *nontemporal)
{
    bool ahead = p->ahead, timed = false;
    uint64_t begin = 0;

    if (p->bytes == 0 || list->nontemporal) {
        *nontemporal += rs_copies_run_pair(list);
        return 0;
    }
    if (p->tried && !measured) {
        if (p->at == RS_PREFETCH_PERIOD)
            p->at = 0;
        if (p->at < TRIED) {
            ahead = p->at / RS_PREFETCH_RUN % 2 != 0;
            timed = p->at % RS_PREFETCH_RUN != 0;
        }
        p->at++;
    }
    if (timed)
        begin = rs_clock_now();
    if (ahead)
        rs_copies_run_ahead(list);
    else
        rs_copies_run_pair(list);
    if (timed) {
        atomic_thread_fence(memory_order_seq_cst); /* stores wait in the processor */
        rs_prefetch_took(p, ahead, rs_clock_now() - begin);
    }
    return ahead ? p->bytes : 0;
}
