/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's instance and its connections with processes of the node. */
#ifndef RS_CUDA_NODE_H
#define RS_CUDA_NODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include <rsched/engine.h>

#include "engines/cuda/driver.h"
#include "engines/cuda/gdr.h"
#include "engines/cuda/notes.h"
#include "librsched/base/hand.h"
#include "librsched/base/shared.h"

enum { RS_CUDA_MOST_GPUS = 64 };

/* What has been loaded into the primary context of a GPU. */
struct rs_cuda_kernels {
    CUmodule module; /* NULL: nothing */
    CUfunction pack;
    int processors; /* that the GPU has */
    bool refused;   /* the driver does not want them */
};

struct rsched_engine {
    struct rsched_engine_env env;
    struct rs_shared_file memory; /* what peers may map of ours */
    uint64_t nonce;               /* of this instance */
    struct rs_hands hands;
    pthread_mutex_t lock;         /* guards contexts, kernels and GDRCopy */
    CUcontext contexts[RS_CUDA_MOST_GPUS]; /* primary ones that are held */
    struct rs_cuda_kernels kernels[RS_CUDA_MOST_GPUS];
    struct rs_gdr *gdr;           /* GDRCopy, from first use on */
    char *no_gdr;                 /* why there is none, once that is known */
    _Atomic uint64_t bytes;       /* of blocks */
};

struct rsched_connection {
    struct rsched_engine *engine;
    int peer;
    bool self;         /* the peer is this very instance */
    bool same_process; /* its addresses mean the same here */
    pid_t pid;     /* here; 0 if it has no number in our namespace */
    int pidfd;     /* -1: there is none */
    int memory_fd; /* the peer's, -1 if same_process */
    uint64_t memory_id;
    uint64_t nonce; /* of the peer's instance */
    struct rs_cuda_notes notes;
};

/* Where an end of an edge lies, as the other one may know it. */
struct rs_cuda_end {
    bool on_gpu;
    int numa_node; /* or RSCHED_NUMA_*; of host memory UNKNOWN */
    unsigned char id[RSCHED_GPU_ID_BYTES]; /* of the GPU, else 0 */
};

/**
 * The primary context of a GPU, held until the instance is closed. Thread-safe.
 * @return 0; RSCHED_ENOTSUP, RSCHED_ENOMEM, RSCHED_ESYS: what the driver said
 */
int rs_cuda_context(struct rsched_engine *engine, int gpu, CUcontext *context);

/**
 * What the program does to an allocation of a GPU's memory by calls that are
 * synchronous is over when they return, from now on, and what it did so before.
 * Of the driver's own accord, copies within GPU memory, and memset, may not be,
 * and our streams do not wait for the program's. Memory of cuMemMap and of pools
 * stays as it is. Not from within an epoch: the driver may wait for streams.
 * @return as rs_cuda_context()
 */
int rs_cuda_synchronise(struct rsched_engine *engine, int gpu,
                        const void *address);

/** GDRCopy, opened at first use and until the instance is closed. Thread-safe.
 * @return 0; RSCHED_ENOTSUP: why there is none; RSCHED_ENOMEM */
int rs_cuda_gdr(struct rsched_engine *engine, struct rs_gdr **gdr);

/** All of them are let go. */
void rs_cuda_contexts_fini(struct rsched_engine *engine);

/* kernel.c */

/** Whether there may be kernels for a GPU: this was built with them, and the
 * driver has not refused them yet. Thread-safe. */
bool rs_cuda_has_kernels(struct rsched_engine *engine, int gpu);

/** The kernel rs_pack (pack.h), loaded at first use and kept until the instance
 * is closed, and the number of the GPU's processors. A context of that GPU is
 * current. Thread-safe.
 * @return 0; RSCHED_ENOTSUP: the driver does not take it (it has been logged
 *         why); RSCHED_ENOMEM */
int rs_cuda_kernel(struct rsched_engine *engine, int gpu, CUfunction *kernel,
                   unsigned *processors);

/** Nothing uses them. The context is held still. */
void rs_cuda_unload_kernels(struct rsched_engine *engine, int gpu);

/* node.c */

/** Describe a GPU of this process, or host memory. */
int rs_cuda_end_of(const struct rsched_place *place, struct rs_cuda_end *end);

/** The number that a GPU has in this process.
 * @return 0; RSCHED_ENOTSUP: it is not visible here (CUDA_VISIBLE_DEVICES) */
int rs_cuda_gpu_of(const unsigned char *id, int *gpu);

/** Whether processes that share a GPU have it at the same time (MPS), not in
 * turns. */
bool rs_cuda_gpu_is_served(int gpu);

bool rs_cuda_is_dead(const struct rsched_connection *connection);

#endif
