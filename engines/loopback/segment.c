/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/loopback/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "librsched/base/descriptor.h"
#include "librsched/base/error.h"
#include "librsched/base/limit.h"

#define BASE_STEP (UINT64_C(1) << RS_BASE_BITS)

/* ---- mappings ---- */

/* A part of a segment that this process has mapped. */
struct mapping {
    struct mapping *next;
    dev_t device; /* with `inode`: which memfd */
    ino_t inode;
    uint64_t offset, bytes;
    void *address;
    unsigned users;
};

static struct {
    pthread_mutex_t lock;
    struct mapping *list;
    bool handled; /* forks are */
} mapped = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void)
{
    pthread_mutex_lock(&mapped.lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&mapped.lock);
}

/* The child has none of the mappings. */
static void after_fork_child(void)
{
    /* Not freed: another thread may have held malloc's lock. */
    mapped.list = NULL;
    pthread_mutex_unlock(&mapped.lock);
}

/* As those of librsched/base/shared.c: before those of all who may call us. */
static void __attribute__((constructor)) handle_forks(void)
{
    mapped.handled = pthread_atfork(before_fork, after_fork_parent,
                                    after_fork_child) == 0;
}

static struct mapping *find_mapping(const struct mapping *wanted)
{
    struct mapping *m = mapped.list;

    while (m != NULL &&
           (m->device != wanted->device || m->inode != wanted->inode ||
            m->offset != wanted->offset || m->bytes != wanted->bytes))
        m = m->next;
    return m;
}

/* NULL with errno. */
static struct mapping *add_mapping(int fd, const struct mapping *wanted,
                                   bool sparse)
{
    struct mapping *m = malloc(sizeof(*m));

    if (m == NULL)
        return NULL;
    *m = *wanted;
    m->address = sparse ? rs_limit_map_sparse(fd, m->offset, m->bytes)
                        : mmap(NULL, m->bytes, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_POPULATE, fd,
                               (off_t)m->offset);
    if (m->address == MAP_FAILED) {
        free(m);
        return NULL;
    }
    /* A forked child has no business here. */
    madvise(m->address, m->bytes, MADV_DONTFORK);
    m->next = mapped.list;
    mapped.list = m;
    return m;
}

void *rs_segment_map(int fd, uint64_t offset, uint64_t bytes, bool sparse)
{
    struct mapping wanted = {.offset = offset, .bytes = bytes}, *m;
    struct stat status;

    if (fstat(fd, &status) != 0)
        return NULL;
    wanted.device = status.st_dev;
    wanted.inode = status.st_ino;
    pthread_mutex_lock(&mapped.lock);
    m = find_mapping(&wanted);
    if (m == NULL && mapped.handled)
        m = add_mapping(fd, &wanted, sparse);
    if (m != NULL)
        m->users++;
    pthread_mutex_unlock(&mapped.lock);
    return m != NULL ? m->address : NULL;
}

int rs_segment_map_error(void)
{
    /* EAGAIN: all is to be locked, and there may be no more of that. */
    return errno == ENOMEM || errno == EAGAIN ? RSCHED_ENOMEM : RSCHED_ESYS;
}

void rs_segment_unmap(void *address)
{
    struct mapping **at, *m;

    pthread_mutex_lock(&mapped.lock);
    at = &mapped.list;
    while (*at != NULL && (*at)->address != address)
        at = &(*at)->next;
    m = *at;
    if (m != NULL && --m->users == 0) {
        *at = m->next;
        munmap(m->address, m->bytes);
        free(m);
    }
    pthread_mutex_unlock(&mapped.lock);
}

/* ---- segments ---- */

static uint64_t round_to_page(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    return (bytes + page - 1) / page * page;
}

