/* SPDX-License-Identifier: BSD-3-Clause */
/* FLAGS: what processes tell each other without a call of MPI, which could end
 * an incarnation. */
#ifndef RS_TESTS_MPI_FLAGS_H
#define RS_TESTS_MPI_FLAGS_H

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/mpi/common.h"

enum { FLAGS = 4, FLAG_LIMIT_S = 120 };

/* In a window that all map. Their values grow. */
static atomic_int *flags;
static MPI_Win flags_window;

/* Collective. */
static inline void flags_init(void)
{
    MPI_Aint bytes;
    int unit;

    MPI_Win_allocate_shared(world_rank == 0 ? FLAGS * sizeof(*flags) : 0, 1,
                            MPI_INFO_NULL, MPI_COMM_WORLD, &flags,
                            &flags_window);
    MPI_Win_shared_query(flags_window, 0, &bytes, &unit, &flags);
    for (int i = 0; i < FLAGS && world_rank == 0; i++)
        atomic_store(&flags[i], 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

static inline void flags_fini(void)
{
    MPI_Win_free(&flags_window);
}

static inline void flag_raise(int flag, int value)
{
    atomic_store(&flags[flag], value);
}

/* This process has nothing to do with MPI meanwhile, but for `call`. */
static inline void flag_await_by(int flag, int value, void (*call)(void))
{
    time_t begin = time(NULL);

    while (atomic_load(&flags[flag]) < value) {
        CHECK(time(NULL) - begin < FLAG_LIMIT_S, "flag %d is not %d", flag,
              value);
        call();
        sched_yield();
    }
}

static inline void flag_no_call(void)
{
}

static inline void flag_await(int flag, int value)
{
    flag_await_by(flag, value, flag_no_call);
}

#endif
