/* SPDX-License-Identifier: BSD-3-Clause */
/* GDRCopy in software, see fake_gdr.h. */
#include "tests/cuda/fake_gdr.h"

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define API __attribute__((visibility("default")))

enum { PAGE = 65536, SMALL_PAGE = 4096 };

/* Written as the library's header has them, not as ours. */
typedef struct gdr *gdr_t;
typedef struct gdr_mh_s {
    unsigned long h;
} gdr_mh_t;
typedef struct gdr_info_v2 {
    uint64_t va;
    uint64_t mapped_size;
    uint32_t page_size;
    uint64_t tm_cycles;
    uint32_t cycles_per_ms;
    unsigned mapped : 1;
    unsigned wc_mapping : 1;
    int mapping_type;
} gdr_info_v2_t;

struct gdr {
    int pins;
};

struct pin {
    struct pin *next;
    unsigned long number;
    gdr_t gdr;
    uint64_t start;
    size_t bytes;
    char *mapped; /* NULL: it is not */
    size_t mapped_bytes;
};

/* Bytes that have not arrived. */
struct posted {
    struct posted *next;
    char *to;
    size_t bytes;
    char data[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static struct pin *pins;
static unsigned long last_number;
static struct posted *posted, **end = &posted;
static unsigned long long counts[FAKE_GDR_NUM_COUNTS];

gdr_t gdr_open(void);
int gdr_close(gdr_t g);
int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token,
                   uint32_t va_space, gdr_mh_t *handle);
int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags,
                      gdr_mh_t *handle);
int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle);
int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info);
int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size);
int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size);
int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr,
                        size_t size);
int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr,
                          size_t size);

static void __attribute__((noreturn)) die(const char *what)
{
    fprintf(stderr, "fake GDRCopy: %s\n", what);
    abort();
}

/* FAKE_GDR_FAIL=NAME:K:N[:M],... */
static int injected(const char *name, int call)
{
    const char *text = getenv("FAKE_GDR_FAIL");
    size_t length = strlen(name);

    while (text != NULL && *text != '\0') {
        int from, number, times;
        int read = strncmp(text, name, length) != 0
                       ? 0
                       : sscanf(text + length, ":%d:%d:%d", &from, &number,
                                &times);

        if (read >= 2 && from > 0 && call >= from &&
            (read == 2 || call - from < times))
            return number;
        text = strchr(text, ',');
        text = text == NULL ? NULL : text + 1;
    }
    return 0;
}

#define INJECT(function)                                                     \
    do {                                                                     \
        static atomic_int fake_calls;                                        \
        int fake_number =                                                    \
            injected(#function, atomic_fetch_add(&fake_calls, 1) + 1);       \
                                                                             \
        if (fake_number != 0)                                                \
            return fake_number;                                              \
    } while (0)

/* The driver in software, from the first gdr_open() to the last gdr_close(): to look
 * it up for each copy takes long, and under the thread sanitizer most of a test's
 * time, which reads all of the process's mappings with each dlopen(). */
static void *driver;
static void *(*driver_touch)(CUdeviceptr);

/* With the lock. */
static void find_driver(void)
{
    void *symbol;

    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver == NULL)
        return;
    symbol = dlsym(driver, "fakeTouch");
    memcpy(&driver_touch, &symbol, sizeof(symbol));
}

static void *touch(uint64_t device)
{
    if (driver == NULL)
        die("there is no driver");
    return driver_touch(device);
}

static bool is_off(const char *name)
{
    const char *text = getenv(name);

    return text != NULL && strcmp(text, "0") == 0;
}

API gdr_t gdr_open(void)
{
    gdr_t g;

    if (is_off("FAKE_GDR_OPEN"))
        return NULL;
    g = calloc(1, sizeof(*g));
    if (g == NULL)
        return NULL;
    pthread_mutex_lock(&lock);
    if (counts[FAKE_GDR_OPEN]++ == 0)
        find_driver();
    pthread_mutex_unlock(&lock);
    return g;
}

API int gdr_close(gdr_t g)
{
    void *closed = NULL;

    pthread_mutex_lock(&lock);
    if (g->pins > 0)
        die("is closed with pinned memory");
    if (--counts[FAKE_GDR_OPEN] == 0) {
        closed = driver;
        driver = NULL;
    }
    pthread_mutex_unlock(&lock);
    if (closed != NULL)
        dlclose(closed);
    free(g);
    return 0;
}

/* With the lock. */
static struct pin *find(gdr_mh_t handle)
{
    struct pin *p = pins;

    while (p != NULL && p->number != handle.h)
        p = p->next;
    if (p == NULL)
        die("a handle that is none");
    return p;
}

static bool is_on_gpu(unsigned long address, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += SMALL_PAGE) {
        if (touch(address + at) != NULL)
            return true;
    }
    return false;
}

static int pin(gdr_t g, unsigned long address, size_t bytes, gdr_mh_t *handle)
{
    struct pin *p;

    if (address % PAGE != 0 || bytes % PAGE != 0 || bytes == 0)
        die("pinned memory is not whole pages");
    if (!is_on_gpu(address, bytes))
        return EINVAL;
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return ENOMEM;
    pthread_mutex_lock(&lock);
    *p = (struct pin){.next = pins,
                      .number = ++last_number,
                      .gdr = g,
                      .start = address,
                      .bytes = bytes};
    pins = p;
    g->pins++;
    counts[FAKE_GDR_PINNED]++;
    counts[FAKE_GDR_PINS]++;
    *handle = (gdr_mh_t){p->number};
    pthread_mutex_unlock(&lock);
    return 0;
}

