/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What rsched/device.h and rsched/device_put.h stand on: groups of threads,
 * memory that a card or other threads touch at the same time, the queue pair
 * as a kernel sees it, and the ring of the proxy. Kernels need the groups;
 * the rest is no interface. rsched/device.h explains all of it.
 */
#ifndef RSCHED_DEVICE_QUEUE_H
#define RSCHED_DEVICE_QUEUE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <rsched/error.h>

#if defined(__CUDACC__)
#define RSCHED_DEVICE static inline __host__ __device__
#else
#define RSCHED_DEVICE static inline __attribute__((unused))
#endif

/* ---- groups of threads ---- */

enum rsched_device_group_kind {
    RSCHED_DEVICE_THREAD,
    RSCHED_DEVICE_WARP,
    RSCHED_DEVICE_BLOCK,
};

/** Threads that call together. Every thread has its own. */
struct rsched_device_group {
    uint32_t kind;
    uint32_t rank, size;
    uint32_t mask; /**< of a warp: the threads that call */
    /** Where no GPU is: a barrier of the threads, and a place for a word of
     * each. A group of one needs neither. */
    void (*sync)(void *arg);
    void *arg;
    uint64_t *words;
};

/** A group of one thread. */
RSCHED_DEVICE struct rsched_device_group rsched_device_thread(void)
{
    struct rsched_device_group g;

    g.kind = RSCHED_DEVICE_THREAD;
    g.rank = 0;
    g.size = 1;
    g.mask = 0;
    g.sync = NULL;
    g.arg = NULL;
    g.words = NULL;
    return g;
}

#if defined(__CUDACC__)
/** The threads of this warp that are here now. */
static inline __device__ struct rsched_device_group rsched_device_warp(void)
{
    struct rsched_device_group g = rsched_device_thread();

#if defined(__CUDA_ARCH__)
    unsigned lane;

    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    g.mask = __activemask();
    g.rank = (uint32_t)__popc(g.mask & ((1u << lane) - 1));
    g.size = (uint32_t)__popc(g.mask);
#endif
    g.kind = RSCHED_DEVICE_WARP;
    return g;
}

/** All threads of this block. */
static inline __device__ struct rsched_device_group rsched_device_block(void)
{
    struct rsched_device_group g = rsched_device_thread();

    g.kind = RSCHED_DEVICE_BLOCK;
    g.rank = threadIdx.x +
             blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    g.size = blockDim.x * blockDim.y * blockDim.z;
    return g;
}
#endif

/** A barrier of the group: what its threads have written before, all of them
 * see after. */
RSCHED_DEVICE void rsched_device_sync(const struct rsched_device_group *g)
{
#if defined(__CUDA_ARCH__)
    if (g->kind == RSCHED_DEVICE_WARP)
        __syncwarp(g->mask);
    else if (g->kind == RSCHED_DEVICE_BLOCK)
        __syncthreads();
#else
    if (g->size > 1)
        g->sync(g->arg);
#endif
}

/* ---- memory that others touch at the same time ---- */

RSCHED_DEVICE uint64_t rsched_device_load(const uint64_t *from)
{
#if defined(__CUDA_ARCH__)
    uint64_t value;

    asm volatile("ld.acquire.sys.u64 %0, [%1];"
                 : "=l"(value) : "l"(from) : "memory");
    return value;
#else
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
#endif
}

RSCHED_DEVICE uint32_t rsched_device_load32(const uint32_t *from)
{
#if defined(__CUDA_ARCH__)
    uint32_t value;

    asm volatile("ld.acquire.sys.u32 %0, [%1];"
                 : "=r"(value) : "l"(from) : "memory");
    return value;
#else
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
#endif
}

RSCHED_DEVICE void rsched_device_store(uint64_t *to, uint64_t value)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(to), "l"(value)
                 : "memory");
#else
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
#endif
}

RSCHED_DEVICE void rsched_device_store32(uint32_t *to, uint32_t value)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(to), "r"(value)
                 : "memory");
#else
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
#endif
}

/* For the host's statistics; orders nothing. */
RSCHED_DEVICE void rsched_device_count(uint64_t *count, uint64_t value)
{
#if defined(__CUDA_ARCH__)
    *(volatile uint64_t *)count = value;
#else
    __atomic_store_n(count, value, __ATOMIC_RELAXED);
#endif
}

/* ---- the same among threads of one GPU, which is nearer ---- */

