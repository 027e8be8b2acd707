/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/pin.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <rsched/memory.h>

enum { BUCKETS = 1024, MOST_DEVICES = 64, MOVE_US = 20 };

struct rsched_pin {
    struct rsched_pin *next; /* in its bucket */
    struct rsched_pin *more; /* in the caller's hands: of the same handle */
    const void *handle;
    const char *low, *high;
};

/* Which file a descriptor was: another one may have its number later. */
struct device {
    int fd;
    dev_t on, is;
    ino_t inode;
};

/* Nothing is called with the lock: whoever allocates or unmaps may be seen by others, who
 * unpin what lies there. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rsched_pin *pins[BUCKETS]; /* by handle */
static struct rs_pin_move *moves;
static struct device devices[MOST_DEVICES];
static unsigned num_devices;

static struct rsched_pin **bucket_of(const void *handle)
{
    uint64_t mixed = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);

    return &pins[mixed >> 54];
}

/* ---- pins ---- */

static bool is_pinned(const char *low, const char *high)
{
    for (int i = 0; i < BUCKETS; i++) {
        for (const struct rsched_pin *p = pins[i]; p != NULL; p = p->next) {
            if (p->low < high && p->high > low)
                return true;
        }
    }
    return false;
}

static bool is_moving(const struct rsched_pin *p)
{
    for (const struct rs_pin_move *m = moves; m != NULL; m = m->next) {
        if (m->low < p->high && m->high > p->low)
            return true;
    }
    return false;
}

/* The first pin in a bucket that has the handle, or the one that is meant, is taken out. */
static struct rsched_pin *take(const void *handle, const struct rsched_pin *which)
{
    struct rsched_pin **at = bucket_of(handle), *found;

    while (*at != NULL &&
           ((*at)->handle != handle || (which != NULL && *at != which)))
        at = &(*at)->next;
    found = *at;
    if (found != NULL)
        *at = found->next;
    return found;
}

static void put(struct rsched_pin *p, const void *handle)
{
    struct rsched_pin **bucket = bucket_of(handle);

    p->handle = handle;
    p->next = *bucket;
    *bucket = p;
}

struct rsched_pin *rsched_memory_pin(const void *address, size_t bytes)
{
    uintptr_t low = (uintptr_t)address, high = low + bytes;
    struct rsched_pin *p = malloc(sizeof(*p));

    if (p == NULL) {
        rsched_memory_bar(address, bytes);
        return NULL;
    }
    *p = (struct rsched_pin){
        .low = address, .high = (const char *)(high < low ? UINTPTR_MAX : high)};
    pthread_mutex_lock(&lock);
    put(p, NULL);
    while (is_moving(p)) {
        pthread_mutex_unlock(&lock);
        usleep(MOVE_US);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return p;
}

void rsched_memory_pinned(struct rsched_pin *p, const void *handle)
{
    while (p != NULL) {
        struct rsched_pin *more = p->more;

        p->more = NULL;
        pthread_mutex_lock(&lock);
        take(NULL, p);
        if (handle != NULL)
            put(p, handle);
        pthread_mutex_unlock(&lock);
        if (handle == NULL)
            free(p);
        p = more;
    }
}

/* There are several where a library's function calls another one that tells it, too. */
struct rsched_pin *rsched_memory_unpin(const void *handle)
{
    struct rsched_pin *all = NULL, *p;

    if (handle == NULL)
        return NULL;
    pthread_mutex_lock(&lock);
    while ((p = take(handle, NULL)) != NULL) {
        put(p, NULL);
        p->more = all;
        all = p;
    }
    pthread_mutex_unlock(&lock);
    return all;
}

bool rs_pin_holds(const char *low, const char *high)
{
    bool holds;

    pthread_mutex_lock(&lock);
    holds = is_pinned(low, high);
    pthread_mutex_unlock(&lock);
    return holds;
}

bool rs_pin_move_begin(struct rs_pin_move *m, const char *low, const char *high)
{
    bool begins;

    pthread_mutex_lock(&lock);
    begins = !is_pinned(low, high);
    if (begins) {
        *m = (struct rs_pin_move){.next = moves, .low = low, .high = high};
        moves = m;
    }
    pthread_mutex_unlock(&lock);
    return begins;
}

void rs_pin_move_end(struct rs_pin_move *m)
{
    struct rs_pin_move **at = &moves;

    pthread_mutex_lock(&lock);
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    pthread_mutex_unlock(&lock);
}

/* ---- devices ---- */

static struct device *find_device(int fd)
{
    for (unsigned i = 0; i < num_devices; i++) {
        if (devices[i].fd == fd)
            return &devices[i];
    }
    return NULL;
}

void rsched_memory_device(int fd, bool tells)
{
    struct stat status;
    struct device *d;

    if (fd < 0 || (tells && fstat(fd, &status) != 0))
        return;
    pthread_mutex_lock(&lock);
    d = find_device(fd);
    if (tells && d == NULL && num_devices < MOST_DEVICES)
        d = &devices[num_devices++];
    if (tells && d != NULL)
        *d = (struct device){
            .fd = fd, .on = status.st_dev, .is = status.st_rdev, .inode = status.st_ino};
    else if (d != NULL)
        *d = devices[--num_devices];
    pthread_mutex_unlock(&lock);
}

bool rs_pin_knows(int fd, const struct stat *status)
{
    const struct device *d;
    bool knows;

    pthread_mutex_lock(&lock);
    d = find_device(fd);
    knows = d != NULL && d->on == status->st_dev && d->is == status->st_rdev &&
            d->inode == status->st_ino;
    pthread_mutex_unlock(&lock);
    return knows;
}

bool rs_pin_any_device(void)
{
    bool any;

    pthread_mutex_lock(&lock);
    any = num_devices > 0;
    pthread_mutex_unlock(&lock);
    return any;
}

/* ---- forks ---- */

void rs_pin_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

void rs_pin_after_fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* Whoever was moving pages is not there. */
void rs_pin_after_fork_child(void)
{
    moves = NULL;
    pthread_mutex_unlock(&lock);
}