API int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size,
                       uint64_t p2p_token, uint32_t va_space, gdr_mh_t *handle)
{
    INJECT(gdr_pin_buffer);
    if (p2p_token != 0 || va_space != 0)
        return EINVAL;
    return pin(g, addr, size, handle);
}

API int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size,
                          uint32_t flags, gdr_mh_t *handle)
{
    if (is_off("FAKE_GDR_V2"))
        return ENOTTY;
    INJECT(gdr_pin_buffer);
    if (flags != 0)
        return EINVAL;
    return pin(g, addr, size, handle);
}

API int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle)
{
    struct pin **at = &pins, *p;

    pthread_mutex_lock(&lock);
    p = find(handle);
    if (p->gdr != g || p->mapped != NULL)
        die("is unpinned and mapped");
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    g->pins--;
    counts[FAKE_GDR_PINNED]--;
    pthread_mutex_unlock(&lock);
    free(p);
    return 0;
}

API int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)
{
    const struct pin *p;

    (void)g;
    INJECT(gdr_get_info);
    pthread_mutex_lock(&lock);
    p = find(handle);
    *info = (gdr_info_v2_t){.va = p->start,
                            .mapped_size = p->bytes,
                            .page_size = PAGE,
                            .mapped = p->mapped != NULL,
                            .wc_mapping = p->mapped != NULL,
                            .mapping_type = p->mapped != NULL};
    pthread_mutex_unlock(&lock);
    return 0;
}

API int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size)
{
    struct pin *p;
    void *mapped;

    INJECT(gdr_map);
    mapped = mmap(NULL, size, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
        return ENOMEM;
    pthread_mutex_lock(&lock);
    p = find(handle);
    if (p->gdr != g || p->mapped != NULL || size > p->bytes)
        die("is mapped twice, or as more than it is");
    p->mapped = mapped;
    p->mapped_bytes = size;
    counts[FAKE_GDR_MAPPED]++;
    pthread_mutex_unlock(&lock);
    *va = mapped;
    return 0;
}

API int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size)
{
    struct pin *p;

    pthread_mutex_lock(&lock);
    p = find(handle);
    if (p->gdr != g || p->mapped != va || p->mapped_bytes != size)
        die("is unmapped and not mapped so");
    munmap(va, size);
    p->mapped = NULL;
    counts[FAKE_GDR_MAPPED]--;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Where processors may touch it. With the lock. */
static char *touch_mapped(gdr_mh_t handle, const char *mapped, size_t bytes)
{
    const struct pin *p = find(handle);
    char *first, *last;

    if (p->mapped == NULL || mapped < p->mapped ||
        mapped + bytes > p->mapped + p->mapped_bytes || bytes == 0)
        die("a copy that is not within its mapping");
    first = touch(p->start + (uint64_t)(mapped - p->mapped));
    last = touch(p->start + (uint64_t)(mapped - p->mapped) + bytes - 1);
    if (first == NULL || last != first + bytes - 1)
        die("a copy that is not within one allocation");
    return first;
}

static void arrive(void)
{
    while (posted != NULL) {
        struct posted *w = posted;

        memcpy(w->to, w->data, w->bytes);
        posted = w->next;
        free(w);
    }
    end = &posted;
}

API int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr,
                            size_t size)
{
    struct posted *w;

    INJECT(gdr_copy_to_mapping);
    w = malloc(sizeof(*w) + size);
    if (w == NULL)
        return ENOMEM;
    memcpy(w->data, h_ptr, size);
    w->bytes = size;
    w->next = NULL;
    pthread_mutex_lock(&lock);
    w->to = touch_mapped(handle, map_d_ptr, size);
    *end = w;
    end = &w->next;
    counts[FAKE_GDR_WRITES]++;
    pthread_mutex_unlock(&lock);
    return 0;
}

API int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr,
                              const void *map_d_ptr, size_t size)
{
    INJECT(gdr_copy_from_mapping);
    pthread_mutex_lock(&lock);
    arrive();
    memcpy(h_ptr, touch_mapped(handle, map_d_ptr, size), size);
    counts[FAKE_GDR_READS]++;
    pthread_mutex_unlock(&lock);
    return 0;
}

API unsigned long long fakeGdrCount(enum fake_gdr_count what)
{
    unsigned long long count;

    pthread_mutex_lock(&lock);
    count = counts[what];
    pthread_mutex_unlock(&lock);
    return count;
}

/* Also when the library is unloaded. The loader has this come after all calls of
 * other threads, which the thread sanitizer does not see. */
__attribute__((destructor)) static void look_for_leaks(void)
{
    pthread_mutex_lock(&lock);
    if (counts[FAKE_GDR_OPEN] != 0 || counts[FAKE_GDR_PINNED] != 0)
        die("something is pinned or open at the end");
    arrive();
    pthread_mutex_unlock(&lock);
}
