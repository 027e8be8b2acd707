/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cores that a thread may use. The kernel tells them only to who has room for
 * all that the machine may ever have, however few there are; a cpu_set_t has room
 * for 1024.
 */
#ifndef RS_BASE_CPUS_H
#define RS_BASE_CPUS_H

#include <assert.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    RS_MAX_CPUS = 8192, /* no Linux is built for more (CONFIG_NR_CPUS) */
    RS_CPU_WORDS = RS_MAX_CPUS / 64,
};

/* By the numbers of the operating system. Empty: they are not known. */
struct rs_cpus {
    uint64_t words[RS_CPU_WORDS];
};
static_assert(sizeof(unsigned long) == sizeof(uint64_t),
              "the kernel's words are these");

/** Those of the calling thread, as of now. @return false: they are not known */
static inline bool rs_cpus_allowed(struct rs_cpus *cpus)
{
    *cpus = (struct rs_cpus){0};
    return sched_getaffinity(0, sizeof(*cpus), (cpu_set_t *)cpus->words) == 0;
}

/** Let the calling thread use these only. @return 0, or -1 with errno */
static inline int rs_cpus_bind(const struct rs_cpus *cpus)
{
    return sched_setaffinity(0, sizeof(*cpus), (const cpu_set_t *)cpus->words);
}

static inline int rs_cpus_bind_to(int cpu)
{
    struct rs_cpus one = {0};

    one.words[cpu / 64] = UINT64_C(1) << cpu % 64;
    return rs_cpus_bind(&one);
}

static inline int rs_cpus_count(const struct rs_cpus *cpus)
{
    int count = 0;

    for (int i = 0; i < RS_CPU_WORDS; i++)
        count += __builtin_popcountll(cpus->words[i]);
    return count;
}

/** The n-th, counted from 0. @return -1: there are not so many */
static inline int rs_cpus_nth(const struct rs_cpus *cpus, int n)
{
    for (int cpu = 0; cpu < RS_MAX_CPUS; cpu++) {
        if ((cpus->words[cpu / 64] >> cpu % 64 & 1) != 0 && n-- == 0)
            return cpu;
    }
    return -1;
}

/** Whether all of `part` are in `whole`. */
static inline bool rs_cpus_include(const struct rs_cpus *whole,
                                   const struct rs_cpus *part)
{
    for (int i = 0; i < RS_CPU_WORDS; i++) {
        if ((part->words[i] & ~whole->words[i]) != 0)
            return false;
    }
    return true;
}

static inline void rs_cpus_add(struct rs_cpus *cpus, const struct rs_cpus *more)
{
    for (int i = 0; i < RS_CPU_WORDS; i++)
        cpus->words[i] |= more->words[i];
}

#endif
