/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * OPENING: two exchanges in the hands of kernels (device.c). What it is made of is
 * shared by the files that do its parts:
 *
 *   device.c          opening and closing, and the thread that starts for kernels
 *   opening_memory.c  what kernels and the host use together
 *   opening_rings.c   the neighbors that kernels reach by rings of their own
 */
#ifndef RS_RUN_OPENING_H
#define RS_RUN_OPENING_H

#include <rsched/device.h>
#include <rsched/device_open.h>

#include "librsched/run/kernel_memory.h"
#include "librsched/run/rings.h"

/* A kernel has one epoch under way. */
enum { RS_OPENING_REQUESTS = 2 };

struct rs_opening_host {
    _Alignas(64) struct rsched_device_lane lane;
    _Alignas(64) struct rsched_device_request requests[RS_OPENING_REQUESTS];
    _Alignas(64) uint64_t taken;
    int32_t stop;
    _Alignas(64) int32_t told; /* by the kernel: it has failed */
    /* Whether any neighbor of a ring is gone, and of each ring its code. */
    _Alignas(64) int32_t gone[];
};

struct rs_opening_gpu {
    struct rsched_device_exchange view;
    struct rsched_device_proxy proxy;
    uint64_t asked;
    struct rsched_device_lane lanes[]; /* of the rings; their tables are behind */
};

struct rsched_opening {
    struct rsched_exchange *sets[2];
    struct rs_neighbors neighbors;
    uint32_t num_rings;
    bool proxied; /* not all goes by rings */
    struct rs_kernel_memory memory;
    struct rs_opening_host *host;
    pthread_t thread;
    atomic_bool end;        /* of the thread */
    bool active;            /* thread: an epoch is under way */
    bool given_up;          /* thread: the exchanges; the neighbors are told */
    uint64_t next_look_ps;  /* thread */
    atomic_uint_fast64_t asked, completed;
    pthread_mutex_t lock;   /* guards what follows */
    int error;
    char *text;
    bool stopped;   /* by the program, who decides what becomes of the exchanges */
};

/* ---- memory ---- */

/** With room for all rings that there are by now; some may be dropped later. */
int rs_opening_memory_create(struct rsched_opening *o, int gpu);
/** Write it, once it is known which rings there are. */
int rs_opening_memory_fill(struct rsched_opening *o);
/** Look at what is the kernels' own: where it is, or, of a GPU, at a copy, which is
 * freed by the second one. Any thread. @return 0, or why that cannot be */
int rs_opening_memory_look(const struct rsched_opening *o,
                           const struct rs_opening_gpu **own);
void rs_opening_memory_looked(const struct rsched_opening *o,
                              const struct rs_opening_gpu *own);

/* ---- errors ---- */

/** The lock is held. The first one counts. */
void rs_opening_note(struct rsched_opening *o, int error, const char *text);

/* ---- rings ---- */

/** What goes by rings is none of the exchanges', until the opening is closed. */
void rs_opening_divide(struct rsched_opening *o, bool open);
/** The lock is held. Whether a kernel has failed, and why. */
void rs_opening_settle(struct rsched_opening *o);
/** End waits for neighbors that are not there any more. The thread's. */
void rs_opening_look(struct rsched_opening *o);
/** If it has failed by now: the exchanges fail, and the neighbors are told, who
 * must not wait for what will not come. */
void rs_opening_give_up(struct rsched_opening *o);
/** The context's lock is held. */
void rs_opening_abandon_rings(const struct rsched_opening *o);
/** Whether a kernel has seen that all it has started by rings is complete. */
bool rs_opening_is_idle(const struct rsched_opening *o);
/** What of the statistics is in the kernels' memory. */
void rs_opening_ring_stats(const struct rsched_opening *o,
                           struct rsched_opening_stats *stats);

#endif
