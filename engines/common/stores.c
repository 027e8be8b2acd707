/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/stores.h"

#include <assert.h>

#include "engines/common/copy.h"
#include "librsched/base/config.h"

static_assert(RS_TRIAL_SET(RS_TRIAL_NONTEMPORAL | RS_TRIAL_ONCE) ==
                  RS_TRIAL_SET(RS_TRIAL_NONTEMPORAL) << RS_TRIAL_ONCE,
              "a set of ways in two copies, shifted, is that in one");

unsigned rs_stores_ways(uint64_t bytes)
{
    const unsigned ordinary = RS_TRIAL_SET(0);
    const unsigned nontemporal = RS_TRIAL_SET(RS_TRIAL_NONTEMPORAL);
    const struct rs_config *c = rs_config();

    if (!RS_HAS_NONTEMPORAL || bytes < RS_STORES_LEAST ||
        c->slot_stores == RS_CONFIG_STORES_ORDINARY)
        return ordinary;
    if (c->slot_stores == RS_CONFIG_STORES_NONTEMPORAL)
        return nontemporal;
    return c->trials == RS_CONFIG_TRIALS_NO ? ordinary : ordinary | nontemporal;
}
