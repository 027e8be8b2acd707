/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/copy.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "engines/common/long_copy.h"
#include "librsched/base/error.h"

/* Halo columns are mostly single numbers: the compiler makes moves of these
 * sizes, where a call of memcpy would cost more than the copy. */
static inline void copy_block(char *to, const char *from, uint64_t bytes)
{
    switch (bytes) {
    case 8:
        memcpy(to, from, 8);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    case 16:
        memcpy(to, from, 16);
        break;
    case 32:
        memcpy(to, from, 32);
        break;
    default:
        rs_copy_bytes(to, from, bytes);
        break;
    }
}

/* Inlined with a constant, it has no call and no branch for each block. */
static inline __attribute__((always_inline)) void
copy_rows(char *to, int64_t to_stride, const char *from, int64_t from_stride,
          uint64_t bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++, to += to_stride, from += from_stride)
        memcpy(to, from, bytes);
}

static inline void copy_blocks(char *to, int64_t to_stride, const char *from,
                               int64_t from_stride, uint64_t bytes,
                               uint64_t count)
{
    switch (bytes) {
    case 4:
        copy_rows(to, to_stride, from, from_stride, 4, count);
        break;
    case 8:
        copy_rows(to, to_stride, from, from_stride, 8, count);
        break;
    case 16:
        copy_rows(to, to_stride, from, from_stride, 16, count);
        break;
    case 24:
        copy_rows(to, to_stride, from, from_stride, 24, count);
        break;
    case 32:
        copy_rows(to, to_stride, from, from_stride, 32, count);
        break;
    default:
        for (uint64_t i = 0; i < count; i++, to += to_stride, from += from_stride)
            copy_block(to, from, bytes);
        break;
    }
}

void rs_copies_pack(const struct rs_copies *list, const struct rs_chunk *chunk,
                    char *data)
{
    const struct rs_copy *end = list->copies + chunk->end;

    for (const struct rs_copy *c = list->copies + chunk->first; c < end; c++) {
        if (c->count == 1)
            copy_block(data + c->offset, c->user, c->bytes);
        else
            copy_blocks(data + c->offset, (int64_t)c->bytes, c->user,
                        c->stride, c->bytes, c->count);
    }
}

void rs_copies_unpack(const struct rs_copies *list,
                      const struct rs_chunk *chunk, const char *data)
{
    const struct rs_copy *end = list->copies + chunk->end;

    for (const struct rs_copy *c = list->copies + chunk->first; c < end; c++) {
        if (c->count == 1)
            copy_block(c->user, data + c->offset, c->bytes);
        else
            copy_blocks(c->user, c->stride, data + c->offset,
                        (int64_t)c->bytes, c->bytes, c->count);
    }
}

static void run_pairs(const struct rs_copy *c, const struct rs_copy *end)
{
    for (; c < end; c++) {
        if (c->count == 1)
            copy_block(c->other, c->user, c->bytes);
        else
            copy_blocks(c->other, c->other_stride, c->user, c->stride,
                        c->bytes, c->count);
    }
}

/* Each block while lines of the next one are asked for. */
void rs_copies_run_ahead(const struct rs_copies *list)
{
    const struct rs_copy *end = list->copies + list->num_copies;
    char *to = NULL;
    const char *from = NULL;
    uint64_t bytes = 0;

    for (const struct rs_copy *c = list->copies; c < end; c++) {
        for (uint64_t i = 0; i < c->count; i++) {
            char *next_to = c->other + (int64_t)i * c->other_stride;
            const char *next_from = c->user + (int64_t)i * c->stride;

            if (to != NULL)
                rs_copy_ahead(to, from, bytes, next_to, next_from);
            to = next_to;
            from = next_from;
            bytes = c->bytes;
        }
    }
    if (to != NULL)
        rs_copy_ahead(to, from, bytes, NULL, NULL);
}

bool rs_copies_are_long(const struct rs_copies *list, uint64_t *bytes)
{
    *bytes = 0;
    for (uint32_t i = 0; i < list->num_copies; i++) {
        const struct rs_copy *c = &list->copies[i];

        if (c->bytes < RS_COPY_AHEAD)
            return false;
        *bytes += c->bytes * c->count;
    }
    return true;
}

