/* SPDX-License-Identifier: BSD-3-Clause */
/* Datatypes of all constructors, from layout to bytes and from bytes to layout,
 * against what MPI_Pack and MPI_Unpack do with them natively; and, by the
 * counters, none of them packed on the way, but those with too many parts. */
#include "tests/mpi/common.h"
#include "tests/mpi/hope.h"

enum { MAX_TYPES = 64, AREA = 1 << 17 };

struct kind {
    const char *name;
    MPI_Datatype type;
    int max_count; /* repetitions that fit in the area */
    bool packed;   /* by the native MPI */
};

static struct kind kinds[MAX_TYPES];
static int num_kinds;
static int left, right;

static void add(const char *name, MPI_Datatype type, int max_count)
{
    MPI_Type_commit(&type);
    CHECK(num_kinds < MAX_TYPES, "too many types");
    kinds[num_kinds++] = (struct kind){name, type, max_count, false};
}

static MPI_Datatype resized(MPI_Datatype type, MPI_Aint lb, MPI_Aint extent)
{
    MPI_Datatype made;

    MPI_Type_create_resized(type, lb, extent, &made);
    return made;
}

static void simple_types(void)
{
    MPI_Datatype type, inner;

    add("double", MPI_DOUBLE, 3);
    MPI_Type_contiguous(7, MPI_INT, &type);
    add("contiguous", type, 3);
    MPI_Type_dup(type, &inner);
    add("dup", inner, 3);
    MPI_Type_vector(5, 2, 4, MPI_FLOAT, &type);
    add("vector", type, 3);
    MPI_Type_vector(5, 3, 3, MPI_FLOAT, &inner);
    add("vector without gaps", inner, 3);
    MPI_Type_vector(4, 1, 7, type, &inner);
    add("vector of vectors", inner, 2);
    MPI_Type_create_hvector(6, 1, -24, MPI_DOUBLE, &inner);
    add("hvector, backwards", inner, 2);
    MPI_Type_vector(0, 2, 4, MPI_FLOAT, &inner);
    add("no elements", inner, 3);
    add("double_int", MPI_DOUBLE_INT, 3);
    add("short_int", MPI_SHORT_INT, 3);
}

static void indexed_types(void)
{
    int lengths[] = {2, 0, 1, 3}, displs[] = {8, 1, 2, 20}, places[] = {9, 0, 4};
    int backwards[] = {3, -2, -7, 0}, one[] = {1, 1, 1};
    MPI_Aint bytes[] = {40, -16, 0, 100}, members[] = {16, -8, 0};
    MPI_Aint below[] = {-40, 0, 16, -100};
    MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT}, type;

    MPI_Type_indexed(4, lengths, displs, MPI_INT, &type);
    add("indexed", type, 3);
    MPI_Type_indexed(4, lengths, backwards, MPI_SHORT, &type);
    add("indexed, negative", type, 3);
    MPI_Type_create_hindexed(4, lengths, bytes, MPI_INT, &type);
    add("hindexed, negative", type, 3);
    MPI_Type_create_hindexed(4, lengths, below, MPI_INT, &type);
    add("hindexed, first below", type, 3);
    MPI_Type_create_hindexed(1, lengths, below, MPI_INT, &type);
    add("one block below", type, 3);
    MPI_Type_create_indexed_block(3, 2, places, MPI_FLOAT, &type);
    add("indexed block", type, 3);
    MPI_Type_create_hindexed_block(3, 1, bytes, MPI_DOUBLE, &type);
    add("hindexed block", type, 3);
    MPI_Type_create_struct(3, one, members, types, &type);
    add("struct, negative", type, 3);
    add("struct, resized", resized(type, -8, 64), 3);
    MPI_Type_vector(3, 1, 2, resized(type, -8, 64), &type);
    add("vector of structs", type, 2);
    add("bounds far below", resized(MPI_INT, -1024, 2048), 3);
    add("bounds far apart", resized(MPI_INT, 0, (MPI_Aint)1 << 40), 1);
    add("extent below size", resized(MPI_DOUBLE, 0, -16), 3);
}

