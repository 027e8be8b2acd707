/* SPDX-License-Identifier: BSD-3-Clause */
/* PLACES: where the pieces of a message lie. */
#ifndef RS_RDMA_PLACES_H
#define RS_RDMA_PLACES_H

#include <rsched/engine.h>

struct rs_rdma_places {
    int gpu;  /* of the first that lies in GPU memory; -1: none does */
    bool all; /* the others do too, and on the same GPU */
    bool managed; /* one lies in managed memory, which counts as the host's */
};

/** @return 0; RSCHED_ENOTSUP: a block that lies partly in one kind of memory */
int rs_rdma_places_find(const struct rsched_message *message,
                        struct rs_rdma_places *places);

#endif
