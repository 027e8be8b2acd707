/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory of one rail: blocks of the engine's own, which hold control
 * words and landing slots, and regions of the user's.
 *
 * Threads: the caller holds the engine's lock.
 */
#ifndef RS_RDMA_MEMORY_H
#define RS_RDMA_MEMORY_H

#include <assert.h>
#include <stdatomic.h>

#include "engines/rdma/port.h"

struct rs_rdma_link;

/* Own memory, aligned to cache lines. A peer that writes to it says with its
 * last write that it is the last: it makes the first word something else than 0. */
struct rs_rdma_block {
    struct rs_rdma_block *next;
    char *memory;
    uint64_t bytes;
    const struct rs_rdma_keys *keys;
    bool in_use;
    struct rs_rdma_link *writer; /* NULL: nobody else writes it */
};

/* A line of GPU memory, of a page that stays as long as the engine: to free it the
 * driver may wait for kernels, and who finds out that the writer is through may be
 * one whom kernels wait for. */
struct rs_rdma_gpu_block {
    struct rs_rdma_gpu_block *next;
    void *memory;
    struct rsched_gpu_hold *hold;
    const struct rs_rdma_keys *keys;
    int gpu; /* its number */
    bool in_use;
};
struct rs_rdma_gpu_page;

/* Memory of the user, whole pages. They belong to those who hold it: once one of
 * them has let go, the same addresses may be other pages, which this
 * registration does not reach. So it is shared no more then. */
struct rs_rdma_region {
    struct rs_rdma_region *next;
    uintptr_t begin, end;
    enum rs_rdma_access access;
    const void *exchange; /* that it may be shared within */
    struct rs_rdma_keys keys;
    unsigned references;
    bool retired;
};

struct rs_rdma_memory {
    struct rs_rdma_port *port;
    struct rs_rdma_slab *slabs;
    struct rs_rdma_block *blocks;
    struct rs_rdma_region *regions;
    struct rs_rdma_gpu_page *gpu_pages;
    struct rs_rdma_gpu_block *gpu_blocks;
    uint64_t bytes; /* of the slabs */
};

void rs_rdma_memory_init(struct rs_rdma_memory *memory,
                         struct rs_rdma_port *port);
/** All links have been destroyed. */
void rs_rdma_memory_fini(struct rs_rdma_memory *memory);

/** A block of zeros that `writer` will learn of; NULL: nobody.
 * @param pages whether it has whole pages to itself, which can be pinned
 * @return 0, RSCHED_ENOMEM, RSCHED_ELIMIT, RSCHED_ESYS */
int rs_rdma_block_allocate(struct rs_rdma_memory *memory, uint64_t bytes,
                           bool pages, struct rs_rdma_link *writer,
                           struct rs_rdma_block **block);

/** Whether it has whole pages to itself. */
bool rs_rdma_block_has_pages(const struct rs_rdma_block *block);

/** Give a block back. It is used again once its writer has said that it is
 * through, or cannot write any more. NULL is allowed. */
void rs_rdma_block_release(struct rs_rdma_block *block);

/** This writer has been destroyed. */
void rs_rdma_memory_forget(struct rs_rdma_memory *memory,
                           const struct rs_rdma_link *writer);

/** A registration that covers [begin, end), shared with others of the same exchange
 * that want the same pages. Another one's was made earlier: its buffers may have been
 * freed since, and at their addresses there may be other pages now, which a
 * registration does not follow.
 * @param exchange only compared; NULL: of none
 * @param gpu that the memory is of, or NULL: it is the host's
 * @return 0, RSCHED_ENOMEM, RSCHED_ELIMIT, RSCHED_ESYS; RSCHED_ENOTSUP: GPU
 *         memory, which the device does not get at */
int rs_rdma_region_acquire(struct rs_rdma_memory *memory, const char *begin,
                           const char *end, enum rs_rdma_access access,
                           const void *exchange, struct rsched_gpu_hold *gpu,
                           struct rs_rdma_region **region);
void rs_rdma_region_release(struct rs_rdma_memory *memory,
                            struct rs_rdma_region *region);

/* The regions that one message lies in. */
struct rs_rdma_regions {
    struct rs_rdma_region **of;
    size_t number;
};

/** Register the pages of all pieces; those that touch are registered together, of
 * a GPU's if they lie in one allocation.
 * @return as rs_rdma_region_acquire(), RSCHED_ENOTSUP also of managed memory; on
 *         failure nothing is held */
int rs_rdma_regions_acquire(struct rs_rdma_memory *memory,
                            const struct rsched_message *message,
                            enum rs_rdma_access access,
                            struct rsched_gpu_hold *gpu,
                            struct rs_rdma_regions *regions);
void rs_rdma_regions_release(struct rs_rdma_memory *memory,
                             struct rs_rdma_regions *regions);
/** The user may free the memory from now on, although the device may still be
 * at it: nobody else is to share the regions. */
void rs_rdma_regions_retire(struct rs_rdma_regions *regions);

/** Register whole pages of one allocation of a GPU: as a dma-buf, else by the
 * kernel module that tells RDMA devices whose memory it is (gpu_memory.c).
 * @return 0; RSCHED_ENOTSUP: the text has why neither worked */
int rs_rdma_gpu_register(struct rs_rdma_port *port, struct rsched_gpu_hold *gpu,
                         uintptr_t address, uint64_t bytes,
                         enum rs_rdma_access access, struct rs_rdma_keys *keys);

/** A line of zeros in the memory of a GPU, registered for peers to write, which
 * kernels of that GPU see in the order in which they are written (gpu_blocks.c).
 * @return 0; RSCHED_ENOTSUP: the GPU or the device does not; or what the driver
 *         said */
int rs_rdma_gpu_block_allocate(struct rs_rdma_memory *memory, int gpu,
                               struct rs_rdma_gpu_block **block);
/** Nobody writes it any more. NULL is allowed. */
void rs_rdma_gpu_block_release(struct rs_rdma_gpu_block *block);
/** No kernel uses any of them. */
void rs_rdma_gpu_blocks_fini(struct rs_rdma_memory *memory);

/** The keys for an address in one of them. */
const struct rs_rdma_keys *
rs_rdma_regions_find(const struct rs_rdma_regions *regions, const char *address);

#endif
