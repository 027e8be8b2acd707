/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * WAY: how words get from a kernel into a ring, and the softnic that reads it: a
 * kernel writes WQEs and rings itself, or asks the proxy, a thread of the host,
 * which does the same by the same functions. Either way has a softnic, queue pairs
 * and memory of its own. What fails or is not as it has to be ends the program, with
 * a message.
 */
#ifndef BENCH_GPU_WORDS_WAY_H
#define BENCH_GPU_WORDS_WAY_H

#include "engines/softnic/softnic.h"
#include "words_side.h"

enum {
    WORDS_MOST = 16384,      /* in a burst */
    WORDS_MOST_GROUPS = 256, /* of a job */
    WORDS_BURSTS = 4,        /* in a job that goes on after the ring is full */
};

struct words_there;

struct words_way {
    const char *name;
    const struct words_side *side;
    bool by_proxy;
    struct rs_softnic *nic;
    struct rs_softnic_qp *from, *to;
    uint32_t blocks; /* of the ring, and requests of the proxy's: a burst fits */
    uint64_t *words; /* that are put to, WORDS_BURSTS times as many */
    struct rs_gpu_proxy *proxy; /* made in any case; used if it is the way */
    struct rs_gpu_target *target;
    struct words_there *there; /* the kernels' own memory */
    struct words_seen seen[WORDS_MOST_GROUPS];
    uint64_t put;  /* words so far */
    uint64_t wqes; /* that these must have been */
    uint32_t rung; /* doorbells, before the job */
    uint64_t salt;
};

/** @param burst words of the longest one, at most WORDS_MOST */
void words_way_init(struct words_way *way, const struct words_side *side,
                    bool by_proxy, uint32_t burst);
void words_way_fini(struct words_way *way);

/** What a job has taken. */
struct words_taken {
    double seconds; /* from the first group's begin to the last one's end */
    double cycles;  /* of a group for each of its puts, on average */
    double limit;   /* WQEs in a second that the softnic took, where it was alone */
    double wqes, rings; /* for each put */
};

/** As many words as there is room for; nobody reads the ring meanwhile. Then the
 * softnic has its turn, alone. The job's target, seen and salt are set here. */
struct words_taken words_way_burst(struct words_way *way, struct words_job job);
/** WORDS_BURSTS times as many, while the softnic reads; to the end of all. */
struct words_taken words_way_stream(struct words_way *way, struct words_job job);

#endif
