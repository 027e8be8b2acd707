/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * CALLS: the ways to make one exchange, each behind the same three functions.
 */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include <mpi.h>

#include "librsched/base/line.h"
#include "work.h"

/** Memory that the processes share, for the line, meetings and the floors. */
struct shared {
    struct rs_line line;
    struct {
        _Alignas(64) _Atomic uint64_t ready;  /* the epoch that may be read */
        _Alignas(64) _Atomic uint64_t taken;  /* the epoch that has been read */
        _Alignas(64) _Atomic uint64_t begun;  /* epochs, over all cases */
    } side[2];
    _Alignas(64) _Atomic uint64_t arrived; /* at meetings of all ranks */
    _Alignas(4096) char bytes[]; /* see calls.c */
};

/** What a call keeps between exchanges. */
struct call_state {
    const struct work *work;
    struct shared *shared;
    MPI_Request requests[2 * MAX_MESSAGES];
    uint64_t epoch;
};

struct call {
    const char *name;
    const char *help;
    bool pair_only; /* needs exactly two processes and the shared memory */
    void (*setup)(struct call_state *state);
    void (*run)(struct call_state *state);
    void (*teardown)(struct call_state *state);
    /* The send buffer has been written; NULL if that is all there is to it. */
    void (*rewritten)(struct call_state *state);
};

/** All of them, the end marked by a NULL name. */
extern const struct call calls[];

/** The call of that name, or NULL. */
const struct call *calls_find(const char *name);

/** Bytes of shared memory that the floors need for this work. */
size_t calls_shared_size(const struct work *work);

#endif
