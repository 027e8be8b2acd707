/* SPDX-License-Identifier: BSD-3-Clause */
/* What heap.c, which wraps malloc, and mappings.c know of each other. */
#ifndef RS_HEAP_MAPPINGS_H
#define RS_HEAP_MAPPINGS_H

#include <stdbool.h>

/** Whether the functions that are wrapped have been found; it finds them. Not while that
 * is done. */
bool heap_is_ready(void);

/** Find those that change mappings, for heap_is_ready(). */
void heap_find_mappings(void);

/** Whether programs call the wrappers of those. */
bool heap_has_mappings(void);

/** Whether the wrappers still have their own instructions: what the program does with
 * mappings is seen. */
bool heap_sees_mappings(void);

#endif
