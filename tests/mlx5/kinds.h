/* SPDX-License-Identifier: BSD-3-Clause */
/* One list of every kind of WQE, over memory that is registered to the byte. */
#ifndef TESTS_KINDS_H
#define TESTS_KINDS_H

#include "tests/mlx5/pair.h"

enum { KIND_MAX_OPS = 3, KIND_RING = 16, KIND_RNR_STEPS = 20 };

struct kind {
    const char *name;
    struct rs_rdma_op ops[KIND_MAX_OPS];
    uint32_t num_ops;
    bool recur;
    uint32_t blocks; /* of the list */
};

enum {
    KIND_ONE_PIECE,
    KIND_TWO_PIECES,
    KIND_MANY_PIECES,
    KIND_EPOCH,
    KIND_INLINE,
    KIND_IMM_ALONE,
    KIND_IMM_BEHIND_DATA,
    KIND_FETCH_ADD,
    KIND_PADDED,
    NUM_KINDS
};

extern const struct kind kinds[NUM_KINDS];

/* Memory of the two sides. What is not registered holds KIND_UNTOUCHED. */
struct kind_memory {
    _Alignas(64) unsigned char from[1024];
    _Alignas(64) unsigned char to[1024];
    _Alignas(8) uint64_t result;
};

enum { KIND_UNTOUCHED = 0x77 };

/** A pair with rings of KIND_RING blocks and a list of this kind, for which the
 * peer has posted what it needs. */
struct rs_rdma_list *kind_begin(const struct kind *kind,
                                const struct rs_softnic_options *nic,
                                struct pair *pair, struct kind_memory *memory);

/** @return whether only memory was written that is registered for it */
bool kind_kept_within(const struct kind *kind,
                      const struct kind_memory *memory);

#endif