#if defined(__x86_64__)
/*
 * Non-temporal stores: whole lines go to memory, without being read before,
 * and what is in the caches stays there.
 */
enum { LINE = 64, NONTEMPORAL_LEAST = 2048 /* bytes of a block */ };

/* `to` is at the beginning of a line. */
static void store_lines(char *to, const char *from, uint64_t lines)
{
    for (; lines > 0; lines--, to += LINE, from += LINE) {
        const __m128i *f = (const __m128i *)(const void *)from;
        __m128i *t = (__m128i *)(void *)to;
        __m128i a = _mm_loadu_si128(f), b = _mm_loadu_si128(f + 1);
        __m128i c = _mm_loadu_si128(f + 2), d = _mm_loadu_si128(f + 3);

        _mm_stream_si128(t, a);
        _mm_stream_si128(t + 1, b);
        _mm_stream_si128(t + 2, c);
        _mm_stream_si128(t + 3, d);
    }
}

static uint64_t store_block(char *to, const char *from, uint64_t bytes)
{
    uint64_t before = -(uintptr_t)to % LINE;
    uint64_t lines = (bytes - before) / LINE;
    uint64_t stored = before + lines * LINE;

    memcpy(to, from, before);
    store_lines(to + before, from + before, lines);
    memcpy(to + stored, from + stored, bytes - stored);
    return lines * LINE;
}

static uint64_t run_nontemporal(const struct rs_copy *c,
                                const struct rs_copy *end)
{
    uint64_t stored = 0;

    for (; c < end; c++) {
        if (c->bytes < NONTEMPORAL_LEAST) {
            run_pairs(c, c + 1);
            continue;
        }
        for (uint64_t i = 0; i < c->count; i++)
            stored += store_block(c->other + (int64_t)i * c->other_stride,
                                  c->user + (int64_t)i * c->stride, c->bytes);
    }
    _mm_sfence(); /* they would pass the store that tells of them */
    return stored;
}
/* Puts blocks one behind the other, whole lines by such stores however short the blocks
 * are. */
struct writer {
    char *to;     /* the line that is being filled */
    size_t begin; /* of which so many bytes at first are not ours */
    size_t end;   /* and these are in `line` so far, them included */
    char *line;
    uint64_t stored;
};

static void write_line(struct writer *w)
{
    if (w->begin == 0) {
        store_lines(w->to, w->line, 1);
        w->stored += LINE;
    } else {
        memcpy(w->to + w->begin, w->line + w->begin, LINE - w->begin);
        w->begin = 0;
    }
    w->to += LINE;
    w->end = 0;
}

static inline void write_block(struct writer *w, const char *from, uint64_t bytes)
{
    uint64_t lines;

    if (w->end > 0) {
        uint64_t part = bytes < LINE - w->end ? bytes : LINE - w->end;

        copy_block(w->line + w->end, from, part);
        w->end += part;
        if (w->end < LINE)
            return;
        write_line(w);
        from += part;
        bytes -= part;
    }
    lines = bytes / LINE;
    store_lines(w->to, from, lines);
    w->to += lines * LINE;
    w->stored += lines * LINE;
    w->end = bytes - lines * LINE;
    copy_block(w->line, from + lines * LINE, w->end);
}

uint64_t rs_copies_pack_nontemporal(const struct rs_copies *list,
                                    const struct rs_chunk *chunk, char *data)
{
    _Alignas(16) char line[LINE];
    size_t before = (uintptr_t)data % LINE;
    struct writer w = {data - before, before, before, line, 0};
    const struct rs_copy *end = list->copies + chunk->end;

    for (const struct rs_copy *c = list->copies + chunk->first; c < end; c++) {
        for (uint64_t i = 0; i < c->count; i++)
            write_block(&w, c->user + (int64_t)i * c->stride, c->bytes);
    }
    if (w.end > w.begin)
        memcpy(w.to + w.begin, line + w.begin, w.end - w.begin);
    _mm_sfence();
    return w.stored;
}
#else
static uint64_t run_nontemporal(const struct rs_copy *c,
                                const struct rs_copy *end)
{
    run_pairs(c, end);
    return 0;
}

