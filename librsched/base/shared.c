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

#include "librsched/base/error.h"
#include "librsched/base/limit.h"
#include "librsched/base/log.h"

#define HUGE_PAGE (UINT64_C(2) << 20)

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

static struct {
    pthread_mutex_t lock;
    struct rs_shared_file file;
    uint64_t bytes; /* of the file */
    unsigned users; /* rs_shared_open() and regions of the file */
    atomic_uint_fast64_t adopted; /* bytes */
    struct region *regions;
    bool handled; /* forks are */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = {.fd = -1}};

atomic_uint_fast64_t rs_shared_changes, rs_shared_additions;

/* This thread is between handlers, and has the lock. */
static _Thread_local bool forking;

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t page_bytes(void)
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

    *from = lseek(shared.file.fd, *from, SEEK_DATA);
    if (*from < 0 || *from >= end)
        return false;
    *to = lseek(shared.file.fd, *from, SEEK_HOLE);
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
        ssize_t n = pread(shared.file.fd,
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
    pthread_mutex_lock(&shared.lock);
    forking = true;
    for (struct region *r = shared.regions; r != NULL; r = r->next) {
        if (is_copied(r))
            make_copy(r);
    }
}

static void after_fork_parent(void)
{
    for (struct region *r = shared.regions; r != NULL; r = r->next) {
        if (is_copied(r) && r->copy != MAP_FAILED)
            munmap(r->copy, r->place.bytes);
    }
    forking = false;
    pthread_mutex_unlock(&shared.lock);
}

/* Not the C library's function: interposers know of no fifth argument. */
static bool move_to(void *from, uint64_t bytes, void *to)
{
    return syscall(SYS_mremap, from, bytes, bytes,
                   MREMAP_MAYMOVE | MREMAP_FIXED, to) == (long)(intptr_t)to;
}

/* Nothing is shared with the parent: the child has its copies where the parent
 * has the memory, and a file of its own if it wants one. */
