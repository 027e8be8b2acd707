/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/array.h"

#include <stdlib.h>

void *rs_array_grow(void *array, size_t *capacity, size_t need, size_t size)
{
    size_t room = *capacity < 8 ? 8 : *capacity;

    if (need <= *capacity && array != NULL)
        return array;
    while (room < need) {
        if (__builtin_mul_overflow(room, 2, &room))
            return NULL;
    }
    array = reallocarray(array, room, size);
    if (array != NULL)
        *capacity = room;
    return array;
}