static void array_types(void)
{
    static const int orders[] = {MPI_ORDER_C, MPI_ORDER_FORTRAN};
    static const int whole[3] = {5, 6, 7}, part[3] = {2, 3, 4};
    static const int from[3] = {1, 2, 0}, grid[3] = {2, 1, 3};
    static const int distributions[3] = {MPI_DISTRIBUTE_BLOCK,
                                         MPI_DISTRIBUTE_NONE,
                                         MPI_DISTRIBUTE_CYCLIC};
    static const int arguments[2][3] = {
        {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG,
         MPI_DISTRIBUTE_DFLT_DARG},
        {4, MPI_DISTRIBUTE_DFLT_DARG, 2}};
    MPI_Datatype type;

    for (int o = 0; o < 2; o++) {
        MPI_Type_create_subarray(3, whole, part, from, orders[o], MPI_INT,
                                 &type);
        add("subarray", type, 2);
        for (int a = 0; a < 2; a++) {
            for (int process = 0; process < 6; process++) {
                MPI_Type_create_darray(6, process, 3, whole, distributions,
                                       arguments[a], grid, orders[o], MPI_INT,
                                       &type);
                add("darray", type, 2);
            }
        }
    }
}

#if MPI_VERSION >= 4
static void large_count_types(void)
{
    static const MPI_Count lengths[] = {2, 0, 1}, displs[] = {8, 1, 2};
    static const MPI_Count whole[2] = {5, 6}, part[2] = {2, 3}, from[2] = {1, 2};
    static const int cyclic[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
    static const int arguments[2] = {2, MPI_DISTRIBUTE_DFLT_DARG};
    static const int grid[2] = {2, 2};
    MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT}, type;

    MPI_Type_contiguous_c(7, MPI_INT, &type);
    add("large contiguous", type, 3);
    MPI_Type_vector_c(5, 2, 4, MPI_FLOAT, &type);
    add("large vector", type, 3);
    MPI_Type_create_hvector_c(5, 2, 40, MPI_FLOAT, &type);
    add("large hvector", type, 3);
    MPI_Type_indexed_c(3, lengths, displs, MPI_INT, &type);
    add("large indexed", type, 3);
    MPI_Type_create_hindexed_c(3, lengths, displs, MPI_CHAR, &type);
    add("large hindexed", type, 3);
    MPI_Type_create_indexed_block_c(3, 1, displs, MPI_INT, &type);
    add("large indexed block", type, 3);
    MPI_Type_create_hindexed_block_c(3, 1, displs, MPI_CHAR, &type);
    add("large hindexed block", type, 3);
    MPI_Type_create_struct_c(3, lengths, displs, types, &type);
    add("large struct", type, 3);
    MPI_Type_create_resized_c(MPI_INT, -4, 24, &type);
    add("large resized", type, 3);
    MPI_Type_create_subarray_c(2, whole, part, from, MPI_ORDER_C, MPI_INT,
                               &type);
    add("large subarray", type, 2);
    MPI_Type_create_darray_c(4, 2, 2, whole, cyclic, arguments, grid,
                             MPI_ORDER_C, MPI_INT, &type);
    add("large darray", type, 2);
}
#endif

/* More parts than it is worth to list. */
static void scattered_type(void)
{
    enum { PARTS = 70000 };
    static int displs[PARTS];
    MPI_Datatype type;

    for (int i = 0, at = 0; i < PARTS; i++) {
        displs[i] = at;
        at += 2 + i % 2; /* only pairs merge into strided runs */
    }
    MPI_Type_create_indexed_block(PARTS, 1, displs, MPI_CHAR, &type);
    add("scattered", type, 1);
    kinds[num_kinds - 1].packed = true;
}

/* ---- moving one ---- */

/* Memory that a type lies in; `base` is where its displacements count from. */
struct area {
    size_t bytes;
    char *memory, *base;
};

static struct area area_create(const struct kind *kind, int count)
{
    MPI_Aint lb, extent, first, length;
    MPI_Aint low, high, last;
    struct area area;

    MPI_Type_get_extent(kind->type, &lb, &extent);
    MPI_Type_get_true_extent(kind->type, &first, &length);
    last = (count - 1) * extent;
    low = first + (last < 0 ? last : 0);
    high = first + length + (last > 0 ? last : 0);
    area.bytes = (size_t)(high - low) + 64;
    CHECK(area.bytes <= 4 * AREA, "%s: %zu bytes", kind->name, area.bytes);
    area.memory = allocate(area.bytes);
    area.base = area.memory + 32 - low;
    return area;
}

