/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GDR: the functions of GDRCopy that we call, by which processors read and write
 * GPU memory (https://github.com/NVIDIA/gdrcopy, include/gdrapi.h).
 *
 * The library is looked for at run time under the name libgdrapi.so.2; its header
 * is not needed, as what we use of its interface is declared here. It works on
 * whole pages of 64 KiB of GPU memory, which are pinned, then mapped. What it maps
 * is written past the caches, and read without them: only its own two functions
 * touch it.
 */
#ifndef RS_CUDA_GDR_H
#define RS_CUDA_GDR_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { RS_GDR_PAGE = 65536 };

/* gdr_mh_t: pinned memory. Passed by value. */
struct rs_gdr_handle {
    unsigned long number;
};

/* gdr_info_v2_t; older libraries write less of it. */
struct rs_gdr_info {
    uint64_t start; /* of the pinned pages, as the GPU sees them */
    uint64_t bytes;
    uint32_t page_bytes;
    uint64_t tm_cycles;
    uint32_t cycles_per_ms;
    unsigned mapped : 1;
    unsigned write_combined : 1;
    int mapping_type;
};

/* All return 0 or an errno, but for gdr_open, which returns NULL. */
struct rs_gdr {
    void *library;
    void *state;
    pthread_mutex_t lock; /* of all functions but those that copy */
    void *(*open)(void);
    int (*close)(void *gdr);
    /* One of the two may be missing. */
    int (*pin)(void *gdr, unsigned long address, size_t bytes, uint64_t token,
               uint32_t space, struct rs_gdr_handle *handle);
    int (*pin_v2)(void *gdr, unsigned long address, size_t bytes,
                  uint32_t flags, struct rs_gdr_handle *handle);
    int (*unpin)(void *gdr, struct rs_gdr_handle handle);
    int (*map)(void *gdr, struct rs_gdr_handle handle, void **mapped,
               size_t bytes);
    int (*unmap)(void *gdr, struct rs_gdr_handle handle, void *mapped,
                 size_t bytes);
    int (*get_info)(void *gdr, struct rs_gdr_handle handle,
                    struct rs_gdr_info *info);
    /* Ends with a fence of the processor's: what was written is on its way. */
    int (*copy_to)(struct rs_gdr_handle handle, void *mapped, const void *from,
                   size_t bytes);
    int (*copy_from)(struct rs_gdr_handle handle, void *to, const void *mapped,
                     size_t bytes);
};

/** Load the library and open its device.
 * @return 0; RSCHED_ENOTSUP: RSCHED_GDRCOPY forbids it, there is no library, it
 *         lacks a function, or the kernel has no module for it; RSCHED_ENOMEM.
 *         `gdr` is set on success only. */
int rs_gdr_open(struct rs_gdr **gdr);

/** Nothing is pinned. NULL is allowed. */
void rs_gdr_close(struct rs_gdr *gdr);

/** Pin whole pages and map them. Thread-safe.
 * @param info where they begin, as the GPU sees them
 * @return 0, RSCHED_ENOTSUP: which step was refused, and why */
int rs_gdr_map(struct rs_gdr *gdr, uint64_t start, uint64_t bytes,
               struct rs_gdr_handle *handle, char **mapped,
               struct rs_gdr_info *info);

/** Undo that. Thread-safe. */
void rs_gdr_unmap(struct rs_gdr *gdr, struct rs_gdr_handle handle, char *mapped,
                  uint64_t bytes);

#endif
