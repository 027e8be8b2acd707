/* SPDX-License-Identifier: BSD-3-Clause */
/* Running a function as several ranks, which are threads of this process or
 * processes of their own. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include "tests/runtime/mesh.h"

struct rank {
    int rank, num_ranks;
    struct mesh_end *end;
    struct rsched_context *context;
    void *arg;
    /* For rank_open(): what is added to the job's number, how many cores the host
     * says that there are, whether processes are started again, and what it wants to be
     * called. */
    uint64_t job_offset;
    int num_cores;
    bool restarts;
    void (*host_progress)(void *arg);
    void *host_arg;
    struct rsched_oob oob; /* set by it: the rank's transport */
};

/** What a rank does; returns 0 for success. */
typedef int rank_fn(struct rank *self);

/** Make and destroy the rank's context, for tests of just that; ranks_run()
 * does it around `main`. */
int rank_open(struct rank *self);
void rank_close(struct rank *self);

enum { RANKS_KILLED = 2 };

/* A test that has not ended after so many seconds hangs, be it in a guest whose
 * processors are emulated and stand still half of the time. */
enum { RANKS_HANG_SECONDS = 200 };

/** Run `main` in num_ranks ranks, each with a context of its own. With
 * RANKS_NODES in the environment forked ranks of even and of odd number pretend
 * to be on two nodes, so that a device is needed between them.
 * @return 0 if all returned 0; RANKS_KILLED if that holds but for processes
 *         that were killed by SIGKILL */
int ranks_run(int num_ranks, bool threads, rank_fn *main, void *arg);

/** Whether two forked ranks are on the same node. */
bool ranks_share_node(int a, int b);

/** The same; forked ranks have a setting ("NAME=value") in their environment,
 * even and odd ones their own. NULL: none. */
int ranks_run_with(int num_ranks, bool threads, rank_fn *main, void *arg,
                   const char *const settings[2]);

/** Whether forked ranks may read each other's memory with
 * process_vm_readv(). */
bool ranks_may_read(void);

/** Print file, line and text, and return 1. */
#define RANK_FAIL(...)                                                       \
    (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__),                         \
     fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), 1)

#define RANK_CHECK(condition)                                                \
    do {                                                                     \
        if (!(condition))                                                    \
            return RANK_FAIL("rank %d: %s (%s)", self->rank, #condition,     \
                             rsched_last_error());                           \
    } while (0)

#endif
