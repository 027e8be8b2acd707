/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrays that grow. */
#ifndef RS_BASE_ARRAY_H
#define RS_BASE_ARRAY_H

#include <stddef.h>

/**
 * Make room for at least `need` elements of `size` bytes. The room doubles, so
 * that n additions cost O(n); new elements are not initialised.
 *
 * @return the array, perhaps at another address, or NULL when there is no
 *         memory: then *capacity and the old array are unchanged
 */
void *rs_array_grow(void *array, size_t *capacity, size_t need, size_t size);

#endif
