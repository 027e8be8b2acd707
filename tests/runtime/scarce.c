/* SPDX-License-Identifier: BSD-3-Clause */
/* Little is left of what limits of the process bound, but enough: what only gains time
 * is done without. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

enum { BYTES = 1 << 18, EPOCHS = 5 };

static const struct halo_edge both[] = {{0, 1, BYTES}, {1, 0, BYTES}};

static int limit(int resource, rlim_t most)
{
    const struct rlimit l = {most, most};

    return setrlimit(resource, &l);
}

static int exchange(struct rank *self)
{
    struct halo *halo;

    RANK_CHECK(halo_create(self, both, 2, 1, 0, &halo) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(halo, epoch) == 0);
    halo_destroy(halo);
    return 0;
}

/* Room in files for slots of RSCHED_RING=512k, not for twice the cache. */
static int run_short_files(struct rank *self)
{
    RANK_CHECK(limit(RLIMIT_FSIZE, 700 << 10) == 0);
    return exchange(self);
}

/* Each to each other one, through descriptors that are not enough for all that could be
 * opened of so many, three of each, but for what has to be. */
enum { CROWD = 20, CROWD_EDGES = CROWD * (CROWD - 1), CROWD_BYTES = 100000 };
enum { CROWD_FREE = 3 * (CROWD - 1) - 5 };

/* The limit that leaves so many descriptors. */
static rlim_t limit_with(int number)
{
    int fd = 0;

    for (; number > 0; fd++)
        number -= fcntl(fd, F_GETFD) < 0;
    return (rlim_t)fd;
}

static int run_few_descriptors(struct rank *self)
{
    static struct halo_edge all[CROWD_EDGES];
    struct halo *halo;

    for (int i = 0, n = 0; i < CROWD; i++) {
        for (int k = 0; k < CROWD; k++) {
            if (i != k)
                all[n++] = (struct halo_edge){i, k, CROWD_BYTES | HALO_SHARED};
        }
    }
    RANK_CHECK(limit(RLIMIT_NOFILE, limit_with(CROWD_FREE)) == 0);
    RANK_CHECK(halo_create(self, all, CROWD_EDGES, 1, 0, &halo) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(halo, epoch) == 0);
    halo_destroy(halo);
    return 0;
}

#ifndef __SANITIZE_ADDRESS__
/* Room for those of both directions, and the messages. */
static int run_little_space(struct rank *self)
{
    unsigned long pages;
    FILE *f = fopen("/proc/self/statm", "r");

    RANK_CHECK(f != NULL && fscanf(f, "%lu", &pages) == 1);
    fclose(f);
    RANK_CHECK(limit(RLIMIT_AS, pages * (rlim_t)sysconf(_SC_PAGESIZE) + (4 << 20)) == 0);
    return exchange(self);
}
#endif

int main(void)
{
    setenv("RSCHED_CMA", "0", 1);
    setenv("RSCHED_PROGRESS", "0", 1); /* no thread, no stack of one */
    if (ranks_run(2, false, run_short_files, NULL) != 0)
        return 1;
    printf("PASS short files\n");
    if (ranks_run(CROWD, false, run_few_descriptors, NULL) != 0)
        return 1;
    printf("PASS few descriptors\n");
#ifndef __SANITIZE_ADDRESS__ /* maps terabytes */
    if (ranks_run(2, false, run_little_space, NULL) != 0)
        return 1;
    printf("PASS little address space\n");
#endif
    return 0;
}
