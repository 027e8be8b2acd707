/* SPDX-License-Identifier: BSD-3-Clause */
/* What gpu.c and gpu_proxy.c share. */
#ifndef RS_MLX5_GPU_INSIDE_H
#define RS_MLX5_GPU_INSIDE_H

#include <pthread.h>

#include "engines/mlx5/gpu.h"
#include "engines/mlx5/list.h"

/* A pointer of the host's and what the GPU has for it. */
struct rs_gpu_mapping {
    void *host, *mapped;
};

enum { RS_GPU_MAPPINGS = 5 }; /* of a queue pair */

struct rs_gpu_mapped_queue {
    struct rs_gpu_mapping mappings[RS_GPU_MAPPINGS];
    uint32_t num_mappings;
};

/** The queue pair for who writes its ring: with `memory` the GPU, else a thread
 * of the host. */
int rs_gpu_queue_map(const struct rs_gpu_memory *memory,
                     const struct rs_mlx5_memory *from,
                     struct rs_gpu_mapped_queue *mapped,
                     struct rsched_device_queue *to);
void rs_gpu_queue_unmap(const struct rs_gpu_memory *memory,
                        struct rs_gpu_mapped_queue *mapped);
/** Set the text of a work request that has failed. @param op of its list
 * @return status */
int rs_gpu_explain(uint32_t qpn, const struct rsched_device_failure *failure,
                   int status, uint32_t op);

struct rs_gpu_ring {
    struct rs_gpu_memory memory, looks;
    struct rs_mlx5_memory memory_of_queue;
    struct rs_gpu_mapped_queue mapped;
    struct rs_gpu_mapping arrived; /* of `looks` */
    struct rsched_device_queue queue;
    struct rs_wqe_list *lists[2];  /* of even and odd epochs */
};

struct rs_gpu_exchange {
    struct rs_gpu_exchange *next; /* of the same proxy */
    struct rs_gpu_memory memory;
    struct rs_gpu_proxy *proxy;
    uint32_t num_lanes;
    struct rs_gpu_ring **rings; /* num_lanes */
    struct rsched_device_exchange *view;
    struct rsched_device_lane *lanes;    /* with their tables behind */
    int32_t *stop;
    struct rsched_device_exchange host;  /* that the proxy starts */
};

/* What the proxy tells of a target, in host memory. */
struct rs_gpu_target_word {
    uint64_t flushed;
    int32_t status;
    int32_t reserved;
};

struct rs_gpu_target {
    struct rs_gpu_target *next; /* of the same proxy */
    struct rs_gpu_memory memory;
    struct rs_gpu_proxy *proxy;
    struct rs_gpu_words *words;
    struct rsched_device_target *view;
    struct rsched_device_target *host; /* that the proxy uses */
    struct rs_gpu_target_word *word;
    /* Proxy: the requests below `mark_taken` are through once the blocks below
     * `mark` are. */
    uint64_t mark, mark_taken;
};

struct rs_gpu_proxy {
    struct rs_gpu_memory memory;
    struct rsched_device_proxy *view; /* what kernels are given */
    struct rsched_device_request *requests;
    uint64_t *asked, *taken;
    int32_t *halt;
    struct rs_gpu_exchange *exchanges;
    struct rs_gpu_target *targets;
    pthread_t thread;
    bool has_thread;
    int stop; /* atomic */
};

#endif
