/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU: queue pairs given away to kernels (rsched/device.h), or to the thread
 * that works for them.
 *
 * The lists of an exchange are written into the rings here, once and for all:
 * the ring of a lane is full of them, in turn that of even and that of odd
 * epochs. After that nothing here touches a ring; who does are the functions of
 * rsched/device.h, on the GPU or, for the proxy, on a processor.
 *
 * Threads: making and destroying is for one thread at a time. No kernel uses
 * what is destroyed.
 */
#ifndef RS_MLX5_GPU_H
#define RS_MLX5_GPU_H

#include <rsched/device.h>

#include "engines/mlx5/memory.h"
#include "engines/rdma/queue.h"

/* Bytes inline of a queue pair for words: those of a warp are one WQE. */
enum { RS_GPU_WORDS_INLINE = 8 * RSCHED_DEVICE_MAX_GROUP };

struct rs_gpu_proxy;

/* How the GPU gets to memory. Each returns 0 or an error with a text. */
struct rs_gpu_memory {
    void *arg;
    /** Zeroed memory that GPU and host use at one address: host memory that is
     * pinned, or memory that goes to whoever uses it. */
    int (*allocate)(void *arg, uint64_t bytes, bool in_host, void **memory);
    void (*release)(void *arg, void *memory);
    /** Where the GPU sees memory of the host, or a register of a device. */
    int (*map)(void *arg, void *host, uint64_t bytes, bool is_register,
               void **mapped);
    void (*unmap)(void *arg, void *host, void *mapped);
};

/** Plain memory: processors play the GPU. */
extern const struct rs_gpu_memory rs_gpu_memory_plain;

/* A neighbor: a queue pair on which nothing was posted, and what goes over it. */
struct rs_gpu_lane {
    const struct rs_mlx5_memory *queue;
    /* Of even and odd epochs; the last one of each is the notification, a write
     * with RS_STAMP_EPOCH. What is inlined besides is not allowed. */
    const struct rs_rdma_op *ops[2];
    uint32_t num_ops[2];
    const uint64_t *arrived; /* that the neighbor's notification writes; it is
                              * mapped here */
};

/* A lane's ring in the hands of those who write it, without the lane: that lies
 * where whoever makes the exchange has it. */
struct rs_gpu_ring;

/** @param memory of those who write the ring; allocates nothing
 * @param looks  of those who look at `arrived`
 * @param lane   not needed afterwards; pieces and queue pair are
 * @return 0, RSCHED_ENOMEM, RSCHED_ELIMIT (a list does not fit into half of a
 *         ring), RSCHED_EINVAL, RSCHED_ENOTSUP */
int rs_gpu_ring_create(const struct rs_gpu_memory *memory,
                       const struct rs_gpu_memory *looks,
                       const struct rs_gpu_lane *lane,
                       struct rs_gpu_ring **ring);
/** NULL is allowed. */
void rs_gpu_ring_destroy(struct rs_gpu_ring *ring);
/** Words of the table behind its lane. */
uint32_t rs_gpu_ring_words(const struct rs_gpu_ring *ring);
/** Fill the ring with its lists, and write lane and table.
 * @param there where those who use the lane will have the table */
void rs_gpu_ring_fill(const struct rs_gpu_ring *ring,
                      struct rsched_device_lane *lane, uint32_t *table,
                      const uint32_t *there);
/** What has become of a lane. @return 0, or its error with the text: queue pair,
 * operation, cause */
int rs_gpu_ring_check(const struct rs_gpu_ring *ring,
                      const struct rsched_device_lane *lane);

struct rs_gpu_exchange;

/** @param lanes  not needed afterwards; pieces and queue pairs are
 * @param proxy  NULL: kernels write the rings
 * @return 0, RSCHED_ENOMEM, RSCHED_ELIMIT (a list does not fit into half
 *         of a ring), RSCHED_EINVAL, RSCHED_ENOTSUP */