/* These two order nothing. */
RSCHED_DEVICE uint64_t rsched_device_peek_near(const uint64_t *from)
{
#if defined(__CUDA_ARCH__)
    uint64_t value;

    asm volatile("ld.relaxed.gpu.u64 %0, [%1];"
                 : "=l"(value) : "l"(from) : "memory");
    return value;
#else
    return __atomic_load_n(from, __ATOMIC_RELAXED);
#endif
}

RSCHED_DEVICE void rsched_device_poke_near(uint64_t *to, uint64_t value)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(to), "l"(value)
                 : "memory");
#else
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
#endif
}

RSCHED_DEVICE uint64_t rsched_device_load_near(const uint64_t *from)
{
#if defined(__CUDA_ARCH__)
    uint64_t value;

    asm volatile("ld.acquire.gpu.u64 %0, [%1];"
                 : "=l"(value) : "l"(from) : "memory");
    return value;
#else
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
#endif
}

RSCHED_DEVICE uint32_t rsched_device_load32_near(const uint32_t *from)
{
#if defined(__CUDA_ARCH__)
    uint32_t value;

    asm volatile("ld.acquire.gpu.u32 %0, [%1];"
                 : "=r"(value) : "l"(from) : "memory");
    return value;
#else
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
#endif
}

RSCHED_DEVICE void rsched_device_store_near(uint64_t *to, uint64_t value)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(to), "l"(value)
                 : "memory");
#else
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
#endif
}

/* Acquires, and releases. */
RSCHED_DEVICE uint64_t rsched_device_add_near(uint64_t *at, uint64_t add)
{
#if defined(__CUDA_ARCH__)
    uint64_t was;

    asm volatile("atom.acq_rel.gpu.add.u64 %0, [%1], %2;"
                 : "=l"(was) : "l"(at), "l"(add) : "memory");
    return was;
#else
    return __atomic_fetch_add(at, add, __ATOMIC_ACQ_REL);
#endif
}

/* Releases. @return whether it had the value that was expected */
RSCHED_DEVICE bool rsched_device_replace_near(uint64_t *at, uint64_t expected,
                                              uint64_t value)
{
#if defined(__CUDA_ARCH__)
    uint64_t was;

    asm volatile("atom.release.gpu.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(was) : "l"(at), "l"(expected), "l"(value) : "memory");
    return was == expected;
#else
    return __atomic_compare_exchange_n(at, &expected, value, false,
                                       __ATOMIC_RELEASE, __ATOMIC_RELAXED);
#endif
}

/* Acquires. @return whether it was 0; it is 1 now */
RSCHED_DEVICE bool rsched_device_take_near(uint64_t *at)
{
#if defined(__CUDA_ARCH__)
    uint64_t was;

    asm volatile("atom.acquire.gpu.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(was) : "l"(at), "l"(UINT64_C(0)), "l"(UINT64_C(1))
                 : "memory");
    return was == 0;
#else
    uint64_t expected = 0;

    return __atomic_compare_exchange_n(at, &expected, 1, false,
                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
#endif
}

/* A release in two parts, so that what others wait for comes quickly: first this,
 * behind what is released, later the exchange. Exchanges of one word are a chain:
 * who sees the last one sees what was released by all. */
RSCHED_DEVICE void rsched_device_prepare_near(void)
{
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

RSCHED_DEVICE uint64_t rsched_device_exchange_near(uint64_t *at,
                                                   uint64_t value)
{
#if defined(__CUDA_ARCH__)
    uint64_t was;

    asm volatile("atom.relaxed.gpu.exch.b64 %0, [%1], %2;"
                 : "=l"(was) : "l"(at), "l"(value) : "memory");
    return was;
#else
    return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL);
#endif
}

/* Only tells threads apart; orders nothing. */
RSCHED_DEVICE uint64_t rsched_device_fetch_add_near(uint64_t *at, uint64_t add)
{
#if defined(__CUDA_ARCH__)
    return atomicAdd((unsigned long long *)at, (unsigned long long)add);
#else
    return __atomic_fetch_add(at, add, __ATOMIC_RELAXED);
#endif
}

/* What this thread has stored, and what it has seen, is seen by everybody
 * before what it stores next, a register of a device included. */
RSCHED_DEVICE void rsched_device_fence(void)
{
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.sys;" ::: "memory");
#elif defined(__x86_64__)
    __asm__ volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
    __asm__ volatile("dsb st" ::: "memory");
#else
    __sync_synchronize();
#endif
}

/* 8 bytes to a register, in one piece. Of a processor the memory may be
 * write-combining: the bytes leave the core now, and not when it likes. */
RSCHED_DEVICE void rsched_device_store_register(uint64_t *to, uint64_t value)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.mmio.relaxed.sys.u64 [%0], %1;" ::"l"(to), "l"(value)
                 : "memory");
#else
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
    rsched_device_fence();
#endif
}

