/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of others, moved in place into regions. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "librsched/base/error.h"
#include "librsched/base/log.h"
#include "librsched/base/pin.h"
#include "librsched/base/region.h"

/* Bytes, which a fork copies, and parts, each of which is a mapping or two more of some
 * 65000 that a process may have, and one more while it forks. */
enum { MOST_ADOPTED = 256 << 20, MOST_PARTS = 8192 };

/* Into the file, which takes two thirds of the time of faults and a copy: the pages need
 * not be cleared. A fault at pages that are not there could not fail; this can. */
static bool fill(const char *from, uint64_t offset, uint64_t bytes)
{
    while (bytes > 0) {
        ssize_t n = pwrite(rs_shared.file.fd, from, bytes, (off_t)offset);

        if (n <= 0)
            return false;
        from += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return true;
}

/* Let pages take the place of others. The kernel may fail for want of memory
 * of its own when the others are gone already. */
static bool replace(char *by, uint64_t bytes, char *address)
{
    enum { TRIES = 1000 };

    for (int i = 0; i < TRIES; i++) {
        if (rs_shared_move_to(by, bytes, address))
            return true;
        if (msync(address, bytes, MS_ASYNC) == 0)
            return false; /* they are still there */
        usleep(1000);
    }
    rs_log(RS_LOG_ERROR, "shared memory: %llu bytes at %p are lost: %m",
           (unsigned long long)bytes, (void *)address);
    abort();
}

/* Nothing here is a call that interposers see, for whom a thread that pins may wait. */
static int move_pages(struct region *r, char *copy)
{
    const struct rs_place *place = &r->place;
    struct rs_pin_move move;
    bool moved = false;

    if (!rs_pin_move_begin(&move, place->address, place->address + place->bytes))
        return rs_fail(RSCHED_ESTATE, "shared memory: %p is pinned",
                       (void *)place->address);
    if (fill(place->address, place->offset, place->bytes)) {
        syscall(SYS_madvise, copy, place->bytes, MADV_POPULATE_READ); /* Linux 5.14 */
        moved = replace(copy, place->bytes, place->address);
    }
    if (moved) {
        rs_region_insert(r);
        rs_shared.adopted += place->bytes;
    }
    rs_pin_move_end(&move);
    return moved ? 0
                 : rs_fail(RSCHED_ENOMEM, "shared memory: adopting %llu bytes: %m",
                           (unsigned long long)place->bytes);
}

static int adopt_part(struct region *r, char *address, uint64_t bytes)
{
    uint64_t unit = bytes >= RS_HUGE_PAGE ? RS_HUGE_PAGE : rs_shared_page_bytes();
    uint64_t offset = round_up(rs_shared.bytes, unit) +
                      (uint64_t)(uintptr_t)address % unit;
    char *copy;
    int error;

    copy = rs_shared_map_part(offset, bytes, unit);
    if (copy == NULL)
        return rs_fail(RSCHED_ENOMEM, "shared memory: adopting %llu bytes: %m",
                       (unsigned long long)bytes);
    r->place = (struct rs_place){rs_shared.file.id, offset, bytes, address};
    error = move_pages(r, copy);
    if (error != 0) {
        munmap(copy, bytes);
        rs_shared_punch(offset, bytes);
    }
    return error;
}

static bool overlaps(const struct region *r, const char *low, const char *high)
{
    return r->place.address < high && r->place.address + r->place.bytes > low;
}

int rs_shared_adopt(char *address, uint64_t bytes)
{
    struct region *r = calloc(1, sizeof(*r)), *other;
    int error = RSCHED_ENOMEM, parts = 0;

    if (r == NULL)
        return rs_fail(RSCHED_ENOMEM, "shared memory: no memory");
    r->kind = KIND_ADOPTED;
    rs_shared_lock();
    for (other = rs_shared.regions;
         other != NULL && !overlaps(other, address, address + bytes);) {
        parts += other->kind == KIND_ADOPTED;
        other = other->next;
    }
    if (other != NULL && !rs_region_is_shared(other))
        error = RSCHED_ENOTSUP; /* of a parent, or the library's own */
    else if (other != NULL)
        error = RSCHED_ESTATE; /* another thread was here before */
    else if (bytes > MOST_ADOPTED - rs_shared.adopted || parts >= MOST_PARTS)
        error = RSCHED_ELIMIT;
    else
        error = rs_shared_use_file();
    if (error == 0) {
        error = adopt_part(r, address, bytes);
        if (error != 0)
            rs_shared_unuse_file();
    }
    rs_shared_unlock();
    if (error != 0)
        free(r);
    return error;
}

/* Private memory in the place of an adopted region, whose contents nobody
 * wants any more. */
static bool restore(const struct region *r)
{
    if (mmap(r->place.address, r->place.bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return false;
    rs_shared.adopted -= r->place.bytes;
    rs_shared_give_back(&r->place);
    return true;
}

static void free_all(struct region *r)
{
    while (r != NULL) {
        struct region *next = r->next;

        free(r);
        r = next;
    }
}

int rs_shared_unadopt(const char *low, const char *high)
{
    struct region **at = &rs_shared.regions, *gone = NULL, *r;
    int error = 0;

    if (rs_shared_forking)
        return rs_fail(RSCHED_ESTATE, "shared memory: %p is freed while the "
                       "process forks", (const void *)low);
    rs_shared_lock();
    while (*at != NULL && error == 0) {
        r = *at;
        if (r->kind != KIND_ADOPTED || !overlaps(r, low, high)) {
            at = &r->next;
        } else if (restore(r)) {
            atomic_fetch_add(&rs_shared_changes, 1);
            *at = r->next;
            r->next = gone;
            gone = r;
        } else {
            error = rs_fail(RSCHED_ENOMEM, "shared memory: private memory in "
                            "place of adopted: %m");
        }
    }
    rs_shared_unlock();
    free_all(gone);
    return error;
}

/* [*low, *high): the pages of a range, of which there are none if it does not begin
 * with one, or if nothing is adopted. */
static bool has_pages(const void *address, size_t bytes, const char **low,
                      const char **high)
{
    *low = address;
    *high = *low + round_up(bytes, rs_shared_page_bytes());
    return atomic_load(&rs_shared.adopted) > 0 && *low < *high &&
           (uintptr_t)address % rs_shared_page_bytes() == 0;
}

/* [*low, *high): the part of a range that the region has. */
static void clip(const struct region *r, const char **low, const char **high)
{
    const char *start = r->place.address, *end = start + r->place.bytes;

    if (*low < start)
        *low = start;
    if (*high > end)
        *high = end;
}

int rsched_memory_empty(void *address, size_t bytes)
{
    const char *low, *high;
    int error = 0;

    if (!has_pages(address, bytes, &low, &high))
        return 0;
    if (rs_shared_forking)
        return rs_fail(RSCHED_ESTATE, "shared memory: %p is emptied while the "
                       "process forks", address);
    rs_shared_lock();
    for (struct region *r = rs_shared.regions; r != NULL && error == 0;
         r = r->next) {
        const char *from = low, *to = high;

        if (r->kind != KIND_ADOPTED || !overlaps(r, low, high))
            continue;
        clip(r, &from, &to);
        if (rs_shared_punch(r->place.offset + (uint64_t)(from - r->place.address),
                  (uint64_t)(to - from)) != 0)
            error = rs_fail(RSCHED_ESYS, "shared memory: emptying %zu bytes "
                            "at %p: %m", bytes, address);
    }
    rs_shared_unlock();
    return error;
}

/* Take [low, high) out of a region. Of what is left, what is behind goes into
 * `spare`, if something is before, and into the list. @return whether nothing is
 * left */
static bool cut(struct region *r, const char *low, const char *high,
                struct region **spare)
{
    struct rs_place *place = &r->place;
    uint64_t before, gone, behind;

    clip(r, &low, &high);
    before = (uint64_t)(low - place->address);
    gone = (uint64_t)(high - low);
    behind = place->bytes - before - gone;
    rs_shared_punch(place->offset + before, gone);
    rs_shared.adopted -= gone;
    if (before > 0 && behind > 0) {
        struct region *rest = *spare;

        *spare = NULL;
        *rest = *r;
        rest->place.address += before + gone;
        rest->place.offset += before + gone;
        rest->place.bytes = behind;
        place->bytes = before;
        rs_shared.users++;
        rs_region_insert(rest);
    } else if (behind > 0) {
        place->address += gone;
        place->offset += gone;
        place->bytes = behind;
    } else {
        place->bytes = before;
    }
    return place->bytes == 0;
}

int rsched_memory_unmap(void *address, size_t bytes, bool (*remove_it)(void *arg),
                        void *arg)
{
    /* Only one region can have parts on both sides of the range. */
    struct region *spare = calloc(1, sizeof(*spare)), *gone = NULL;
    const char *low, *high;

    if (spare == NULL)
        return rs_fail(RSCHED_ENOMEM, "shared memory: no memory");
    if (rs_shared_forking) {
        free(spare);
        return rs_fail(RSCHED_ESTATE, "shared memory: %p is unmapped while the "
                       "process forks", address);
    }
    rs_shared_lock();
    atomic_fetch_add(&rs_shared_changes, 1);
    if (remove_it(arg) && has_pages(address, bytes, &low, &high)) {
        struct region **at = &rs_shared.regions;

        while (*at != NULL) {
            struct region *r = *at;

            if (r->kind == KIND_ADOPTED && overlaps(r, low, high) &&
                cut(r, low, high, &spare)) {
                *at = r->next;
                rs_shared_unuse_file();
                r->next = gone;
                gone = r;
            } else {
                at = &r->next;
            }
        }
    }
    rs_shared_unlock();
    free_all(gone);
    free(spare);
    return 0;
}

size_t rsched_memory_adopted(const void *address, size_t bytes, void **first)
{
    const char *low = address, *high = low + bytes;
    size_t found = 0;

    if (rs_shared_inside || atomic_load(&rs_shared.adopted) == 0)
        return 0;
    rs_shared_lock();
    for (struct region *r = rs_shared.regions; r != NULL && found == 0;
         r = r->next) {
        char *start = r->place.address, *end = start + r->place.bytes;

        if (r->kind != KIND_ADOPTED || !overlaps(r, low, high))
            continue;
        start = start < low ? (char *)low : start;
        found = (size_t)((end > high ? high : end) - start);
        *first = start;
    }
    rs_shared_unlock();
    return found;
}