uint64_t rs_copies_pack_nontemporal(const struct rs_copies *list,
                                    const struct rs_chunk *chunk, char *data)
{
    rs_copies_pack(list, chunk, data);
    return 0;
}
#endif

static uint64_t run(const struct rs_copies *list, uint32_t first, uint32_t end)
{
    if (list->nontemporal)
        return run_nontemporal(list->copies + first, list->copies + end);
    run_pairs(list->copies + first, list->copies + end);
    return 0;
}

uint64_t rs_copies_run_pair(const struct rs_copies *list)
{
    return run(list, 0, list->num_copies);
}

uint64_t rs_copies_run_chunk(const struct rs_copies *list,
                             const struct rs_chunk *chunk)
{
    return run(list, chunk->first, chunk->end);
}

static int grow(void **array, uint32_t *room, uint32_t used, size_t size)
{
    uint32_t wanted = *room == 0 ? 8 : *room * 2;
    void *larger;

    if (used < *room)
        return 0;
    if (wanted <= *room)
        return rs_fail(RSCHED_ELIMIT,
                       "a message of more than %u pieces", *room);
    larger = realloc(*array, wanted * size);
    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a copy list");
    *array = larger;
    *room = wanted;
    return 0;
}

static int add_chunk(struct rs_copies *list)
{
    int error = grow((void **)&list->chunks, &list->room_chunks,
                     list->num_chunks, sizeof(*list->chunks));

    if (error == 0)
        list->chunks[list->num_chunks++] = (struct rs_chunk){
            .first = list->num_copies, .end = list->num_copies};
    return error;
}

/* Append to the last chunk; contiguous neighbors become one copy if they may. */
static int add_copy(struct rs_copies *list, const struct rs_copy *copy,
                    bool joins)
{
    struct rs_chunk *chunk = &list->chunks[list->num_chunks - 1];
    int error;

    if (joins && chunk->end > chunk->first && copy->count == 1) {
        struct rs_copy *last = &list->copies[list->num_copies - 1];

        if (last->count == 1 && last->user + last->bytes == copy->user &&
            last->offset + last->bytes == copy->offset) {
            last->bytes += copy->bytes;
            chunk->bytes += copy->bytes;
            return 0;
        }
    }
    error = grow((void **)&list->copies, &list->room_copies, list->num_copies,
                 sizeof(*list->copies));
    if (error != 0)
        return error;
    list->copies[list->num_copies++] = *copy;
    chunk->end = list->num_copies;
    chunk->bytes += copy->bytes * copy->count;
    return 0;
}

/* Where in a list of pieces a walk stands. */
struct cursor {
    const struct rsched_piece *piece;
    uint64_t block;  /* within the piece */
    uint64_t within; /* bytes into the block */
};

static char *cursor_address(const struct cursor *c)
{
    return c->piece->address + (int64_t)c->block * c->piece->stride +
           c->within;
}

static void cursor_normalise(struct cursor *c)
{
    if (c->within == c->piece->bytes) {
        c->within = 0;
        c->block++;
    }
    if (c->block == c->piece->count) {
        c->block = 0;
        c->piece++;
    }
}

static struct cursor cursor_start(const struct rsched_message *message)
{
    struct cursor c = {.piece = message->pieces};

    while (c.piece < message->pieces + message->num_pieces &&
           (c.piece->bytes == 0 || c.piece->count == 0))
        c.piece++;
    return c;
}

/* Pieces without bytes are skipped on the way. */
static void cursor_skip_empty(struct cursor *c,
                              const struct rsched_message *message)
{
    const struct rsched_piece *end = message->pieces + message->num_pieces;

    while (c->piece < end && (c->piece->bytes == 0 || c->piece->count == 0))
        c->piece++;
}

/* The next copy of at most `room` bytes. */
static struct rs_copy cursor_take(struct cursor *c, uint64_t room)
{
    const struct rsched_piece *p = c->piece;
    struct rs_copy copy = {.user = cursor_address(c), .count = 1};

