/* SPDX-License-Identifier: BSD-3-Clause */
/* An exchange of contiguous buffers over a list of edges that all ranks know;
 * what must arrive follows from edge, epoch and tag. */
#ifndef TESTS_HALO_H
#define TESTS_HALO_H

#include <rsched/rsched.h>

#include "tests/runtime/ranks.h"

struct halo_edge {
    int from, to;
    uint64_t bytes; /* plus HALO_SHARED or HALO_OFFERED */
};

/* The buffers of the edge are of rsched_alloc(). */
#define HALO_SHARED (UINT64_C(1) << 63)
/* They are of malloc() and may be adopted. */
#define HALO_OFFERED (UINT64_C(1) << 62)

struct halo {
    const struct halo_edge *edges;
    int num_edges;
    uint64_t tag;
    struct rsched_pattern *pattern;
    struct rsched_exchange *x;
    /* The rank's own puts and receives: buffers, and which edges they are. */
    void **send, **receive;
    int *send_edges, *receive_edges;
    int num_send, num_receive;
};

/** Make a rank's part. @return 0 or an error of rsched_exchange_create() */
int halo_create(struct rank *self, const struct halo_edge *edges,
                int num_edges, uint64_t tag, unsigned flags,
                struct halo **halo);
void halo_destroy(struct halo *halo);

/** Free all buffers and bind the exchange to new ones. @return 0 or an error */
int halo_rebind(struct halo *halo);

/** Write what an epoch sends, and rubbish where it receives. */
void halo_fill(struct halo *halo, int epoch);
/** @return how many bytes are wrong */
uint64_t halo_wrong(const struct halo *halo, int epoch);

/** One epoch: fill, start, wait, compare. Aborts if bytes are wrong.
 * @return 0 or what start or wait returned */
int halo_step(struct halo *halo, int epoch);

#endif
