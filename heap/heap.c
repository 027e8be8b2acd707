/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What comes from malloc and its kin is offered to be adopted, and reclaimed
 * before it is freed (docs/adopted.md). The functions wrap those of the
 * allocator that comes next, whichever it is.
 *
 * They are called before any constructor, by the dynamic linker too, and
 * between fork() and its handlers: they take no lock unless pages have been
 * adopted.
 *
 * What the program does with mappings of such memory is seen too: it stays what it
 * would be if it were private.
 *
 * `rsched run` preloads the object. With RSCHED_ADOPT=0 it hands everything on.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rsched/memory.h>

enum { LEAST_OFFERED = 16384 }; /* has three whole pages */

static struct {
    void *(*malloc)(size_t bytes);
    void (*free)(void *memory);
    void *(*calloc)(size_t number, size_t bytes);
    void *(*realloc)(void *memory, size_t bytes);
    void *(*memalign)(size_t alignment, size_t bytes);
    void *(*aligned_alloc)(size_t alignment, size_t bytes);
    int (*posix_memalign)(void **memory, size_t alignment, size_t bytes);
    void *(*valloc)(size_t bytes);
    void *(*pvalloc)(size_t bytes);
    size_t (*malloc_usable_size)(void *memory);
    int (*madvise)(void *address, size_t bytes, int advice);
    void *(*mmap)(void *address, size_t bytes, int protection, int flags, int fd,
                  off_t offset);
    int (*munmap)(void *address, size_t bytes);
    void *(*mremap)(void *address, size_t bytes, size_t new_bytes, int flags,
                    void *new_address);
} next;

/* Whether offers are made; not if there is no use, or no trust, in them. */
static atomic_bool offering = true;

/* ---- what comes next ---- */

/* For what dlsym() allocates meanwhile; it is not freed. */
static _Alignas(16) char first_memory[16384];
static size_t first_used;
static bool resolving;

static bool is_first(const void *memory)
{
    return (const char *)memory >= first_memory &&
           (const char *)memory < first_memory + sizeof(first_memory);
}

static void *first_malloc(size_t bytes)
{
    void *memory = first_memory + first_used;

    if (bytes > sizeof(first_memory) - first_used - 16)
        return NULL;
    first_used += (bytes + 15) / 16 * 16;
    return memory;
}

static void keep_code(void);

