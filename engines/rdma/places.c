/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/rdma/places.h"

#include "librsched/base/error.h"

int rs_rdma_places_find(const struct rsched_message *m,
                        struct rs_rdma_places *places)
{
    const struct rsched_gpu_ops *gpus = rsched_gpus();

    *places = (struct rs_rdma_places){.gpu = -1, .all = true};
    if (gpus == NULL || !gpus->attach())
        return 0;
    for (size_t i = 0; i < m->num_pieces; i++) {
        const struct rsched_piece *p = &m->pieces[i];
        int64_t last = (int64_t)(p->count - 1) * p->stride;
        const char *low = p->address + (last < 0 ? last : 0);
        const char *high = p->address + (last > 0 ? last : 0) + p->bytes;
        struct rsched_place place;

        if (p->bytes == 0 || p->count == 0)
            continue;
        gpus->place(low, (uint64_t)(high - low), &place);
        if (place.kind == RSCHED_PLACE_UNKNOWN)
            return rs_fail(RSCHED_ENOTSUP,
                           "a block that does not lie in one allocation of host "
                           "memory, or of a GPU's primary context");
        if (place.kind == RSCHED_PLACE_GPU && places->gpu < 0)
            places->gpu = place.gpu;
        places->managed =
            places->managed || place.kind == RSCHED_PLACE_MANAGED;
        places->all = places->all && place.kind == RSCHED_PLACE_GPU &&
                      place.gpu == places->gpu;
    }
    return 0;
}