/* The same on all processes for the same number. */
static void area_fill(struct area *area, int number)
{
    struct random r = {(uint64_t)number};

    random_fill(&r, area->memory, area->bytes);
}

static int pack(const struct kind *kind, int count, const struct area *area,
                char *bytes)
{
    int size, position = 0;

    MPI_Type_size(kind->type, &size);
    if (size > 0)
        MPI_Pack(area->base, count, kind->type, bytes, size * count, &position,
                 MPI_COMM_SELF);
    return size * count;
}

enum call { BLOCKING, PERSISTENT, NONBLOCKING, MESSAGES, NUM_CALLS };

/* Persistent sends and receives, until all of them have gone through lanes;
 * those that are packed natively never do. */
static void messages(MPI_Comm comm, bool native, const char *send, int scount,
                     MPI_Datatype stype, char *receive[2], int rcount,
                     MPI_Datatype rtype)
{
    int peers[2] = {left, right};
    struct hope hope = {0};
    MPI_Request requests[4];

    for (int way = 0; way < 2; way++) {
        MPI_Recv_init(receive[way], rcount, rtype, peers[way], way, comm,
                      &requests[way]);
        MPI_Send_init(send, scount, stype, peers[way], !way, comm,
                      &requests[2 + way]);
    }
    for (int i = 0;; i++) {
        uint64_t in = counter("lane_receives"), out = counter("lane_sends");

        MPI_Startall(4, requests);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        if (all_have(&hope, !is_accelerated() || (native && i == 3) ||
                                (counter("lane_receives") == in + 2 &&
                                 counter("lane_sends") == out + 2)))
            break;
        go_on(&hope, "not in lanes");
    }
    for (int i = 0; i < 4; i++)
        MPI_Request_free(&requests[i]);
}