static void *find(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static const void *object_of(const void *function)
{
    Dl_info info;

    return function != NULL && dladdr(function, &info) != 0 ? info.dli_fbase
                                                            : NULL;
}

#define RS_FIND(name) *(void **)&next.name = find(#name)

/* The first call comes while there is one thread. */
static void __attribute__((noinline)) resolve(void)
{
    resolving = true;
    RS_FIND(malloc);
    RS_FIND(calloc);
    RS_FIND(realloc);
    RS_FIND(memalign);
    RS_FIND(aligned_alloc);
    RS_FIND(posix_memalign);
    RS_FIND(valloc);
    RS_FIND(pvalloc);
    RS_FIND(malloc_usable_size);
    RS_FIND(madvise);
    RS_FIND(mmap);
    RS_FIND(munmap);
    RS_FIND(mremap);
    RS_FIND(free);
    resolving = false;
    keep_code();
    /* Sizes are asked of the allocator that gave the memory, or not at all. */
    if (next.malloc_usable_size == NULL ||
        object_of(*(void **)&next.malloc_usable_size) !=
            object_of(*(void **)&next.free)) {
        next.malloc_usable_size = NULL;
        offering = false;
    }
}

static inline bool is_ready(void)
{
    if (__builtin_expect(next.free != NULL, 1))
        return true;
    if (!resolving)
        resolve();
    return !resolving;
}

/* ---- offers ---- */

static inline bool is_offering(void)
{
    return atomic_load_explicit(&offering, memory_order_relaxed);
}

static inline void *offer(void *memory, size_t bytes)
{
    if (__builtin_expect(bytes >= LEAST_OFFERED, 0) && memory != NULL &&
        is_offering())
        rsched_memory_offer(memory, bytes);
    return memory;
}

/* Whether it may have been offered. */
static inline bool is_large(void *memory)
{
    return is_offering() && next.malloc_usable_size(memory) >= LEAST_OFFERED;
}

/* @return whether the allocator may have it back */
static bool reclaim(void *memory)
{
    int kept = errno;
    bool good = rsched_memory_reclaim(memory) == 0;

    errno = kept;
    return good;
}

/* ---- the functions ---- */

static void heap_free(void *memory)
{
    if (memory == NULL || is_first(memory) || !is_ready())
        return;
    if (is_large(memory) && !reclaim(memory))
        return;
    next.free(memory);
}

static void *heap_malloc(size_t bytes)
{
    if (!is_ready())
        return first_malloc(bytes);
    return offer(next.malloc(bytes), bytes);
}

static void *heap_calloc(size_t number, size_t bytes)
{
    size_t all;

    if (__builtin_mul_overflow(number, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    if (!is_ready())
        return first_malloc(all);
    return offer(next.calloc(number, bytes), all);
}

/* A block with adopted pages is not the allocator's to grow or to move. */
static void *copy_to_new(void *memory, size_t bytes)
{
    size_t old = is_first(memory) ? (size_t)(first_memory + first_used -
                                             (char *)memory)
                                  : next.malloc_usable_size(memory);
    void *new = heap_malloc(bytes);

    if (new == NULL)
        return NULL;
    memcpy(new, memory, old < bytes ? old : bytes);
    heap_free(memory);
    return new;
}

static void *heap_realloc(void *memory, size_t bytes)
{
    void *first, *new;
    size_t old;

    if (!is_ready() || is_first(memory))
        return memory == NULL ? heap_malloc(bytes)
                              : copy_to_new(memory, bytes);
    if (memory == NULL || !is_large(memory))
        return offer(next.realloc(memory, bytes), bytes);
    old = next.malloc_usable_size(memory);
    if (bytes > 0 && rsched_memory_adopted(memory, old, &first) > 0)
        return copy_to_new(memory, bytes);
    /* Before another thread may get the address. */
    if (!reclaim(memory)) {
        errno = ENOMEM;
        return NULL;
    }
    new = next.realloc(memory, bytes);
    if (new == NULL && bytes > 0)
        offer(memory, old);
    return offer(new, bytes);
}

static void *heap_reallocarray(void *memory, size_t number, size_t bytes)
{
    size_t all;

    if (__builtin_mul_overflow(number, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return heap_realloc(memory, all);
}

static void *heap_memalign(size_t alignment, size_t bytes)
{
    return is_ready() ? offer(next.memalign(alignment, bytes), bytes) : NULL;
}

static void *heap_aligned_alloc(size_t alignment, size_t bytes)
{
    return is_ready() ? offer(next.aligned_alloc(alignment, bytes), bytes)
                      : NULL;
}

static int heap_posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    int error = is_ready() ? next.posix_memalign(memory, alignment, bytes)
                           : ENOMEM;

    if (error == 0)
        offer(*memory, bytes);
    return error;
}

static void *heap_valloc(size_t bytes)
{
    return is_ready() ? offer(next.valloc(bytes), bytes) : NULL;
}

static void *heap_pvalloc(size_t bytes)
{
    return is_ready() ? offer(next.pvalloc(bytes), bytes) : NULL;
}

/* ---- what the program does with mappings ---- */

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
    if (!is_ready())
        return (int)syscall(SYS_madvise, address, bytes, advice);
    if (!has_adopted(address, bytes))
        return go_madvise(address, bytes, advice);
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

    if (!is_ready())
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

    if (!is_ready())
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

    if (!is_ready())
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

#define RS_ALIAS(name) __attribute__((alias("heap_" #name), visibility("default")))

RS_ALIAS(free) void free(void *memory);
RS_ALIAS(malloc) void *malloc(size_t bytes);
RS_ALIAS(calloc) void *calloc(size_t number, size_t bytes);
RS_ALIAS(realloc) void *realloc(void *memory, size_t bytes);
RS_ALIAS(reallocarray)
void *reallocarray(void *memory, size_t number, size_t bytes);
RS_ALIAS(memalign) void *memalign(size_t alignment, size_t bytes);
RS_ALIAS(aligned_alloc) void *aligned_alloc(size_t alignment, size_t bytes);
RS_ALIAS(posix_memalign)
int posix_memalign(void **memory, size_t alignment, size_t bytes);
RS_ALIAS(valloc) void *valloc(size_t bytes);
RS_ALIAS(pvalloc) void *pvalloc(size_t bytes);

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

/* The main program's static arrays without values: it is never unloaded. Pages
 * that the file has a part in are not anonymous. */
static int offer_static(struct dl_phdr_info *info, size_t size, void *data)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    (void)size;
    (void)data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr + p->p_filesz;
        uintptr_t end = info->dlpi_addr + p->p_vaddr + p->p_memsz;

        start = (start + page - 1) / page * page;
        if (p->p_type == PT_LOAD && (p->p_flags & PF_W) && start < end)
            rsched_memory_offer((void *)start, end - start);
    }
    return 1; /* the main program is the first */
}

static bool comes_first(const char *name, void *ours)
{
    return dlsym(RTLD_DEFAULT, name) == ours;
}

static bool gives_memory(void)
{
    return comes_first("free", (void *)heap_free) &&
           comes_first("malloc", (void *)heap_malloc) &&
           comes_first("realloc", (void *)heap_realloc);
}

/* As programs find it. */
static bool is_called(const char *name, void *ours)
{
    return dlvsym(RTLD_DEFAULT, name, RS_LIBC) == ours;
}

static bool sees_mappings(void)
{
    return is_called("madvise", (void *)heap_madvise) &&
           is_called("mmap", (void *)heap_mmap) &&
           is_called("mmap64", (void *)heap_mmap) &&
           is_called("munmap", (void *)heap_munmap) &&
           is_called("mremap", (void *)heap_mremap);
}

/* Whether what the program does with mappings is still seen. */
static bool is_seen(void)
{
    return is_untouched(MADVISE) && is_untouched(MMAP) && is_untouched(MUNMAP) &&
           is_untouched(MREMAP);
}

/* As of the process's start; what is wrong with the value, a context says. */
static bool is_wanted(const char *setting)
{
    return setting == NULL || setting[strspn(setting, "0")] != '\0';
}

/* After all objects have been mapped, before the program's own code. */
static void __attribute__((constructor)) heap_init(void)
{
    const char *setting = getenv("RSCHED_ADOPT");

    /* Who asks for it promises what cannot be seen. */
    if (is_wanted(setting) && is_ready() && is_offering() && gives_memory() &&
        (setting != NULL || sees_mappings())) {
        if (setting == NULL)
            rsched_memory_guard(is_seen);
        dl_iterate_phdr(offer_static, NULL);
        return;
    }
    atomic_store(&offering, false);
    rsched_memory_bar(NULL, SIZE_MAX);
}