    if (c->within == 0 && room >= p->bytes) {
        copy.bytes = p->bytes;
        copy.count = room / p->bytes;
        if (copy.count > p->count - c->block)
            copy.count = p->count - c->block;
        copy.stride = p->stride;
        if (copy.count > 1 && copy.stride == (int64_t)copy.bytes) {
            c->block += copy.count - 1;
            copy.bytes *= copy.count;
            copy.count = 1;
        } else {
            c->block += copy.count - 1;
        }
        c->within = p->bytes;
    } else {
        copy.bytes = p->bytes - c->within;
        if (copy.bytes > room)
            copy.bytes = room;
        c->within += copy.bytes;
    }
    cursor_normalise(c);
    return copy;
}

int rs_copies_compile(struct rs_copies *list,
                      const struct rsched_message *message,
                      uint64_t chunk_bytes)
{
    struct cursor cursor = cursor_start(message);
    const struct rsched_piece *last = NULL;
    uint64_t left = message->bytes;
    int error = 0;

    list->num_copies = list->num_chunks = 0;
    while (left > 0 && error == 0) {
        uint64_t offset = 0;
        uint64_t room = left < chunk_bytes ? left : chunk_bytes;

        error = add_chunk(list);
        while (error == 0 && offset < room) {
            const struct rsched_piece *piece = cursor.piece;
            struct rs_copy copy = cursor_take(&cursor, room - offset);

            copy.offset = offset;
            offset += copy.bytes * copy.count;
            error = add_copy(list, &copy, !list->apart || piece == last);
            last = piece;
            cursor_skip_empty(&cursor, message);
        }
        left -= room;
    }
    if (error != 0) /* a part of a message is none */
        list->num_copies = list->num_chunks = 0;
    return error;
}

/* How many whole blocks of `blocks` the rest of one block has, and `blocks` from
 * where it stands. */
static uint64_t whole_blocks(const struct cursor *blocks, uint64_t rest)
{
    uint64_t left = blocks->piece->count - blocks->block;
    uint64_t fit = rest / blocks->piece->bytes;

    return blocks->within > 0 ? 0 : fit < left ? fit : left;
}

/* The next copy from where one walk stands to where the other does: equal
 * blocks, blocks of one within a block of the other, or a part of one. */
static struct rs_copy take_pair(struct cursor *source, struct cursor *target)
{
    uint64_t source_rest = source->piece->bytes - source->within;
    uint64_t target_rest = target->piece->bytes - target->within;
    uint64_t sources = whole_blocks(source, target_rest);
    uint64_t targets = whole_blocks(target, source_rest);
    struct rs_copy copy = {.user = cursor_address(source),
                           .other = cursor_address(target),
                           .count = 1};

    if (source_rest == target_rest && sources > 0 && targets > 0) {
        uint64_t blocks = source->piece->count - source->block;

        if (blocks > target->piece->count - target->block)
            blocks = target->piece->count - target->block;
        copy.bytes = source_rest;
        copy.count = blocks;
        copy.stride = source->piece->stride;
        copy.other_stride = target->piece->stride;
        source->block += blocks - 1;
        target->block += blocks - 1;
        source->within = target->within = source_rest;
    } else if (targets > 1) {
        copy.bytes = target_rest;
        copy.count = targets;
        copy.stride = (int64_t)target_rest;
        copy.other_stride = target->piece->stride;
        source->within += targets * target_rest;
        target->block += targets - 1;
        target->within = target_rest;
    } else if (sources > 1) {
        copy.bytes = source_rest;
        copy.count = sources;
        copy.stride = source->piece->stride;
        copy.other_stride = (int64_t)source_rest;
        source->block += sources - 1;
        source->within = source_rest;
        target->within += sources * source_rest;
    } else {
        copy.bytes = source_rest < target_rest ? source_rest : target_rest;
        source->within += copy.bytes;
        target->within += copy.bytes;
    }
    cursor_normalise(source);
    cursor_normalise(target);
    return copy;
}

