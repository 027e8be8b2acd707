/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * QUOTA: how much time of the cores the system lets a process have, and with whom it
 * shares that.
 *
 * Containers are often given a quota of processor time, and not a set of cores (`docker
 * run --cpus`, Kubernetes' limits): they may use all cores, until in a period of a tenth of a
 * second or so the quota is used up, and then all their processes stand still until the next
 * one. Who polls uses it up like who computes.
 */
#ifndef RS_BASE_QUOTA_H
#define RS_BASE_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "librsched/base/cpus.h"

enum { RS_QUOTAS = 4 };

/* Of a group of processes together: a cgroup's. */
struct rs_quota {
    uint64_t group; /* the same number wherever on the machine it is asked for, and no
                       other group's; 0: no quota */
    uint64_t cores; /* time of so many, rounded down: as many processes may poll */
};

/* Those of the groups that a process is in, or of some of them; the rest is zero. */
struct rs_quotas {
    struct rs_quota of[RS_QUOTAS];
};

/* What a process may use. */
struct rs_allowance {
    struct rs_cpus cpus; /* empty: nobody knows */
    struct rs_quotas quotas;
};
static_assert(sizeof(struct rs_allowance) % sizeof(uint64_t) == 0, "words");

/** Of the calling process, as of now, as far as it can see: those of cgroups of either
 * version that its mounts and its namespace show. None is found where they cannot be read. */
void rs_quotas_find(struct rs_quotas *quotas);

/** Of the calling thread. */
void rs_allowance_find(struct rs_allowance *a);

static inline bool rs_quotas_include(const struct rs_quotas *quotas, uint64_t group)
{
    for (int i = 0; i < RS_QUOTAS; i++) {
        if (quotas->of[i].group == group)
            return true;
    }
    return false;
}

#endif
