/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whole pages of ordinary memory, moved in place onto the memfd that others
 * map: docs/adopted.md.
 */
#ifndef RS_BASE_ADOPT_H
#define RS_BASE_ADOPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rsched/piece.h>

/** Adopt what may be adopted of whole pages, as rs_adopt_pages() returns them, which nobody
 * writes until this returns. What was adopted, rs_shared_find() finds; why the rest was not
 * is counted. */
void rs_adopt(const struct rsched_piece *pages, size_t number);

/**
 * The pages that lie wholly within parts of memory, pieces of one block each: in their place,
 * in the order of addresses, and what touches is one.
 *
 * @return how many pieces they are
 */
size_t rs_adopt_pages(struct rsched_piece *parts, size_t number);

/** Of all of a list together. */
uint64_t rs_adopt_bytes(const struct rsched_piece *pages, size_t number);

/**
 * What two lists have in common, as rs_adopt_pages() returns them both, and likewise.
 *
 * @param common has room for as many pieces as both together
 * @return how many pieces they are
 */
size_t rs_adopt_common(const struct rsched_piece *a, size_t num_a, const struct rsched_piece *b,
                       size_t num_b, struct rsched_piece *common);

/* When it is looked whether memory is adopted. Zero it to initialise. */
struct rs_adopt_watch {
    uint32_t in;    /* starts until then, or 0: no more; set it to RSCHED_ADOPT */
    uint32_t after; /* of so many starts in all, or 0: not seen yet */
};

/**
 * When w->in has become 0: whether memory is adopted now. It is if so many starts would
 * have saved what adopting and taking back take; so it never takes more than twice what
 * it could save, however many starts there are. Else it is due again after twice as many.
 *
 * @param saves  ps that a start would save; 0: never; UINT64_MAX: always
 * @param pieces that would be adopted, and their bytes together
 */
bool rs_adopt_is_due(struct rs_adopt_watch *w, uint64_t saves, size_t pieces,
                     uint64_t bytes);

/** Where the next page begins, and where this one does; where one begins, there. */
char *rs_page_up(char *address);
char *rs_page_down(char *address);

#endif
