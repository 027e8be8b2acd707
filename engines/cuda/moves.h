/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MOVES: compiled copies, and who does each of them.
 *
 *   processor     what lies in host memory, and the other side's memory is the
 *                 host's too
 *   kernel        if both sides are in its reach: blocks at a distance from each
 *                 other; with them, or where there are many, short ones; within a
 *                 GPU all but long ones
 *   copy engine   all else
 *
 * Zero it to initialise.
 */
#ifndef RS_CUDA_MOVES_H
#define RS_CUDA_MOVES_H

#include "engines/common/copy.h"
#include "engines/cuda/blocks.h"
#include "engines/cuda/group.h"
#include "engines/cuda/mapping.h"

enum rs_mover {
    RS_MOVER_PROCESSOR,
    RS_MOVER_COPY_ENGINE,
    RS_MOVER_KERNEL,
    RS_MOVER_WITHIN /* the kernel, and both sides lie in its own GPU */
};

enum rs_direction {
    RS_PACKS,   /* from the user's memory to a slot */
    RS_UNPACKS, /* the other way round */
    RS_STRAIGHT /* from `user` to `other` */
};

struct rs_moves {
    struct rs_copies copies;
    unsigned char *movers;  /* enum rs_mover, of each copy */
    uint32_t *first_blocks; /* of each chunk: its first entry of `blocks`; one
                               more for the end */
    size_t room_movers, room_first_blocks;
    enum rs_direction direction;
    bool aside; /* short blocks that are unpacked are none of the GPU's processors',
                   which another process may have; set before compiling */
    struct rs_blocks blocks;
};

/* Copies that have been begun. Zero: none. */
struct rs_begun {
    bool enqueued;   /* in the stream: an event has to be recorded */
    uint64_t ticket; /* of the batch, 0: none */
};

/** Who copies, if the kernel is the right one for the shape too. */
typedef enum rs_mover rs_mover_fn(const void *arg, const struct rs_copy *copy);

/** Choose the movers of `copies`, which have been compiled, and bring the table
 * of those that the kernel does to the GPU; nothing of it is under way. The
 * stream is not entered.
 * @param launch for how many short blocks of a chunk a kernel is worth launching
 * @return 0, RSCHED_ENOMEM, or what the driver said */
int rs_moves_compile(struct rs_moves *m, enum rs_direction direction,
                     rs_mover_fn *mover, const void *arg, uint32_t launch,
                     struct rs_stream *stream);

/** Have room on the GPU for the table of so many copies by the kernel. The stream is
 * not entered. @return 0, or what the driver said */
int rs_moves_reserve(struct rs_moves *m, size_t copies,
                     const struct rs_stream *stream);

/** Do a chunk: processors at once, copy engines in the stream, which is
 * entered, kernels with the next flush. @param data of the slot, as processors and as
 * kernels see it, if the copies are not straight
 * @return 0, or what the driver said */
int rs_moves_begin(const struct rs_moves *m, uint32_t chunk, char *data,
                   CUdeviceptr data_of_kernel, struct rs_stream *stream,
                   struct rs_batch *batch, struct rs_begun *begun);

/** Do a chunk to or from a slot by processors, at once: what lies in GPU memory
 * through its mappings, whoever its mover is. Each copy is one block.
 * @return 0, RSCHED_ESYS */
int rs_moves_do(const struct rs_moves *m, uint32_t chunk, char *data,
                struct rs_mappings *mappings);

/** The stream, which is not entered, is about to be closed. */
void rs_moves_withdraw(struct rs_moves *m, const struct rs_stream *stream);

/** They have been withdrawn. */
void rs_moves_fini(struct rs_moves *m);

#endif
