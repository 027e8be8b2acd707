/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the program does with mappings: where memory is adopted, it stays what it would
 * be if it were private (docs/adopted.md).
 */
#include "heap/mappings.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rsched/memory.h>

static struct {
    int (*madvise)(void *address, size_t bytes, int advice);
    void *(*mmap)(void *address, size_t bytes, int protection, int flags, int fd,
                  off_t offset);
    int (*munmap)(void *address, size_t bytes);
    void *(*mremap)(void *address, size_t bytes, size_t new_bytes, int flags,
                    void *new_address);
} next;

static bool has_adopted(const void *address, size_t bytes)
{
    void *first;

    return rsched_memory_adopted(address, bytes, &first) > 0;
}

/*
 * Some MPI libraries look for such calls too, and overwrite the first instructions of
 * whatever dlsym() finds, to jump to functions of theirs that make the system call.
 * Programs and libraries do not call what dlsym() finds, but the C library's version
 * of the name. So both are here: a function for either. Whoever overwrites the one
 * for dlsym(), the front, is called by the other one, and sees what he wants to see.
 */
enum function {
    MADVISE,
    MMAP,
    MUNMAP,
    MREMAP,
    FRONT, /* FRONT + MADVISE, ... */
    NUM_FUNCTIONS = 2 * FRONT
};
enum { CODE_BYTES = 16 };

#define RS_GLOBAL __attribute__((visibility("default")))
/* With room for what others write there. */
#define RS_FRONT RS_GLOBAL __attribute__((patchable_function_entry(16)))

RS_GLOBAL int heap_madvise(void *address, size_t bytes, int advice);
RS_GLOBAL void *heap_mmap(void *address, size_t bytes, int protection, int flags,
                          int fd, off_t offset);
RS_GLOBAL int heap_munmap(void *address, size_t bytes);
RS_GLOBAL void *heap_mremap(void *address, size_t bytes, size_t new_bytes,
                            int flags, void *new_address);
RS_FRONT int front_madvise(void *address, size_t bytes, int advice);
RS_FRONT void *front_mmap(void *address, size_t bytes, int protection,
                           int flags, int fd, off_t offset);
RS_FRONT int front_munmap(void *address, size_t bytes);
RS_FRONT void *front_mremap(void *address, size_t bytes, size_t new_bytes,
                             int flags, void *new_address);

static const struct {
    void *volatile at; /* which the compiler does not know */
} functions[NUM_FUNCTIONS] = {
    {(void *)heap_madvise},  {(void *)heap_mmap},   {(void *)heap_munmap},
    {(void *)heap_mremap},   {(void *)front_madvise}, {(void *)front_mmap},
    {(void *)front_munmap}, {(void *)front_mremap},
};

/* As it was when the process started. */
static unsigned char code[NUM_FUNCTIONS][CODE_BYTES];

static void keep_code(void)
{
    for (int i = 0; i < NUM_FUNCTIONS; i++)
        memcpy(code[i], functions[i].at, CODE_BYTES);
}

static bool is_untouched(enum function function)
{
    return memcmp(code[function], functions[function].at, CODE_BYTES) == 0;
}

/* Where a call goes on. */
static void *beyond(enum function function, void *next_one)
{
    enum function front = FRONT + function;

    return is_untouched(front) ? next_one : functions[front].at;
}

static int go_madvise(void *address, size_t bytes, int advice)
{
    int (*f)(void *, size_t, int) =
        (int (*)(void *, size_t, int))beyond(MADVISE, (void *)next.madvise);

    return f(address, bytes, advice);
}

static void *go_mmap(void *address, size_t bytes, int protection, int flags,
                     int fd, off_t offset)
{
    void *(*f)(void *, size_t, int, int, int, off_t) =
        (void *(*)(void *, size_t, int, int, int, off_t))
            beyond(MMAP, (void *)next.mmap);

    return f(address, bytes, protection, flags, fd, offset);
}

static int go_munmap(void *address, size_t bytes)
{
    int (*f)(void *, size_t) =
        (int (*)(void *, size_t))beyond(MUNMAP, (void *)next.munmap);

    return f(address, bytes);
}

