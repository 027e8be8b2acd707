/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PAGES: where the driver of a device has what producers see of queue pairs. As
 * with libmlx5, doorbell records of several queue pairs lie in one page, registers
 * of several in another, and rings in pages of their own.
 *
 * The pages are shared memory, so that a test can map them a second time; those of
 * registers belong to a file whose name ends in "-registers".
 */
#ifndef RS_SOFTNIC_PAGES_H
#define RS_SOFTNIC_PAGES_H

#include <stddef.h>

enum { SOFTNIC_PAGE = 4096 };

/* A page of records and one of registers. */
struct softnic_shelf;

struct softnic_shelves {
    struct softnic_shelf *first;
};

/* A queue pair's part of both, zeroed. */
struct softnic_slot {
    struct softnic_shelf *shelf;
    unsigned number;
    char *records;   /* 256 bytes */
    char *registers; /* 512 bytes */
};

/** @return 0, or -1: no memory */
int softnic_slot_take(struct softnic_shelves *shelves,
                       struct softnic_slot *slot);
void softnic_slot_give_back(struct softnic_slot *slot);
/** Nobody has a slot. */
void softnic_shelves_fini(struct softnic_shelves *shelves);

/** Whole pages. @return NULL: no memory */
void *softnic_pages_allocate(size_t bytes);
void softnic_pages_free(void *pages, size_t bytes);

#endif
