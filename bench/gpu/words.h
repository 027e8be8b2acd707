/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * WORDS: what a kernel does to put words, each to a place of its own, and what it
 * measures meanwhile. The same code is compiled for GPUs (words.cu) and for threads
 * of processors (words_threads.c).
 *
 * A group is a thread or a warp. It puts one word of each of its threads `puts`
 * times, notes its cycles, and waits until all that was put has been rung, or taken
 * by the device. Clocks are a GPU's own or a processor's own, never both in one
 * difference: `ns` is the same clock for all groups, `cycles` that of one group.
 */
#ifndef BENCH_GPU_WORDS_H
#define BENCH_GPU_WORDS_H

#include <time.h>

#include <rsched/device.h>

enum {
    WORDS_WARP = 32,   /* threads, of a GPU's */
    WORDS_PAUSES = 16, /* between looks at the proxy, some 300 ns on a GPU */
};

/** What a group has seen. */
struct words_seen {
    uint64_t begin_ns, end_ns;
    uint64_t cycles; /* of its puts alone */
    int64_t status;
};

struct words_job {
    struct rsched_device_target *target;
    struct words_seen *seen; /* of each group */
    uint32_t blocks, groups; /* groups of a block */
    uint32_t threads;        /* of a group */
    uint32_t puts;           /* of each thread */
    uint32_t apart;          /* no words of a warp follow one another */
    uint32_t flush;          /* wait for the device, not for the doorbell alone */
    uint64_t salt;           /* of this job's values */
};

RSCHED_DEVICE uint64_t words_ns(void)
{
#if defined(__CUDA_ARCH__)
    uint64_t ns;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
#else
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

RSCHED_DEVICE uint64_t words_cycles(void)
{
#if defined(__CUDA_ARCH__)
    return (uint64_t)clock64();
#elif defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks)::"memory");
    return ticks;
#else
    return words_ns();
#endif
}

/** The word that a thread of a group puts the n-th time, of all words. */
RSCHED_DEVICE uint64_t words_place(const struct words_job *j, uint32_t group,
                                   uint32_t n, uint32_t rank)
{
    return ((uint64_t)group * j->puts + n) * j->threads +
           (j->apart ? j->threads - 1 - rank : rank);
}

/** What is put there; never 0. */
RSCHED_DEVICE uint64_t words_value(const struct words_job *j, uint64_t place)
{
    return j->salt << 32 | (place + 1);
}

/* All that has been put is rung: by who has put it, before the put returned, or by
 * the proxy, before it counts. */
RSCHED_DEVICE int words_rung(const struct rsched_device_target *t)
{
    const struct rsched_device_proxy *proxy = t->proxy;
    uint64_t asked;

    if (proxy == NULL)
        return 0;
    asked = rsched_device_load(proxy->asked);
    while (rsched_device_load(proxy->taken) < asked) {
        int status = rsched_device_target_status(t);

        if (status == 0)
            status = rsched_device_proxy_status(proxy);
        if (status != 0)
            return status;
        /* Who looks all the time takes the word's cache line from the proxy. */
        for (int i = 0; i < WORDS_PAUSES; i++)
            rsched_device_pause();
    }
    return 0;
}

/** All threads of the group call. */
RSCHED_DEVICE void words_run(const struct words_job *j,
                             const struct rsched_device_group *g,
                             uint32_t group)
{
    struct words_seen *seen = &j->seen[group];
    uint64_t begin_ns = words_ns(), begin = words_cycles(), cycles;
    int status = 0;

    for (uint32_t n = 0; n < j->puts && status == 0; n++) {
        uint64_t place = words_place(j, group, n, g->rank);

        status = rsched_device_put(j->target, g, 8 * place,
                                   words_value(j, place));
    }
    cycles = words_cycles() - begin;
    rsched_device_sync(g);
    if (g->rank != 0)
        return;
    if (status == 0)
        status = j->flush ? rsched_device_flush(j->target)
                          : words_rung(j->target);
    seen->begin_ns = begin_ns;
    seen->end_ns = words_ns();
    seen->cycles = cycles;
    seen->status = status;
}

#if !defined(__CUDACC__)
/** A job by threads of this process, blocks and groups at once. What has no memory
 * for them ends the program. */
void words_run_threads(const struct words_job *job);
#endif

#endif
