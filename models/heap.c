/* SPDX-License-Identifier: BSD-3-Clause */
#include "models/heap.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"

int rs_heap_init(struct rs_heap *heap, size_t ids)
{
    heap->count = 0;
    heap->entries = calloc(ids + 1, sizeof(*heap->entries));
    heap->place = malloc((ids + 1) * sizeof(*heap->place));
    if (heap->entries == NULL || heap->place == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a heap of %zu", ids);
    memset(heap->place, 0xff, (ids + 1) * sizeof(*heap->place));
    return 0;
}

void rs_heap_fini(struct rs_heap *heap)
{
    free(heap->entries);
    free(heap->place);
}

static void store(struct rs_heap *heap, size_t place,
                  struct rs_heap_entry entry)
{
    heap->entries[place] = entry;
    heap->place[entry.id] = (uint32_t)place;
}

/* The entry belongs to `place`, or above or below it. */
static void settle(struct rs_heap *heap, size_t place,
                   struct rs_heap_entry entry)
{
    while (place > 0) {
        size_t above = (place - 1) / 2;

        if (heap->entries[above].key <= entry.key)
            break;
        store(heap, place, heap->entries[above]);
        place = above;
    }
    for (;;) {
        size_t below = 2 * place + 1;

        if (below >= heap->count)
            break;
        if (below + 1 < heap->count &&
            heap->entries[below + 1].key < heap->entries[below].key)
            below++;
        if (heap->entries[below].key >= entry.key)
            break;
        store(heap, place, heap->entries[below]);
        place = below;
    }
    store(heap, place, entry);
}

void rs_heap_set(struct rs_heap *heap, uint32_t id, uint64_t key)
{
    size_t place = heap->place[id];

    if (place == UINT32_MAX)
        place = heap->count++;
    else if (heap->entries[place].key == key)
        return;
    settle(heap, place, (struct rs_heap_entry){key, id});
}

void rs_heap_remove(struct rs_heap *heap, uint32_t id)
{
    size_t place = heap->place[id];
    struct rs_heap_entry last;

    if (place == UINT32_MAX)
        return;
    heap->place[id] = UINT32_MAX;
    last = heap->entries[--heap->count];
    if (last.id != id)
        settle(heap, place, last);
}
