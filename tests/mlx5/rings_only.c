/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs that know nothing of it: ranks of one process reach each other over
 * the engine that is linked with this, and all their openings have to be by rings. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <rsched/device_open.h>
#include <rsched/engine.h>

#include "tests/conformance/node.h"

const struct rsched_engine_ops *__real_rsched_engine_at(size_t index);
const struct rsched_engine_ops *__wrap_rsched_engine_at(size_t index);
int __real_rsched_exchange_open_rings(struct rsched_exchange *const sets[2],
                                      int gpu, struct rsched_opening **opening);
int __wrap_rsched_exchange_open_rings(struct rsched_exchange *const sets[2],
                                      int gpu, struct rsched_opening **opening);

static atomic_uint rings;

/* Before loopback, which is the first one elsewhere. */
const struct rsched_engine_ops *__wrap_rsched_engine_at(size_t index)
{
    return index < 2 ? (index == 0 ? node_engine_at(0)
                                   : __real_rsched_engine_at(0))
                     : NULL;
}

static void __attribute__((destructor)) check_at_exit(void)
{
    if (atomic_load(&rings) > 0)
        return;
    fprintf(stderr, "nothing was opened by rings\n");
    _Exit(1);
}

int __wrap_rsched_exchange_open_rings(struct rsched_exchange *const sets[2],
                                      int gpu, struct rsched_opening **opening)
{
    struct rsched_opening_stats stats;
    int error = __real_rsched_exchange_open_rings(sets, gpu, opening);

    if (error != 0)
        return error;
    rsched_opening_get_stats(*opening, &stats);
    if (stats.proxied > 0) {
        fprintf(stderr, "%u neighbors by the proxy\n", stats.proxied);
        abort();
    }
    atomic_fetch_add(&rings, stats.rings);
    return 0;
}
