/* SPDX-License-Identifier: BSD-3-Clause */
/* Neighborhood collectives with random arguments, for random.c. */
#ifndef TESTS_MPI_RANDOM_OP_H
#define TESTS_MPI_RANDOM_OP_H

#include "tests/mpi/random_datatype.h"
#include "tests/mpi/random_topology.h"

enum { GUARD = 64 };

enum kind { ALLTOALL, ALLTOALLV, ALLTOALLW, ALLGATHER, ALLGATHERV, NUM_KINDS };

static const char *const kind_names[] = {"neighbor_alltoall",
                                         "neighbor_alltoallv",
                                         "neighbor_alltoallw",
                                         "neighbor_allgather",
                                         "neighbor_allgatherv"};

struct side {
    int num;               /* neighbors */
    int counts[MAX_EDGES], displs[MAX_EDGES];
    MPI_Aint addresses[MAX_EDGES];
    MPI_Count wide_counts[MAX_EDGES];
    MPI_Aint wide_displs[MAX_EDGES];
    MPI_Datatype types[MAX_EDGES], kept[MAX_EDGES]; /* kept: for reference */
    int num_types;
    bool bottom;           /* relative to MPI_BOTTOM */
    char *memory, *buffer; /* buffer: what the displacements count from */
    char *expected;
    size_t bytes;
    MPI_Aint least, most; /* that the blocks touch, from the buffer */
};

struct op {
    const struct topology *topology;
    enum kind kind;
    bool persistent, freed_types, reallocate;
    bool nonblocking;
    bool wide; /* with large counts */
    struct side sides[2];
    MPI_Request request;
};

/* Elements that an edge moves; both its ends ask. */
static int edge_elements(const struct topology *t, enum kind kind,
                         uint64_t seed, int scale, int side, int i)
{
    int rank, from, to;
    struct random r;

    MPI_Comm_rank(t->comm, &rank);
    from = side == 0 ? rank : t->peer[1][i];
    to = side == 0 ? t->peer[0][i] : rank;
    if (kind == ALLTOALL || kind == ALLGATHER)
        return 12 * scale;
    if (kind == ALLGATHERV) {
        to = 0;
        r.state = seed + (uint64_t)(from + 1) * 1000003;
    } else {
        r.state = seed + (uint64_t)(from + 1) * 1000003 +
                  (uint64_t)(to + 1) * 10007 + (uint64_t)t->tag[side][i] * 101;
    }
    random_next(&r);
    return 12 * random_below(&r, scale + 1);
}

static void block(const struct op *op, int side, int i, char **address,
                  int *count, MPI_Datatype *type)
{
    const struct side *s = &op->sides[side];
    bool one = op->kind == ALLTOALL || op->kind == ALLGATHER ||
               (op->kind == ALLGATHERV && side == 0);
    MPI_Aint lb, extent;

    *count = s->counts[one ? 0 : i];
    *type = s->kept[op->kind == ALLTOALLW ? i : 0];
    PMPI_Type_get_extent(*type, &lb, &extent);
    if (op->kind == ALLTOALLW)
        *address = s->bottom ? (char *)s->addresses[i]
                             : s->buffer + s->addresses[i];
    else if (s->bottom)
        *address = MPI_BOTTOM;
    else if (one && (op->kind == ALLTOALL || side == 1))
        *address = s->buffer + (MPI_Aint)i * *count * extent;
    else if (one)
        *address = s->buffer;
    else
        *address = s->buffer + s->displs[i] * extent;
}

static int random_unit(struct random *own, int elements)
{
    static const int units[] = {1, 2, 3, 4, 6, 12};

    if (elements > 0 && random_one_in(own, 3))
        return elements;
    return units[random_below(own, 6)];
}

static void touch(struct side *s, MPI_Aint at, int count, MPI_Datatype type)
{
    MPI_Aint lb, extent, true_lb, true_extent, first, last;

    if (count == 0)
        return;
    MPI_Type_get_extent(type, &lb, &extent);
    MPI_Type_get_true_extent(type, &true_lb, &true_extent);
    first = at + true_lb;
    last = at + (count - 1) * extent + true_lb + true_extent;
    if (first < s->least)
        s->least = first;
    if (last > s->most)
        s->most = last;
}

/* One type for all blocks, at displacements that count in extents. */
static void make_uniform(struct side *s, struct random *own, MPI_Datatype base,
                         const int *elements, int num, bool many)
{
    int unit = many ? 1 << random_below(own, 3)
                    : random_unit(own, num > 0 ? elements[0] : 0);
    int total = 0, order[MAX_EDGES];
    MPI_Aint lb, extent;

    if (unit == 8)
        unit = 12;
    for (int i = 0; i < num; i++) {
        s->counts[i] = elements[i] / unit;
        total += s->counts[i] + 1;
        order[i] = i;
    }
    if (random_one_in(own, 4) && (int64_t)total * unit < 1 << 20)
        s->types[0] = commit(column(base, unit, total + 1));
    else if (unit == 1 && random_one_in(own, 2))
        MPI_Type_dup(base, &s->types[0]);
    else
        s->types[0] = commit(solid(own, base, unit, 0));
    s->num_types = 1;
    MPI_Type_get_extent(s->types[0], &lb, &extent);
    if (many)
        random_shuffle(own, order, num);
    for (int i = 0, at = 0; i < num; i++) {
        int k = order[i];

        s->displs[k] = at;
        touch(s, at * extent, s->counts[k], s->types[0]);
        at += s->counts[k] + (many ? random_below(own, 2) : 0);
    }
}