int rs_segment_init(struct rs_segment *segment, uint64_t job)
{
    struct rs_segment s = {
        .fd = -1,
        .bytes = round_to_page(RS_HEADER_BYTES),
        .next_base = BASE_STEP,
    };
    int error;

    s.fd = rs_descriptor_keep(
        memfd_create("rsched", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (s.fd < 0)
        return rs_fail(RSCHED_ESYS, "loopback: memfd_create: %m");
    if (fchmod(s.fd, 0600) != 0 ||
        rs_limit_grow(s.fd, s.bytes) != 0 ||
        fcntl(s.fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        error = rs_fail(RSCHED_ESYS, "loopback: setting up a memfd: %m");
        goto err_close;
    }
    s.header = rs_segment_map(s.fd, 0, RS_HEADER_BYTES, false);
    if (s.header == NULL) {
        error = rs_fail(rs_segment_map_error(), "loopback: mapping a memfd: %m");
        goto err_close;
    }
    if (getrandom(&s.nonce, sizeof(s.nonce), 0) != sizeof(s.nonce)) {
        error = rs_fail(RSCHED_ESYS, "loopback: getrandom: %m");
        goto err_unmap;
    }
    s.header->magic = RS_SEGMENT_MAGIC;
    s.header->job = job;
    s.header->nonce = s.nonce;
    *segment = s;
    return 0;

err_unmap:
    rs_segment_unmap(s.header);
err_close:
    close(s.fd);
    return error;
}

void rs_segment_fini(struct rs_segment *segment)
{
    for (struct rs_block *b = segment->blocks, *next; b != NULL; b = next) {
        next = b->next;
        rs_segment_unmap(b->words);
        free(b);
    }
    rs_segment_unmap(segment->header);
    close(segment->fd);
}

static bool block_is_free(const struct rs_block *b,
                          bool (*gone)(const struct rsched_connection *))
{
    if (b->in_use)
        return false;
    /* Acquire: all that the writer wrote before it closed is over. */
    return b->unattached ||
           atomic_load_explicit(&b->words->closed, memory_order_acquire) ==
               b->base ||
           (b->writer != NULL && gone(b->writer));
}

static struct rs_block *find_block(struct rs_segment *segment, uint64_t bytes,
                                   bool (*gone)(const struct rsched_connection *))
{
    struct rs_block *best = NULL;

    for (struct rs_block *b = segment->blocks; b != NULL; b = b->next) {
        if (b->bytes >= bytes && b->bytes <= 2 * bytes &&
            (best == NULL || b->bytes < best->bytes) && block_is_free(b, gone))
            best = b;
    }
    return best;
}

/* Have the pages there. @return an errno */
static int reserve(int fd, uint64_t offset, uint64_t bytes)
{
    sigset_t all, old;
    int error;

    /* A signal would end it, and all that it has done would be undone: with a
     * timer that is shorter it would never come to its end. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = posix_fallocate(fd, (off_t)offset, (off_t)bytes);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

/* Reserve the pages now, so that no epoch pays for them; but not those that may
 * never be used. @return an errno */
static int make_room(int fd, const struct rs_block *b, bool sparse)
{
    if (sparse)
        return rs_limit_grow(fd, b->offset + b->bytes) == 0 ? 0 : errno;
    return rs_limit_allows(b->offset + b->bytes)
               ? reserve(fd, b->offset, b->bytes)
               : errno;
}

static int add_block(struct rs_segment *segment, uint64_t bytes, bool sparse,
                     struct rs_block **block)
{
    struct rs_block *b = calloc(1, sizeof(*b));
    int error;

    if (b == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory for a block");
    b->offset = segment->bytes;
    b->bytes = bytes;
    error = make_room(segment->fd, b, sparse);
    if (error != 0) {
        errno = error;
        error = rs_fail(RSCHED_ENOMEM,
                        "loopback: %llu bytes of shared memory: %m",
                        (unsigned long long)bytes);
        goto err_free;
    }
    b->words = rs_segment_map(segment->fd, b->offset, bytes, sparse);
    if (b->words == NULL) {
        error = rs_fail(rs_segment_map_error(), "loopback: mapping %llu bytes: %m",
                        (unsigned long long)bytes);
        goto err_punch;
    }
    segment->bytes += bytes;
    b->next = segment->blocks;
    segment->blocks = b;
    *block = b;
    return 0;

err_punch:
    fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)b->offset, (off_t)bytes);
err_free:
    free(b);
    return error;
}

int rs_segment_allocate(struct rs_segment *segment, uint64_t bytes,
                        bool sparse, struct rsched_connection *writer,
                        bool (*gone)(const struct rsched_connection *),
                        struct rs_block **block)
{
    uint64_t rounded = round_to_page(bytes);
    struct rs_block *b = find_block(segment, rounded, gone);
    int error;

    if (b == NULL) {
        error = add_block(segment, rounded, sparse, &b);
        if (error != 0)
            return error;
    } else {
        /* Nobody writes it any more, and the next writer learns of it only
         * through the out-of-band exchange. User data could look like words. */
        if (!sparse || madvise(b->words, b->bytes, MADV_REMOVE) != 0)
            memset(b->words, 0, b->bytes);
    }
    b->in_use = true;
    b->unattached = false;
    b->writer = writer;
    b->base = segment->next_base;
    segment->next_base += BASE_STEP;
    if (segment->next_base == 0) /* as words that nobody has written */
        segment->next_base = BASE_STEP;
    *block = b;
    return 0;
}

void rs_segment_release(struct rs_block *block, bool attached)
{
    block->in_use = false;
    block->unattached = !attached;
}

bool rs_segment_forget(struct rs_segment *segment,
                       struct rsched_connection *writer,
                       bool (*gone)(const struct rsched_connection *))
{
    bool left = false;

    for (struct rs_block *b = segment->blocks; b != NULL; b = b->next) {
        if (b->writer != writer)
            continue;
        if (!block_is_free(b, gone)) {
            left = true;
            continue;
        }
        b->unattached = true;
        b->writer = NULL;
    }
    return left;
}
