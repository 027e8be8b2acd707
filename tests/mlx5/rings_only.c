/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For programs that know nothing of it: ranks of one process reach each other over
 * the engine that is linked with this, and all their openings have to be by rings;
 * or, if RINGS_REASON is set, by the proxy, for a reason that has this text in it.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/device_open.h>
#include <rsched/engine.h>

#include "tests/conformance/node.h"

const struct rsched_engine_ops *__real_rsched_engine_at(size_t index);
const struct rsched_engine_ops *__wrap_rsched_engine_at(size_t index);
int __real_rsched_exchange_open_rings(struct rsched_exchange *const sets[2],
                                      int gpu, struct rsched_opening **opening);
int __wrap_rsched_exchange_open_rings(struct rsched_exchange *const sets[2],
                                      int gpu, struct rsched_opening **opening);

enum { MOST_PROCESSES = 16 };

static atomic_uint opened;

/* Before loopback, which is the first one elsewhere. */
const struct rsched_engine_ops *__wrap_rsched_engine_at(size_t index)
{
    return index < 2 ? (index == 0 ? node_engine_at(0)
                                   : __real_rsched_engine_at(0))
                     : NULL;
}

static void __attribute__((destructor)) check_at_exit(void)
{
    if (atomic_load(&opened) > 0)
        return;
    fprintf(stderr, "nothing was opened as it should\n");
    _Exit(1);
}

static void check_reasons(const struct rsched_opening *opening,
                          const char *expected)
{
    for (int process = 0; process < MOST_PROCESSES; process++) {
        const char *reason = rsched_opening_reason(opening, process);

        if (reason != NULL && strstr(reason, expected) == NULL) {
            fprintf(stderr, "no ring to %d: %s\n", process, reason);
            abort();
        }
    }
}

int __wrap_rsched_exchange_open_rings(struct rsched_exchange *const sets[2],
                                      int gpu, struct rsched_opening **opening)
{
    const char *reason = getenv("RINGS_REASON");
    struct rsched_opening_stats stats;
    int error = __real_rsched_exchange_open_rings(sets, gpu, opening);

    if (error != 0)
        return error;
    rsched_opening_get_stats(*opening, &stats);
    check_reasons(*opening, reason != NULL ? reason : "none is allowed");
    if ((reason != NULL ? stats.rings : stats.proxied) > 0) {
        fprintf(stderr, "%u neighbors by rings, %u by the proxy\n", stats.rings,
                stats.proxied);
        abort();
    }
    atomic_fetch_add(&opened, stats.rings + stats.proxied);
    return 0;
}
