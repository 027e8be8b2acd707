/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * PATTERN: what must move.
 *
 * A pattern lists transfers that are all known before the first of them
 * starts: the puts that a process sends and, where the pattern is to be
 * executed, the receives that it expects. A pattern that is only planned needs
 * bytes and directions; one that is executed needs processes and layouts too.
 *
 * Pairing: between one ordered pair of processes the k-th put (in the order in
 * which the puts were added to the sender's pattern) lands in the k-th receive
 * of the receiver's pattern for that source. Nothing else pairs them.
 *
 * Thread-safety: a pattern may be read by many threads; whoever changes it
 * must be alone with it.
 */
#ifndef RSCHED_PATTERN_H
#define RSCHED_PATTERN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <rsched/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/** In place of a process number: every process does the same (SPMD), or the
 * process does not matter because the pattern is only planned. */
#define RSCHED_ANY_PROCESS (-1)

/** The longest direction name, without the terminating zero. */
#define RSCHED_DIRECTION_MAX 31

/** Where the bytes of a put lie. */
enum rsched_memory {
    RSCHED_MEMORY_HOST = 0,
    RSCHED_MEMORY_DEVICE = 1, /**< GPU memory; `device` says which GPU */
};

/**
 * A run of equally long blocks at a constant distance:
 * block i is the bytes [offset + i * stride, offset + i * stride + bytes).
 */
struct rsched_run {
    int64_t offset; /**< bytes from the buffer address to the first block */
    uint64_t bytes; /**< length of one block, bytes */
    uint64_t count; /**< number of blocks, at least 1 */
    int64_t stride; /**< bytes from one block's start to the next one's; any
                         value, also negative; ignored when count is 1 */
};

/**
 * How the bytes of a put lie in memory, in the order in which they travel.
 * One run with count 1 is contiguous, one with a larger count is strided,
 * several are an iov. No runs at all (num_runs 0) means contiguous at offset 0.
 */
struct rsched_layout {
    const struct rsched_run *runs; /**< num_runs of them; may be NULL if 0 */
    size_t num_runs;
};

/** One transfer, seen from the sender (a put) or the receiver (a receive). */
struct rsched_put {
    uint64_t bytes; /**< bytes that travel; 0 is allowed */
    int source;      /**< process that sends, or RSCHED_ANY_PROCESS */
    int destination; /**< process that receives, or RSCHED_ANY_PROCESS */
    const char *direction; /**< the route's name in the machine ("N", "SE",
                                "+x-y"), at most RSCHED_DIRECTION_MAX bytes;
                                NULL or "" when it has none */
    struct rsched_layout layout; /**< its runs add up to `bytes` */
    enum rsched_memory memory;
    int device; /**< GPU number when memory is RSCHED_MEMORY_DEVICE, else 0 */
};

struct rsched_pattern;

/**
 * Make an empty pattern.
 *
 * @param name    copied; shown in tables and pictures; not NULL
 * @param pattern where the new pattern is stored; destroy it with
 *                rsched_pattern_destroy()
 * @return 0, RSCHED_EINVAL, RSCHED_ENOMEM
 */
RSCHED_API int rsched_pattern_create(const char *name,
                                     struct rsched_pattern **pattern);

/** Destroy a pattern; NULL is allowed. Schedules and exchanges made from it
 * keep what they need and stay valid. */
RSCHED_API void rsched_pattern_destroy(struct rsched_pattern *pattern);

/**
 * Append a put. Everything it points at is copied.
 *
 * @return the put's id (0, 1, ... in order of addition), or RSCHED_EINVAL
 *         (the runs do not add up to `bytes`, a name is too long, ...),
 *         RSCHED_ENOMEM; on failure the pattern is unchanged
 */
RSCHED_API int64_t rsched_pattern_add_put(struct rsched_pattern *pattern,
                                          const struct rsched_put *put);

/** Append a receive; as rsched_pattern_add_put(), with ids of its own. */
RSCHED_API int64_t rsched_pattern_add_receive(struct rsched_pattern *pattern,
                                              const struct rsched_put *receive);

RSCHED_API const char *rsched_pattern_name(const struct rsched_pattern *pattern);
RSCHED_API size_t rsched_pattern_num_puts(const struct rsched_pattern *pattern);
RSCHED_API size_t
rsched_pattern_num_receives(const struct rsched_pattern *pattern);

/**
 * Look at a put.
 *
 * @param id below rsched_pattern_num_puts()
 * @return the pattern's own copy, never NULL; valid until the pattern changes
 *         or is destroyed. Its direction is never NULL.
 */
RSCHED_API const struct rsched_put *
rsched_pattern_put(const struct rsched_pattern *pattern, size_t id);

/** Look at a receive; as rsched_pattern_put(). */
RSCHED_API const struct rsched_put *
rsched_pattern_receive(const struct rsched_pattern *pattern, size_t id);

/** The bytes of all puts together. */
RSCHED_API uint64_t
rsched_pattern_total_bytes(const struct rsched_pattern *pattern);

/**
 * Read a pattern file (format pattern/1, docs/formats.md).
 *
 * @param path a file name; "-" is standard input
 * @return 0; RSCHED_EPARSE with a text "path:line:column: cause";
 *         RSCHED_ESYS when the file cannot be read; RSCHED_ENOMEM
 */
RSCHED_API int rsched_pattern_load(const char *path,
                                   struct rsched_pattern **pattern);

/** As rsched_pattern_load(), from `length` bytes in memory; `name` stands for
 * the path in error texts. */
RSCHED_API int rsched_pattern_parse(const char *name, const char *text,
                                    size_t length,
                                    struct rsched_pattern **pattern);

/**
 * Make a built-in pattern from its specification, for instance
 * "scale-les3:872:all", "halo2d:64x64:h2:8", "halo3d:32x32x32:h1:26".
 * docs/formats.md lists them; rsched_pattern_builtin_help() describes them.
 *
 * @return 0, RSCHED_ENAME (no such pattern; the text lists those there are),
 *         RSCHED_EINVAL (bad numbers), RSCHED_ENOMEM
 */
RSCHED_API int rsched_pattern_builtin(const char *specification,
                                      struct rsched_pattern **pattern);

/**
 * One line of help for each built-in pattern.
 *
 * @param index 0, 1, ...
 * @return "SYNTAX\tdescription", or NULL when there are no more. Thread-safe.
 */
RSCHED_API const char *rsched_pattern_builtin_help(size_t index);

/** A file if `name` is one ("-", has a '/', ends in .yaml, .yml or .json, or
 * exists and is no directory), else a built-in pattern. */
RSCHED_API int rsched_pattern_open(const char *name,
                                   struct rsched_pattern **pattern);

/**
 * Write a pattern in the format that rsched_pattern_load() reads; loading what
 * was written gives an equal pattern.
 *
 * @return 0, RSCHED_ESYS
 */
RSCHED_API int rsched_pattern_write(const struct rsched_pattern *pattern,
                                    FILE *out);

#ifdef __cplusplus
}
#endif

#endif
