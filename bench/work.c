/* SPDX-License-Identifier: BSD-3-Clause */
#include "work.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, PAGE = 4096 };

/* Directions, and how many messages and of which size the paper has there. */
struct direction {
    int dx, dy;
    int scale_messages;
    int scale_columns; /* a message's columns of (2 + levels + 2) doubles */
};

static const struct direction directions[] = {
    {-1, 0, 1, 32}, {1, 0, 1, 32},  {0, -1, 2, 16}, {0, 1, 2, 16},
    {-1, -1, 2, 2}, {1, -1, 2, 2},  {-1, 1, 2, 2},  {1, 1, 2, 2},
};

enum { NUM_DIRECTIONS = sizeof(directions) / sizeof(directions[0]) };

static int process(const struct work *w, const int dims[2], int dx, int dy)
{
    int x = (w->rank % dims[0] + dx + dims[0]) % dims[0];
    int y = (w->rank / dims[0] + dy + dims[1]) % dims[1];

    return y * dims[0] + x;
}

/* Offsets are ints, as MPI's are; false if they do not suffice. */
static bool add(struct work *w, const int dims[2], const struct direction *d,
                long bytes)
{
    int s = w->messages++;

    if (bytes > INT_MAX - PAGE - LINE - (long)w->size)
        return false;
    w->to[s] = process(w, dims, d->dx, d->dy);
    w->from[s] = process(w, dims, -d->dx, -d->dy);
    w->counts[s] = (int)bytes;
    w->at[s] = (int)w->size;
    w->size += ((size_t)bytes + LINE - 1) / LINE * LINE;
    return true;
}

static int add_messages(struct work *w, const char *name, long argument)
{
    int dims[2] = {0, 0};
    int scale = strcmp(name, "scale-les3") == 0;

    if ((!scale && strcmp(name, "2d8") != 0) || argument < 0 ||
        argument > INT_MAX)
        return -1;
    MPI_Dims_create(w->ranks, 2, dims);
    for (int i = 0; i < NUM_DIRECTIONS; i++) {
        const struct direction *d = &directions[i];

        for (int k = 0; k < (scale ? d->scale_messages : 1); k++)
            if (!add(w, dims, d,
                     scale ? (argument + 4) * 8 * d->scale_columns : argument))
                return -1;
    }
    return 0;
}

/* On a page, as from aligned_alloc: what differs is only whose memory it is. */
static char *get_buffer(struct work *w, int which)
{
    char *memory;

    if (!w->given) {
        memory = w->memory[which] = aligned_alloc(PAGE, w->size);
    } else if (MPI_Alloc_mem((MPI_Aint)(w->size + PAGE), MPI_INFO_NULL,
                             &w->memory[which]) == MPI_SUCCESS) {
        memory = (char *)w->memory[which] +
                 -(uintptr_t)w->memory[which] % PAGE;
    } else {
        memory = NULL;
    }
    if (memory == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(memory, 0, w->size);
    return memory;
}

static void put_buffer(struct work *w, int which)
{
    if (w->given)
        MPI_Free_mem(w->memory[which]);
    else
        free(w->memory[which]);
}

int work_init(struct work *w, const char *name, long argument, bool given)
{
    int ones[MAX_MESSAGES];

    memset(w, 0, sizeof(*w));
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->ranks);
    if (add_messages(w, name, argument) != 0)
        return -1;
    w->size = (w->size + PAGE) / PAGE * PAGE;
    w->given = given;
    w->send = get_buffer(w, 0);
    w->receive = get_buffer(w, 1);
    /* Real weights: compilers take MPI_UNWEIGHTED for an array of no length. */
    for (int s = 0; s < w->messages; s++)
        ones[s] = 1;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, w->messages, w->from, ones,
                                   w->messages, w->to, ones, MPI_INFO_NULL, 0,
                                   &w->graph);
    return 0;
}

void work_fini(struct work *w)
{
    if (w->send == NULL)
        return;
    MPI_Comm_free(&w->graph);
    put_buffer(w, 0);
    put_buffer(w, 1);
    w->send = w->receive = NULL;
}

static unsigned char expected(int sender, int s, unsigned salt, int i)
{
    return (unsigned char)((unsigned)(sender * 31 + s * 7 + i) + salt * 101 +
                           ((unsigned)i >> 8));
}

void work_fill(struct work *w, unsigned salt)
{
    memset(w->receive, 0x55, w->size);
    for (int s = 0; s < w->messages; s++)
        for (int i = 0; i < w->counts[s]; i++)
            w->send[w->at[s] + i] = (char)expected(w->rank, s, salt, i);
}

void work_rewrite(const struct work *w)
{
    for (int s = 0; s < w->messages; s++)
        for (int i = 0; i < w->counts[s]; i += LINE)
            w->send[w->at[s] + i]++;
}

int work_check(const struct work *w, unsigned salt)
{
    for (int s = 0; s < w->messages; s++)
        for (int i = 0; i < w->counts[s]; i++)
            if ((unsigned char)w->receive[w->at[s] + i] !=
                expected(w->from[s], s, salt, i))
                return s;
    return -1;
}
