/* SPDX-License-Identifier: BSD-3-Clause */
/* Cohorts: lanes that receive from others, and whose requests were made with no start in
 * between. They are used in turn, most likely, and those of other cohorts are not meanwhile.
 * So the lanes of one together are to have as many bytes of slots as gain something; and
 * those of all, of few such. What comes from the process itself is in its cache in any case,
 * and belongs to none. */
#include "mpi/persistent.h"

#include <stdlib.h>

struct rs_cohort {
    unsigned lanes;  /* that have requests */
    unsigned placed; /* of these, which have slots for their messages, and not just for
                        announcements */
    uint64_t bytes;  /* of all slots */
};

enum { COHORTS = 4 }; /* that may have as many slots as they are to have */

bool rs_cohort_started;
static struct rs_cohort *cohort; /* the last one, or NULL */
static uint64_t slot_bytes;      /* of all */

uint64_t rs_lanes_slot_bytes(void)
{
    return slot_bytes;
}

void rs_cohort_join(struct rs_lane *lane)
{
    const struct rs_pair *pair = lane->pair;

    if (pair->view.sends || pair->world == rs_process.rank)
        return;
    if (rs_cohort_started)
        cohort = NULL;
    rs_cohort_started = false;
    if (cohort == NULL)
        cohort = calloc(1, sizeof(*cohort));
    lane->cohort = cohort;
    if (cohort == NULL)
        return;
    cohort->lanes++;
    cohort->placed += lane->placed;
    cohort->bytes += lane->slots_bytes;
    slot_bytes += lane->slots_bytes;
}

void rs_cohort_leave(struct rs_lane *lane)
{
    struct rs_cohort *of = lane->cohort;

    lane->cohort = NULL;
    if (of == NULL)
        return;
    of->placed -= lane->placed;
    of->bytes -= lane->slots_bytes;
    slot_bytes -= lane->slots_bytes;
    if (--of->lanes > 0)
        return;
    if (of == cohort)
        cohort = NULL;
    free(of);
}

void rs_cohort_place(struct rs_lane *lane, bool placed, uint64_t bytes)
{
    if (lane->cohort != NULL) {
        lane->cohort->placed += placed - lane->placed;
        lane->cohort->bytes += bytes - lane->slots_bytes;
        slot_bytes += bytes - lane->slots_bytes;
    }
    lane->placed = placed;
    lane->slots_bytes = bytes;
}

/* (docs/onecopy.md, *How many slots*) */
uint64_t rs_cohort_share(const struct rs_lane *lane)
{
    const struct rs_cohort *of = lane->cohort;
    uint64_t share = rsched_slots_bytes(), all = COHORTS * share;
    uint64_t taken = slot_bytes - lane->slots_bytes;
    unsigned lanes;

    if (of == NULL || taken >= all || of->bytes - lane->slots_bytes >= share)
        return 0;
    lanes = of->lanes - of->placed + lane->placed;
    share -= of->bytes - lane->slots_bytes;
    if (share > all - taken)
        share = all - taken;
    return share / (lanes > 0 ? lanes : 1);
}
