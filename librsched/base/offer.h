/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory whose owner says before it ends: rsched_memory_offer(). A table
 * without locks, since allocators' functions call it, also between fork() and
 * its handlers.
 */
#ifndef RS_BASE_OFFER_H
#define RS_BASE_OFFER_H

#include <stdbool.h>
#include <stddef.h>

/** Whether anything was ever offered. */
bool rs_offer_any(void);

/** Whether [low, high) lies in one piece of memory that was offered and not
 * barred, and no byte of it in another one. Its owner must not reclaim it meanwhile. */
bool rs_offer_holds(const char *low, const char *high);

/** The first address in (low, high) where a piece that was offered begins or ends; else
 * high. */
const char *rs_offer_edge(const char *low, const char *high);

/** The piece that has `low` has adopted pages from now on. */
void rs_offer_mark(const char *low);

#endif
