/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of a pair of processes (tools/pair.h) share. */
#ifndef RS_TOOLS_PAIR_INSIDE_H
#define RS_TOOLS_PAIR_INSIDE_H

#include <stdatomic.h>
#include <sys/types.h>

#include <rsched/engine.h>

#include "librsched/base/line.h"
#include "tools/pair.h"

enum {
    LINE = 64,
    PAIR_LINES = 4096 /* measurements of a line that are kept */
};

struct pair_meeting {
    _Alignas(LINE) atomic_uint_fast64_t arrived;
    _Atomic double value[2];
};

/* That both have. */
struct pair_memory {
    struct rs_line line;
    struct pair_meeting meeting;
};

struct pair {
    int side, socket;
    pid_t other;
    struct pair_memory *memory;
    int copied; /* memfd of what is copied without exchanges */
    uint64_t meetings;
    struct rsched_context *context;
    uint64_t tags;
    bool near, any; /* class of blocks */
    const struct rs_numa_pair *where;
    const char *const *settings; /* NULL, or: of strangers */
    unsigned blocks, mixed;
    unsigned num_lines;
    double lines[PAIR_LINES];
};

/** Wait for the other one. @return the larger of the values that the two have brought */
double pair_meet(struct pair *pair, double value);

/** @return ns of a line's round trip, the same for both; 0 for strangers */
double pair_measure_line(struct pair *pair);

bool pair_is_near(double ns);

/** The exchanges of one work on one side, and the buffers that they are about. */
struct station {
    struct rsched_exchange *exchanges[PAIR_WINDOW];
    unsigned window;
    char *send, *receive;
    uint64_t bytes; /* of each buffer */
    bool mapped, reads, on_gpu, huge, settles, updates;
    bool bare;           /* no exchanges: this side copies so many bytes */
    uint64_t part, from; /* from there on; side 0 writes them */
    int gpu;
    struct rsched_gpu_memory gpu_send, gpu_receive;
};

/** @param ways see pair_measure()
 * @return TOOL_OK, or a status after a line on standard error */
int station_open(struct pair *pair, const struct pair_work *work,
                 const struct rs_host_ways *ways, struct station *s);

/** Before station_close(), where the other side may have the buffers mapped. */
void station_close_exchanges(struct station *s);

void station_close(struct station *s);

/** Say that there is no memory for them. @return a status */
int station_no_buffers(const struct station *s);

#endif
