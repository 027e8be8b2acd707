/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory as the interpreter's devices have it: of the driver in software of
 * tests/cuda, if the process has loaded that. */
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/verbs/interpreter.h"
#include "tests/verbs/interpreter_gpu.h"

/* What has been written and is not visible yet. */
struct write {
    struct write *next;
    char *to;
    uint64_t bytes;
    char data[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct write *first, **last = &first;
static uint64_t writes;

static void *symbol_of(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *symbol;

    if (driver == NULL)
        return NULL;
    symbol = dlsym(driver, name);
    dlclose(driver);
    return symbol;
}

static void flush(void)
{
    pthread_mutex_lock(&lock);
    for (struct write *w = first, *next; w != NULL; w = next) {
        next = w->next;
        memcpy(w->to, w->data, w->bytes);
        free(w);
    }
    first = NULL;
    last = &first;
    pthread_mutex_unlock(&lock);
}

/* The writes of each process are its own; the hook is set before the first. */
static void prepare(void)
{
    void (*on_flush)(void (*hook)(void));
    void *symbol = symbol_of("fakeOnFlush");

    assert(symbol != NULL);
    memcpy(&on_flush, &symbol, sizeof(symbol));
    on_flush(flush);
}

char *interpreter_gpu_peer(void *address)
{
    void *(*touch)(unsigned long long device);
    void *symbol = symbol_of("fakeTouch"), *found;

    if (symbol == NULL)
        return NULL;
    memcpy(&touch, &symbol, sizeof(symbol));
    found = touch((uintptr_t)address);
    if (found != NULL)
        prepare();
    return found;
}

char *interpreter_gpu_map(int fd, uint64_t bytes)
{
    void *touch = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                       lseek(fd, 0, SEEK_CUR));

    if (touch == MAP_FAILED)
        return NULL;
    prepare();
    return touch;
}

static int setting(const char *name)
{
    const char *text = getenv(name);

    return text != NULL ? atoi(text) : 0;
}

void interpreter_gpu_write(char *to, const char *from, uint64_t bytes)
{
    bool ordered = setting("FAKE_CUDA_ORDERING") >= 100 &&
                   setting("FAKE_CUDA_HOST_TABLES") == 0;
    struct write *w;

    pthread_mutex_lock(&lock);
    writes++;
    if (ordered) {
        memcpy(to, from, bytes);
    } else {
        w = malloc(sizeof(*w) + bytes);
        assert(w != NULL);
        w->next = NULL;
        w->to = to;
        w->bytes = bytes;
        memcpy(w->data, from, bytes);
        *last = w;
        last = &w->next;
    }
    pthread_mutex_unlock(&lock);
}

void interpreter_gpu_forget(const char *touch, uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    for (struct write **at = &first; *at != NULL;) {
        struct write *w = *at;

        if (w->to < touch || w->to >= touch + bytes) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        if (w->next == NULL)
            last = at;
        free(w);
    }
    pthread_mutex_unlock(&lock);
}

uint64_t interpreter_gpu_writes(void)
{
    uint64_t count;

    pthread_mutex_lock(&lock);
    count = writes;
    pthread_mutex_unlock(&lock);
    return count;
}
