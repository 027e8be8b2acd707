/* SPDX-License-Identifier: BSD-3-Clause */
/* Datatypes, taken apart into runs in the order of their type maps. Extents
 * are always what the native MPI says they are: programs lay out their buffers
 * by it. */
#include "mpi/internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* A type with more runs is packed by the native MPI: copying run by run
     * would not be faster, and the lists cost memory. */
    MAX_RUNS = 1 << 15,
    /* Runs looked at, before merging, so that even types whose many parts
     * merge are taken apart in bounded time. */
    MAX_STEPS = 1 << 20,
};

/* ---- lists of runs ---- */

struct list {
    struct rsched_run *runs;
    size_t num, space;
    size_t steps;
    bool opaque, no_memory;
};

static bool list_grow(struct list *list)
{
    size_t space = list->space == 0 ? 8 : 2 * list->space;
    struct rsched_run *runs;

    if (list->num >= MAX_RUNS) {
        list->opaque = true;
        return false;
    }
    runs = realloc(list->runs, space * sizeof(*runs));
    if (runs == NULL) {
        list->no_memory = true;
        return false;
    }
    list->runs = runs;
    list->space = space;
    return true;
}

/* Put `run` into `last` where both together are one run. */
static bool merge(struct rsched_run *last, const struct rsched_run *run)
{
    if (last->count == 1 && run->count == 1 &&
        last->offset + (int64_t)last->bytes == run->offset) {
        last->bytes += run->bytes;
        return true;
    }
    if (last->bytes != run->bytes)
        return false;
    if (last->count == 1 && run->count == 1) {
        last->stride = run->offset - last->offset;
        last->count = 2;
        return true;
    }
    if (last->count == 1) {
        if (last->offset + run->stride != run->offset)
            return false;
        last->stride = run->stride;
    } else if (last->offset + (int64_t)last->count * last->stride !=
                   run->offset ||
               (run->count > 1 && run->stride != last->stride)) {
        return false;
    }
    last->count += run->count;
    return true;
}

static void append(struct list *list, struct rsched_run run)
{
    if (run.bytes == 0 || run.count == 0 || list->opaque || list->no_memory)
        return;
    if (++list->steps > MAX_STEPS) {
        list->opaque = true;
        return;
    }
    if (run.count > 1 && run.stride == (int64_t)run.bytes) {
        run.bytes *= run.count;
        run.count = 1;
    }
    if (list->num > 0 && merge(&list->runs[list->num - 1], &run))
        return;
    if (list->num == list->space && !list_grow(list))
        return;
    list->runs[list->num++] = run;
}

/* Append `count` copies of `runs`, the first moved by `offset`, each next one
 * by `stride` more. */
static void append_copies(struct list *list, const struct rsched_run *runs,
                          size_t num_runs, int64_t offset, uint64_t count,
                          int64_t stride)
{
    struct rsched_run run;

    if (num_runs == 0 || count == 0)
        return;
    run = runs[0];
    run.offset += offset;
    if (num_runs == 1 && (run.count == 1 || count == 1)) {
        if (run.count == 1) {
            run.count = count;
            run.stride = stride;
        }
        append(list, run);
        return;
    }
    if (num_runs == 1 && stride == (int64_t)run.count * run.stride) {
        run.count *= count;
        append(list, run);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        for (size_t k = 0; k < num_runs; k++) {
            run = runs[k];
            run.offset += offset + (int64_t)i * stride;
            append(list, run);
        }
        if (list->opaque || list->no_memory)
            return;
    }
}

static void append_flat(struct list *list, const struct rs_flat *flat,
                        int64_t offset, int64_t count, int64_t stride)
{
    if (flat->opaque && count > 0 && flat->size > 0)
        list->opaque = true;
    else if (count > 0)
        append_copies(list, flat->runs, flat->num_runs, offset,
                      (uint64_t)count, stride);
}

/* ---- named types ---- */

