/* SPDX-License-Identifier: BSD-3-Clause */
/* What `rsched probe` measures of RDMA devices: between two processes of this machine
 * that use nothing else, so that what the one writes leaves the device and comes back. */
#ifndef RS_TOOLS_PROBE_VERBS_H
#define RS_TOOLS_PROBE_VERBS_H

#include "tools/probe.h"

/* What the ways cost over the devices. It lies in memory that processes share. */
struct probe_verbs {
    struct rs_numa_pair cores;
    unsigned rounds;
    uint64_t longest;
    char rail[96];    /* that all goes over: the first one */
    char reason[512]; /* why there is none */
    uint64_t word;    /* what both wait for where one is written a word, ps */
    struct probe_way of[RS_NUM_VERBS_WAYS];
    struct rs_way_costs costs[RS_NUM_VERBS_WAYS]; /* fitted */
};

/** Whether there is a device; if not, `reason` says why. */
bool probe_verbs_find(struct probe_verbs *probe);

/** Measure both ways and fit them, in processes of their own: messages up to
 * `longest`, one both ways (L, o and O) and several at once in one direction (g and
 * G). @return TOOL_OK or a status */
int probe_verbs_measure(struct probe_verbs *probe);

/** A table of the parameters. */
void probe_verbs_print(const struct probe_verbs *probe, FILE *out);

#endif
