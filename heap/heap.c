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
#include <unistd.h>

#include <rsched/memory.h>

#include "heap/mappings.h"

enum { LEAST_OFFERED = 8192 }; /* has a whole page */

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
    heap_find_mappings();
    RS_FIND(free); /* the last: all of it is there */
    resolving = false;
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

bool heap_is_ready(void)
{
    return is_ready();
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
        (setting != NULL || heap_has_mappings())) {
        if (setting == NULL)
            rsched_memory_guard(heap_sees_mappings);
        dl_iterate_phdr(offer_static, NULL);
        return;
    }
    atomic_store(&offering, false);
    rsched_memory_bar(NULL, SIZE_MAX);
}