static void *go_mremap(void *address, size_t bytes, size_t new_bytes, int flags,
                       void *new_address)
{
    void *(*f)(void *, size_t, size_t, int, ...) =
        (void *(*)(void *, size_t, size_t, int, ...))
            beyond(MREMAP, (void *)next.mremap);

    return f(address, bytes, new_bytes, flags, new_address);
}

/* What private memory does, shared memory does likewise, does in another way, or
 * does not do, as that of an older kernel does not. */
enum behavior { ALIKE, EMPTIES, FORKS, UNKNOWN };

static enum behavior behavior_of(int advice)
{
    switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_WILLNEED:
    case MADV_DONTFORK:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
    case MADV_KEEPONFORK:
    case MADV_COLD:
    case MADV_PAGEOUT:
    case MADV_HWPOISON:
    case 22: /* MADV_POPULATE_READ */
    case 23: /* MADV_POPULATE_WRITE */
    case 25: /* MADV_COLLAPSE */
        return ALIKE;
    case MADV_DONTNEED:
    case MADV_FREE:
    case 24: /* MADV_DONTNEED_LOCKED */
        return EMPTIES;
    case MADV_DOFORK:
        return FORKS;
    default: /* MADV_REMOVE, MADV_WIPEONFORK, MADV_GUARD_INSTALL, ... */
        return UNKNOWN;
    }
}

/* The kernel's part first: what it refuses is not emptied. */
static int empty(void *address, size_t bytes, int advice)
{
    int result = go_madvise(address, bytes,
                              advice == MADV_FREE ? MADV_DONTNEED : advice);

    if (result != 0 && errno != ENOMEM) /* for a part of it */
        return result;
    if (rsched_memory_empty(address, bytes) == 0)
        return result;
    errno = EAGAIN;
    return -1;
}

/* A child gets copies of adopted pages, not the pages. */
static int let_fork(char *address, size_t bytes)
{
    int result = go_madvise(address, bytes, MADV_DOFORK);
    char *end = address + bytes;
    int kept = errno;
    void *first;
    size_t part;

    while (address < end &&
           (part = rsched_memory_adopted(address, (size_t)(end - address),
                                         &first)) > 0) {
        go_madvise(first, part, MADV_DONTFORK);
        address = (char *)first + part;
    }
    errno = kept;
    return result;
}

int heap_madvise(void *address, size_t bytes, int advice)
{
    if (!heap_is_ready())
        return (int)syscall(SYS_madvise, address, bytes, advice);
    if (!has_adopted(address, bytes)) {
        /* Shared pages would not do that. */
        if (behavior_of(advice) == UNKNOWN)
            rsched_memory_bar(address, bytes);
        return go_madvise(address, bytes, advice);
    }
    switch (behavior_of(advice)) {
    case ALIKE:
        return go_madvise(address, bytes, advice);
    case EMPTIES:
        return empty(address, bytes, advice);
    case FORKS:
        return let_fork(address, bytes);
    default:
        errno = EINVAL;
        return -1;
    }
}

/* A call that takes a range away, or has something else there. */
struct taking {
    void *address;
    size_t bytes, new_bytes;
    int protection, flags, fd;
    off_t offset;
    void *new_address;
    void *result;
};

static bool take_munmap(void *arg)
{
    struct taking *t = arg;

    t->result = go_munmap(t->address, t->bytes) == 0 ? NULL : MAP_FAILED;
    return t->result != MAP_FAILED;
}

static bool take_mmap(void *arg)
{
    struct taking *t = arg;

    t->result = go_mmap(t->address, t->bytes, t->protection, t->flags, t->fd,
                          t->offset);
    return t->result != MAP_FAILED;
}

static bool take_mremap(void *arg)
{
    struct taking *t = arg;

    t->result = go_mremap(t->address, t->bytes, t->new_bytes, t->flags,
                            t->new_address);
    return t->result != MAP_FAILED;
}

static void *take(void *address, size_t bytes, bool (*call)(void *arg),
                  struct taking *t)
{
    t->result = MAP_FAILED;
    errno = ENOMEM;
    rsched_memory_unmap(address, bytes, call, t);
    return t->result;
}

