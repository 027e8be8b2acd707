/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of this process that others can map: one memfd, of which each
 * region has a part of its own. Parts are never given out again, so that what
 * others have mapped of a region that is gone is never another's.
 */
#ifndef RS_BASE_SHARED_H
#define RS_BASE_SHARED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rsched/memory.h>

/* How others find it; the id also stands at the beginning of the file, behind
 * RS_SHARED_MAGIC. */
struct rs_shared_file {
    int fd;
    uint64_t id;
};

#define RS_SHARED_MAGIC UINT64_C(0x316d656d686373) /* "schmem1" */

/* A region, or what another process says of one. */
struct rs_place {
    uint64_t id;     /* of the file, or what rsched_memory_add() was told */
    uint64_t offset; /* in the file */
    uint64_t bytes;
    char *address;   /* here */
};

/** Have the file, until rs_shared_close(). */
int rs_shared_open(struct rs_shared_file *file);
void rs_shared_close(void);

/** A region for the library's own use: a forked child does not have it. Freed
 * with rsched_free(). */
int rs_shared_alloc(size_t bytes, struct rs_place *place);

/** Move whole pages of ordinary memory in place into a region: see adopt.h,
 * which has looked whether this may be done. Nobody writes them meanwhile.
 * @return 0, RSCHED_ELIMIT (too much is adopted), RSCHED_ESTATE (a part of them
 *         lies in a region already), RSCHED_ENOTSUP (in one that no message may
 *         lie in), RSCHED_ENOMEM, RSCHED_ESYS */
int rs_shared_adopt(char *address, uint64_t bytes);

/** Have zeroed private memory again where pages of [low, high) are adopted.
 * @return 0, RSCHED_ENOMEM, or RSCHED_ESTATE: while this thread forks */
int rs_shared_unadopt(const char *low, const char *high);

/** The first region, by address, that has a byte of [low, high).
 * @return whether there is one */
bool rs_shared_find(const char *low, const char *high, struct rs_place *place);

/** Where this process has a region of its own, or one that was added.
 * @return NULL if it does not */
char *rs_shared_resolve(const struct rs_place *place);

/* Changes before a region goes; what rs_shared_find() said holds as long as it
 * has not changed. */
extern atomic_uint_fast64_t rs_shared_changes;
/* Changes when a region is there: what was in none may be in one now. */
extern atomic_uint_fast64_t rs_shared_additions;

#endif