/* The types that MPI_MINLOC and MPI_MAXLOC use: a value and an int. */
#define PAIR_MAP(XX)                                                         \
    XX(MPI_FLOAT_INT, float)                                                 \
    XX(MPI_DOUBLE_INT, double)                                               \
    XX(MPI_LONG_INT, long)                                                   \
    XX(MPI_SHORT_INT, short)                                                 \
    XX(MPI_LONG_DOUBLE_INT, long double)

static bool append_pair(struct list *list, MPI_Datatype type)
{
#define PAIR_XX(name, ctype)                                                 \
    if (type == name) {                                                      \
        struct pair {                                                        \
            ctype value;                                                     \
            int index;                                                       \
        };                                                                   \
        append(list, (struct rsched_run){0, sizeof(ctype), 1, 0});           \
        append(list, (struct rsched_run){offsetof(struct pair, index),       \
                                         sizeof(int), 1, 0});                \
        return true;                                                         \
    }
    PAIR_MAP(PAIR_XX)
#undef PAIR_XX
    return false;
}

static void append_named(struct list *list, MPI_Datatype type,
                         const struct rs_flat *flat)
{
    if (flat->size == 0 || append_pair(list, type))
        return;
    if (flat->lb == 0 && (int64_t)flat->size == flat->extent)
        append(list, (struct rsched_run){0, flat->size, 1, 0});
    else
        list->opaque = true; /* gaps that nobody told us of */
}

/* ---- constructors ---- */

/* What a type was made with. Counts of all sizes are brought into the order
 * that they have in the calls with int counts. */
struct contents {
    int combiner;
    size_t num_integers, num_addresses, num_large, num_types;
    int64_t *n; /* integers, and large counts that stand for such */
    int64_t *a; /* addresses, and large counts that stand for such */
    MPI_Datatype *types;
};

static bool is_named(int combiner)
{
    return combiner == MPI_COMBINER_NAMED ||
           combiner == MPI_COMBINER_F90_REAL ||
           combiner == MPI_COMBINER_F90_COMPLEX ||
           combiner == MPI_COMBINER_F90_INTEGER;
}

static void envelope(MPI_Datatype type, struct contents *c)
{
#if MPI_VERSION >= 4
    MPI_Count integers, addresses, large, types;

    PMPI_Type_get_envelope_c(type, &integers, &addresses, &large, &types,
                             &c->combiner);
#else
    int integers, addresses, large = 0, types;

    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &c->combiner);
#endif
    c->num_integers = (size_t)integers;
    c->num_addresses = (size_t)addresses;
    c->num_large = (size_t)large;
    c->num_types = (size_t)types;
}

static void free_contents(struct contents *c)
{
    struct contents inner;

    for (size_t i = 0; i < c->num_types && c->types != NULL; i++) {
        envelope(c->types[i], &inner);
        if (!is_named(inner.combiner))
            PMPI_Type_free(&c->types[i]);
    }
    free(c->n);
    free(c->a);
    free(c->types);
}

/* How the native MPI gives them. */
struct raw {
    int *integers;
    MPI_Aint *addresses;
    MPI_Count *large;
};

static void fetch(MPI_Datatype type, const struct contents *c,
                  const struct raw *raw)
{
#if MPI_VERSION >= 4
    PMPI_Type_get_contents_c(type, (MPI_Count)c->num_integers,
                             (MPI_Count)c->num_addresses,
                             (MPI_Count)c->num_large, (MPI_Count)c->num_types,
                             raw->integers, raw->addresses, raw->large,
                             c->types);
#else
    PMPI_Type_get_contents(type, (int)c->num_integers, (int)c->num_addresses,
                           (int)c->num_types, raw->integers, raw->addresses,
                           c->types);
#endif
}

/* How many of the large counts, the last ones, are addresses with int counts;
 * and after how many of the integers the others are to be inserted. (MPI 4.1,
 * 5.1.13) */
