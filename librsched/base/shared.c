/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "librsched/base/descriptor.h"
#include "librsched/base/error.h"
#include "librsched/base/limit.h"
#include "librsched/base/log.h"
#include "librsched/base/pin.h"
#include "librsched/base/region.h"

struct rs_shared_state rs_shared = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                    .file = {.fd = -1}};

atomic_uint_fast64_t rs_shared_changes, rs_shared_additions;

_Thread_local bool rs_shared_forking, rs_shared_inside;

void rs_shared_lock(void)
{
    pthread_mutex_lock(&rs_shared.lock);
    rs_shared_inside = true;
}

void rs_shared_unlock(void)
{
    rs_shared_inside = false;
    pthread_mutex_unlock(&rs_shared.lock);
}

uint64_t rs_shared_page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- fork ---- */

static bool is_copied(const struct region *r)
{
    return r->kind == KIND_USER || r->kind == KIND_ADOPTED;
}

/* The next pages of the part that anybody has written: [*from, *to) of the file, at
 * `from` or behind. @return whether there are any */
static bool next_data(const struct rs_place *place, off_t *from, off_t *to)
{
    const off_t end = (off_t)(place->offset + place->bytes);

    *from = lseek(rs_shared.file.fd, *from, SEEK_DATA);
    if (*from < 0 || *from >= end)
        return false;
    *to = lseek(rs_shared.file.fd, *from, SEEK_HOLE);
    if (*to < 0 || *to > end)
        *to = end;
    return true;
}

/* Not out of the mapping, whose pages the program may have protected; and what was
 * never written stays so in the copy. */
static bool copy_part(const struct region *r, char *copy)
{
    const struct rs_place *place = &r->place;
    off_t from = (off_t)place->offset, to;

    while (next_data(place, &from, &to)) {
        ssize_t n = pread(rs_shared.file.fd,
                          copy + ((uint64_t)from - place->offset),
                          (size_t)(to - from), from);

        if (n <= 0)
            return false;
        from += n;
    }
    return true;
}

/* Without a copy the child has no memory there: never what is wrong. */
static void make_copy(struct region *r)
{
    r->copy = mmap(NULL, r->place.bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->copy != MAP_FAILED && !copy_part(r, r->copy)) {
        munmap(r->copy, r->place.bytes);
        r->copy = MAP_FAILED;
    }
    if (r->copy == MAP_FAILED)
        rs_log(RS_LOG_WARN,
               "shared memory: a forked child does not have the %llu bytes at "
               "%p: %m",
               (unsigned long long)r->place.bytes, (void *)r->place.address);
}

static void before_fork(void)
{
    rs_shared_lock();
    rs_shared_forking = true;
    for (struct region *r = rs_shared.regions; r != NULL; r = r->next) {
        if (is_copied(r))
            make_copy(r);
    }
    rs_pin_before_fork();
}

static void after_fork_parent(void)
{
    rs_pin_after_fork_parent();
    for (struct region *r = rs_shared.regions; r != NULL; r = r->next) {
        if (is_copied(r) && r->copy != MAP_FAILED)
            munmap(r->copy, r->place.bytes);
    }
    rs_shared_forking = false;
    rs_shared_unlock();
}

bool rs_shared_move_to(void *from, uint64_t bytes, void *to)
{
    return syscall(SYS_mremap, from, bytes, bytes,
                   MREMAP_MAYMOVE | MREMAP_FIXED, to) == (long)(intptr_t)to;
}

/* Nothing is shared with the parent: the child has its copies where the parent
 * has the memory, and a file of its own if it wants one. */
static void after_fork_child(void)
{
    struct region **at = &rs_shared.regions;

    rs_pin_after_fork_child();
    while (*at != NULL) {
        struct region *r = *at;
        bool kept = r->kind == KIND_COPY;

        if (is_copied(r) && r->copy != MAP_FAILED &&
            rs_shared_move_to(r->copy, r->place.bytes, r->place.address)) {
            kept = r->kind == KIND_USER;
            r->kind = KIND_COPY;
        }
        if (kept) {
            at = &r->next;
        } else {
            /* Not freed: another thread may have held malloc's lock. */
            *at = r->next;
        }
    }
    if (rs_shared.file.fd >= 0)
        close(rs_shared.file.fd);
    rs_shared.file = (struct rs_shared_file){.fd = -1};
    rs_shared.bytes = 0;
    rs_shared.users = 0;
    rs_shared.adopted = 0;
    rs_shared_forking = false;
    rs_shared_unlock();
}

/* First of all, so that in a fork ours are the last before it, and the first behind
 * it: handlers of others may hold a lock that somebody has who waits for ours, and use
 * the memory. */
