/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators, requests and datatypes come and go in any order, and nothing
 * is left behind: descriptors, mappings, counters. */
#include "tests/base/entries.h"
#include "tests/mpi/ring.h"

/* Mappings of shared memory; those of plain memory come and go. */
static int count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1000];
    int num = 0;

    CHECK(maps != NULL, "cannot read /proc/self/maps");
    while (fgets(line, sizeof(line), maps) != NULL)
        num += strstr(line, "memfd:") != NULL;
    fclose(maps);
    return num;
}

static void use(struct ring *ring, int epoch)
{
    ring_fill(ring, world_rank, epoch);
    MPI_Start(&ring->request);
    MPI_Wait(&ring->request, MPI_STATUS_IGNORE);
    ring_verify(ring, epoch);
}

static void blocking(MPI_Comm comm, int num)
{
    double *send = allocate(2 * (size_t)num * sizeof(double));
    double *receive = allocate(2 * (size_t)num * sizeof(double));
    int left, right;

    MPI_Cart_shift(comm, 0, 1, &left, &right);
    for (int i = 0; i < num; i++) {
        send[i] = world_rank;
        send[num + i] = world_rank + 0.5;
    }
    MPI_Neighbor_alltoall(send, num, MPI_DOUBLE, receive, num, MPI_DOUBLE,
                          comm);
    for (int i = 0; i < num; i++)
        CHECK(receive[i] == left + 0.5 && receive[num + i] == right,
              "received %g and %g", receive[i], receive[num + i]);
    free(send);
    free(receive);
}

/* The communicator goes first; the request works on. */
static void freed_communicator(void)
{
    struct ring rings[2];
    MPI_Comm comm = ring_comm(MPI_COMM_WORLD), copy;

    ring_create(&rings[0], comm, 100);
    MPI_Comm_dup(comm, &copy);
    ring_create(&rings[1], copy, 20000);
    blocking(comm, 10);
    MPI_Comm_free(&comm);
    use(&rings[0], 1);
    blocking(copy, 5000);
    MPI_Comm_free(&copy);
    for (int epoch = 2; epoch < 5; epoch++) {
        use(&rings[1], epoch);
        use(&rings[0], epoch);
    }
    for (int i = 0; i < 2; i++) {
        MPI_Request_free(&rings[i].request);
        ring_free(&rings[i]);
    }
}

/* Freed while an exchange is under way. */
static void freed_while_active(void)
{
    MPI_Comm comm = ring_comm(MPI_COMM_WORLD);
    struct ring ring;

    ring_create(&ring, comm, 30000);
    ring_fill(&ring, world_rank, 1);
    MPI_Start(&ring.request);
    MPI_Comm_free(&comm);
    MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
    ring_verify(&ring, 1);
    MPI_Request_free(&ring.request);
    ring_free(&ring);
}

/* Halves of the world at work at once, then the whole again. */
static void split(int cycle)
{
    int color = world_rank % 2, rank;
    MPI_Comm half, comm, whole = ring_comm(MPI_COMM_WORLD);
    struct ring ring, all;

    ring_create(&all, whole, 50);
    MPI_Comm_split(MPI_COMM_WORLD, color, -world_rank, &half);
    comm = ring_comm(half);
    MPI_Comm_free(&half);
    MPI_Comm_rank(comm, &rank);
    ring_create(&ring, comm, 10 + color);
    for (int epoch = 0; epoch < 3; epoch++) {
        ring_fill(&ring, rank, epoch);
        ring_fill(&all, world_rank, epoch + cycle);
        MPI_Start(&all.request);
        MPI_Start(&ring.request);
        MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
        MPI_Wait(&all.request, MPI_STATUS_IGNORE);
        ring_verify(&ring, epoch);
        ring_verify(&all, epoch + cycle);
    }
    MPI_Comm_free(&comm);
    MPI_Comm_free(&whole);
    MPI_Request_free(&ring.request);
    MPI_Request_free(&all.request);
    ring_free(&ring);
    ring_free(&all);
}