static size_t large_addresses(const struct contents *c, const struct raw *raw)
{
    switch (c->combiner) {
    case MPI_COMBINER_HVECTOR:
        return 1;
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_HINDEXED_BLOCK:
    case MPI_COMBINER_STRUCT:
        return (size_t)raw->large[0];
    case MPI_COMBINER_RESIZED:
        return 2;
    default:
        return 0;
    }
}

static size_t integers_before(const struct contents *c)
{
    if (c->num_large == 0)
        return c->num_integers;
    return c->combiner == MPI_COMBINER_DARRAY     ? 3
           : c->combiner == MPI_COMBINER_SUBARRAY ? 1
                                                  : 0;
}

static void normalize(struct contents *c, const struct raw *raw)
{
    size_t addresses = c->num_large > 0 ? large_addresses(c, raw) : 0;
    size_t counts = c->num_large - addresses, n = 0, before;

    before = integers_before(c);
    for (size_t i = 0; i < before; i++)
        c->n[n++] = raw->integers[i];
    for (size_t i = 0; i < counts; i++)
        c->n[n++] = raw->large[i];
    for (size_t i = before; i < c->num_integers; i++)
        c->n[n++] = raw->integers[i];
    for (size_t i = 0; i < c->num_addresses; i++)
        c->a[i] = raw->addresses[i];
    for (size_t i = 0; i < addresses; i++)
        c->a[i] = raw->large[counts + i];
}

static bool get_contents(MPI_Datatype type, struct contents *c)
{
    struct raw raw = {calloc(c->num_integers + 1, sizeof(int)),
                      calloc(c->num_addresses + 1, sizeof(MPI_Aint)),
                      calloc(c->num_large + 1, sizeof(MPI_Count))};
    bool good;

    c->n = calloc(c->num_integers + c->num_large + 1, sizeof(*c->n));
    c->a = calloc(c->num_addresses + c->num_large + 1, sizeof(*c->a));
    c->types = calloc(c->num_types + 1, sizeof(MPI_Datatype));
    good = raw.integers != NULL && raw.addresses != NULL && raw.large != NULL &&
           c->n != NULL && c->a != NULL && c->types != NULL;
    if (good) {
        fetch(type, c, &raw);
        normalize(c, &raw);
    } else {
        c->num_types = 0;
        free_contents(c);
    }
    free(raw.integers);
    free(raw.addresses);
    free(raw.large);
    return good;
}

/* Blocks of `length` at constant distance. */
static void append_vector(struct list *list, const struct rs_flat *inner,
                          int64_t count, int64_t length, int64_t stride)
{
    struct list block = {0};

    append_flat(&block, inner, 0, length, inner->extent);
    append_copies(list, block.runs, block.num, 0, (uint64_t)count, stride);
    list->opaque |= block.opaque;
    list->no_memory |= block.no_memory;
    free(block.runs);
}

/* One dimension of a box: `length` elements from `start` on. */
static void extend_box(struct list *box, struct list *next, int64_t start,
                       int64_t length, int64_t stride)
{
    if (length > 0)
        append_copies(next, box->runs, box->num, start * stride,
                      (uint64_t)length, stride);
    next->opaque |= box->opaque;
    next->no_memory |= box->no_memory;
}

static void append_box(struct list *list, struct list *box)
{
    append_copies(list, box->runs, box->num, 0, 1, 0);
    list->opaque |= box->opaque;
    list->no_memory |= box->no_memory;
    free(box->runs);
}

static void append_subarray(struct list *list, const struct contents *c,
                            const struct rs_flat *inner)
{
    int64_t dims = c->n[0], stride = inner->extent;
    const int64_t *sizes = c->n + 1, *subsizes = sizes + dims;
    const int64_t *starts = subsizes + dims;
    bool c_order = c->n[1 + 3 * dims] == MPI_ORDER_C;
    struct list box = {0};

    append_flat(&box, inner, 0, 1, 0);
    for (int64_t i = 0; i < dims; i++) {
        int64_t d = c_order ? dims - 1 - i : i; /* fastest first */
        struct list next = {0};

        extend_box(&box, &next, starts[d], subsizes[d], stride);
        free(box.runs);
        box = next;
        stride *= sizes[d];
    }
    append_box(list, &box);
}

