/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel that copies blocks; pack.h has what it is given.
 *
 * The driver in software of the tests compiles this file too, as C, with names
 * of its own for what is not C. So there is nothing here but C, and the names
 * below.
 */
#include "engines/cuda/pack.h"

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void __launch_bounds__(RS_PACK_THREADS)
#define DEVICE static __device__ __forceinline__
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#define PARAMETER const
#else
#define PARAMETER const __grid_constant__ /* indexed where it is */
#endif
#define LOAD(type, address) (*(const type *)(address))
#define STORE(type, address, value) (*(type *)(address) = (value))
#define UNROLL _Pragma("unroll")
#endif

/* The job that has a tile of the launch: the last one that begins before it. */
DEVICE uint32_t find_job(const struct rs_pack_launch *launch, uint64_t tile)
{
    uint32_t low = 0, high = (uint32_t)launch->num_jobs;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (launch->jobs[middle].tiles_before <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}

DEVICE uint64_t address_of_entry(const struct rs_pack_job *job, uint32_t number)
{
    return job->entries + number * (uint64_t)sizeof(struct rs_pack_entry);
}

/* Likewise, for a tile of the table. */
DEVICE struct rs_pack_entry find_entry(const struct rs_pack_job *job,
                                       uint64_t tile)
{
    uint32_t low = job->first, high = job->end;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (LOAD(struct rs_pack_entry, address_of_entry(job, middle))
                .tiles_before <= tile)
            low = middle;
        else
            high = middle;
    }
    return LOAD(struct rs_pack_entry, address_of_entry(job, low));
}

/* Where a word lies behind the first one, if blocks are so far apart. */
DEVICE uint64_t offset_of(const struct rs_pack_entry *e, uint32_t word,
                          int64_t stride)
{
    uint64_t block = word * e->magic >> e->shift;
    uint64_t column = word - block * e->words;

    return block * (uint64_t)stride + (column << e->width);
}

/* The words of a tile. All are loaded before any is stored: the compiler does
 * not know that the two sides have no byte in common. */
#define COPY_WORDS(name, type)                                               \
    DEVICE void name(const struct rs_pack_entry *e, uint32_t first)          \
    {                                                                        \
        type words[RS_PACK_WORDS];                                           \
                                                                             \
        UNROLL                                                               \
        for (uint32_t i = 0; i < RS_PACK_WORDS; i++) {                       \
            uint32_t word = first + i * RS_PACK_THREADS;                     \
                                                                             \
            if (word < e->total)                                             \
                words[i] = LOAD(type, e->from + offset_of(e, word,           \
                                                          e->from_stride));  \
        }                                                                    \
        UNROLL                                                               \
        for (uint32_t i = 0; i < RS_PACK_WORDS; i++) {                       \
            uint32_t word = first + i * RS_PACK_THREADS;                     \
                                                                             \
            if (word < e->total)                                             \
                STORE(type, e->to + offset_of(e, word, e->to_stride),        \
                      words[i]);                                             \
        }                                                                    \
    }

COPY_WORDS(copy_1, unsigned char)
COPY_WORDS(copy_2, unsigned short)
COPY_WORDS(copy_4, unsigned int)
COPY_WORDS(copy_8, uint2)
COPY_WORDS(copy_16, uint4)

DEVICE void copy_tile(const struct rs_pack_launch *launch, uint64_t number)
{
    const struct rs_pack_job *job = &launch->jobs[find_job(launch, number)];
    uint64_t tile = number - job->tiles_before + job->first_tile;
    struct rs_pack_entry e = find_entry(job, tile);
    uint32_t first = (uint32_t)(tile - e.tiles_before) * RS_PACK_TILE +
                     threadIdx.x;

    e.from += job->from;
    e.to += job->to;
    switch (e.width) {
    case 0:
        copy_1(&e, first);
        break;
    case 1:
        copy_2(&e, first);
        break;
    case 2:
        copy_4(&e, first);
        break;
    case 3:
        copy_8(&e, first);
        break;
    default:
        copy_16(&e, first);
        break;
    }
}

KERNEL rs_pack(PARAMETER struct rs_pack_launch launch)
{
    for (uint64_t tile = blockIdx.x; tile < launch.tiles; tile += gridDim.x)
        copy_tile(&launch, tile);
}