/* Datatypes with equal handles need not be equal types. */
static void changing_types(void)
{
    MPI_Comm comm = ring_comm(MPI_COMM_WORLD);
    int left, right, send[40], receive[40];
    uint64_t loads = counter("loads");

    MPI_Cart_shift(comm, 0, 1, &left, &right);
    for (int i = 0; i < 40; i++)
        send[i] = world_rank * 1000 + i;
    for (int stride = 1; stride < 6; stride++) {
        int extent = 3 * stride + 1; /* ints */
        MPI_Datatype type;

        MPI_Type_vector(4, 1, stride, MPI_INT, &type);
        MPI_Type_commit(&type);
        for (int repeat = 0; repeat < 2; repeat++) {
            memset(receive, 0, sizeof(receive));
            MPI_Neighbor_alltoall(send, 1, type, receive, 4, MPI_INT, comm);
            for (int i = 0; i < 4; i++)
                CHECK(receive[i] == left * 1000 + extent + i * stride &&
                          receive[4 + i] == right * 1000 + i * stride,
                      "stride %d: received %d and %d", stride, receive[i],
                      receive[4 + i]);
        }
        MPI_Type_free(&type);
    }
    CHECK(!is_accelerated() || counter("loads") - loads <= 10,
          "unchanged arguments are loaded again");
    MPI_Comm_free(&comm);
}

/* Calls that differ in nothing but where the blocks lie. */
static void changing_displacements(void)
{
    MPI_Comm comm = ring_comm(MPI_COMM_WORLD);
    int left, right, counts[2] = {1, 1}, send[8], receive[8];

    MPI_Cart_shift(comm, 0, 1, &left, &right);
    for (int i = 0; i < 8; i++)
        send[i] = world_rank * 1000 + i;
    for (int call = 0; call < 8; call++) {
        int out[2] = {call, 7 - call}, in[2] = {7 - call, call};
        MPI_Request request;

        memset(receive, -1, sizeof(receive));
        if (call % 2) {
            MPI_Neighbor_alltoallv(send, counts, out, MPI_INT, receive, counts,
                                   in, MPI_INT, comm);
        } else {
            MPI_Ineighbor_alltoallv(send, counts, out, MPI_INT, receive,
                                    counts, in, MPI_INT, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        for (int i = 0; i < 8; i++)
            CHECK(receive[i] == (i == in[0]   ? left * 1000 + out[1]
                                 : i == in[1] ? right * 1000 + out[0]
                                              : -1),
                  "call %d: receive[%d] is %d", call, i, receive[i]);
    }
    MPI_Comm_free(&comm);
}

/* Programs clean up when MPI_Finalize deletes the attributes of
 * MPI_COMM_SELF; their requests must still work. */
static struct ring last;

static int at_finalize(MPI_Comm self, int keyval, void *value, void *extra)
{
    (void)self;
    (void)keyval;
    (void)value;
    (void)extra;
    use(&last, 7);
    MPI_Request_free(&last.request);
    ring_free(&last);
    printf("life: rank %d has cleaned up\n", world_rank);
    return MPI_SUCCESS;
}

/* Also: a request and two communicators that nobody frees. */
static void leave_for_finalize(void)
{
    MPI_Comm comm = ring_comm(MPI_COMM_WORLD);
    struct ring left;
    int keyval;

    ring_create(&last, comm, 1000);
    ring_create(&left, ring_comm(MPI_COMM_WORLD), 10);
    use(&left, 1);
    blocking(comm, 3);
    ring_free(&left);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
    MPI_Comm_free_keyval(&keyval);
}

int main(int argc, char **argv)
{
    int cycles = (int)number_option(argc, argv, "--cycles", 60);
    int descriptors = 0, mappings = 0;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    for (int cycle = 0; cycle < cycles; cycle++) {
        if (cycle == 10) { /* connections and pools stand */
            descriptors = count_descriptors();
            mappings = count_mappings();
        }
        freed_communicator();
        freed_while_active();
        split(cycle);
        changing_types();
        changing_displacements();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (is_accelerated()) {
        /* Memory that a peer may still look at is given up a little later. */
        CHECK(count_descriptors() <= descriptors + 4,
              "%d descriptors became %d", descriptors, count_descriptors());
        CHECK(count_mappings() <= mappings + 8, "%d mappings became %d",
              mappings, count_mappings());
        CHECK(counter("requests") == 0 && counter("communicators") == 0,
              "something is left");
        CHECK(counter("native") == 0, "%" PRIu64 " native calls",
              counter("native"));
        CHECK(counter("neighbor_alltoall_init.accelerated") ==
                  5 * (uint64_t)cycles,
              "not accelerated");
    }
    leave_for_finalize();
    return test_fini("life");
}
