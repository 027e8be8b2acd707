/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ALLOCATIONS of GPU memory that the blocks of messages lie in: an address of each,
 * by which the driver is asked whether it is still there. The program may have freed
 * it, and have another one at the same address. Zero it to initialise; it owns the
 * array.
 */
#ifndef RS_BASE_ALLOCATIONS_H
#define RS_BASE_ALLOCATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct rs_allocation {
    const void *address;
    uint64_t number; /* that no other one has or has had */
};

struct rs_allocations {
    struct rs_allocation *of;
    size_t number;
};

/** The number of the allocation that an address is in, as of struct rsched_gpu_ops;
 * 0: it is in none. */
typedef uint64_t rs_allocation_fn(const void *address);

/* Most likely the last one. */
static inline bool rs_allocations_have(const struct rs_allocations *a,
                                       uint64_t number)
{
    size_t i = a->number;

    while (i > 0 && a->of[i - 1].number != number)
        i--;
    return i > 0;
}

/** Add that of an address, unless it is there, or the address is in none.
 * @return false: no memory */
static inline bool rs_allocations_add(struct rs_allocations *a,
                                      rs_allocation_fn *ask, const void *address)
{
    size_t n = a->number;
    uint64_t number = ask(address);

    if (number == 0 || rs_allocations_have(a, number))
        return true;
    if ((n & (n - 1)) == 0) { /* full at powers of two */
        struct rs_allocation *larger =
            realloc(a->of, (n == 0 ? 1 : 2 * n) * sizeof(*larger));

        if (larger == NULL)
            return false;
        a->of = larger;
    }
    a->of[a->number++] = (struct rs_allocation){address, number};
    return true;
}

/** Whether all of them are where they were. */
static inline bool rs_allocations_stay(const struct rs_allocations *a,
                                       rs_allocation_fn *ask)
{
    for (size_t i = 0; i < a->number; i++) {
        if (ask(a->of[i].address) != a->of[i].number)
            return false;
    }
    return true;
}

static inline void rs_allocations_fini(struct rs_allocations *a)
{
    free(a->of);
    *a = (struct rs_allocations){0};
}

#endif
