/* SPDX-License-Identifier: BSD-3-Clause */
/* A face of an array across its rows, of a number in each, as a persistent
 * message that is longer than slots may be: it is read out of the sender's memory
 * in few calls of the kernel, and not in one for each number.
 *
 * face [--native] */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/mpi/hope.h"

enum { ROWS = 9000, ROW = 10, CALLS = 8 };

static atomic_uint calls;

/* Comes before the C library's. */
__attribute__((visibility("default"))) ssize_t
process_vm_readv(pid_t pid, const struct iovec *here, unsigned long num_here,
                 const struct iovec *there, unsigned long num_there,
                 unsigned long flags)
{
    atomic_fetch_add(&calls, 1);
    return syscall(SYS_process_vm_readv, pid, here, num_here, there, num_there,
                   flags);
}

static double out[ROWS * ROW], in[ROWS * ROW];
static MPI_Request requests[2];

static double value(int rank, int round, int row)
{
    return rank * 1e6 + round * 1e4 + row;
}

static void exchange(int round)
{
    for (int row = 0; row < ROWS; row++)
        out[row * ROW + 3] = value(world_rank, round, row);
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < ROWS * ROW; i++)
        CHECK(in[i] == (i % ROW == 5 ? value(1 - world_rank, round, i / ROW) : 0),
              "round %d, number %d: %g", round, i, in[i]);
}

int main(int argc, char **argv)
{
    struct hope hope = {0};
    MPI_Datatype face;
    int good, all = 0;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    MPI_Type_vector(ROWS, 1, ROW, MPI_DOUBLE, &face);
    MPI_Type_commit(&face);
    MPI_Recv_init(in + 5, 1, face, 1 - world_rank, 0, MPI_COMM_WORLD,
                  &requests[0]);
    MPI_Send_init(out + 3, 1, face, 1 - world_rank, 0, MPI_COMM_WORLD,
                  &requests[1]);
    for (int round = 0; !all; round++) {
        uint64_t pulls = counter("lane_pulls");
        unsigned before = atomic_load(&calls);

        exchange(round);
        good = !is_accelerated() || counter("lane_pulls") > pulls;
        if (good && is_accelerated()) {
            unsigned made = atomic_load(&calls) - before;

            CHECK(made >= 1 && made <= CALLS, "%u calls of the kernel", made);
        }
        MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (!all)
            go_on(&hope, "not read out of the sender's memory");
    }
    for (int i = 0; i < 2; i++)
        MPI_Request_free(&requests[i]);
    MPI_Type_free(&face);
    return test_fini("face");
}
