/* SPDX-License-Identifier: BSD-3-Clause */
/* Ordinary send buffers are put into huge pages by the costs of huge.yaml, the
 * kernel reads them from then on, and both are counted. */
#include <sys/mman.h>

#include "tests/mpi/ring.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define SETTINGS "/sys/kernel/mm/transparent_hugepage/"

enum { NUM = 400000, HUGE_PAGE = 2 << 20, EPOCHS = 8 };

/* @return whether a file's first line has a text in it */
static bool says(const char *path, const char *text)
{
    FILE *file = fopen(path, "r");
    char line[80] = "";

    if (file != NULL && fgets(line, sizeof(line), file) == NULL)
        line[0] = '\0';
    if (file != NULL)
        fclose(file);
    return strstr(line, text) != NULL;
}

/* The kernel makes them on request though its administrator wants none; rsched does
 * not. */
static bool can_make(void)
{
    char *memory;
    bool made;

    if (!says(SETTINGS "hpage_pmd_size", "2097152") ||
        says(SETTINGS "enabled", "[never]"))
        return false;
    memory = aligned_alloc(HUGE_PAGE, HUGE_PAGE);
    CHECK(memory != NULL, "no memory");
    memset(memory, 1, HUGE_PAGE);
    made = madvise(memory, HUGE_PAGE, MADV_COLLAPSE) == 0;
    free(memory);
    return made;
}

int main(int argc, char **argv)
{
    int can, all;
    struct ring ring;
    MPI_Comm comm;

    test_init(&argc, &argv, false);
    can = can_make();
    MPI_Allreduce(&can, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    comm = ring_comm(MPI_COMM_WORLD);
    ring_create(&ring, comm, NUM);
    CHECK(counter("huge") == 0, "before anything was sent");
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        ring_fill(&ring, world_rank, epoch);
        MPI_Start(&ring.request);
        MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
        ring_verify(&ring, epoch);
    }
    /* Each message is 3 MB, both are one piece of memory. */
    CHECK(!all || counter("huge") >= HUGE_PAGE, "%" PRIu64 " bytes",
          counter("huge"));
    CHECK(counter("huge") <= 2 * NUM * sizeof(double), "%" PRIu64 " bytes",
          counter("huge"));
    CHECK(counter("ways.cma") >= counter("huge"), "%" PRIu64 " bytes read",
          counter("ways.cma"));
    MPI_Request_free(&ring.request);
    ring_free(&ring);
    MPI_Comm_free(&comm);
    return test_fini("huge");
}
