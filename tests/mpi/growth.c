/* SPDX-License-Identifier: BSD-3-Clause */
/* Lanes are made for the first message, and later ones are longer: after a
 * while these go through slots, too, and are not read out of the sender's
 * memory; and so do shorter ones after them. By the costs of growth.yaml that is
 * so for blocks that are short, and for all up to some 18 KB. A process has no
 * slots for itself: those are read where they are.
 *
 * growth [--native] */
#include "tests/mpi/hope.h"

enum { MOST = 15000, STRIDE = 2, LANES = 3 };
/* Ints that go through slots in any case, and if two copies are cheaper. */
enum { LONGEST = 768, LONGEST_READ = 4096 };

static int left, right;
static int out[LANES][STRIDE * MOST], in[LANES][STRIDE * MOST];
static MPI_Request requests[2 * LANES];

static int value(int rank, int round, int tag, int i)
{
    return rank * 100000 + round * 100 + tag * 10 + i % 7;
}

static void exchange(int round, int ints, int stride)
{
    for (int tag = 0; tag < LANES; tag++) {
        for (int i = 0; i < ints; i++) {
            out[tag][i * stride] = value(world_rank, round, tag, i);
            in[tag][i * stride] = -1;
        }
    }
    MPI_Startall(2 * LANES, requests);
    MPI_Waitall(2 * LANES, requests, MPI_STATUSES_IGNORE);
    for (int tag = 0; tag < LANES; tag++) {
        for (int i = 0; i < ints; i++)
            CHECK(in[tag][i * stride] == value(left, round, tag, i),
                  "round %d, tag %d, %d of %d ints: %d", round, tag, i, ints,
                  in[tag][i * stride]);
    }
}

/* Until all of a round is in slots, or none of it. */
static void settle(int ints, int stride)
{
    bool pulled = world_size == 1 ? ints > LONGEST
                                  : stride == 1 && ints > LONGEST_READ;
    struct hope hope = {0};

    for (int round = 0;; round++) {
        uint64_t receives = counter("lane_receives");
        uint64_t pulls = counter("lane_pulls");

        exchange(round, ints, stride);
        if (all_have(&hope,
                     !is_accelerated() ||
                         (counter("lane_receives") == receives + LANES &&
                          counter("lane_pulls") == pulls + (pulled ? LANES : 0))))
            return;
        go_on(&hope, "not in its way");
    }
}

int main(int argc, char **argv)
{
    static const struct {
        int ints, stride;
    } lengths[] = {{2, 1}, {16, 1}, {700, 1}, {40, 1}, {1024, 1},
                   {4096, 1}, {5000, 1}, {1025, 1}, {1024, STRIDE}, {3000, STRIDE},
                   {60, 1}, {MOST, STRIDE}, {60, 1}};
    MPI_Comm comm;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    left = (world_rank + world_size - 1) % world_size;
    right = (world_rank + 1) % world_size;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
        int ints = lengths[k].ints, stride = lengths[k].stride;
        MPI_Datatype type;

        MPI_Type_vector(ints, 1, stride, MPI_INT, &type);
        MPI_Type_commit(&type);
        for (int tag = 0; tag < LANES; tag++) {
            MPI_Recv_init(in[tag], 1, type, left, tag, comm, &requests[tag]);
            MPI_Send_init(out[tag], 1, type, right, tag, comm,
                          &requests[LANES + tag]);
        }
        MPI_Type_free(&type);
        settle(ints, stride);
        for (int i = 0; i < 2 * LANES; i++)
            MPI_Request_free(&requests[i]);
    }
    MPI_Comm_free(&comm);
    return test_fini("growth");
}
