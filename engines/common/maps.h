/* SPDX-License-Identifier: BSD-3-Clause */
/* What this process has mapped of a peer's memory (librsched/base/shared.h).
 * Lanes may use it in several threads at a time: get, put and drop lock it. */
#ifndef RS_ENGINES_MAPS_H
#define RS_ENGINES_MAPS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "librsched/base/shared.h"

struct rs_map;

struct rs_maps {
    pthread_mutex_t lock; /* guards all but the next two */
    int fd;      /* of the peer's memory, -1 if it cannot be opened */
    uint64_t id;
    void *tree; /* all of them, by place */
    TAILQ_HEAD(, rs_map) unused; /* the one that was given back last is the last */
    size_t num_used, num_unused;
    size_t most; /* that were used at a time */
};

/** Take over a descriptor of the peer's memory, if it is what `id` says; -1 is
 * none. */
void rs_maps_init(struct rs_maps *maps, int fd, uint64_t id);
/** The same with descriptor `fd` of process `pid`. */
void rs_maps_open(struct rs_maps *maps, int pid, int fd, uint64_t id);
/** All that was got has been given back. */
void rs_maps_fini(struct rs_maps *maps);

/** Have a place of the peer, as place->address. @return 0 or RSCHED_EUNREACH */
int rs_maps_get(struct rs_maps *maps, struct rs_place *place,
                struct rs_map **map);
void rs_maps_put(struct rs_maps *maps, struct rs_map *map);
/** The same, and nobody will want it again. */
void rs_maps_drop(struct rs_maps *maps, struct rs_map *map);

/** Those that a lane needs. Zero it; it owns the array. */
struct rs_map_list {
    struct rs_map **at; /* NULL: a place in a region of this process */
    size_t number, room;
    size_t own;       /* so many */
    uint64_t changes; /* rs_shared_changes before the first was got */
};

/** Whether places may no longer be where they were: regions of this process have changed. */
static inline bool rs_map_list_is_stale(const struct rs_map_list *list)
{
    return list->own > 0 &&
           list->changes != atomic_load_explicit(&rs_shared_changes, memory_order_relaxed);
}

/** rs_maps_get() into a list. @return as that, or RSCHED_ENOMEM */
int rs_map_list_get(struct rs_map_list *list, struct rs_maps *maps,
                    struct rs_place *place);
/** Give all of them back. */
void rs_map_list_clear(struct rs_map_list *list, struct rs_maps *maps);
/** The same, and free the array. */
void rs_map_list_fini(struct rs_map_list *list, struct rs_maps *maps);

#endif