/* Between two looks at what another thread or a card has to do first. */
RSCHED_DEVICE void rsched_device_pause(void)
{
#if defined(__CUDA_ARCH__)
    __nanosleep(20);
#else
    sched_yield();
#endif
}

/* To the card's byte order. GPUs, and the processors that this is built for,
 * store the low byte first. */
RSCHED_DEVICE uint32_t rsched_device_big32(uint32_t value)
{
#if defined(__CUDA_ARCH__)
    return __byte_perm(value, 0, 0x0123);
#else
    return __builtin_bswap32(value);
#endif
}

/* ---- queues ---- */

/** Of a work request that has failed. */
struct rsched_device_failure {
    uint8_t syndrome, vendor_error;
    uint16_t index; /**< of the WQE's first block */
};

/** A queue pair's sending side as the GPU sees it; no interface. */
struct rsched_device_queue {
    unsigned char *ring;
    uint32_t mask; /* blocks - 1 */
    uint32_t qpn;
    uint32_t *dbrec;
    uint64_t *doorbells[2];
    const unsigned char *cq; /* the last 64 bytes of its first entry */
    uint32_t cq_mask, cqe_stride;
    uint32_t *cq_dbrec;
    uint32_t cq_taken;
    uint32_t rings; /* doorbells so far */
};

enum {
    RSCHED_DEVICE_BLOCK_BYTES = 64,
    RSCHED_DEVICE_WRITE = 0x08, /* opcode */
    RSCHED_DEVICE_CQE_SENT = 0,
    RSCHED_DEVICE_CQE_ERROR = 13,
    RSCHED_DEVICE_CQE_INVALID = 15,
};

/* A 4-byte word of the ring, counted in bytes from the beginning of a block. */
RSCHED_DEVICE uint32_t *
rsched_device_queue_at(const struct rsched_device_queue *q, uint64_t block,
                       uint32_t offset)
{
    uint64_t slot = (block + offset / RSCHED_DEVICE_BLOCK_BYTES) & q->mask;

    return (uint32_t *)(q->ring + slot * RSCHED_DEVICE_BLOCK_BYTES +
                        offset % RSCHED_DEVICE_BLOCK_BYTES);
}

/* Of a WQE that begins in this block, as in memory. Computed, since the ring may be
 * the host's memory, which a GPU reads slowly. */
RSCHED_DEVICE uint32_t rsched_device_first_word(uint64_t block, uint32_t opcode)
{
    return rsched_device_big32(((uint32_t)block & 0xffff) << 8 | opcode);
}

/* A segment of the ring, 16 bytes in one store where the processor has one. */
RSCHED_DEVICE void rsched_device_store_segment(uint32_t *to, uint32_t first,
                                               uint32_t second, uint32_t third,
                                               uint32_t fourth)
{
#if defined(__CUDA_ARCH__)
    *(uint4 *)to = make_uint4(first, second, third, fourth);
#else
    const uint32_t segment[4] = {first, second, third, fourth};

    memcpy(to, segment, sizeof(segment));
#endif
}

/* What the next doorbell needs of a queue: read at once, since each load behind an
 * acquire comes from far, and the one of an address that was loaded takes two. */
struct rsched_device_bell {
    uint32_t *dbrec;
    uint64_t *doorbell;
    uint32_t rings; /* before this one */
};

RSCHED_DEVICE struct rsched_device_bell
rsched_device_queue_bell(const struct rsched_device_queue *q)
{
    uint64_t *even = q->doorbells[0], *odd = q->doorbells[1];
    struct rsched_device_bell bell;

    bell.dbrec = q->dbrec;
    bell.rings = q->rings;
    bell.doorbell = (bell.rings & 1) != 0 ? odd : even;
    return bell;
}

/* Tell the card of all blocks below `end`, of which the last WQE begins with
 * these two words, as they are in memory. One thread at a time. Doorbells of one
 * queue neither overtake each other nor are combined: between two of them is the
 * second one's fence. */
