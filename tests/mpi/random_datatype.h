/* SPDX-License-Identifier: BSD-3-Clause */
/* Random datatypes, for random.c. */
#ifndef TESTS_MPI_RANDOM_DATATYPE_H
#define TESTS_MPI_RANDOM_DATATYPE_H

#include "tests/mpi/common.h"

/* A vector of `m` elements, one in a row of a matrix of `width` columns. */
static MPI_Datatype column(MPI_Datatype base, int m, int width)
{
    MPI_Datatype vector, type;
    MPI_Aint lb, extent;

    MPI_Type_get_extent(base, &lb, &extent);
    MPI_Type_vector(m, 1, width, base, &vector);
    MPI_Type_create_resized(vector, 0, extent, &type);
    MPI_Type_free(&vector);
    return type;
}

static int divisor(struct random *r, int m)
{
    int d = 1 + random_below(r, m < 12 ? m : 12);

    while (m % d != 0)
        d--;
    return d;
}

static MPI_Datatype indexed(struct random *r, MPI_Datatype base, int m,
                            int flavour)
{
    int lengths[16], displs[16], order[16], n = 0, left = m, at = 0;
    MPI_Aint bytes[16], lb, extent;
    MPI_Datatype types[16], type;

    MPI_Type_get_extent(base, &lb, &extent);
    while (n < 15 && left > 0) {
        lengths[n] = random_one_in(r, 4) ? 0 : 1 + random_below(r, left);
        left -= lengths[n++];
    }
    lengths[n++] = left;
    for (int i = 0; i < n; i++)
        order[i] = i;
    random_shuffle(r, order, n);
    for (int i = 0; i < n; i++) {
        int k = order[i];

        at += random_below(r, 3);
        displs[k] = at;
        bytes[k] = at * extent;
        at += lengths[k];
        types[k] = base;
    }
    if (flavour == 0)
        MPI_Type_indexed(n, lengths, displs, base, &type);
    else if (flavour == 1)
        MPI_Type_create_hindexed(n, lengths, bytes, base, &type);
    else
        MPI_Type_create_struct(n, lengths, bytes, types, &type);
    return type;
}

static MPI_Datatype indexed_block(struct random *r, MPI_Datatype base, int m,
                                  bool bytes)
{
    int length = divisor(r, m), n = m / length, at = 0;
    int *displs = allocate((size_t)n * sizeof(int));
    MPI_Aint *addresses = allocate((size_t)n * sizeof(MPI_Aint)), lb, extent;
    MPI_Datatype type;

    MPI_Type_get_extent(base, &lb, &extent);
    for (int i = 0; i < n; i++) {
        displs[i] = at;
        addresses[i] = at * extent;
        at += length + random_below(r, 2);
    }
    if (bytes)
        MPI_Type_create_hindexed_block(n, length, addresses, base, &type);
    else
        MPI_Type_create_indexed_block(n, length, displs, base, &type);
    free(displs);
    free(addresses);
    return type;
}

static MPI_Datatype subarray(struct random *r, MPI_Datatype base, int m)
{
    int rows = divisor(r, m), cols = m / rows, top = random_below(r, 3);
    int left = random_below(r, 3);
    int sizes[2] = {rows + top + random_below(r, 2),
                    cols + left + random_below(r, 2)};
    int subsizes[2] = {rows, cols}, starts[2] = {top, left};
    MPI_Datatype type;

    MPI_Type_create_subarray(2, sizes, subsizes, starts,
                             random_one_in(r, 2) ? MPI_ORDER_C
                                                 : MPI_ORDER_FORTRAN,
                             base, &type);
    return type;
}

static MPI_Datatype darray(struct random *r, MPI_Datatype base, int m)
{
    int size = 2 * m, part = 2, kind = MPI_DISTRIBUTE_BLOCK;
    int argument = MPI_DISTRIBUTE_DFLT_DARG;
    MPI_Datatype type;

    MPI_Type_create_darray(2, random_below(r, 2), 1, &size, &kind, &argument,
                           &part, MPI_ORDER_C, base, &type);
    return type;
}

/* A type of `m` elements of `base`, in the order of memory or not, whose
 * repetitions do not overlap. */
static MPI_Datatype solid(struct random *r, MPI_Datatype base, int m, int depth)
{
    MPI_Datatype inner, type;
    MPI_Aint lb, extent;
    int d = divisor(r, m);

    MPI_Type_get_extent(base, &lb, &extent);
    switch (random_below(r, m > 5000 ? 4 : depth > 2 ? 10 : 13)) {
    case 0:
    default:
        MPI_Type_contiguous(m, base, &type);
        break;
    case 1:
        MPI_Type_vector(m / d, d, d + random_below(r, 3), base, &type);
        break;
    case 2:
        MPI_Type_create_hvector(m / d, d,
                                (d + 1 + random_below(r, 3)) * extent *
                                    (random_one_in(r, 3) ? -1 : 1),
                                base, &type);
        break;
    case 3:
        type = subarray(r, base, m);
        break;
    case 4:
        type = indexed(r, base, m, 0);
        break;
    case 5:
        type = indexed(r, base, m, 1);
        break;
    case 6:
        type = indexed(r, base, m, 2);
        break;
    case 7:
        type = indexed_block(r, base, m, false);
        break;
    case 8:
        type = indexed_block(r, base, m, true);
        break;
    case 9:
        type = darray(r, base, m);
        break;
    case 10:
        MPI_Type_contiguous(m, base, &inner);
        MPI_Type_create_resized(inner, -extent * random_below(r, 3),
                                extent * (m + random_below(r, 4)), &type);
        MPI_Type_free(&inner);
        break;
    case 11:
        inner = solid(r, base, d, depth + 1);
        MPI_Type_contiguous(m / d, inner, &type);
        MPI_Type_free(&inner);
        break;
    case 12:
        inner = solid(r, base, m, depth + 1);
        MPI_Type_dup(inner, &type);
        MPI_Type_free(&inner);
        break;
    }
    return type;
}

static MPI_Datatype commit(MPI_Datatype type)
{
    MPI_Type_commit(&type);
    return type;
}

#endif
