/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a queue pair and its completion queue lie in memory, and the order in
 * which host and device may touch them.
 *
 * Doorbell record: two big-endian words, [0] receives posted, [1] blocks
 * posted to the send queue (the index of the next free one), each modulo
 * 65536. That of a completion queue: [0] completions taken, modulo 2^24.
 *
 * Doorbell: 8 bytes, those that the last posted WQE begins with, stored at
 * once; alternately at `doorbell` and at `doorbell_bytes` behind it.
 */
#ifndef RS_MLX5_MEMORY_H
#define RS_MLX5_MEMORY_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    RS_MLX5_DBREC_RECEIVE = 0,
    RS_MLX5_DBREC_SEND = 1,
    RS_MLX5_MAX_BLOCKS = 32768, /* so that 16 bits tell full from empty */
};

static_assert(sizeof(_Atomic uint32_t) == 4, "device layout");
static_assert(sizeof(_Atomic uint64_t) == 8 && sizeof(void *) == 8,
              "a doorbell is one store");

struct rs_mlx5_memory {
    uint32_t qpn;
    void *send_ring;
    uint32_t send_blocks;   /* a power of two */
    void *receive_ring;     /* NULL: somebody else posts receives */
    uint32_t receive_entries, receive_stride;
    _Atomic uint32_t *dbrec;
    _Atomic uint64_t *doorbell;
    uint32_t doorbell_bytes; /* 0: there is only one */
    void *cq_ring;
    uint32_t cq_entries;     /* a power of two, at least send_blocks: after an
                                error every WQE makes a completion */
    uint32_t cqe_bytes;      /* 64, or 128: the second half is used */
    _Atomic uint32_t *cq_dbrec;
    uint32_t max_segments, max_inline; /* of a WQE */
};

/* What the host has stored is in memory before what it stores next, as the
 * device sees it. On x86 stores are seen in their order. */
static inline void rs_mlx5_to_device(void)
{
#if defined(__aarch64__)
    __asm__ volatile("dmb oshst" ::: "memory");
#elif defined(__x86_64__)
    __asm__ volatile("" ::: "memory");
#else
    __sync_synchronize();
#endif
}

/* The same for the doorbell, which may be write-combining memory: it leaves the
 * core neither before earlier stores nor later than this. */
static inline void rs_mlx5_flush(void)
{
#if defined(__aarch64__)
    __asm__ volatile("dsb st" ::: "memory");
#elif defined(__x86_64__)
    __asm__ volatile("sfence" ::: "memory");
#else
    __sync_synchronize();
#endif
}

/* What the device stored before the store that was seen is seen too. */
static inline void rs_mlx5_from_device(void)
{
#if defined(__aarch64__)
    __asm__ volatile("dmb oshld" ::: "memory");
#elif defined(__x86_64__)
    __asm__ volatile("" ::: "memory");
#else
    __sync_synchronize();
#endif
}

#endif
