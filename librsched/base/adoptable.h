/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What of ordinary memory may be adopted (docs/adopted.md). What is known of the process
 * as a whole, its descriptors, its mappings and what was offered, is looked at once for
 * many pieces: each of these takes longer than to adopt a few pages.
 */
#ifndef RS_BASE_ADOPTABLE_H
#define RS_BASE_ADOPTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rsched/memory.h>

struct rs_range {
    uintptr_t low, high;
};

struct rs_adoptable {
    struct rs_offer *offers; /* with a byte of what is looked at */
    size_t num_offers;
    struct rs_range *plain; /* mappings that may be adopted, in order */
    size_t num_plain, room;
    enum rsched_adoption process; /* adopted, or why nothing is */
};

/** Look at [low, high). @return false: no memory for that, or no /proc */
bool rs_adoptable_look(struct rs_adoptable *a, const char *low, const char *high);
void rs_adoptable_fini(struct rs_adoptable *a);

/** Whether these whole pages may be adopted: adopted, or why not. */
enum rsched_adoption rs_adoptable_is(const struct rs_adoptable *a, char *low, char *high);

#endif
