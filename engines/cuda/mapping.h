/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MAPPINGS: the GPU memory of one message as processors reach it, by GDRCopy.
 *
 * Each block of the message has whole pages of 64 KiB around it pinned and mapped.
 * What is mapped stays so until the message's memory is another one, or the lane
 * goes. Whoever frees memory that is mapped and then exchanges it dies of a signal,
 * since processors are told of it in no other way.
 *
 * Order. What a kernel or a copy engine has written is read here once the program
 * has waited for it, as with every way. What is written here has left the processor
 * when the copy returns, but is on its way across the bus: rs_mappings_flush()
 * reads back from it, which no write before it can be behind, so it has arrived
 * then. Without it a stream that already waits for the epoch could see older bytes.
 *
 * Not thread-safe; several threads may have mappings of one library.
 */
#ifndef RS_CUDA_MAPPING_H
#define RS_CUDA_MAPPING_H

#include "engines/cuda/driver.h"
#include "engines/cuda/gdr.h"

/* Blocks of one message. Each is read or written by itself, which takes as long
 * as a whole short message; not measured. */
enum { RS_MAPPINGS = 8 };

/* A block that lies in the memory of one GPU. */
struct rs_mapped_block {
    const char *address;
    uint64_t bytes;
    int gpu;
};

struct rs_mapping {
    struct rs_mapped_block block;
    unsigned long long buffer; /* its allocation: no number comes twice */
    struct rs_gdr_handle handle;
    char *pages; /* where whole pages around it are mapped */
    uint64_t bytes; /* of them */
    char *mapped; /* where it is in them */
    char *written; /* a byte that was, since the last flush, or NULL */
};

/* Zero it to initialise. */
struct rs_mappings {
    struct rs_gdr *gdr; /* of all of them, or NULL: there are none */
    struct rs_mapping of[RS_MAPPINGS];
    unsigned num;
};

/** Undo the mappings that are of none of these blocks, or of memory that was freed
 * since. */
void rs_mappings_trim(struct rs_mappings *m, const struct rs_mapped_block *blocks,
                      size_t num);

/** Map what is not mapped yet; they have been trimmed to the same blocks. The
 * driver has been found.
 * @return 0; RSCHED_ELIMIT: too many blocks; RSCHED_ENOTSUP: what was refused.
 *         Nothing is mapped then. */
int rs_mappings_complete(struct rs_mappings *m, struct rs_gdr *gdr,
                         const struct rs_mapped_block *blocks, size_t num);

/** Copy out of, or into, a part of one of the blocks.
 * @return 0, RSCHED_ESYS: what the library said */
int rs_mappings_read(struct rs_mappings *m, const char *from, char *to,
                     uint64_t bytes);
int rs_mappings_write(struct rs_mappings *m, char *to, const char *from,
                      uint64_t bytes);

/** What has been written has arrived at the GPUs when this returns.
 * @return 0, RSCHED_ESYS */
int rs_mappings_flush(struct rs_mappings *m);

/** Undo them all. */
void rs_mappings_fini(struct rs_mappings *m);

#endif