int rs_gpu_exchange_create(const struct rs_gpu_memory *memory,
                           const struct rs_gpu_lane *lanes, uint32_t num_lanes,
                           struct rs_gpu_proxy *proxy,
                           struct rs_gpu_exchange **exchange);
void rs_gpu_exchange_destroy(struct rs_gpu_exchange *exchange);

/** What a kernel is given. */
struct rsched_device_exchange *
rs_gpu_exchange_view(const struct rs_gpu_exchange *exchange);

/** End all waits with an error. Any thread. */
void rs_gpu_exchange_stop(struct rs_gpu_exchange *exchange, int error);

/** What has become of an exchange that no kernel uses now.
 * @return 0, or its error with the text: queue pair, operation, cause */
int rs_gpu_exchange_check(const struct rs_gpu_exchange *exchange);

/* A queue pair in the hands of those who put words, without the target: that lies
 * where whoever opens it has it. */
struct rs_gpu_words;

/** Let kernels write words to `bytes` bytes of a neighbor's memory.
 * @param memory of those who put; allocates nothing
 * @return 0, RSCHED_ENOMEM, RSCHED_ENOTSUP, RSCHED_EINVAL: not aligned */
int rs_gpu_words_create(const struct rs_gpu_memory *memory,
                        const struct rs_mlx5_memory *queue, uint64_t remote,
                        uint32_t rkey, uint64_t bytes,
                        struct rs_gpu_words **words);
/** NULL is allowed. */
void rs_gpu_words_destroy(struct rs_gpu_words *words);
/** What kernels are given. */
void rs_gpu_words_fill(const struct rs_gpu_words *words,
                       struct rsched_device_target *target);
/** What has become of a target. @return 0, or its error with the text: queue pair,
 * cause */
int rs_gpu_words_check(const struct rs_gpu_words *words,
                       const struct rsched_device_target *target);

struct rs_gpu_target;

/** Let kernels write words to `bytes` bytes of a neighbor's memory.
 * @return 0, RSCHED_ENOMEM, RSCHED_ENOTSUP, RSCHED_EINVAL: not aligned */
int rs_gpu_target_create(const struct rs_gpu_memory *memory,
                         const struct rs_mlx5_memory *queue, uint64_t remote,
                         uint32_t rkey, uint64_t bytes,
                         struct rs_gpu_proxy *proxy,
                         struct rs_gpu_target **target);
void rs_gpu_target_destroy(struct rs_gpu_target *target);
struct rsched_device_target *
rs_gpu_target_view(const struct rs_gpu_target *target);
int rs_gpu_target_check(const struct rs_gpu_target *target);
/** Whose queue pair it is, with what has been put and rung: what kernels are
 * given, or, with a proxy, what its thread uses, who is stopped then. */
const struct rsched_device_target *
rs_gpu_target_producer(const struct rs_gpu_target *target);

/* The thread that works for kernels. What it is given is made after it and
 * destroyed before it, while it is stopped. */

/** @param requests that the ring holds, a power of two */
int rs_gpu_proxy_create(const struct rs_gpu_memory *memory, uint32_t requests,
                        struct rs_gpu_proxy **proxy);
void rs_gpu_proxy_destroy(struct rs_gpu_proxy *proxy);
/** Do what is asked for, and see what is complete.
 * @return whether anything was asked */
bool rs_gpu_proxy_step(struct rs_gpu_proxy *proxy);
/** Step in a thread of its own, until stopped. @return 0 or RSCHED_ESYS */
int rs_gpu_proxy_start(struct rs_gpu_proxy *proxy);
void rs_gpu_proxy_stop(struct rs_gpu_proxy *proxy);
/** End all waits of kernels for the proxy with an error, for ever: waits for
 * room in its ring, and flushes. Any thread. */
void rs_gpu_proxy_halt(struct rs_gpu_proxy *proxy, int error);

/** What it has taken so far. */
uint64_t rs_gpu_proxy_taken(const struct rs_gpu_proxy *proxy);

#endif
