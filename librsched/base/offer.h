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

/* A piece of memory that was offered, as it was when it was listed. */
struct rs_offer {
    const char *low, *high;
    const char *reach; /* where the last one ends of those up to this one */
    bool barred;
};

/** Those that have a byte of [low, high), in the order of addresses; others may come and
 * go meanwhile. *list is to be freed. @return false: there is no memory for the list */
bool rs_offers_list(const char *low, const char *high, struct rs_offer **list,
                    size_t *number);

/** The one in which [low, high) lies: it is not barred, and no byte is in another one. Its
 * owner must not reclaim it meanwhile. @return NULL: there is none */
const struct rs_offer *rs_offers_holding(const struct rs_offer *list, size_t number,
                                         const char *low, const char *high);

/** The first address in (low, high) where one begins or ends; else high. */
const char *rs_offers_edge(const struct rs_offer *list, size_t number, const char *low,
                           const char *high);

/** It has adopted pages from now on. @return false: it has been barred since, or is no
 * longer offered */
bool rs_offer_mark(const struct rs_offer *offer);

#endif