static void make_w(struct side *s, struct random *own, MPI_Datatype base,
                   const int *elements, int num)
{
    MPI_Aint at = 0;

    for (int i = 0; i < num; i++) {
        int unit = random_unit(own, elements[i]);
        struct side one = {.least = 0, .most = 0};

        s->counts[i] = elements[i] / unit;
        if (random_one_in(own, 6))
            s->types[i] = commit(column(base, unit, s->counts[i] + 1));
        else
            s->types[i] = commit(solid(own, base, unit, 0));
        touch(&one, 0, s->counts[i], s->types[i]);
        s->addresses[i] = at - one.least;
        touch(s, s->addresses[i], s->counts[i], s->types[i]);
        at += one.most - one.least + random_below(own, 20);
    }
    s->num_types = num;
}

/* Memory for what the blocks touch, and guards around it. */
static void allocate_side(struct side *s)
{
    s->bytes = (size_t)(s->most - s->least) + 2 * GUARD;
    s->memory = allocate(s->bytes);
    s->expected = allocate(s->bytes);
    s->buffer = (char *)((uintptr_t)s->memory + GUARD - (uintptr_t)s->least);
}

/* The same block, described by absolute addresses. */
static void make_absolute(struct op *op, int side)
{
    struct side *s = &op->sides[side];

    s->bottom = true;
    if (op->kind == ALLTOALLW) {
        for (int i = 0; i < s->num; i++)
            s->addresses[i] += (MPI_Aint)s->buffer;
        return;
    }
    MPI_Aint address = (MPI_Aint)s->buffer;
    MPI_Datatype type;

    MPI_Type_create_hindexed(1, &s->counts[0], &address, s->types[0], &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&s->types[0]);
    s->types[0] = type;
    s->counts[0] = 1;
}

static void op_create(struct op *op, const struct topology *t,
                      struct random *r, struct random *own)
{
    static const int scales[] = {0, 1, 2, 8, 40, 300, 2500};
    MPI_Datatype bases[] = {MPI_BYTE, MPI_INT, MPI_DOUBLE, MPI_SHORT,
                            MPI_DOUBLE_INT, MPI_2INT};
    int scale = scales[random_below(r, 7)];
    MPI_Datatype base = bases[random_below(r, 6)];
    uint64_t seed = random_next(r);
    int elements[MAX_EDGES];

    memset(op, 0, sizeof(*op));
    op->topology = t;
    op->kind = (enum kind)random_below(r, NUM_KINDS);
    op->persistent = random_below(r, 2) != 0;
    op->nonblocking = !op->persistent && random_below(r, 2) != 0;
    op->freed_types = op->persistent && random_one_in(r, 2);
    op->reallocate = !op->persistent && random_one_in(r, 2);
    op->wide = MPI_VERSION >= 4 && random_one_in(own, 3);
    if (random_one_in(r, 12))
        scale = 6000;
    op->request = MPI_REQUEST_NULL;
    for (int side = 0; side < 2; side++) {
        struct side *s = &op->sides[side];
        int num = s->num = t->num[side];
        bool gather = op->kind == ALLGATHER || op->kind == ALLGATHERV;

        for (int i = 0; i < num; i++)
            elements[i] = edge_elements(t, op->kind, seed, scale, side, i);
        if (gather && side == 0) {
            struct topology self = *t;

            /* Asked for an edge to anybody. */
            self.peer[0][0] = 0;
            elements[0] = edge_elements(&self, op->kind, seed, scale, 0, 0);
            num = 1;
        } else if (num == 0 && (op->kind == ALLTOALL || gather)) {
            elements[0] = 12 * scale;
        }
        if (op->kind == ALLTOALLW)
            make_w(s, own, base, elements, num);
        else
            make_uniform(s, own, base, elements, num,
                         op->kind == ALLTOALLV ||
                             (op->kind == ALLGATHERV && side == 1));
        allocate_side(s);
        if ((op->kind == ALLTOALLW && random_one_in(own, 3)) ||
            (gather && side == 0 && !op->reallocate && random_one_in(own, 3)))
            make_absolute(op, side);
        for (int i = 0; i < MAX_EDGES; i++) {
            s->wide_counts[i] = s->counts[i];
            s->wide_displs[i] = s->displs[i];
        }
        for (int i = 0; i < s->num_types; i++)
            MPI_Type_dup(s->types[i], &s->kept[i]);
    }
    if (op->sides[0].bottom || op->sides[1].bottom)
        op->reallocate = false;
}

static void side_destroy(struct side *s, bool freed_types)
{
    for (int i = 0; i < s->num_types; i++) {
        if (!freed_types)
            MPI_Type_free(&s->types[i]);
        MPI_Type_free(&s->kept[i]);
    }
    free(s->memory);
    free(s->expected);
}

#endif