/* What process `coordinate` of `processes` has of `size` elements: blocks of
 * `block`, every processes-th of them. (MPI 4.1, 5.1.4) */
static void append_distributed(struct list *next, struct list *box,
                               int64_t size, int64_t distribution,
                               int64_t argument, int64_t processes,
                               int64_t coordinate, int64_t stride)
{
    int64_t block = argument;

    if (distribution == MPI_DISTRIBUTE_NONE)
        block = size;
    else if (argument == MPI_DISTRIBUTE_DFLT_DARG)
        block = distribution == MPI_DISTRIBUTE_CYCLIC
                    ? 1
                    : (size + processes - 1) / processes;
    if (distribution == MPI_DISTRIBUTE_NONE)
        coordinate = 0;
    for (int64_t at = coordinate * block; at < size; at += processes * block) {
        int64_t left = size - at;

        extend_box(box, next, at, left < block ? left : block, stride);
        if (distribution != MPI_DISTRIBUTE_CYCLIC)
            break;
    }
    next->opaque |= box->opaque;
    next->no_memory |= box->no_memory;
}

static void append_darray(struct list *list, const struct contents *c,
                          const struct rs_flat *inner)
{
    int64_t dims = c->n[2], stride = inner->extent;
    const int64_t *sizes = c->n + 3, *distributions = sizes + dims;
    const int64_t *arguments = distributions + dims;
    const int64_t *processes = arguments + dims;
    bool c_order = processes[dims] == MPI_ORDER_C;
    struct list box = {0};

    append_flat(&box, inner, 0, 1, 0);
    for (int64_t i = 0; i < dims; i++) {
        int64_t d = c_order ? dims - 1 - i : i; /* fastest first */
        int64_t below = 1;
        struct list next = {0};

        /* The grid of processes is in C's order, whatever the array is. */
        for (int64_t k = d + 1; k < dims; k++)
            below *= processes[k];
        append_distributed(&next, &box, sizes[d], distributions[d],
                           arguments[d], processes[d],
                           c->n[1] / below % processes[d], stride);
        free(box.runs);
        box = next;
        stride *= sizes[d];
    }
    append_box(list, &box);
}

static void append_struct(struct list *list, const struct contents *c)
{
    for (int64_t i = 0; i < c->n[0]; i++) {
        struct rs_flat *inner;

        if (c->n[1 + i] == 0)
            continue;
        inner = rs_flat_get(c->types[i]);
        if (inner == NULL) {
            list->no_memory = true;
            return;
        }
        append_flat(list, inner, c->a[i], c->n[1 + i], inner->extent);
        rs_flat_drop(inner);
    }
}

static void append_constructed(struct list *list, const struct contents *c,
                               const struct rs_flat *inner)
{
    const int64_t *n = c->n, *a = c->a;
    int64_t extent = inner->extent;

    switch (c->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
        append_flat(list, inner, 0, 1, 0);
        break;
    case MPI_COMBINER_CONTIGUOUS:
        append_flat(list, inner, 0, n[0], extent);
        break;
    case MPI_COMBINER_VECTOR:
        append_vector(list, inner, n[0], n[1], n[2] * extent);
        break;
    case MPI_COMBINER_HVECTOR:
        append_vector(list, inner, n[0], n[1], a[0]);
        break;
    case MPI_COMBINER_INDEXED:
        for (int64_t i = 0; i < n[0]; i++)
            append_flat(list, inner, n[1 + n[0] + i] * extent, n[1 + i],
                        extent);
        break;
    case MPI_COMBINER_HINDEXED:
        for (int64_t i = 0; i < n[0]; i++)
            append_flat(list, inner, a[i], n[1 + i], extent);
        break;
    case MPI_COMBINER_INDEXED_BLOCK:
        for (int64_t i = 0; i < n[0]; i++)
            append_flat(list, inner, n[2 + i] * extent, n[1], extent);
        break;
    case MPI_COMBINER_HINDEXED_BLOCK:
        for (int64_t i = 0; i < n[0]; i++)
            append_flat(list, inner, a[i], n[1], extent);
        break;
    case MPI_COMBINER_SUBARRAY:
        append_subarray(list, c, inner);
        break;
    case MPI_COMBINER_DARRAY:
        append_darray(list, c, inner);
        break;
    default: /* what later MPIs may bring */
        list->opaque = true;
        break;
    }
}