RSCHED_DEVICE void rsched_device_queue_ring(struct rsched_device_queue *q,
                                            const struct rsched_device_bell *bell,
                                            uint64_t end, uint32_t first_word,
                                            uint32_t second_word)
{
    q->rings = bell->rings + 1;
    /* Release: the WQEs, and what they send, come before the record. */
    rsched_device_store32(bell->dbrec,
                          rsched_device_big32((uint32_t)end & 0xffff));
    /* The record before the doorbell that makes the card look at it. */
    rsched_device_fence();
    rsched_device_store_register(bell->doorbell,
                                 (uint64_t)second_word << 32 | first_word);
}

struct rsched_device_completion {
    uint8_t kind; /* RSCHED_DEVICE_CQE_* */
    uint8_t syndrome, vendor_error;
    uint16_t index;
};

/* Take the next completion, if there is one. One thread at a time. */
RSCHED_DEVICE bool
rsched_device_queue_poll(struct rsched_device_queue *q,
                         struct rsched_device_completion *completion)
{
    const unsigned char *cqe =
        q->cq + (size_t)(q->cq_taken & q->cq_mask) * q->cqe_stride;
    bool odd_lap = (q->cq_taken & (q->cq_mask + 1)) != 0;
    /* Acquire: the card writes the owner, which is in the last of these 8 bytes,
     * not before the rest. */
    uint64_t end = rsched_device_load((const uint64_t *)(const void *)(cqe + 56));
    uint32_t word = rsched_device_big32((uint32_t)(end >> 32));
    uint8_t owner = (uint8_t)word;
    bool failed = owner >> 4 == RSCHED_DEVICE_CQE_ERROR;

    if (owner >> 4 == RSCHED_DEVICE_CQE_INVALID || (owner & 1) != odd_lap)
        return false;
    completion->kind = (uint8_t)(owner >> 4);
    completion->vendor_error = failed ? cqe[54] : 0;
    completion->syndrome = failed ? cqe[55] : 0;
    completion->index = (uint16_t)(word >> 16);
    q->cq_taken++;
    /* Release: the CQE has been read before the card may write it again. */
    rsched_device_store32(q->cq_dbrec,
                          rsched_device_big32(q->cq_taken & 0xffffff));
    return true;
}

/* ---- the proxy ---- */

enum rsched_device_request_kind {
    RSCHED_DEVICE_START = 1, /**< an exchange's next epoch */
    RSCHED_DEVICE_PUT,       /**< 8 bytes */
};

/** What a kernel asks of the host's thread, who passes over other kinds. */
struct rsched_device_request {
    uint64_t turn;   /**< its number + 1, written last */
    uint64_t kind;
    uint64_t object; /**< of START an exchange, of PUT a target */
    uint64_t offset, value;
};

/** A ring of requests in host memory, with any number of writers. */
struct rsched_device_proxy {
    struct rsched_device_request *requests;
    uint64_t mask;   /**< requests - 1 */
    uint64_t *asked; /**< in GPU memory, kernels of that GPU count here */
    uint64_t *taken; /**< in host memory, the host's thread counts here */
    const int32_t *stop; /**< the host ends all waits for that thread, for ever,
                              by an RSCHED_E* code */
};

/* @return 0, or the code that the host has stopped it with */
RSCHED_DEVICE int
rsched_device_proxy_status(const struct rsched_device_proxy *proxy)
{
    return (int)rsched_device_load32((const uint32_t *)proxy->stop);
}

/* Ask; waits while the ring is full. @return 0, or the code that the host has
 * stopped it with meanwhile: then nothing that is asked later is done either */
RSCHED_DEVICE int
rsched_device_proxy_ask(const struct rsched_device_proxy *proxy, uint64_t kind,
                        const void *object, uint64_t offset, uint64_t value)
{
    uint64_t number = rsched_device_fetch_add_near(proxy->asked, 1);
    struct rsched_device_request *r = &proxy->requests[number & proxy->mask];

    /* Acquire: the host's thread has read what was here before. */
    while (number - rsched_device_load(proxy->taken) > proxy->mask) {
        int status = rsched_device_proxy_status(proxy);

        if (status != 0)
            return status;
        rsched_device_pause();
    }
    r->kind = kind;
    r->object = (uint64_t)(uintptr_t)object;
    r->offset = offset;
    r->value = value;
    /* Release: the request comes before its turn. */
    rsched_device_store(&r->turn, number + 1);
    return 0;
}

#endif
