/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * WORK: the messages of one benchmark case, their buffers and their graph.
 *
 * Processes form a periodic grid; each case is one halo exchange on it:
 *   2d8 BYTES          eight neighbors, one message of BYTES each
 *   scale-les3 GRID    the paper's fourteen messages for GRID levels
 *   many NUMBER        so many messages of 8 bytes, all to the next process in x
 *   3d26x WIDTH        a cube of 64 x 64 x 64 doubles in an array with a margin
 *   3d26z WIDTH        of WIDTH cells on each side: the outermost cells of the
 *                      cube go to 26 neighbors' margins, each region in one
 *                      message of a derived datatype. x is the direction in
 *                      which the array is contiguous; the grid is longest in
 *                      x, so that blocks of WIDTH doubles go to other
 *                      processes, or in z, so that blocks of 64 do
 */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mpi.h>

enum { MAX_MESSAGES = 4096 };

/** Where the bytes of a message lie in a buffer: `rows` blocks in each of
 * `planes`. One block of a contiguous message is all of it. */
struct box {
    size_t at; /* of the first byte */
    size_t planes, rows, bytes;
    size_t plane_stride, row_stride; /* bytes */
};

struct work {
    int rank, ranks;
    int messages;
    int to[MAX_MESSAGES], from[MAX_MESSAGES]; /* message s goes, comes */
    int counts[MAX_MESSAGES]; /* bytes */
    int ones[MAX_MESSAGES];   /* weights, and how many of a derived datatype */
    int at[MAX_MESSAGES]; /* of contiguous messages: offset in both buffers */
    struct box from_box[MAX_MESSAGES], to_box[MAX_MESSAGES];
    bool strided; /* messages have datatypes; the buffers are one array */
    MPI_Datatype send_type[MAX_MESSAGES], receive_type[MAX_MESSAGES];
    char *send, *receive; /* types and boxes count from here */
    bool given; /* by MPI_Alloc_mem */
    void *memory[2];
    size_t size; /* of each buffer */
    MPI_Comm graph;
};

/** Copy box to box; equally many bytes, perhaps in other blocks if one of
 * them is contiguous. */
void box_copy(char *to, const struct box *to_box, const char *from,
              const struct box *from_box);

/** Bytes of a box, one after the other. */
struct box box_packed(size_t at, size_t bytes);

/** Where buffers and messages begin. */
struct places {
    unsigned send, receive; /* bytes behind a page, below one page; strided messages have
                               one buffer, at the first */
    unsigned align; /* contiguous messages lie one behind the other, in this order, as
                       displacements that are sums of counts have it; each at a multiple of
                       so many bytes, from 1 to a page */
};

bool places_are_valid(const struct places *places);

/** Collective over MPI_COMM_WORLD. The buffers are of MPI_Alloc_mem if they are
 * `given`, else of the C library. Returns 0, or -1 if there is no such case. */
int work_init(struct work *w, const char *name, long argument, bool given,
              const struct places *places);
void work_fini(struct work *w);

/** Fill the send buffer with bytes that depend on sender, message and salt,
 * and the receive buffer with others. */
void work_fill(struct work *w, unsigned salt);

/** Write a word in each line of each block of the send buffer's messages, or of what
 * stands for it; what they hold is then of no use to work_check(). */
void work_rewrite(const struct work *w, char *send);

/** The first message whose received bytes are wrong, or -1. */
int work_check(const struct work *w, unsigned salt);

#endif
