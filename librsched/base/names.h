/* SPDX-License-Identifier: BSD-3-Clause */
/* A set of names, numbered 0, 1, ... in the order in which they were added. */
#ifndef RS_BASE_NAMES_H
#define RS_BASE_NAMES_H

#include <stddef.h>
#include <stdint.h>

struct rs_names {
    char **text; /* by number; each stays at its address until fini */
    size_t count;
    size_t capacity;
    uint32_t *slots; /* open addressing: number + 1, or 0 for free */
    size_t num_slots; /* a power of two, or 0 */
};

/** The number of a name, or -1 when it is not in the set. */
int64_t rs_names_find(const struct rs_names *names, const char *text);

/**
 * The number of a name, which is added when it is not there yet. A zeroed
 * struct is an empty set.
 *
 * @return the number, or RSCHED_ENOMEM
 */
int64_t rs_names_add(struct rs_names *names, const char *text);

/** Free what the set holds; it is empty afterwards. */
void rs_names_fini(struct rs_names *names);

#endif
