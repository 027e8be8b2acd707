/* SPDX-License-Identifier: BSD-3-Clause */
/* A heap of numbered things that knows where each of them is, so that keys can
 * change: the least key first. Which of equal keys depends on nothing but what
 * was done to the heap before. */
#ifndef RS_MODELS_HEAP_H
#define RS_MODELS_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct rs_heap_entry {
    uint64_t key;
    uint32_t id;
};

struct rs_heap {
    struct rs_heap_entry *entries; /* the first one is the least */
    uint32_t *place;               /* per id: its entry, or UINT32_MAX */
    size_t count;
};

/** @param ids numbers go from 0 to below this
 * @return 0, RSCHED_ENOMEM; rs_heap_fini() it in any case */
int rs_heap_init(struct rs_heap *heap, size_t ids);
void rs_heap_fini(struct rs_heap *heap);

/** Put an id in, or give it another key. */
void rs_heap_set(struct rs_heap *heap, uint32_t id, uint64_t key);

/** Take an id out; it may be absent. */
void rs_heap_remove(struct rs_heap *heap, uint32_t id);

#endif
