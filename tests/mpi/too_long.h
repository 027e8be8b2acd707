/* SPDX-License-Identifier: BSD-3-Clause */
/* A datatype that only the native MPI packs, and that MPI_Pack cannot count: of many
 * parts, which overlap, so that all of it lies in little memory. */
#ifndef TESTS_MPI_TOO_LONG_H
#define TESTS_MPI_TOO_LONG_H

#include <assert.h>

#include "tests/mpi/common.h"

enum { PARTS = 70000, PART_BYTES = 1 << 15, PLACES = 7 }; /* pairs merge */

#define TOO_LONG_BYTES ((size_t)PARTS * PART_BYTES)
static_assert(TOO_LONG_BYTES > INT32_MAX, "MPI_Pack could count it");

/* Of PLACES + 1 times PART_BYTES; to send, since its parts overlap. */
static inline MPI_Datatype too_long_type(void)
{
    static int displs[PARTS];
    struct random r = {1};
    MPI_Datatype type;

    for (int i = 0; i < PARTS; i++)
        displs[i] = random_below(&r, PLACES * PART_BYTES);
    MPI_Type_create_indexed_block(PARTS, PART_BYTES, displs, MPI_CHAR, &type);
    MPI_Type_commit(&type);
    return type;
}

/* As many bytes in one piece. */
static inline MPI_Datatype as_long_type(void)
{
    MPI_Datatype part, type;

    MPI_Type_contiguous(PART_BYTES, MPI_CHAR, &part);
    MPI_Type_contiguous(PARTS, part, &type);
    MPI_Type_free(&part);
    MPI_Type_commit(&type);
    return type;
}

#endif