static void __attribute__((constructor)) handle_forks(void)
{
    rs_shared.handled = pthread_atfork(before_fork, after_fork_parent,
                                    after_fork_child) == 0;
}

/* ---- the file ---- */

static int make_file(void)
{
    uint64_t head[2] = {RS_SHARED_MAGIC, 0};
    int fd = rs_descriptor_keep(
        memfd_create("rsched-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    int error;

    if (fd < 0)
        return rs_fail(RSCHED_ESYS, "shared memory: memfd_create: %m");
    if (getrandom(&head[1], sizeof(head[1]), 0) != sizeof(head[1]) ||
        fchmod(fd, 0600) != 0 ||
        rs_limit_grow(fd, rs_shared_page_bytes()) != 0 ||
        write(fd, head, sizeof(head)) != sizeof(head) ||
        /* Others may read what they have mapped, whatever happens to us. */
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
        goto err_close;
    if (!rs_shared.handled) {
        errno = ENOMEM;
        goto err_close;
    }
    rs_shared.file = (struct rs_shared_file){fd, head[1]};
    rs_shared.bytes = rs_shared_page_bytes();
    return 0;

err_close:
    error = rs_fail(RSCHED_ESYS, "shared memory: setting up a memfd: %m");
    close(fd);
    return error;
}

int rs_shared_use_file(void)
{
    int error = rs_shared.file.fd >= 0 ? 0 : make_file();

    if (error == 0)
        rs_shared.users++;
    return error;
}

void rs_shared_unuse_file(void)
{
    if (--rs_shared.users > 0)
        return;
    close(rs_shared.file.fd);
    rs_shared.file.fd = -1;
}

int rs_shared_open(struct rs_shared_file *file)
{
    int error;

    rs_shared_lock();
    error = rs_shared_use_file();
    if (error == 0)
        *file = rs_shared.file;
    rs_shared_unlock();
    return error;
}

void rs_shared_close(void)
{
    rs_shared_lock();
    rs_shared_unuse_file();
    rs_shared_unlock();
}

/* ---- regions ---- */

bool rs_region_is_shared(const struct region *r)
{
    return r->kind == KIND_USER || r->kind == KIND_ADDED ||
           r->kind == KIND_ADOPTED;
}

void rs_region_insert(struct region *r)
{
    struct region **at = &rs_shared.regions;

    while (*at != NULL && (*at)->place.address < r->place.address)
        at = &(*at)->next;
    r->next = *at;
    *at = r;
    if (rs_region_is_shared(r))
        atomic_fetch_add(&rs_shared_additions, 1);
}

char *rs_shared_map_part(uint64_t offset, uint64_t bytes, uint64_t unit)
{
    uint64_t room = bytes + (unit > rs_shared_page_bytes() ? unit : 0);
    /* As if it were to be used: the kernel refuses what it would refuse to
     * malloc(), and not with a signal when pages are touched. */
    char *reserved = mmap(NULL, room, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *address;

    if (reserved == MAP_FAILED)
        return NULL;
    address = reserved + (offset - (uint64_t)(uintptr_t)reserved) % unit;
    /* The file grows only now, since it may not shrink. */
    if (rs_limit_grow(rs_shared.file.fd, offset + bytes) != 0 ||
        mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             rs_shared.file.fd, (off_t)offset) == MAP_FAILED) {
        munmap(reserved, room);
        return NULL;
    }
    rs_shared.bytes = offset + bytes;
    if (address > reserved)
        munmap(reserved, (size_t)(address - reserved));
    if (address + bytes < reserved + room)
        munmap(address + bytes, (size_t)(reserved + room - address - bytes));
    madvise(address, bytes, MADV_DONTFORK);
    if (unit == RS_HUGE_PAGE)
        madvise(address, bytes, MADV_HUGEPAGE);
    return address;
}

static int add_part(struct region *r, size_t bytes)
{
    uint64_t unit = bytes >= RS_HUGE_PAGE ? RS_HUGE_PAGE : rs_shared_page_bytes();
    uint64_t offset = round_up(rs_shared.bytes, unit);
    uint64_t rounded = round_up(bytes, rs_shared_page_bytes());

    r->place = (struct rs_place){rs_shared.file.id, offset, rounded,
                                 rs_shared_map_part(offset, rounded, unit)};
    if (r->place.address == NULL)
        return rs_fail(RSCHED_ENOMEM, "shared memory: %zu bytes: %m", bytes);
    rs_region_insert(r);
    return 0;
}

static int allocate(size_t bytes, enum kind kind, struct rs_place *place)
{
    struct region *r;
    int error;

    if (bytes == 0 || bytes > SIZE_MAX / 4)
        return rs_fail(RSCHED_EINVAL, "shared memory: %zu bytes", bytes);
    r = calloc(1, sizeof(*r));
    if (r == NULL)
        return rs_fail(RSCHED_ENOMEM, "shared memory: no memory");
    r->kind = kind;
    rs_shared_lock();
    error = rs_shared_use_file();
    if (error == 0) {
        error = add_part(r, bytes);
        if (error != 0)
            rs_shared_unuse_file();
    }
    rs_shared_unlock();
    if (error != 0) {
        free(r);
        return error;
    }
    *place = r->place;
    return 0;
}

int rs_shared_alloc(size_t bytes, struct rs_place *place)
{
    return allocate(bytes, KIND_INTERNAL, place);
}

int rsched_alloc(size_t bytes, void **memory)
{
    struct rs_place place;
    int error = allocate(bytes, KIND_USER, &place);

    if (error == 0)
        *memory = place.address;
    return error;
}

int rs_shared_punch(uint64_t offset, uint64_t bytes)
{
    return fallocate(rs_shared.file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     (off_t)offset, (off_t)bytes);
}

void rs_shared_give_back(const struct rs_place *place)
{
    rs_shared_punch(place->offset, place->bytes);
    rs_shared_unuse_file();
}

static void unmap(struct region *r)
{
    munmap(r->place.address, r->place.bytes);
    if (r->kind != KIND_COPY)
        rs_shared_give_back(&r->place);
}

/* Take the region out of the list that `same` says. */
static struct region *take(bool (*same)(const struct region *r,
                                        const void *key),
                           const void *key)
{
    struct region **at = &rs_shared.regions, *r;

    while (*at != NULL && !same(*at, key))
        at = &(*at)->next;
    r = *at;
    if (r == NULL)
        return NULL;
    *at = r->next;
    if (rs_region_is_shared(r))
        atomic_fetch_add(&rs_shared_changes, 1);
    return r;
}

static bool has_address(const struct region *r, const void *key)
{
    return r->kind != KIND_ADDED && r->kind != KIND_ADOPTED &&
           r->place.address == key;
}

static bool has_id(const struct region *r, const void *key)
{
    return r->kind == KIND_ADDED && r->place.id == *(const uint64_t *)key;
}

int rsched_free(void *memory)
{
    struct region *r;

    if (memory == NULL)
        return 0;
    rs_shared_lock();
    r = take(has_address, memory);
    if (r != NULL)
        unmap(r);
    rs_shared_unlock();
    if (r == NULL)
        return rs_fail(RSCHED_EINVAL, "%p is not memory of rsched_alloc",
                       memory);
    free(r);
    return 0;
}

/* ---- memory that all have mapped ---- */

int rsched_memory_add(uint64_t id, void *address, size_t bytes)
{
    struct region *r, *other;

    if (address == NULL || bytes == 0)
        return rs_fail(RSCHED_EINVAL, "shared memory: %zu bytes at %p", bytes,
                       address);
    r = calloc(1, sizeof(*r));
    if (r == NULL)
        return rs_fail(RSCHED_ENOMEM, "shared memory: no memory");
    r->kind = KIND_ADDED;
    r->place = (struct rs_place){id, 0, bytes, address};
    rs_shared_lock();
    for (other = rs_shared.regions; other != NULL && !has_id(other, &id);)
        other = other->next;
    if (other == NULL)
        rs_region_insert(r);
    rs_shared_unlock();
    if (other == NULL)
        return 0;
    free(r);
    return rs_fail(RSCHED_EINVAL, "shared memory: id %#llx is known already",
                   (unsigned long long)id);
}

int rsched_memory_remove(uint64_t id)
{
    struct region *r;

    rs_shared_lock();
    r = take(has_id, &id);
    rs_shared_unlock();
    if (r == NULL)
        return rs_fail(RSCHED_EINVAL, "shared memory: id %#llx is not known",
                       (unsigned long long)id);
    free(r);
    return 0;
}

bool rs_shared_find(const char *low, const char *high, struct rs_place *place)
{
    struct region *r;

    rs_shared_lock();
    for (r = rs_shared.regions; r != NULL && r->place.address < high;
         r = r->next) {
        if (rs_region_is_shared(r) && r->place.address + r->place.bytes > low)
            break;
    }
    if (r != NULL && r->place.address >= high)
        r = NULL;
    if (r != NULL)
        *place = r->place;
    rs_shared_unlock();
    return r != NULL;
}

char *rs_shared_resolve(const struct rs_place *place)
{
    char *address = NULL;

    rs_shared_lock();
    for (struct region *r = rs_shared.regions; r != NULL; r = r->next) {
        if (r->kind != KIND_COPY && r->place.id == place->id &&
            r->place.offset == place->offset && r->place.bytes >= place->bytes)
            address = r->place.address;
    }
    rs_shared_unlock();
    return address;
}
