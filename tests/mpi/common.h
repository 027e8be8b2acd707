/* SPDX-License-Identifier: BSD-3-Clause */
/* What the MPI test programs share. Each is built for every MPI, and runs with
 * the backend preloaded or, with --native, without it. */
#ifndef TESTS_MPI_COMMON_H
#define TESTS_MPI_COMMON_H

#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/mpi.h>

#pragma weak rsched_mpi_counter

#if MPI_VERSION >= 4 || (defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5)
#define INIT(name) MPI_##name##_init
#else
#define INIT(name) MPIX_##name##_init
#endif

/* Values of the programs' exit status. */
enum { PASS = 0, FAIL = 1, SKIP = 77 };

static int world_rank, world_size;

#define CHECK(condition, ...)                                                \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "%s:%d: rank %d: %s: ", __FILE__, __LINE__,      \
                    world_rank, #condition);                                 \
            fprintf(stderr, __VA_ARGS__);                                    \
            fprintf(stderr, "\n");                                           \
            PMPI_Abort(MPI_COMM_WORLD, FAIL);                                \
        }                                                                    \
    } while (0)

/* ---- random numbers: splitmix64 ---- */

struct random {
    uint64_t state;
};

static inline uint64_t random_next(struct random *r)
{
    uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 ... n-1 */
static inline int random_below(struct random *r, int n)
{
    return n <= 0 ? 0 : (int)(random_next(r) % (uint64_t)n);
}

static inline bool random_one_in(struct random *r, int n)
{
    return random_below(r, n) == 0;
}

static inline void random_shuffle(struct random *r, int *array, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = random_below(r, i + 1), t = array[i];

        array[i] = array[k];
        array[k] = t;
    }
}

static inline void random_fill(struct random *r, void *memory, size_t bytes)
{
    unsigned char *at = memory;

    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word = random_next(r);

        memcpy(at, &word, 8);
    }
    for (uint64_t word = random_next(r); bytes > 0; bytes--, word >>= 8)
        *at++ = (unsigned char)word;
}

/* ---- counters ---- */

static inline bool is_accelerated(void)
{
    return rsched_mpi_counter != NULL;
}

/* A counter of the backend; 0 when it is not loaded. */
static inline uint64_t counter(const char *name)
{
    uint64_t value = 0;

    if (is_accelerated())
        CHECK(rsched_mpi_counter(name, &value) == 0, "no counter %s", name);
    return value;
}

static inline void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);

    CHECK(memory != NULL, "out of memory");
    return memory;
}

/* ---- start and end ---- */

/* A test that runs without the backend though it was not asked to has failed:
 * it would prove nothing. */
static inline void test_init(int *argc, char ***argv, bool native)
{
    int provided;

    MPI_Init_thread(argc, argv, MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    CHECK(native || is_accelerated(), "the backend is not loaded");
    CHECK(!native || !is_accelerated(), "the backend is loaded");
}

static inline int test_fini(const char *name)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0)
        printf("%s: %d ranks: ok\n", name, world_size);
    MPI_Finalize();
    return PASS;
}

static inline bool has_option(int argc, char **argv, const char *option)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], option) == 0)
            return true;
    }
    return false;
}

static inline long number_option(int argc, char **argv, const char *option,
                                 long otherwise)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], option) == 0)
            return strtol(argv[i + 1], NULL, 10);
    }
    return otherwise;
}

#endif
