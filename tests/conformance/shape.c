/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include <rsched/memory.h>

#include "tests/conformance/shape.h"

/* Byte i of a pattern is seed * 37 + 1 + i * 13 + i / ROW: rows of 256 bytes, of
 * which each has one more than the one before, and the seed says with which row of
 * the table memory begins. Copied in one piece, since sanitizers look at each access
 * of a loop, which was most of a test's time. */
enum { ROW = 256, TABLE = 256 * ROW };

static char table[TABLE];

static void __attribute__((constructor)) make_table(void)
{
    for (uint64_t i = 0; i < TABLE; i++)
        table[i] = (char)(i * 13 + i / ROW);
}

static bool is_zero(const char *memory, uint64_t bytes)
{
    return memory[0] == 0 && memcmp(memory, memory + 1, bytes - 1) == 0;
}

bool shape_mapped, shape_cma;
const struct shape_gpus *shape_gpus;
unsigned shape_gpu_ranks;

static bool is_on_gpu(void)
{
    return shape_gpus != NULL && (shape_gpu_ranks >> node_rank % 2 & 1) != 0;
}

bool shape_is_pulled(uint64_t bytes)
{
    if (shape_gpus != NULL)
        return shape_gpus->pulled && is_on_gpu();
    return shape_mapped || (shape_cma && bytes >= CMA_BLOCK);
}

static char *shifted(const char *address, intptr_t shift)
{
    return (char *)((intptr_t)address + shift);
}

static void get_memory(struct shape *s, uint64_t span, bool shared)
{
    void *memory;

    *s = (struct shape){.span = span, .shared = shared, .on_gpu = is_on_gpu()};
    if (s->on_gpu) {
        char *device = shape_gpus->allocate(span, &s->memory);

        s->shift = (intptr_t)device - (intptr_t)s->memory;
    } else if (!shared)
        s->memory = calloc(1, span);
    else if (rsched_alloc(span, &memory) == 0)
        s->memory = memory;
    else
        abort();
}

void shape_in(struct shape *s, uint64_t bytes, int unaligned,
                     bool shared)
{
    get_memory(s, bytes + 64, shared);
    s->pieces[0] = (struct rsched_piece){.address = shifted(s->memory + unaligned,
                                                            s->shift),
                                         .bytes = bytes,
                                         .count = 1};
    s->message = (struct rsched_message){s->pieces, 1, bytes, 7, 1, bytes, NULL};
}

void shape_contiguous(struct shape *s, uint64_t bytes, int unaligned)
{
    shape_in(s, bytes, unaligned, shape_mapped);
}

void shape_random(struct shape *s, uint64_t bytes, unsigned *seed,
                         bool overlap)
{
    uint64_t left = bytes, at = 4096;
    int n = 0;

    get_memory(s, 8 * bytes + 65536, shape_mapped);
    while (left > 0) {
        struct rsched_piece *p = &s->pieces[n++];
        uint64_t room;

        p->bytes = 1 + node_draw(seed, n >= 11 ? left : left / 2 + 1);
        p->count = 1 + node_draw(seed, 5);
        if (n >= 11 || p->bytes * p->count > left) {
            p->bytes = n >= 11 ? left : p->bytes;
            p->count = 1;
        }
        p->stride = (int64_t)(p->bytes + node_draw(seed, 9));
        if (overlap && node_draw(seed, 3) == 0)
            p->stride = (int64_t)node_draw(seed, p->bytes);
        room = p->count * (p->bytes + 8);
        p->address = shifted(s->memory + at, s->shift);
        if (node_draw(seed, 2) == 0) { /* downwards */
            p->address += (int64_t)(p->count - 1) * p->stride;
            p->stride = -p->stride;
        }
        left -= p->bytes * p->count;
        at += room + node_draw(seed, 5);
        if (node_draw(seed, 4) == 0 && n < 11) /* an empty one in between */
            s->pieces[n++] = (struct rsched_piece){.address = s->memory};
    }
    s->message = (struct rsched_message){s->pieces, (size_t)n, bytes, 7, 1, bytes, NULL};
}

void shape_fini(struct shape *s)
{
    if (s->on_gpu)
        shape_gpus->release(shifted(s->memory, s->shift), s->memory);
    else if (!s->shared)
        free(s->memory);
    else if (rsched_free(s->memory) != 0)
        abort();
}

void shape_push(const struct shape *s)
{
    if (s->on_gpu)
        shape_gpus->push(shifted(s->memory, s->shift), s->memory, s->span);
}

void shape_pull(const struct shape *s)
{
    if (s->on_gpu)
        shape_gpus->pull(s->memory, shifted(s->memory, s->shift), s->span);
}

void shape_gather(const struct shape *s, char *flat, bool out)
{
    for (size_t i = 0; i < s->message.num_pieces; i++) {
        const struct rsched_piece *p = &s->pieces[i];

        for (uint64_t b = 0; b < p->count; b++, flat += p->bytes) {
            char *block =
                shifted(p->address + (int64_t)b * p->stride, -s->shift);

            memcpy(out ? block : flat, out ? flat : block, p->bytes);
        }
    }
}

void shape_set(struct shape *s, int byte)
{
    memset(s->memory, byte, s->span);
    shape_push(s);
}

void shape_fill(struct shape *s, uint64_t seed)
{
    uint64_t from = (seed * 37 + 1) * ROW;

    for (uint64_t at = 0, bytes; at < s->span; at += bytes) {
        uint64_t left = TABLE - (from + at) % TABLE;

        bytes = left < s->span - at ? left : s->span - at;
        memcpy(s->memory + at, table + TABLE - left, bytes);
    }
    shape_push(s);
}

int shape_compare(struct node *node, const struct shape *sent,
                         const struct shape *got)
{
    char *a = malloc(sent->message.bytes), *b = malloc(sent->message.bytes);
    int wrong;

    shape_pull(got);
    shape_gather(sent, a, false);
    shape_gather(got, b, false);
    wrong = memcmp(a, b, sent->message.bytes) != 0;
    /* Nothing else may be touched: with the blocks cleared it is all zero. */
    memset(b, 0, sent->message.bytes);
    shape_gather(got, b, true);
    if (!wrong && !is_zero(got->memory, got->span))
        wrong = 2;
    free(a);
    free(b);
    return wrong == 0 ? 0
                      : NODE_FAIL(node, "%llu bytes: %s",
                                  (unsigned long long)sent->message.bytes,
                                  wrong == 1 ? "wrong data" : "written outside");
}
