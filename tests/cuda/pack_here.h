/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel of engines/cuda for the processor, from the file that nvcc
 * compiles. Whoever includes this has defined
 *
 *     static void *reach(uint64_t address, size_t bytes, bool store)
 *
 * which is called for each access, and calls rs_pack() for each thread of each
 * block, which threadIdx and blockIdx say. */
#ifndef TESTS_CUDA_PACK_HERE_H
#define TESTS_CUDA_PACK_HERE_H

typedef struct {
    unsigned x, y;
} __attribute__((aligned(8))) uint2;
typedef struct {
    unsigned x, y, z, w;
} __attribute__((aligned(16))) uint4;

static struct {
    unsigned x;
} threadIdx, blockIdx, gridDim;

static void *reach_aligned(uint64_t address, size_t bytes, size_t alignment,
                           bool store)
{
    if (address % alignment != 0)
        abort();
    return reach(address, bytes, store);
}

#define KERNEL static void
#define DEVICE static inline
#define PARAMETER const
#define UNROLL
#define LOAD(type, address)                                                  \
    (*(const type *)reach_aligned(address, sizeof(type), _Alignof(type),     \
                                  false))
#define STORE(type, address, value)                                          \
    (*(type *)reach_aligned(address, sizeof(type), _Alignof(type), true) =   \
         (value))

#include "engines/cuda/pack.cu"

/* What a launch does. */
static void run_launch(const struct rs_pack_launch *launch, unsigned blocks)
{
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        for (threadIdx.x = 0; threadIdx.x < RS_PACK_THREADS; threadIdx.x++)
            rs_pack(*launch);
    }
}

#endif
