/* SPDX-License-Identifier: BSD-3-Clause */
/* What shared.c and shared_adopt.c have together: the file and its regions. Nobody else
 * includes this. */
#ifndef RS_BASE_REGION_H
#define RS_BASE_REGION_H

#include <pthread.h>

#include "librsched/base/shared.h"

#define RS_HUGE_PAGE (UINT64_C(2) << 20)

enum kind {
    KIND_USER,     /* rsched_alloc() */
    KIND_INTERNAL, /* rs_shared_alloc() */
    KIND_ADDED,    /* rsched_memory_add() */
    KIND_ADOPTED,  /* rs_shared_adopt(): the address is another's */
    KIND_COPY,     /* in a forked child: the parent's, as private memory */
};

struct region {
    struct region *next; /* in the order of addresses */
    struct rs_place place;
    enum kind kind;
    void *copy; /* while the process forks: for the child */
};

struct rs_shared_state {
    pthread_mutex_t lock;
    struct rs_shared_file file;
    uint64_t bytes; /* of the file */
    unsigned users; /* rs_shared_open() and regions of the file */
    atomic_uint_fast64_t adopted; /* bytes */
    struct region *regions;
    bool handled; /* forks are */
};

extern struct rs_shared_state rs_shared;

/* This thread is between the handlers of a fork, and has the lock. */
extern _Thread_local bool rs_shared_forking;
/* This thread has the lock: what it does with mappings is not the program's. */
extern _Thread_local bool rs_shared_inside;

void rs_shared_lock(void);
void rs_shared_unlock(void);

uint64_t rs_shared_page_bytes(void);

static inline uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* The rest is for those who have the lock. */

/** Have the file, as often as it is given back. */
int rs_shared_use_file(void);
void rs_shared_unuse_file(void);

/** Whoever has this part of the file mapped does not keep the pages: they read as
 * zeros. @return 0, or -1 with errno */
int rs_shared_punch(uint64_t offset, uint64_t bytes);
/** That, and the file. */
void rs_shared_give_back(const struct rs_place *place);

/** Map a part behind all others of the file, at an address that differs from its
 * offset by a multiple of `unit`, as huge pages need it. It is never given out again.
 * NULL with errno. */
char *rs_shared_map_part(uint64_t offset, uint64_t bytes, uint64_t unit);

/** Move a mapping to where another one is. Not by the C library's function:
 * interposers know of no fifth argument. @return false with errno */
bool rs_shared_move_to(void *from, uint64_t bytes, void *to);

/** Messages may lie in it. */
bool rs_region_is_shared(const struct region *r);

void rs_region_insert(struct region *r);

#endif