int rs_copies_match(const struct rsched_message *from,
                    const struct rsched_message *to, rs_match_fn *match,
                    void *arg)
{
    struct cursor source = cursor_start(from), target = cursor_start(to);
    uint64_t left = from->bytes;
    int error = 0;

    while (left > 0 && error == 0) {
        size_t piece = (size_t)(source.piece - from->pieces);
        size_t other = (size_t)(target.piece - to->pieces);
        struct rs_copy copy = take_pair(&source, &target);

        left -= copy.bytes * copy.count;
        cursor_skip_empty(&source, from);
        cursor_skip_empty(&target, to);
        error = match(arg, piece, other, &copy);
    }
    return error;
}

/* Append to the last chunk; what touches on both sides becomes one copy if it
 * may. */
static int add_pair(struct rs_copies *list, struct rs_copy c, bool joins)
{
    struct rs_chunk *chunk = &list->chunks[list->num_chunks - 1];
    struct rs_copy *last = NULL;
    int error;

    chunk->bytes += c.bytes * c.count;
    if (c.count > 1 && c.stride == (int64_t)c.bytes &&
        c.other_stride == (int64_t)c.bytes) {
        c.bytes *= c.count;
        c.count = 1;
    }
    if (joins && chunk->end > chunk->first)
        last = &list->copies[list->num_copies - 1];
    if (last != NULL && c.count == 1 && last->count == 1 &&
        last->user + last->bytes == c.user &&
        last->other + last->bytes == c.other) {
        last->bytes += c.bytes;
        return 0;
    }
    error = grow((void **)&list->copies, &list->room_copies, list->num_copies,
                 sizeof(*list->copies));
    if (error != 0)
        return error;
    list->copies[list->num_copies++] = c;
    chunk->end = list->num_copies;
    return 0;
}

int rs_copies_append_pair(struct rs_copies *list, const struct rs_copy *copy,
                          bool joins, uint64_t chunk_bytes)
{
    struct rs_copy c = *copy;
    uint64_t within = 0; /* of the first block that is left */
    int error = 0;

    while (c.count > 0 && error == 0) {
        struct rs_chunk *chunk = NULL;
        struct rs_copy part = c;
        uint64_t room;

        if (list->num_chunks > 0)
            chunk = &list->chunks[list->num_chunks - 1];
        if (chunk == NULL || chunk->bytes == chunk_bytes) {
            error = add_chunk(list);
            continue;
        }
        room = chunk_bytes - chunk->bytes;
        if (within == 0 && room >= c.bytes) {
            part.count = room / c.bytes < c.count ? room / c.bytes : c.count;
        } else {
            part.count = 1;
            part.user += within;
            part.other += within;
            part.bytes = c.bytes - within < room ? c.bytes - within : room;
            within += part.bytes;
        }
        error = add_pair(list, part, joins);
        joins = true; /* parts of one copy do */
        if (within == 0 || within == c.bytes) {
            within = 0;
            c.user += (int64_t)part.count * c.stride;
            c.other += (int64_t)part.count * c.other_stride;
            c.count -= part.count;
        }
    }
    return error;
}

/* A list, and the pieces that the last copy was of. */
struct append {
    struct rs_copies *list;
    size_t piece, other;
};

static int append_match(void *arg, size_t piece, size_t other,
                        const struct rs_copy *copy)
{
    struct append *a = arg;
    bool joins =
        !a->list->apart || (piece == a->piece && other == a->other);

    a->piece = piece;
    a->other = other;
    return rs_copies_append_pair(a->list, copy, joins, UINT64_MAX);
}

int rs_copies_compile_pair(struct rs_copies *list,
                           const struct rsched_message *from,
                           const struct rsched_message *to)
{
    struct append append = {.list = list};
    int error;

    list->num_copies = list->num_chunks = 0;
    error = rs_copies_match(from, to, append_match, &append);
    if (error != 0)
        list->num_copies = list->num_chunks = 0;
    return error;
}

void rs_copies_fini(struct rs_copies *list)
{
    free(list->copies);
    free(list->chunks);
    *list = (struct rs_copies){0};
}
