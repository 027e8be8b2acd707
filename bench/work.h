/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * WORK: the messages of one benchmark case, their buffers and their graph.
 *
 * Processes form a periodic grid; each case is one halo exchange on it:
 *   2d8 BYTES          eight neighbors, one message of BYTES each
 *   scale-les3 GRID    the paper's fourteen messages for GRID levels
 */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include <stdbool.h>
#include <stddef.h>

#include <mpi.h>

enum { MAX_MESSAGES = 14 };

struct work {
    int rank, ranks;
    int messages;
    int to[MAX_MESSAGES], from[MAX_MESSAGES]; /* message s goes, comes */
    int counts[MAX_MESSAGES]; /* bytes */
    int at[MAX_MESSAGES];     /* offset in both buffers, on a line of its own */
    char *send, *receive;
    bool given; /* by MPI_Alloc_mem */
    void *memory[2];
    size_t size; /* of each buffer */
    MPI_Comm graph;
};

/** Collective over MPI_COMM_WORLD. The buffers are of MPI_Alloc_mem if they are
 * `given`, else of the C library. Returns 0, or -1 if there is no such case. */
int work_init(struct work *w, const char *name, long argument, bool given);
void work_fini(struct work *w);

/** Fill the send buffer with bytes that depend on sender, message and salt,
 * and the receive buffer with others. */
void work_fill(struct work *w, unsigned salt);

/** Write a word in each line of the send buffer's messages; what they hold is
 * then of no use to work_check(). */
void work_rewrite(const struct work *w);

/** The first message whose received bytes are wrong, or -1. */
int work_check(const struct work *w, unsigned salt);

#endif
