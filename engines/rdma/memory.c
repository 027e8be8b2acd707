/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/rdma/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engines/rdma/places.h"
#include "engines/rdma/rdma.h"
#include "librsched/base/error.h"

enum { LINE = 64, SLAB_BYTES = 1 << 18 };

/* Pages that blocks are cut from; never given back while the engine lives. */
struct rs_rdma_slab {
    struct rs_rdma_slab *next;
    char *memory;
    uint64_t bytes, used;
    struct rs_rdma_keys keys;
};

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

void rs_rdma_memory_init(struct rs_rdma_memory *memory,
                         struct rs_rdma_port *port)
{
    *memory = (struct rs_rdma_memory){.port = port};
}

void rs_rdma_memory_fini(struct rs_rdma_memory *memory)
{
    rs_rdma_gpu_blocks_fini(memory);
    for (struct rs_rdma_block *b = memory->blocks, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    for (struct rs_rdma_slab *s = memory->slabs, *next; s != NULL; s = next) {
        next = s->next;
        memory->port->ops->memory_release(memory->port, &s->keys);
        munmap(s->memory, s->bytes);
        free(s);
    }
}

static bool is_free(const struct rs_rdma_block *b)
{
    const atomic_uint_fast64_t *last = (const void *)b->memory;

    if (b->in_use)
        return false;
    /* Acquire: all that the writer wrote before its last write is over. */
    return b->writer == NULL || rs_rdma_link_is_broken(b->writer) ||
           atomic_load_explicit(last, memory_order_acquire) != 0;
}

bool rs_rdma_block_has_pages(const struct rs_rdma_block *block)
{
    uint64_t page = page_bytes();

    return (uintptr_t)block->memory % page == 0 && block->bytes % page == 0;
}

static struct rs_rdma_block *find_block(struct rs_rdma_memory *memory,
                                        uint64_t bytes, bool pages)
{
    struct rs_rdma_block *best = NULL;

    for (struct rs_rdma_block *b = memory->blocks; b != NULL; b = b->next) {
        if (b->bytes >= bytes && b->bytes <= 2 * bytes &&
            (!pages || rs_rdma_block_has_pages(b)) &&
            (best == NULL || b->bytes < best->bytes) && is_free(b))
            best = b;
    }
    return best;
}

static int add_slab(struct rs_rdma_memory *memory, uint64_t bytes,
                    struct rs_rdma_slab **slab)
{
    struct rs_rdma_slab *s = calloc(1, sizeof(*s));
    int error = RSCHED_ENOMEM;

    if (s == NULL)
        return rs_fail(error, "no memory for landing slots");
    s->bytes = round_up(bytes > SLAB_BYTES ? bytes : SLAB_BYTES, page_bytes());
    s->memory = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (s->memory == MAP_FAILED) {
        rs_fail(error, "%s: %llu bytes of landing slots: %m",
                memory->port->name, (unsigned long long)s->bytes);
        goto err_free;
    }
    error = memory->port->ops->memory_register(memory->port, s->memory,
                                               s->bytes, RS_RDMA_REMOTE,
                                               &s->keys);
    if (error != 0)
        goto err_unmap;
    s->next = memory->slabs;
    memory->slabs = s;
    memory->bytes += s->bytes;
    *slab = s;
    return 0;

err_unmap:
    munmap(s->memory, s->bytes);
err_free:
    free(s);
    return error;
}

/* Bytes are multiples of the unit, and so is the address. */
static int add_block(struct rs_rdma_memory *memory, uint64_t bytes,
                     uint64_t unit, struct rs_rdma_block **block)
{
    struct rs_rdma_slab *s = memory->slabs;
    struct rs_rdma_block *b;
    int error;

    while (s != NULL && round_up(s->used, unit) + bytes > s->bytes)
        s = s->next;
    if (s == NULL) {
        error = add_slab(memory, bytes, &s);
        if (error != 0)
            return error;
    }
    b = calloc(1, sizeof(*b));
    if (b == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a block");
    s->used = round_up(s->used, unit);
    b->memory = s->memory + s->used;
    b->bytes = bytes;
    b->keys = &s->keys;
    s->used += bytes;
    b->next = memory->blocks;
    memory->blocks = b;
    *block = b;
    return 0;
}

int rs_rdma_block_allocate(struct rs_rdma_memory *memory, uint64_t bytes,
                           bool pages, struct rs_rdma_link *writer,
                           struct rs_rdma_block **block)
{
    uint64_t unit = pages ? page_bytes() : LINE;
    struct rs_rdma_block *b;
    int error;

    bytes = round_up(bytes, unit);
    b = find_block(memory, bytes, pages);
    if (b == NULL) {
        error = add_block(memory, bytes, unit, &b);
        if (error != 0)
            return error;
    } else {
        memset(b->memory, 0, b->bytes);
    }
    b->in_use = true;
    b->writer = writer;
    *block = b;
    return 0;
}

void rs_rdma_block_release(struct rs_rdma_block *block)
{
    if (block != NULL)
        block->in_use = false;
}

void rs_rdma_memory_forget(struct rs_rdma_memory *memory,
                           const struct rs_rdma_link *writer)
{
    for (struct rs_rdma_block *b = memory->blocks; b != NULL; b = b->next) {
        if (b->writer == writer)
            b->writer = NULL;
    }
}

static struct rs_rdma_region *find_region(const struct rs_rdma_memory *memory,
                                          uintptr_t begin, uintptr_t end,
                                          enum rs_rdma_access access,
                                          const void *exchange)
{
    struct rs_rdma_region *r = memory->regions;

    while (r != NULL &&
           (r->retired || r->exchange != exchange || r->begin > begin ||
            r->end < end || r->access < access))
        r = r->next;
    return r;
}

int rs_rdma_region_acquire(struct rs_rdma_memory *memory, const char *begin,
                           const char *end, enum rs_rdma_access access,
                           const void *exchange, struct rsched_gpu_hold *gpu,
                           struct rs_rdma_region **region)
{
    uint64_t page = page_bytes();
    uintptr_t first = (uintptr_t)begin / page * page;
    uintptr_t last = round_up((uintptr_t)end, page);
    struct rs_rdma_region *r = find_region(memory, first, last, access, exchange);
    int error;

    if (r == NULL) {
        r = calloc(1, sizeof(*r));
        if (r == NULL)
            return rs_fail(RSCHED_ENOMEM, "no memory for a registration");
        error = gpu != NULL
                    ? rs_rdma_gpu_register(memory->port, gpu, first,
                                           last - first, access, &r->keys)
                    : memory->port->ops->memory_register(
                          memory->port, (void *)first, last - first, access,
                          &r->keys);
        if (error != 0) {
            free(r);
            return error;
        }
        r->begin = first;
        r->end = last;
        r->access = access;
        r->exchange = exchange;
        r->next = memory->regions;
        memory->regions = r;
    }
    r->references++;
    *region = r;
    return 0;
}

void rs_rdma_region_release(struct rs_rdma_memory *memory,
                            struct rs_rdma_region *region)
{
    struct rs_rdma_region **at = &memory->regions;

    region->retired = true;
    if (--region->references > 0)
        return;
    while (*at != region)
        at = &(*at)->next;
    *at = region->next;
    memory->port->ops->memory_release(memory->port, &region->keys);
    free(region);
}

struct span {
    const char *begin, *end;
    uintptr_t home; /* where the allocation begins, of a GPU's; else 0 */
};

/* From the lowest to the highest byte of a piece. */
static struct span span_of(const struct rsched_piece *p)
{
    int64_t last = (int64_t)(p->count - 1) * p->stride;

    return (struct span){.begin = p->address + (last < 0 ? last : 0),
                         .end = p->address + (last > 0 ? last : 0) + p->bytes};
}

static int by_begin(const void *a, const void *b)
{
    const struct span *left = a, *right = b;

    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

/* Memory of a GPU is registered within an allocation: that behind it may be
 * another one's. */
static int find_home(struct rsched_gpu_hold *gpu, struct span *span)
{
    uintptr_t end;
    int error = rsched_gpus()->extent(gpu, span->begin, &span->home, &end);

    if (error != 0)
        return rs_fail_within(RSCHED_ENOTSUP, "GPU memory at %p",
                              (const void *)span->begin);
    if ((uintptr_t)span->end <= end)
        return 0;
    return rs_fail(RSCHED_ENOTSUP, "blocks of a piece across two allocations of "
                                   "GPU memory");
}

/* Of the pieces that have bytes. */
static int list_spans(const struct rsched_message *message,
                      struct rsched_gpu_hold *gpu, struct span *spans,
                      size_t *number)
{
    int error = 0;

    *number = 0;
    for (size_t i = 0; i < message->num_pieces && error == 0; i++) {
        struct span *s = &spans[*number];

        if (message->pieces[i].bytes == 0 || message->pieces[i].count == 0)
            continue;
        *s = span_of(&message->pieces[i]);
        if (gpu != NULL)
            error = find_home(gpu, s);
        ++*number;
    }
    return error;
}

/* Merge spans that share or touch pages. @return their number */
static size_t merge_spans(struct span *spans, size_t number)
{
    uint64_t page = page_bytes();
    size_t merged = 0;

    qsort(spans, number, sizeof(*spans), by_begin);
    for (size_t i = 0; i < number; i++) {
        struct span *last = merged > 0 ? &spans[merged - 1] : NULL;

        if (last != NULL && spans[i].home == last->home &&
            (uintptr_t)spans[i].begin / page * page <=
                round_up((uintptr_t)last->end, page)) {
            if (spans[i].end > last->end)
                last->end = spans[i].end;
        } else {
            spans[merged++] = spans[i];
        }
    }
    return merged;
}

/* Blocks that touch are one to the device, with one key: across two allocations
 * of GPU memory there is none. */
static int check_apart(const struct span *spans, size_t number)
{
    for (size_t i = 1; i < number; i++) {
        if (spans[i].begin == spans[i - 1].end)
            return rs_fail(RSCHED_ENOTSUP,
                           "blocks that touch in two allocations of GPU memory");
    }
    return 0;
}

/* A registration holds the pages that processors have. The driver takes managed
 * memory from those to a GPU's when a kernel touches it, and does not ask who else
 * has them, so a device would read and write what nobody sees. */
static int check_stays(const struct rsched_message *message)
{
    struct rs_rdma_places places;
    int error = rs_rdma_places_find(message, &places);

    if (error != 0 || !places.managed)
        return error;
    return rs_fail(RSCHED_ENOTSUP, "a block in managed memory, whose pages the "
                                   "driver moves");
}

int rs_rdma_regions_acquire(struct rs_rdma_memory *memory,
                            const struct rsched_message *message,
                            enum rs_rdma_access access,
                            struct rsched_gpu_hold *gpu,
                            struct rs_rdma_regions *regions)
{
    struct span *spans = calloc(message->num_pieces + 1, sizeof(*spans));
    struct rs_rdma_regions r = {
        .of = calloc(message->num_pieces + 1, sizeof(*r.of))};
    size_t number = 0;
    int error = 0;

    if (spans == NULL || r.of == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory for registrations");
    else if (gpu == NULL)
        error = check_stays(message);
    if (error == 0)
        error = list_spans(message, gpu, spans, &number);
    if (error == 0) {
        number = merge_spans(spans, number);
        error = check_apart(spans, number);
    }
    for (size_t i = 0; i < number && error == 0; i++) {
        error = rs_rdma_region_acquire(memory, spans[i].begin, spans[i].end,
                                       access, message->exchange, gpu,
                                       &r.of[i]);
        r.number += error == 0;
    }
    free(spans);
    if (error != 0)
        rs_rdma_regions_release(memory, &r);
    else
        *regions = r;
    return error;
}

void rs_rdma_regions_release(struct rs_rdma_memory *memory,
                             struct rs_rdma_regions *regions)
{
    for (size_t i = 0; i < regions->number; i++)
        rs_rdma_region_release(memory, regions->of[i]);
    free(regions->of);
    *regions = (struct rs_rdma_regions){0};
}

void rs_rdma_regions_retire(struct rs_rdma_regions *regions)
{
    for (size_t i = 0; i < regions->number; i++)
        regions->of[i]->retired = true;
}

const struct rs_rdma_keys *
rs_rdma_regions_find(const struct rs_rdma_regions *regions, const char *address)
{
    size_t i = 0;

    while ((uintptr_t)address < regions->of[i]->begin ||
           (uintptr_t)address >= regions->of[i]->end)
        i++;
    return &regions->of[i]->keys;
}
