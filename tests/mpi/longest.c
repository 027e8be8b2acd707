/* SPDX-License-Identifier: BSD-3-Clause */
/* A persistent message of more bytes than an int has, out of little memory, and a short
 * one beside it: lanes open for both. */
#include <sys/mman.h>

#include "tests/mpi/hope.h"

enum { PART = 1 << 20, PARTS = 2049, SHORT = 8192, MOST_STEPS = 30 };

static char small[SHORT], part[PART];

static char value(int step, size_t i)
{
    return (char)(step * 13 + (int)(i + (i >> 10)));
}

/* All parts from one place. */
static MPI_Datatype same_parts(void)
{
    MPI_Datatype one, type;

    MPI_Type_contiguous(PART, MPI_BYTE, &one);
    MPI_Type_create_resized(one, 0, 0, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&one);
    return type;
}

static void fill(int step)
{
    for (size_t i = 0; i < PART; i++)
        part[i] = value(step, i);
    for (size_t i = 0; i < SHORT; i++)
        small[i] = value(step + 1, i);
}

static void check(const char *all, int step)
{
    for (size_t i = 0; i < PARTS; i += PARTS / 7)
        CHECK(memcmp(all + i * PART, part, PART) == 0, "step %d, part %zu", step, i);
    for (size_t i = 0; i < SHORT; i++)
        CHECK(small[i] == value(step + 1, i), "step %d, byte %zu", step, i);
}

int main(int argc, char **argv)
{
    const size_t bytes = (size_t)PARTS * PART;
    MPI_Request requests[2];
    struct hope hope = {0};
    MPI_Datatype type, whole;
    char *all = NULL;
    int step = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    type = same_parts();
    MPI_Type_contiguous(PART, MPI_BYTE, &whole);
    MPI_Type_commit(&whole);
    if (world_rank == 0) {
        MPI_Send_init(part, PARTS, type, 1, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Send_init(small, SHORT, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[1]);
    } else {
        all = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(all != MAP_FAILED, "mmap: %m");
        MPI_Recv_init(all, PARTS, whole, 0, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Recv_init(small, SHORT, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[1]);
    }
    for (;; step++) {
        const char *name = world_rank == 0 ? "lane_sends" : "lane_receives";
        uint64_t before = counter(name);

        fill(step);
        if (world_rank == 1)
            memset(small, 0, SHORT);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if (world_rank == 1)
            check(all, step);
        if (all_have(&hope, counter(name) - before == 2))
            break;
        CHECK(step < MOST_STEPS, "no lanes: %" PRIu64 " starts are native",
              counter("lane_native"));
    }
    if (world_rank == 0)
        printf("by lanes in step %d\n", step);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Type_free(&type);
    MPI_Type_free(&whole);
    MPI_Finalize();
    return PASS;
}
