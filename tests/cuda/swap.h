/* SPDX-License-Identifier: BSD-3-Clause */
/* SWAP: two ranks that send each other the same puts, of all lengths and
 * alignments, from and to host memory and the fake's GPU memory. Each epoch has
 * bytes of its own, which are looked at.
 *
 * Zero it to initialise. */
#ifndef TESTS_CUDA_SWAP_H
#define TESTS_CUDA_SWAP_H

#include <rsched/rsched.h>

#include "tests/cuda/buffer.h"
#include "tests/runtime/ranks.h"

enum { SWAP_MOST = 12, SWAP_ROW = 24, SWAP_PITCH = 100 };

/* A put. In rows, its bytes are whole rows of SWAP_ROW, SWAP_PITCH apart. */
struct swap_kind {
    size_t bytes;
    size_t shift; /* where it begins in its buffer */
    bool from_gpu, to_gpu;
    bool from_rows, to_rows;
};

struct swap {
    struct program p;
    const struct swap_kind *kinds;
    int puts;
    bool one_way; /* rank 0 sends, rank 1 receives */
    unsigned flags; /* of the exchange */
    uint64_t tag;   /* likewise; one more for each */
    struct buffer send[SWAP_MOST], receive[SWAP_MOST];
    struct rsched_exchange *x;
    int epoch;
};

#define SWAP_KINDS(kinds) kinds, sizeof(kinds) / sizeof((kinds)[0])

/** The pattern of one rank; aborts if there is none. */
struct rsched_pattern *swap_pattern(const struct rank *self,
                                    const struct swap *s);
/** Have buffers for these puts, in the place of none; those in GPU memory are of the
 * GPU whose context is current. */
void swap_make_buffers(struct swap *s, const struct swap_kind *kinds, size_t puts);
void swap_free_buffers(struct swap *s);
/** Where they begin, SWAP_MOST of each. */
void swap_addresses(const struct swap *s, const void **send, void **receive);
/** @return 0 or the exchange's error */
int swap_create(struct rank *self, struct swap *s);
/** Destroy it, at both ranks, and free the buffers. */
void swap_forget(struct rank *self, struct swap *s);
/** Fill what is sent, and clear what is received. */
void swap_fill(const struct rank *self, const struct swap *s);
/** What has been received is the other rank's, and nothing else has changed.
 * @return 0, or 1: it is said what */
int swap_check(struct rank *self, const struct swap *s);
/** Fill, and start. @return 0 or the exchange's error */
int swap_start(struct rank *self, struct swap *s);
/** Wait, check, and go on to the next epoch. @return 0, the exchange's error, or
 * 1 as swap_check() */
int swap_wait(struct rank *self, struct swap *s);
/** So many epochs. @return likewise */
int swap_run(struct rank *self, struct swap *s, int epochs);
/** All bytes of an epoch. */
uint64_t swap_bytes(const struct swap *s);

#endif