static void append_derived(struct list *list, MPI_Datatype type,
                           struct contents *c)
{
    struct rs_flat *inner;

    if (!get_contents(type, c)) {
        list->no_memory = true;
        return;
    }
    if (c->combiner == MPI_COMBINER_STRUCT) {
        append_struct(list, c);
    } else if (c->num_types != 1) {
        list->opaque = true;
    } else if ((inner = rs_flat_get(c->types[0])) != NULL) {
        append_constructed(list, c, inner);
        rs_flat_drop(inner);
    } else {
        list->no_memory = true;
    }
    free_contents(c);
}

/* ---- the objects ---- */

static uint64_t runs_size(const struct rsched_run *runs, size_t num)
{
    uint64_t size = 0;

    for (size_t i = 0; i < num; i++)
        size += runs[i].bytes * runs[i].count;
    return size;
}

/* Move the list into `flat`. */
static bool finish(struct rs_flat *flat, struct list *list)
{
    if (list->no_memory) {
        free(list->runs);
        free(flat);
        return false;
    }
    if (!list->opaque && runs_size(list->runs, list->num) != flat->size)
        list->opaque = true; /* we and the native MPI read it differently */
    if (list->opaque) {
        free(list->runs);
        list->runs = NULL;
        list->num = 0;
    }
    flat->opaque = list->opaque;
    flat->runs = list->runs;
    flat->num_runs = list->num;
    return true;
}

struct rs_flat *rs_flat_make(MPI_Datatype type, bool *named)
{
    struct rs_flat *flat = calloc(1, sizeof(*flat));
    struct contents contents = {0};
    struct list list = {0};
    MPI_Aint lb, extent;
    MPI_Count size;

    if (flat == NULL)
        return NULL;
    atomic_init(&flat->refs, 1);
    PMPI_Type_get_extent(type, &lb, &extent);
    PMPI_Type_size_x(type, &size);
    flat->lb = lb;
    flat->extent = extent;
    flat->size = (uint64_t)size;
    envelope(type, &contents);
    *named = is_named(contents.combiner);
    if (*named)
        append_named(&list, type, flat);
    else
        append_derived(&list, type, &contents);
    return finish(flat, &list) ? flat : NULL;
}

bool rs_flat_is_block(const struct rs_flat *flat, uint64_t count, struct rsched_run *run)
{
    if (flat->opaque || count == 0 || flat->num_runs != 1 || flat->runs[0].count != 1 ||
        (count > 1 && (int64_t)flat->runs[0].bytes != flat->extent))
        return false;
    *run = flat->runs[0];
    run->bytes *= count;
    return true;
}

struct rs_flat *rs_flat_repeat(const struct rs_flat *flat, uint64_t count)
{
    struct rs_flat *repeated = calloc(1, sizeof(*repeated));
    struct list list = {.opaque = flat->opaque && count > 0 && flat->size > 0};

    if (repeated == NULL)
        return NULL;
    atomic_init(&repeated->refs, 1);
    repeated->size = flat->size * count;
    if (rs_flat_is_block(flat, count, &repeated->one)) {
        repeated->runs = &repeated->one;
        repeated->num_runs = 1;
        return repeated;
    }
    append_copies(&list, flat->runs, flat->num_runs, 0, count, flat->extent);
    return finish(repeated, &list) ? repeated : NULL;
}
