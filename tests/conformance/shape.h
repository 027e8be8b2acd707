/* SPDX-License-Identifier: BSD-3-Clause */
/* A message and the memory that it lies in. */
#ifndef TESTS_SHAPE_H
#define TESTS_SHAPE_H

#include "tests/conformance/node.h"

/* A message of random pieces within a memory of its own. */
struct shape {
    char *memory; /* where processors may touch it */
    intptr_t shift; /* from there to where the engine is told that it is */
    uint64_t span;
    bool shared; /* the memory is of rsched_alloc() */
    bool on_gpu; /* of shape_gpus */
    struct rsched_piece pieces[12];
    struct rsched_message message;
};

/* With RSCHED_CMA, blocks of ordinary memory are read from this size on. */
enum { CMA_BLOCK = 2048 };

/** Whether messages lie in memory that the peer can map. */
extern bool shape_mapped;
/** Whether the kernel reads ordinary memory, as the setting says. */
extern bool shape_cma;

/* Memory of GPUs, where there are any. */
struct shape_gpus {
    /** Device memory, all zero; `touch` is where processors find it, or its
     * bytes as they were pulled last. */
    char *(*allocate)(uint64_t bytes, char **touch);
    void (*push)(char *memory, const char *touch, uint64_t bytes);
    void (*pull)(char *touch, const char *memory, uint64_t bytes);
    void (*release)(char *memory, char *touch);
    /** Whether a copy that has been begun is never over at once. */
    bool (*late)(void);
    bool pulled; /* the receiver's GPU reads the sender's memory */
};
/** NULL: none. */
extern const struct shape_gpus *shape_gpus;
/** Which ranks have their messages there: bit 0 the even ones, bit 1 the
 * others. */
extern unsigned shape_gpu_ranks;

/** Whether a sender needs the receiver to complete an epoch. */
bool shape_is_pulled(uint64_t bytes);

/** One block, `unaligned` bytes into its memory. */
void shape_in(struct shape *s, uint64_t bytes, int unaligned, bool shared);
/** The same, in the memory of the day. */
void shape_contiguous(struct shape *s, uint64_t bytes, int unaligned);
/** Blocks of random length and distance until `bytes` are reached. `overlap`:
 * blocks may share bytes, as a sender's may. */
void shape_random(struct shape *s, uint64_t bytes, unsigned *seed,
                  bool overlap);
void shape_fini(struct shape *s);

/** What processors have written to `memory` goes to the GPU, where it is
 * another one's; before it is sent, or anything comes beside it. */
void shape_push(const struct shape *s);
/** And what has come there comes to `memory`. */
void shape_pull(const struct shape *s);

/** Copy the message's bytes, in their order, to or from a flat buffer. */
void shape_gather(const struct shape *s, char *flat, bool out);
/** Fill all of it, and push. */
void shape_set(struct shape *s, int byte);
void shape_fill(struct shape *s, uint64_t seed);
/** Pull what has come, and compare it with what a shape sends after
 * shape_fill(seed), for a receiver that knows it. */
int shape_compare(struct node *node, const struct shape *sent,
                  const struct shape *got);

#endif
