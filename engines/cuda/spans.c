/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/cuda/spans.h"

#include <stdint.h>
#include <stdlib.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"

#define NONE SIZE_MAX

struct rs_span {
    uintptr_t low, high; /* the first byte, and the one behind the last */
    int gpu;
    size_t outer; /* of those before it the last one that ends later; or NONE */
};

int rs_spans_add(struct rs_spans *spans, const struct rsched_piece *piece, int gpu)
{
    int64_t reach = (int64_t)(piece->count - 1) * piece->stride;
    uintptr_t first = (uintptr_t)piece->address;
    struct rs_span *larger = rs_array_grow(spans->at, &spans->room,
                                           spans->number + 1, sizeof(*larger));

    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory for pieces");
    spans->at = larger;
    spans->at[spans->number++] = (struct rs_span){
        .low = first + (uintptr_t)(reach < 0 ? reach : 0),
        .high = first + (uintptr_t)(reach > 0 ? reach : 0) + piece->bytes,
        .gpu = gpu};
    return 0;
}

static int compare(const void *a, const void *b)
{
    const struct rs_span *one = a, *other = b;

    return (one->low > other->low) - (one->low < other->low);
}

/* Those that overlap, or touch, on one GPU become one. */
static void join(struct rs_spans *spans)
{
    size_t last = 0;

    for (size_t i = 1; i < spans->number; i++) {
        const struct rs_span *s = &spans->at[i];
        struct rs_span *before = &spans->at[last];

        if (s->gpu != before->gpu || s->low > before->high)
            spans->at[++last] = *s;
        else if (s->high > before->high)
            before->high = s->high;
    }
    spans->number = last + 1;
}

/* What was reserved at once may be mapped on several GPUs (cuMemMap), so between the
 * blocks of one piece there may be those of another one. */
static void find_outer(struct rs_spans *spans)
{
    for (size_t i = 0; i < spans->number; i++) {
        size_t outer = i - 1; /* of the first: NONE */

        while (outer != NONE && spans->at[outer].high <= spans->at[i].high)
            outer = spans->at[outer].outer;
        spans->at[i].outer = outer;
    }
}

void rs_spans_sort(struct rs_spans *spans)
{
    if (spans->number == 0)
        return;
    qsort(spans->at, spans->number, sizeof(*spans->at), compare);
    join(spans);
    find_outer(spans);
}

int rs_spans_find(const struct rs_spans *spans, const char *address)
{
    uintptr_t wanted = (uintptr_t)address;
    size_t from = 0, to = spans->number, i;

    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if (spans->at[middle].low <= wanted)
            from = middle + 1;
        else
            to = middle;
    }
    /* The last one that does not begin behind it, or one around that. */
    i = from - 1;
    while (i != NONE && spans->at[i].high <= wanted)
        i = spans->at[i].outer;
    return i == NONE ? -1 : spans->at[i].gpu;
}

void rs_spans_clear(struct rs_spans *spans)
{
    spans->number = 0;
}

void rs_spans_fini(struct rs_spans *spans)
{
    free(spans->at);
}