static void after_fork_child(void)
{
    struct region **at = &shared.regions;

    while (*at != NULL) {
        struct region *r = *at;
        bool kept = r->kind == KIND_COPY;

        if (is_copied(r) && r->copy != MAP_FAILED &&
            move_to(r->copy, r->place.bytes, r->place.address)) {
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
    if (shared.file.fd >= 0)
        close(shared.file.fd);
    shared.file = (struct rs_shared_file){.fd = -1};
    shared.bytes = 0;
    shared.users = 0;
    shared.adopted = 0;
    forking = false;
    pthread_mutex_unlock(&shared.lock);
}

/* First of all, so that in a fork ours are the last before it, and the first behind
 * it: handlers of others may hold a lock that somebody has who waits for ours, and use
 * the memory. */
static void __attribute__((constructor)) handle_forks(void)
{
    shared.handled = pthread_atfork(before_fork, after_fork_parent,
                                    after_fork_child) == 0;
}

/* ---- the file ---- */

static int make_file(void)
{
    uint64_t head[2] = {RS_SHARED_MAGIC, 0};
    int fd = memfd_create("rsched-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error;

    if (fd < 0)
        return rs_fail(RSCHED_ESYS, "shared memory: memfd_create: %m");
    if (getrandom(&head[1], sizeof(head[1]), 0) != sizeof(head[1]) ||
        fchmod(fd, 0600) != 0 ||
        rs_limit_resize(fd, page_bytes()) != 0 ||
        write(fd, head, sizeof(head)) != sizeof(head) ||
        /* Others may read what they have mapped, whatever happens to us. */
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
        goto err_close;
    if (!shared.handled) {
        errno = ENOMEM;
        goto err_close;
    }
    shared.file = (struct rs_shared_file){fd, head[1]};
    shared.bytes = page_bytes();
    return 0;

err_close:
    error = rs_fail(RSCHED_ESYS, "shared memory: setting up a memfd: %m");
    close(fd);
    return error;
}

static int use_file(void)
{
    int error = shared.file.fd >= 0 ? 0 : make_file();

    if (error == 0)
        shared.users++;
    return error;
}

static void unuse_file(void)
{
    if (--shared.users > 0)
        return;
    close(shared.file.fd);
    shared.file.fd = -1;
}

int rs_shared_open(struct rs_shared_file *file)
{
    int error;

    pthread_mutex_lock(&shared.lock);
    error = use_file();
    if (error == 0)
        *file = shared.file;
    pthread_mutex_unlock(&shared.lock);
    return error;
}

void rs_shared_close(void)
{
    pthread_mutex_lock(&shared.lock);
    unuse_file();
    pthread_mutex_unlock(&shared.lock);
}

/* ---- regions ---- */

/* Messages may lie in it. */
static bool is_shared(const struct region *r)
{
    return r->kind == KIND_USER || r->kind == KIND_ADDED ||
           r->kind == KIND_ADOPTED;
}

static void insert(struct region *r)
{
    struct region **at = &shared.regions;

    while (*at != NULL && (*at)->place.address < r->place.address)
        at = &(*at)->next;
    r->next = *at;
    *at = r;
    if (is_shared(r))
        atomic_fetch_add(&rs_shared_additions, 1);
}

/* Map a part of the file at an address that differs from its offset by a
 * multiple of `unit`, as huge pages need it. NULL with errno. */
static char *map_part(uint64_t offset, uint64_t bytes, uint64_t unit)
{
    uint64_t room = bytes + (unit > page_bytes() ? unit : 0);
    /* As if it were to be used: the kernel refuses what it would refuse to
     * malloc(), and not with a signal when pages are touched. */
    char *reserved = mmap(NULL, room, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *address;

    if (reserved == MAP_FAILED)
        return NULL;
    address = reserved + (offset - (uint64_t)(uintptr_t)reserved) % unit;
    if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             shared.file.fd, (off_t)offset) == MAP_FAILED) {
        munmap(reserved, room);
        return NULL;
    }
    if (address > reserved)
        munmap(reserved, (size_t)(address - reserved));
    if (address + bytes < reserved + room)
        munmap(address + bytes, (size_t)(reserved + room - address - bytes));
    madvise(address, bytes, MADV_DONTFORK);
    if (unit == HUGE_PAGE)
        madvise(address, bytes, MADV_HUGEPAGE);
    return address;
}

static int add_part(struct region *r, size_t bytes)
{
    uint64_t unit = bytes >= HUGE_PAGE ? HUGE_PAGE : page_bytes();
    uint64_t offset = round_up(shared.bytes, unit);
    uint64_t rounded = round_up(bytes, page_bytes());

    if (rs_limit_resize(shared.file.fd, offset + rounded) != 0)
        return rs_fail(RSCHED_ENOMEM, "shared memory: %zu bytes: %m", bytes);
    r->place = (struct rs_place){shared.file.id, offset, rounded,
                                 map_part(offset, rounded, unit)};
    if (r->place.address == NULL)
        return rs_fail(RSCHED_ENOMEM, "shared memory: mapping %zu bytes: %m",
                       bytes);
    shared.bytes = offset + rounded;
    insert(r);
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
    pthread_mutex_lock(&shared.lock);
    error = use_file();
    if (error == 0) {
        error = add_part(r, bytes);
        if (error != 0)
            unuse_file();
    }
    pthread_mutex_unlock(&shared.lock);
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

/* Whoever has it mapped does not keep the pages. */
static void give_back(const struct rs_place *place)
{
    fallocate(shared.file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)place->offset, (off_t)place->bytes);
    unuse_file();
}

static void unmap(struct region *r)
{
    munmap(r->place.address, r->place.bytes);
    if (r->kind != KIND_COPY)
        give_back(&r->place);
}

/* Take the region out of the list that `same` says. */
static struct region *take(bool (*same)(const struct region *r,
                                        const void *key),
                           const void *key)
{
    struct region **at = &shared.regions, *r;

    while (*at != NULL && !same(*at, key))
        at = &(*at)->next;
    r = *at;
    if (r == NULL)
        return NULL;
    *at = r->next;
    if (is_shared(r))
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
    pthread_mutex_lock(&shared.lock);
    r = take(has_address, memory);
    if (r != NULL)
        unmap(r);
    pthread_mutex_unlock(&shared.lock);
    if (r == NULL)
        return rs_fail(RSCHED_EINVAL, "%p is not memory of rsched_alloc",
                       memory);
    free(r);
    return 0;
}

/* ---- memory of others, adopted ---- */

enum { MOST_ADOPTED = 256 << 20 };

/* A fault at pages that are not there cannot fail, so have them now. */
static bool populate(char *address, uint64_t offset, uint64_t bytes)
{
    if (madvise(address, bytes, MADV_POPULATE_WRITE) == 0)
        return true;
    return errno == EINVAL && /* before Linux 5.14 */
           posix_fallocate(shared.file.fd, (off_t)offset, (off_t)bytes) == 0;
}

/* Let pages take the place of others. The kernel may fail for want of memory
 * of its own when the others are gone already. */
static bool replace(char *by, uint64_t bytes, char *address)
{
    enum { TRIES = 1000 };

    for (int i = 0; i < TRIES; i++) {
        if (move_to(by, bytes, address))
            return true;
        if (msync(address, bytes, MS_ASYNC) == 0)
            return false; /* they are still there */
        usleep(1000);
    }
    rs_log(RS_LOG_ERROR, "shared memory: %llu bytes at %p are lost: %m",
           (unsigned long long)bytes, (void *)address);
    abort();
}

static int adopt_part(struct region *r, char *address, uint64_t bytes)
{
    uint64_t unit = bytes >= HUGE_PAGE ? HUGE_PAGE : page_bytes();
    uint64_t offset = round_up(shared.bytes, unit) +
                      (uint64_t)(uintptr_t)address % unit;
    char *copy;

    if (rs_limit_resize(shared.file.fd, offset + bytes) != 0)
        return rs_fail(RSCHED_ENOMEM, "shared memory: adopting %llu bytes: %m",
                       (unsigned long long)bytes);
    /* Parts are never given out again, whatever becomes of this one. */
    shared.bytes = offset + bytes;
    copy = map_part(offset, bytes, unit);
    if (copy == NULL)
        return rs_fail(RSCHED_ENOMEM, "shared memory: mapping %llu bytes: %m",
                       (unsigned long long)bytes);
    r->place = (struct rs_place){shared.file.id, offset, bytes, address};
    if (populate(copy, offset, bytes)) {
        memcpy(copy, address, bytes);
        if (replace(copy, bytes, address)) {
            insert(r);
            shared.adopted += bytes;
            return 0;
        }
    }
    munmap(copy, bytes);
    fallocate(shared.file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)offset, (off_t)bytes);
    return rs_fail(RSCHED_ENOMEM, "shared memory: adopting %llu bytes: %m",
                   (unsigned long long)bytes);
}

static bool overlaps(const struct region *r, const char *low, const char *high)
{
    return r->place.address < high && r->place.address + r->place.bytes > low;
}

int rs_shared_adopt(char *address, uint64_t bytes)
{
    struct region *r = calloc(1, sizeof(*r)), *other;
    int error = RSCHED_ENOMEM;

    if (r == NULL)
        return rs_fail(RSCHED_ENOMEM, "shared memory: no memory");
    r->kind = KIND_ADOPTED;
    pthread_mutex_lock(&shared.lock);
    for (other = shared.regions;
         other != NULL && !overlaps(other, address, address + bytes);)
        other = other->next;
    if (other != NULL && !is_shared(other))
        error = RSCHED_ENOTSUP; /* of a parent, or the library's own */
    else if (other != NULL)
        error = RSCHED_ESTATE; /* another thread was here before */
    else if (bytes > MOST_ADOPTED - shared.adopted)
        error = RSCHED_ELIMIT;
    else
        error = use_file();
    if (error == 0) {
        error = adopt_part(r, address, bytes);
        if (error != 0)
            unuse_file();
    }
    pthread_mutex_unlock(&shared.lock);
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
    shared.adopted -= r->place.bytes;
    give_back(&r->place);
    return true;
}

int rs_shared_unadopt(const char *low, const char *high)
{
    struct region **at = &shared.regions, *gone = NULL, *r;
    int error = 0;

    if (forking)
        return rs_fail(RSCHED_ESTATE, "shared memory: %p is freed while the "
                       "process forks", (const void *)low);
    pthread_mutex_lock(&shared.lock);
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
    pthread_mutex_unlock(&shared.lock);
    while (gone != NULL) {
        r = gone;
        gone = r->next;
        free(r);
    }
    return error;
}

size_t rsched_memory_adopted(const void *address, size_t bytes, void **first)
{
    const char *low = address, *high = low + bytes;
    size_t found = 0;

    if (forking || atomic_load(&shared.adopted) == 0)
        return 0;
    pthread_mutex_lock(&shared.lock);
    for (struct region *r = shared.regions; r != NULL && found == 0;
         r = r->next) {
        char *start = r->place.address, *end = start + r->place.bytes;

        if (r->kind != KIND_ADOPTED || !overlaps(r, low, high))
            continue;
        start = start < low ? (char *)low : start;
        found = (size_t)((end > high ? high : end) - start);
        *first = start;
    }
    pthread_mutex_unlock(&shared.lock);
    return found;
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
    pthread_mutex_lock(&shared.lock);
    for (other = shared.regions; other != NULL && !has_id(other, &id);)
        other = other->next;
    if (other == NULL)
        insert(r);
    pthread_mutex_unlock(&shared.lock);
    if (other == NULL)
        return 0;
    free(r);
    return rs_fail(RSCHED_EINVAL, "shared memory: id %#llx is known already",
                   (unsigned long long)id);
}

int rsched_memory_remove(uint64_t id)
{
    struct region *r;

    pthread_mutex_lock(&shared.lock);
    r = take(has_id, &id);
    pthread_mutex_unlock(&shared.lock);
    if (r == NULL)
        return rs_fail(RSCHED_EINVAL, "shared memory: id %#llx is not known",
                       (unsigned long long)id);
    free(r);
    return 0;
}

bool rs_shared_find(const char *low, const char *high, struct rs_place *place)
{
    struct region *r;

    pthread_mutex_lock(&shared.lock);
    for (r = shared.regions; r != NULL && r->place.address < high;
         r = r->next) {
        if (is_shared(r) && r->place.address + r->place.bytes > low)
            break;
    }
    if (r != NULL && r->place.address >= high)
        r = NULL;
    if (r != NULL)
        *place = r->place;
    pthread_mutex_unlock(&shared.lock);
    return r != NULL;
}

char *rs_shared_resolve(const struct rs_place *place)
{
    char *address = NULL;

    pthread_mutex_lock(&shared.lock);
    for (struct region *r = shared.regions; r != NULL; r = r->next) {
        if (r->kind != KIND_COPY && r->place.id == place->id &&
            r->place.offset == place->offset && r->place.bytes >= place->bytes)
            address = r->place.address;
    }
    pthread_mutex_unlock(&shared.lock);
    return address;
}
