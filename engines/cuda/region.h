/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * REGION: an allocation of GPU memory that another process opens.
 *
 * Three ways, of which the exporter takes the first that fits:
 *
 *   address     both are one process, and it is memory of cuMemAlloc
 *   legacy      memory of cuMemAlloc: a handle of 64 bytes. Both must see each
 *               other's process numbers
 *   descriptor  memory of cuMemCreate that may be exported as a file
 *               descriptor. The table's owner sends it (notes.h); where that is
 *               not possible the other process takes it (pidfd_getfd), which
 *               needs the right to look at the exporter
 *
 * What is neither (memory of pools, of cuMemCreate without that right) cannot
 * be opened, and its owner's messages are staged.
 *
 * What has been opened is shared by all lanes of the process, since the driver
 * may refuse to open a handle twice, and closed with the last of them. Whoever
 * wants it while it is being closed waits; of other regions nobody does, since
 * the driver may wait for streams then, and they for an exchange, but where
 * that is in the way of the other one (below). Memory
 * must not be freed while others have it open: both processes destroy an
 * exchange before either frees the buffers.
 *
 * Thread-safe.
 */
#ifndef RS_CUDA_REGION_H
#define RS_CUDA_REGION_H

#include <assert.h>

#include "engines/cuda/node.h"

enum rs_cuda_handle { RS_CUDA_ADDRESS, RS_CUDA_LEGACY, RS_CUDA_DESCRIPTOR };

struct rs_cuda_region {
    uint32_t kind;   /* enum rs_cuda_handle */
    int32_t fd;      /* RS_CUDA_DESCRIPTOR: the exporter's, -1: it is sent; else -1 */
    uint64_t buffer; /* that the handle means: numbers are not used again */
    uint64_t owner;  /* the exporting process */
    uint64_t start;  /* its address there */
    uint64_t bytes;
    unsigned char gpu[RSCHED_GPU_ID_BYTES];
    unsigned char handle[sizeof(CUipcMemHandle)];
};
static_assert(sizeof(struct rs_cuda_region) == 120, "wire layout");

/**
 * The allocation in which an address lies; of memory that was mapped
 * (cuMemMap), what was mapped at once: an array may go on in the next region.
 *
 * @return 0, with rs_cuda_region_withdraw() to come; RSCHED_ENOTSUP: it cannot
 *         be opened by others, with the reason
 */
int rs_cuda_region_export(const struct rsched_connection *connection,
                          const char *address, struct rs_cuda_region *region);
void rs_cuda_region_withdraw(struct rs_cuda_region *region);

/* One that is open here. */
struct rs_cuda_opened {
    struct rs_cuda_opened *next;
    struct rs_cuda_region region;
    CUcontext context;
    unsigned users;
    bool closing; /* by the last of them */
    bool stale;   /* its owner has freed it: closed, users or not */
    bool closed;  /* that has been done */
    char *address;
    uint64_t reserved; /* RS_CUDA_DESCRIPTOR: bytes of address space */
    int fd; /* that was sent, or -1: for whoever opens it in another context */
};

/**
 * Open a peer's region for copies of a GPU of this process.
 *
 * @param context current on this thread; of that GPU
 * @return 0; RSCHED_ENOTSUP, RSCHED_ENOMEM, RSCHED_ESYS: what the driver said
 */
int rs_cuda_region_open(struct rsched_connection *connection,
                        const struct rs_cuda_region *region, CUcontext context,
                        int gpu, struct rs_cuda_opened **opened);

/** Take descriptors that the peer has sent, whether or not they are wanted yet: those
 * of tables that are never sent would fill its queue, and keep its memory. */
void rs_cuda_region_collect(struct rsched_connection *connection);

/**
 * Close what is open of memory that a region's owner has freed: where the region
 * lies now. The driver may refuse to open that until then
 * (CUDA_ERROR_ALREADY_MAPPED). What was freed elsewhere in a block of 2 MiB that the
 * driver maps at once is not known as such, and stays. Its users close it nevertheless. What others are
 * closing is waited for. As with rs_cuda_region_close(), not from within an epoch.
 *
 * @return whether there was any
 */
bool rs_cuda_region_close_stale(const struct rs_cuda_region *region);

/** No copy out of it is under way. The last user closes it, for which the
 * driver may wait for streams: not from within an epoch. */
void rs_cuda_region_close(struct rs_cuda_opened *opened);

#endif
