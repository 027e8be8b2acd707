/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages of a receive buffer that the sender writes to as well (shared work). Where
 * a process has not written before, it takes a fault for each page, in which it
 * could copy several.
 */
#ifndef RS_LOOPBACK_PAGES_H
#define RS_LOOPBACK_PAGES_H

#include <stdbool.h>

#include "engines/common/copy.h"

/** Whether all pages that a chunk of a list of pairs writes to have been written to
 * by somebody, as far as the kernel says so. Faces of arrays, whose blocks are far from
 * each other, are not looked at. */
bool rs_pages_are_there(const struct rs_copies *list, const struct rs_chunk *chunk);

/** Have them in the page tables of this process, in one call of the kernel for each copy
 * (from Linux 5.14 on; else the faults come one by one). Pages that are not there are
 * made, on the NUMA node of this process. */
void rs_pages_map(const struct rs_copies *list, const struct rs_chunk *chunk);

#endif
