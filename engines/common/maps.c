/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings are kept when no lane needs them any more: a program that loads a
 * message for each epoch mostly loads the same ones. */
#include "engines/common/maps.h"

#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "librsched/base/array.h"
#include "librsched/base/descriptor.h"
#include "librsched/base/error.h"

enum { MAX_UNUSED = 64 };

struct rs_map {
    TAILQ_ENTRY(rs_map) link; /* of those that nobody uses */
    struct rs_place place;
    unsigned users;
};

void rs_maps_init(struct rs_maps *maps, int fd, uint64_t id)
{
    uint64_t head[2];

    *maps = (struct rs_maps){
        .lock = PTHREAD_MUTEX_INITIALIZER, .fd = fd, .id = id};
    TAILQ_INIT(&maps->unused);
    if (fd < 0 || (pread(fd, head, sizeof(head), 0) == sizeof(head) &&
                   head[0] == RS_SHARED_MAGIC && head[1] == id))
        return;
    close(fd);
    maps->fd = -1;
}

void rs_maps_open(struct rs_maps *maps, int pid, int fd, uint64_t id)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    rs_maps_init(maps,
                 rs_descriptor_keep(open(
                     path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)),
                 id);
}

static int compare(const void *a, const void *b)
{
    const struct rs_place *p = &((const struct rs_map *)a)->place;
    const struct rs_place *q = &((const struct rs_map *)b)->place;

    if (p->offset != q->offset)
        return p->offset < q->offset ? -1 : 1;
    return p->bytes < q->bytes ? -1 : p->bytes > q->bytes;
}

/* One that is in no list. */
static void unmap(struct rs_maps *maps, struct rs_map *map)
{
    tdelete(map, &maps->tree, compare);
    munmap(map->place.address, map->place.bytes);
    free(map);
}

static void unmap_unused(struct rs_maps *maps, size_t most)
{
    while (maps->num_unused > most) {
        struct rs_map *map = TAILQ_FIRST(&maps->unused);

        TAILQ_REMOVE(&maps->unused, map, link);
        maps->num_unused--;
        unmap(maps, map);
    }
}

void rs_maps_fini(struct rs_maps *maps)
{
    unmap_unused(maps, 0);
    if (maps->fd >= 0)
        close(maps->fd);
    pthread_mutex_destroy(&maps->lock);
}

/* A place that ends behind the file would be a SIGBUS. */
static bool is_in_file(const struct rs_maps *maps, const struct rs_place *p)
{
    struct stat status;
    uint64_t size;

    if (maps->fd < 0 || p->id != maps->id || fstat(maps->fd, &status) != 0)
        return false;
    size = (uint64_t)status.st_size;
    return p->bytes > 0 && p->bytes <= size && p->offset <= size - p->bytes;
}

static int map_place(const struct rs_maps *maps, const struct rs_place *place,
                     struct rs_map **made)
{
    struct rs_map *map;

    if (!is_in_file(maps, place))
        return rs_fail(RSCHED_EUNREACH,
                       "%llu bytes of a peer's memory are not there",
                       (unsigned long long)place->bytes);
    map = calloc(1, sizeof(*map));
    if (map == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a mapping");
    map->place = *place;
    map->place.address = mmap(NULL, place->bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED, maps->fd, (off_t)place->offset);
    if (map->place.address == MAP_FAILED) {
        free(map);
        return rs_fail(RSCHED_EUNREACH,
                       "mapping %llu bytes of a peer: %m",
                       (unsigned long long)place->bytes);
    }
    madvise(map->place.address, place->bytes, MADV_DONTFORK);
    *made = map;
    return 0;
}

static int add(struct rs_maps *maps, const struct rs_place *place, struct rs_map **map)
{
    int error = map_place(maps, place, map);

    if (error != 0)
        return error;
    if (tsearch(*map, &maps->tree, compare) == NULL) {
        munmap((*map)->place.address, place->bytes);
        free(*map);
        return rs_fail(RSCHED_ENOMEM, "no memory for a mapping");
    }
    return 0;
}

/* Have it, and in use. */
static int use(struct rs_maps *maps, const struct rs_place *place,
               struct rs_map **map)
{
    const struct rs_map key = {.place = *place};
    struct rs_map **found = tfind(&key, &maps->tree, compare);
    int error = 0;

    if (found == NULL)
        error = add(maps, place, map);
    else
        *map = *found;
    if (error != 0)
        return error;
    if (found != NULL && (*map)->users == 0) {
        TAILQ_REMOVE(&maps->unused, *map, link);
        maps->num_unused--;
    }
    if ((*map)->users++ == 0 && ++maps->num_used > maps->most)
        maps->most = maps->num_used;
    return 0;
}

int rs_maps_get(struct rs_maps *maps, struct rs_place *place,
                struct rs_map **map)
{
    int error;

    *map = NULL;
    place->address = rs_shared_resolve(place);
    if (place->address != NULL)
        return 0;
    pthread_mutex_lock(&maps->lock);
    error = use(maps, place, map);
    if (error == 0)
        place->address = (*map)->place.address;
    pthread_mutex_unlock(&maps->lock);
    return error;
}

void rs_maps_drop(struct rs_maps *maps, struct rs_map *map)
{
    if (map == NULL)
        return;
    pthread_mutex_lock(&maps->lock);
    if (--map->users == 0) {
        maps->num_used--;
        unmap(maps, map);
    }
    pthread_mutex_unlock(&maps->lock);
}

/* As many are kept as were ever in use, and some: who gives all of a message back gets
 * most of them again for the next one. */
void rs_maps_put(struct rs_maps *maps, struct rs_map *map)
{
    if (map == NULL)
        return;
    pthread_mutex_lock(&maps->lock);
    if (--map->users == 0) {
        TAILQ_INSERT_TAIL(&maps->unused, map, link);
        maps->num_used--;
        maps->num_unused++;
        unmap_unused(maps, MAX_UNUSED + maps->most);
    }
    pthread_mutex_unlock(&maps->lock);
}

int rs_map_list_get(struct rs_map_list *list, struct rs_maps *maps,
                    struct rs_place *place)
{
    struct rs_map **larger = rs_array_grow(list->at, &list->room,
                                           list->number + 1, sizeof(*larger));
    struct rs_map *map;
    int error;

    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for mappings");
    list->at = larger;
    if (list->number == 0)
        list->changes = atomic_load(&rs_shared_changes);
    error = rs_maps_get(maps, place, &map);
    if (error == 0) {
        list->at[list->number++] = map;
        list->own += map == NULL;
    }
    return error;
}

void rs_map_list_clear(struct rs_map_list *list, struct rs_maps *maps)
{
    while (list->number > 0)
        rs_maps_put(maps, list->at[--list->number]);
    list->own = 0;
}

void rs_map_list_fini(struct rs_map_list *list, struct rs_maps *maps)
{
    rs_map_list_clear(list, maps);
    free(list->at);
    *list = (struct rs_map_list){0};
}