/* One type to and from both neighbors. */
static void exchange(enum call call, MPI_Comm comm, bool native,
                     const char *send, int scount, MPI_Datatype stype,
                     char *receive[2], int rcount, MPI_Datatype rtype)
{
    int scounts[2] = {scount, scount}, rcounts[2] = {rcount, rcount};
    MPI_Aint sdispls[2] = {0, 0}, rdispls[2] = {0, receive[1] - receive[0]};
    MPI_Datatype stypes[2] = {stype, stype}, rtypes[2] = {rtype, rtype};
    MPI_Request request = MPI_REQUEST_NULL;

    if (call == MESSAGES) {
        messages(comm, native, send, scount, stype, receive, rcount, rtype);
        return;
    }
    if (call == BLOCKING) {
        MPI_Neighbor_alltoallw(send, scounts, sdispls, stypes, receive[0],
                               rcounts, rdispls, rtypes, comm);
        return;
    }
    if (call == PERSISTENT) {
        INIT(Neighbor_alltoallw)
        (send, scounts, sdispls, stypes, receive[0], rcounts, rdispls, rtypes,
         comm, MPI_INFO_NULL, &request);
        MPI_Start(&request);
    } else {
        MPI_Ineighbor_alltoallw(send, scounts, sdispls, stypes, receive[0],
                                rcounts, rdispls, rtypes, comm, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (call == PERSISTENT)
        MPI_Request_free(&request);
}

static int seed(int rank, int which, int count)
{
    return rank * 1000000 + which * 100 + count * 10;
}

static void to_bytes(enum call call, MPI_Comm comm, int which, int count)
{
    const struct kind *kind = &kinds[which];
    struct area area = area_create(kind, count);
    char *expected = allocate(AREA), *got[2] = {allocate(AREA), allocate(AREA)};
    int size;

    area_fill(&area, seed(world_rank, which, count));
    size = pack(kind, count, &area, expected);
    exchange(call, comm, kind->packed, area.base, count, kind->type, got, size,
             MPI_BYTE);
    for (int way = 0; way < 2; way++) {
        area_fill(&area, seed(way == 0 ? left : right, which, count));
        pack(kind, count, &area, expected);
        CHECK(memcmp(got[way], expected, (size_t)size) == 0,
              "%s, %d times: other bytes than MPI_Pack", kind->name, count);
        free(got[way]);
    }
    free(expected);
    free(area.memory);
}

static void from_bytes(enum call call, MPI_Comm comm, int which, int count)
{
    const struct kind *kind = &kinds[which];
    struct area wanted = area_create(kind, count);
    struct area areas[2] = {area_create(kind, count), area_create(kind, count)};
    char *bytes = allocate(AREA), *got[2] = {areas[0].base, areas[1].base};
    int size = pack(kind, count, &wanted, bytes), position;
    struct random r = {(uint64_t)seed(world_rank, which, count)};

    random_fill(&r, bytes, (size_t)size);
    for (int way = 0; way < 2; way++)
        area_fill(&areas[way], way);
    exchange(call, comm, kind->packed, bytes, size, MPI_BYTE, got, count,
             kind->type);
    for (int way = 0; way < 2; way++) {
        r.state = (uint64_t)seed(way == 0 ? left : right, which, count);
        random_fill(&r, bytes, (size_t)size);
        area_fill(&wanted, way);
        position = 0;
        if (size > 0)
            MPI_Unpack(bytes, size, &position, wanted.base, count, kind->type,
                       MPI_COMM_SELF);
        /* Gaps included. */
        CHECK(memcmp(areas[way].memory, wanted.memory, wanted.bytes) == 0,
              "%s, %d times: other memory than MPI_Unpack", kind->name, count);
        free(areas[way].memory);
    }
    free(bytes);
    free(wanted.memory);
}

/* Persistent messages at absolute addresses, by types that are freed at once. */
static void absolute(MPI_Comm comm)
{
    int out[2], in[2];
    struct hope hope = {0};
    MPI_Request requests[2];

    for (int k = 0; k < 2; k++) {
        MPI_Datatype type;
        MPI_Aint at[2];

        MPI_Get_address(k == 0 ? &in[1] : &out[1], &at[0]);
        MPI_Get_address(k == 0 ? &in[0] : &out[0], &at[1]);
        MPI_Type_create_hindexed_block(2, 1, at, MPI_INT, &type);
        MPI_Type_commit(&type);
        if (k == 0)
            MPI_Recv_init(MPI_BOTTOM, 1, type, left, 8, comm, &requests[0]);
        else
            MPI_Send_init(MPI_BOTTOM, 1, type, right, 8, comm, &requests[1]);
        MPI_Type_free(&type);
    }
    for (int i = 0;; i++) {
        uint64_t before = counter("lane_sends") + counter("lane_receives");

        for (int k = 0; k < 2; k++) {
            out[k] = world_rank * 1000 + 10 * i + k;
            in[k] = -1;
        }
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (int k = 0; k < 2; k++)
            CHECK(in[k] == left * 1000 + 10 * i + k, "%d", in[k]);
        if (all_have(&hope, !is_accelerated() || counter("lane_sends") +
                                                         counter("lane_receives") ==
                                                     before + 2))
            break;
        go_on(&hope, "never in a lane");
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

int main(int argc, char **argv)
{
    int periodic = 1;
    MPI_Comm comm;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &periodic, 0, &comm);
    MPI_Cart_shift(comm, 0, 1, &left, &right);
    simple_types();
    indexed_types();
    array_types();
#if MPI_VERSION >= 4
    large_count_types();
#endif
    scattered_type();
    absolute(comm);
    for (int which = 0; which < num_kinds; which++) {
        for (int count = 1; count <= kinds[which].max_count; count++) {
            uint64_t before = counter("packed"), more;
            uint64_t native = counter("native");

            for (int call = 0; call < NUM_CALLS; call++) {
                to_bytes((enum call)call, comm, which, count);
                from_bytes((enum call)call, comm, which, count);
            }
            more = counter("packed") - before;
            CHECK(!is_accelerated() || (more > 0) == kinds[which].packed,
                  "%s, %d times: %" PRIu64 " blocks packed",
                  kinds[which].name, count, more);
            /* Persistent messages that the native MPI packs are its own. */
            native = counter("native") - native;
            CHECK(!is_accelerated() || (native > 0) == kinds[which].packed,
                  "%s, %d times: %" PRIu64 " native calls",
                  kinds[which].name, count, native);
        }
    }
    MPI_Comm_free(&comm);
    return test_fini("datatypes");
}
