/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/run/order.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"

int rs_order_append(uint32_t **order, uint32_t *number, uint32_t id)
{
    uint32_t n = *number;

    if ((n & (n - 1)) == 0) { /* full at powers of two */
        uint32_t *larger =
            realloc(*order, (n == 0 ? 1 : 2 * (size_t)n) * sizeof(*larger));

        if (larger == NULL)
            return rs_fail(RSCHED_ENOMEM, "no memory for an order");
        *order = larger;
    }
    (*order)[n] = id;
    *number = n + 1;
    return 0;
}

struct place {
    uint32_t id, position;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

int rs_order_ranks(const uint32_t *order, uint32_t number, uint32_t **ranks)
{
    struct place *places = calloc(number + 1, sizeof(*places));
    uint32_t *result = calloc(number + 1, sizeof(*result));

    if (places == NULL || result == NULL) {
        free(places);
        free(result);
        return rs_fail(RSCHED_ENOMEM, "no memory for an order");
    }
    for (uint32_t i = 0; i < number; i++)
        places[i] = (struct place){order[i], i};
    qsort(places, number, sizeof(*places), compare_places);
    for (uint32_t i = 0; i < number; i++)
        result[places[i].position] = i;
    free(places);
    *ranks = result;
    return 0;
}

int rs_order_of_schedule(const struct rsched_schedule *schedule,
                         uint32_t num_puts, uint32_t **order)
{
    (void)num_puts;
    if (schedule != NULL)
        return rs_fail(RSCHED_ENOTSUP, "schedules are not executed yet");
    *order = NULL;
    return 0;
}
