/* SPDX-License-Identifier: BSD-3-Clause */
/* What the native MPI decides and the backend must not change: which hints a
 * communicator has (MPI 4.1, 7.4.4), also those that are set later or come with a
 * copy, and what becomes of MPI_IN_PLACE, which neighborhood collectives do not
 * allow (8.6). Prints it; check-same compares.
 *
 * hints [--native] */
#include "tests/mpi/ring.h"

static void print_hints(const char *what, MPI_Comm comm)
{
    char key[MPI_MAX_INFO_KEY + 1], value[200];
    MPI_Info info;
    int num, flag;

    MPI_Comm_get_info(comm, &info);
    MPI_Info_get_nkeys(info, &num);
    if (world_rank == 0)
        printf("%s: %d hints\n", what, num);
    for (int i = 0; i < num; i++) {
        MPI_Info_get_nthkey(info, i, key);
        MPI_Info_get(info, key, sizeof(value) - 1, value, &flag);
        if (world_rank == 0)
            printf("    %s = %s\n", key, value);
    }
    MPI_Info_free(&info);
}

static MPI_Info make_hints(void)
{
    MPI_Info info;

    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "true");
    MPI_Info_set(info, "mpi_assert_allow_overtaking", "false");
    MPI_Info_set(info, "some_hint_of_nobody", "7");
    return info;
}

/* Hints are no reason to do anything else, nor are they in the way. */
static void use(MPI_Comm comm, MPI_Info info)
{
    double out[2] = {world_rank, world_rank}, in[2] = {-1, -1};
    uint64_t before = counter("neighbor_alltoall_init.accelerated");
    MPI_Request request;
    int rank, size;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    INIT(Neighbor_alltoall)
    (out, 1, MPI_DOUBLE, in, 1, MPI_DOUBLE, comm, info, &request);
    for (int i = 0; i < 3; i++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(in[0] + in[1] == (rank + size - 1) % size + (rank + 1) % size,
              "%g and %g", in[0], in[1]);
    }
    MPI_Request_free(&request);
    CHECK(!is_accelerated() ||
              counter("neighbor_alltoall_init.accelerated") == before + 1,
          "native because of hints");
}

#ifdef OPEN_MPI /* MPICH 4.0 ends */
static void in_place(MPI_Comm comm)
{
    int memory[2] = {1, 2}, error, class;

    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* Open MPI 4 */
    error = MPI_Neighbor_alltoall(MPI_IN_PLACE, 1, MPI_INT, memory, 1, MPI_INT,
                                  comm);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Error_class(error, &class);
    if (world_rank == 0)
        printf("in place: error class %d\n", class);
}
#endif

int main(int argc, char **argv)
{
    MPI_Comm comm, copy, other;
    MPI_Info info, strict;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    info = make_hints();
    MPI_Info_create(&strict);
    MPI_Info_set(strict, "mpi_assert_exact_length", "true");
#if MPI_VERSION >= 4
    MPI_Info_set(strict, "mpi_assert_strict_persistent_collective_ordering",
                 "true");
#endif
    comm = ring_comm(MPI_COMM_WORLD);
    print_hints("new", comm);
    MPI_Comm_set_info(comm, info);
    print_hints("set", comm);
    MPI_Comm_dup(comm, &copy);
    print_hints("copied", copy);
    MPI_Comm_dup_with_info(comm, strict, &other);
    print_hints("copied with others", other);
    use(comm, MPI_INFO_NULL);
    use(copy, info);
    use(other, strict);
#ifdef OPEN_MPI
    in_place(comm);
#endif
    MPI_Comm_free(&other);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&comm);
    MPI_Info_free(&strict);
    MPI_Info_free(&info);
    return test_fini("hints");
}