int heap_munmap(void *address, size_t bytes)
{
    struct taking t = {.address = address, .bytes = bytes};

    if (!heap_is_ready())
        return (int)syscall(SYS_munmap, address, bytes);
    if (!has_adopted(address, bytes))
        return go_munmap(address, bytes);
    return take(address, bytes, take_munmap, &t) == MAP_FAILED ? -1 : 0;
}

void *heap_mmap(void *address, size_t bytes, int protection, int flags,
                       int fd, off_t offset)
{
    struct taking t = {.address = address,
                       .bytes = bytes,
                       .protection = protection,
                       .flags = flags,
                       .fd = fd,
                       .offset = offset};

    if (!heap_is_ready())
        return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd,
                               offset);
    if (!(flags & MAP_FIXED) || !has_adopted(address, bytes))
        return go_mmap(address, bytes, protection, flags, fd, offset);
    return take(address, bytes, take_mmap, &t);
}

/* Adopted pages stay where they are. */
void *heap_mremap(void *address, size_t bytes, size_t new_bytes,
                         int flags, void *new_address)
{
    struct taking t = {.address = address,
                       .bytes = bytes,
                       .new_bytes = new_bytes,
                       .flags = flags,
                       .new_address = new_address};

    if (!heap_is_ready())
        return (void *)syscall(SYS_mremap, address, bytes, new_bytes, flags,
                               new_address);
    if (has_adopted(address, bytes)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if ((flags & MREMAP_FIXED) && has_adopted(new_address, new_bytes))
        return take(new_address, new_bytes, take_mremap, &t);
    return go_mremap(address, bytes, new_bytes, flags, new_address);
}

int front_madvise(void *address, size_t bytes, int advice)
{
    return heap_madvise(address, bytes, advice);
}

void *front_mmap(void *address, size_t bytes, int protection, int flags,
                        int fd, off_t offset)
{
    return heap_mmap(address, bytes, protection, flags, fd, offset);
}

int front_munmap(void *address, size_t bytes)
{
    return heap_munmap(address, bytes);
}

void *front_mremap(void *address, size_t bytes, size_t new_bytes,
                          int flags, void *new_address)
{
    return heap_mremap(address, bytes, new_bytes, flags, new_address);
}

/* ---- their names ---- */

/* The version of these names since the C library is there for the machine. */
#if defined(__x86_64__)
#define RS_LIBC "GLIBC_2.2.5"
#else
#define RS_LIBC "GLIBC_2.17"
#endif
#define RS_VERSIONS(name, function)                                          \
    __asm__(".symver heap_" #function ", " #name "@" RS_LIBC);               \
    __asm__(".symver front_" #function ", " #name "@@RSCHED_HEAP")

RS_VERSIONS(madvise, madvise);
RS_VERSIONS(munmap, munmap);
RS_VERSIONS(mmap, mmap);
RS_VERSIONS(mmap64, mmap);
RS_VERSIONS(mremap, mremap);

/* ---- the process ---- */

void heap_find_mappings(void)
{
    *(void **)&next.madvise = dlsym(RTLD_NEXT, "madvise");
    *(void **)&next.mmap = dlsym(RTLD_NEXT, "mmap");
    *(void **)&next.munmap = dlsym(RTLD_NEXT, "munmap");
    *(void **)&next.mremap = dlsym(RTLD_NEXT, "mremap");
    keep_code();
}

/* As programs find it. */
static bool is_called(const char *name, void *ours)
{
    return dlvsym(RTLD_DEFAULT, name, RS_LIBC) == ours;
}

bool heap_has_mappings(void)
{
    return is_called("madvise", (void *)heap_madvise) &&
           is_called("mmap", (void *)heap_mmap) &&
           is_called("mmap64", (void *)heap_mmap) &&
           is_called("munmap", (void *)heap_munmap) &&
           is_called("mremap", (void *)heap_mremap);
}

bool heap_sees_mappings(void)
{
    return is_untouched(MADVISE) && is_untouched(MMAP) && is_untouched(MUNMAP) &&
           is_untouched(MREMAP);
}
