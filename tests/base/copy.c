/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies from layout to layout, with stores of both kinds, and between layouts
 * whose blocks differ. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "engines/common/copy.h"
#include "engines/common/long_copy.h"
#include "librsched/base/error.h"

enum { ROOM = 1 << 16, LAYOUTS = 400, PIECES = 4 };

/* Blocks shorter and longer than those that non-temporal stores are for, at any
 * address, a few bytes apart. @return their bytes, or 0 if they need more room */
static uint64_t draw(unsigned *seed, char *memory, struct rsched_piece *pieces)
{
    uint64_t at = (uint64_t)rand_r(seed) % 200, sum = 0;

    for (int i = 0; i < PIECES; i++) {
        uint64_t bytes = 1 + (uint64_t)rand_r(seed) % (i % 2 == 0 ? 300 : 6000);
        uint64_t count = 1 + (uint64_t)rand_r(seed) % 3;
        uint64_t stride = bytes + (uint64_t)rand_r(seed) % 70;

        pieces[i] = (struct rsched_piece){.address = memory + at,
                                          .bytes = bytes,
                                          .count = count,
                                          .stride = (int64_t)stride};
        at += count * stride;
        sum += count * bytes;
    }
    return at <= ROOM ? sum : 0;
}

/* The message's bytes in their order. */
static void gather(const struct rsched_piece *pieces, int count, char *to)
{
    for (int i = 0; i < count; i++) {
        for (uint64_t k = 0; k < pieces[i].count; k++) {
            memcpy(to, pieces[i].address + (int64_t)k * pieces[i].stride,
                   pieces[i].bytes);
            to += pieces[i].bytes;
        }
    }
}

static uint64_t long_bytes(const struct rs_copies *list)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < list->num_copies; i++) {
        if (list->copies[i].bytes >= 2048)
            sum += (list->copies[i].bytes - 126) * list->copies[i].count;
    }
    return sum;
}

/* From pieces into one block, and back; nothing beside them is written. */
static void there_and_back(bool nontemporal)
{
    static char from[ROOM], block[ROOM], expected[ROOM], back[ROOM], whole[ROOM];
    unsigned seed = 7;
    uint64_t stored = 0, least = 0;

    for (int i = 0; i < LAYOUTS; i++) {
        struct rs_copies list = {.nontemporal = nontemporal};
        struct rsched_piece pieces[PIECES], others[PIECES], one;
        unsigned again = seed;
        uint64_t bytes = draw(&seed, from, pieces);
        struct rsched_message scattered = {pieces, PIECES, bytes, 0, 1, 0, NULL};
        struct rsched_message contiguous = {&one, 1, bytes, 0, 1, 0, NULL};

        if (bytes == 0)
            continue;
        for (int k = 0; k < ROOM; k++)
            from[k] = (char)rand_r(&seed);
        memset(block, 0, sizeof(block));
        one = (struct rsched_piece){.address = block + i % 64,
                                    .bytes = bytes,
                                    .count = 1};
        cr_assert_eq(rs_copies_compile_pair(&list, &scattered, &contiguous), 0);
        stored += rs_copies_run_pair(&list);
        least += long_bytes(&list);
        gather(pieces, PIECES, expected);
        cr_assert_eq(memcmp(block + i % 64, expected, bytes), 0);
        cr_assert_eq(block[i % 64 + bytes], 0);

        draw(&again, back, others);
        memset(back, 0, sizeof(back));
        memset(whole, 0, sizeof(whole));
        scattered.pieces = others;
        cr_assert_eq(rs_copies_compile_pair(&list, &contiguous, &scattered), 0);
        stored += rs_copies_run_chunk(&list, &list.chunks[0]);
        least += long_bytes(&list);
        for (int k = 0; k < PIECES; k++) {
            for (uint64_t b = 0; b < others[k].count; b++) {
                ptrdiff_t at = others[k].address - back +
                               (int64_t)b * others[k].stride;

                memcpy(whole + at, from + at, others[k].bytes);
            }
        }
        cr_assert_eq(memcmp(back, whole, sizeof(back)), 0);
        rs_copies_fini(&list);
    }
    cr_assert_gt(least, 0);
#ifdef __x86_64__
    if (nontemporal)
        cr_assert_geq(stored, least);
#endif
    if (!nontemporal)
        cr_assert_eq(stored, 0);
}

Test(copy, through_the_caches)
{
    there_and_back(false);
}

Test(copy, past_the_caches)
{
    there_and_back(true);
}

/* Into one block, in chunks, by stores of either kind; nothing beside it is written. */
Test(copy, packs_in_chunks)
{
    static char from[ROOM], block[ROOM], expected[ROOM];
    unsigned seed = 11;
    uint64_t stored = 0, least = 0;

    for (int i = 0; i < LAYOUTS; i++) {
        struct rs_copies list = {.num_copies = 0};
        struct rsched_piece pieces[PIECES];
        uint64_t bytes = draw(&seed, from, pieces), at = i % 130;
        uint64_t room = 1 + (uint64_t)rand_r(&seed) % 20000;
        struct rsched_message message = {pieces, PIECES, bytes, 0, 1, 0, NULL};

        if (bytes == 0)
            continue;
        for (int k = 0; k < ROOM; k++)
            from[k] = (char)rand_r(&seed);
        gather(pieces, PIECES, expected);
        cr_assert_eq(rs_copies_compile(&list, &message, room), 0);
        for (int nontemporal = 0; nontemporal < 2; nontemporal++) {
            uint64_t sum = 0;

            memset(block, 0x55, sizeof(block));
            for (uint32_t k = 0; k < list.num_chunks; k++) {
                const struct rs_chunk *chunk = &list.chunks[k];

                if (!nontemporal)
                    rs_copies_pack(&list, chunk, block + at + sum);
                else
                    stored += rs_copies_pack_nontemporal(&list, chunk,
                                                         block + at + sum);
                /* All lines but those in which a chunk begins or ends. */
                if (nontemporal && chunk->bytes > 126)
                    least += chunk->bytes - 126;
                sum += chunk->bytes;
            }
            cr_assert_eq(sum, bytes);
            cr_assert_eq(memcmp(block + at, expected, bytes), 0);
            for (uint64_t k = 0; k < ROOM; k++)
                cr_assert(block[k] == 0x55 || (k >= at && k < at + bytes));
        }
        rs_copies_fini(&list);
    }
    cr_assert_gt(least, 0);
#ifdef __x86_64__
    cr_assert_geq(stored, least);
#endif
}

/* Pieces of `bytes` together, of blocks of all lengths, some backwards, some
 * without a gap, in their order or not. @return how many */
static size_t draw_pieces(unsigned *seed, char *memory, uint64_t bytes,
                          struct rsched_piece *pieces, size_t room)
{
    static const uint64_t lengths[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 100, 4000};
    size_t number = 0;
    uint64_t at = 0;

    while (bytes > 0) {
        uint64_t length = lengths[(unsigned)rand_r(seed) %
                                  (sizeof(lengths) / sizeof(lengths[0]))];
        uint64_t count = 1 + (uint64_t)rand_r(seed) % 40;
        uint64_t stride = length + (uint64_t)rand_r(seed) % 3 * 5;
        bool backwards = rand_r(seed) % 4 == 0;

        if (length * count > bytes || number + 1 == room) {
            length = bytes;
            count = 1;
        }
        pieces[number++] = (struct rsched_piece){
            .address = memory + at + (backwards ? (count - 1) * stride : 0),
            .bytes = length,
            .count = count,
            .stride = backwards ? -(int64_t)stride : (int64_t)stride};
        at += count * stride + 3;
        bytes -= length * count;
    }
    cr_assert_leq(at, ROOM);
    return number;
}

static void scatter(const struct rsched_piece *pieces, size_t number,
                    const char *from, char *to, const char *base)
{
    for (size_t i = 0; i < number; i++) {
        for (uint64_t k = 0; k < pieces[i].count; k++) {
            memcpy(to + (pieces[i].address - base) +
                       (int64_t)k * pieces[i].stride,
                   from, pieces[i].bytes);
            from += pieces[i].bytes;
        }
    }
}

Test(copy, between_layouts)
{
    enum { MOST = 64, BYTES = 7000 };
    static char from[ROOM], to[ROOM], order[ROOM], expected[ROOM];
    unsigned seed = 3;

    for (int i = 0; i < LAYOUTS; i++) {
        struct rsched_piece a[MOST], b[MOST];
        uint64_t bytes = 1 + (uint64_t)rand_r(&seed) % BYTES;
        size_t num_a = draw_pieces(&seed, from, bytes, a, MOST);
        size_t num_b = draw_pieces(&seed, to, bytes, b, MOST);
        struct rsched_message source = {a, num_a, bytes, 0, 1, 0, NULL};
        struct rsched_message target = {b, num_b, bytes, 0, 1, 0, NULL};
        struct rs_copies list = {.num_copies = 0};

        for (int k = 0; k < ROOM; k++)
            from[k] = (char)rand_r(&seed);
        memset(to, 0, sizeof(to));
        memset(expected, 0, sizeof(expected));
        gather(a, (int)num_a, order);
        scatter(b, num_b, order, expected, to);
        cr_assert_eq(rs_copies_compile_pair(&list, &source, &target), 0);
        rs_copies_run_pair(&list);
        cr_assert_eq(memcmp(to, expected, sizeof(to)), 0);
        rs_copies_fini(&list);
    }
}

/* Blocks of one side in one block of the other are one copy. */
Test(copy, one_for_many_blocks)
{
    static char near[ROOM], far[ROOM];
    struct rsched_piece one = {near, 8000, 1, 0};
    struct rsched_piece many = {far, 8, 1000, 24};
    struct rsched_message block = {&one, 1, 8000, 0, 1, 0, NULL};
    struct rsched_message blocks = {&many, 1, 8000, 0, 1, 0, NULL};
    struct rs_copies list = {.num_copies = 0};

    cr_assert_eq(rs_copies_compile_pair(&list, &block, &blocks), 0);
    cr_assert_eq(list.num_copies, 1);
    cr_assert_eq(rs_copies_compile_pair(&list, &blocks, &block), 0);
    cr_assert_eq(list.num_copies, 1);
    rs_copies_fini(&list);
}

/* ---- no memory ---- */

static int reallocs_left = -1; /* or any number */

void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes)
{
    if (reallocs_left == 0)
        return NULL;
    reallocs_left -= reallocs_left > 0;
    return __real_realloc(memory, bytes);
}

Test(base_copy, what_is_not_compiled_is_empty)
{
    char from[256], to[256] = {0};
    struct rsched_piece pieces[] = {{from, 100, 1, 0}, {from + 120, 100, 1, 0}};
    struct rsched_message message = {.pieces = pieces, .num_pieces = 2, .bytes = 200};
    struct rs_copies copies = {0};
    int failed = 0;

    memset(from, 1, sizeof(from));
    for (int left = 0; copies.num_chunks == 0; left++) {
        rs_copies_fini(&copies);
        reallocs_left = left;
        failed += rs_copies_compile(&copies, &message, 200) != 0;
        reallocs_left = -1;
    }
    cr_assert_geq(failed, 2, "each list needs memory");
    rs_copies_pack(&copies, copies.chunks, to);
    for (int i = 0; i < 200; i++)
        cr_assert_eq(to[i], 1, "byte %d", i);
    rs_copies_fini(&copies);
}

/* Whether `rep movsb` is fast for all lengths, and whether the processor has the moves of
 * loops that it is known to gain by. */
static bool has_string(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & 1 << 4) != 0;
#else
    return false;
#endif
}

static bool has_moves(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") ? __builtin_cpu_supports("avx2")
                                   : __builtin_cpu_supports("avx512f");
#else
    return false;
#endif
}

/* However the destination lies in its page: string instructions are slow where it does
 * not lie as the source does, and none copies there. */
Test(base_copy, long_ones_at_all_distances)
{
    enum { PAGE = 4096, MOST = 9000 };
    static const uint64_t sizes[] = {RS_COPY_LONG, 1600, 4096, 8191, MOST};
    static char from[MOST], to[MOST + 2 * PAGE];
    enum rs_copy_means alike = has_string() && !RS_COPY_SANITIZED ? RS_COPY_STRING : RS_COPY_MEMCPY;
    enum rs_copy_means others = has_string() && has_moves() ? RS_COPY_LOOP : RS_COPY_MEMCPY;

    for (int i = 0; i < MOST; i++)
        from[i] = (char)(i * 7 + i / 256);
    for (uintptr_t distance = 0; distance < PAGE; distance += distance < 80 ? 1 : 251) {
        char *at = to + ((uintptr_t)from + distance - (uintptr_t)to) % PAGE;

        cr_assert_eq(rs_copy_means(at, from), distance % 64 == 0 ? alike : others, "%zu bytes",
                     (size_t)distance);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            memset(to, -1, sizeof(to));
            rs_copy_long(at, from, sizes[i]);
            cr_assert_arr_eq(at, from, sizes[i]);
            cr_assert_eq(at[sizes[i]], -1);
            cr_assert(at == to || at[-1] == -1);
            if (sizes[i] < RS_COPY_AHEAD || rs_copy_prefetch() != RS_PREFETCH_AHEAD)
                continue;
            memset(to, -1, sizeof(to));
            rs_copy_ahead(at, from, sizes[i], to, from);
            cr_assert_arr_eq(at, from, sizes[i]);
            cr_assert_eq(at[sizes[i]], -1);
            cr_assert(at == to || at[-1] == -1);
        }
    }
}

/* `bytes` that end with a page behind which nobody may read or write. */
static char *before_nothing(uint64_t bytes)
{
    enum { PAGE = 4096 };
    uint64_t room = (bytes + PAGE - 1) / PAGE * PAGE;
    char *memory = mmap(NULL, room + PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    cr_assert_neq(memory, MAP_FAILED);
    cr_assert_eq(mprotect(memory + room, PAGE, PROT_NONE), 0);
    return memory + room - bytes;
}

/* All lengths around what is asked for in advance, and around rounds of whole lines, up to
 * the last byte that is there, with another block behind or none. */
static void all_lengths(void)
{
    enum { LINE = 64, MOST = 2 * RS_COPY_AHEAD + 2 * LINE };
    char *from = before_nothing(MOST), *to = before_nothing(MOST);

    for (int i = 0; i < MOST; i++)
        from[i] = (char)(i * 7 + i / 256);
    for (uint64_t bytes = RS_COPY_AHEAD; bytes <= MOST; bytes++) {
        uint64_t gap = bytes % 17 < MOST - bytes ? bytes % 17 : 0; /* the ends differ */
        char *at = to + MOST - bytes, *source = from + MOST - bytes - gap;
        bool more = bytes % 2 == 0;

        memset(to, -1, MOST);
        rs_copy_long(at, source, bytes);
        cr_assert_eq(memcmp(at, source, bytes), 0, "%d bytes", (int)bytes);
        cr_assert(at == to || at[-1] == -1, "%d bytes", (int)bytes);
        if (rs_copy_prefetch() != RS_PREFETCH_AHEAD)
            continue;
        memset(to, -1, MOST);
        rs_copy_ahead(at, source, bytes, more ? from : NULL, more ? from : NULL);
        cr_assert_eq(memcmp(at, source, bytes), 0, "%d bytes", (int)bytes);
        cr_assert(at == to || at[-1] == -1, "%d bytes", (int)bytes);
        memset(to, -1, MOST);
        rs_copy_ahead(to, from, bytes, NULL, NULL);
        cr_assert_eq(memcmp(to, from, bytes), 0, "%d bytes", (int)bytes);
        cr_assert(bytes == MOST || to[bytes] == -1, "%d bytes", (int)bytes);
    }
}

/* By the loops of this processor, and by those of others whose moves it has. */
Test(base_copy, long_ones_of_all_lengths)
{
    static const unsigned moves[] = {32, 64};

    all_lengths();
    for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
        if (rs_copy_use(moves[i]))
            all_lengths();
        else
            printf("no loops of moves of %u bytes here\n", moves[i]);
    }
}

static uint64_t below(uint64_t most)
{
    static uint64_t state = 1;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % most;
}

/* Pieces of blocks of so many bytes or more, as many as there is room for, with gaps or none.
 * @return how many there are; their bytes are `bytes` in all */
static size_t draw_blocks(char *memory, uint64_t room, uint64_t bytes, uint64_t least,
                          struct rsched_piece *pieces)
{
    size_t number = 0;
    char *end = memory + room;

    while (bytes > 0) {
        uint64_t block = least + below(7000), count = 1 + below(3), gap = below(200);

        if (below(3) == 0)
            gap = 0;
        if (block * count + least > bytes) {
            block = bytes;
            count = 1;
        }
        /* From behind, up to the last byte. */
        end -= (block + gap) * count;
        cr_assert(end >= memory);
        pieces[number++] = (struct rsched_piece){end + gap, block, count,
                                                 (int64_t)(block + gap)};
        bytes -= block * count;
    }
    return number;
}

/* Lists of all kinds, each byte in its place, and none beside. */
static void lists_in_turn(bool nontemporal)
{
    enum { MOST = 1 << 18, SPACE = 2 * MOST, LISTS = 300, MOST_PIECES = 4096 };
    char *from = before_nothing(SPACE), *to = before_nothing(SPACE), *plain = malloc(SPACE);
    static struct rsched_piece sent[MOST_PIECES], got[MOST_PIECES];
    struct rs_copies list = {0};
    struct rs_parts parts;
    int long_ones = 0;

    for (int i = 0; i < SPACE; i++)
        from[i] = (char)below(256);
    for (int i = 0; i < LISTS; i++) {
        /* Blocks that are shorter than a line have none in turn. */
        uint64_t least = i % 5 == 0 ? 1 + below(200) : RS_COPY_AHEAD;
        uint64_t total = RS_COPY_AHEAD + below(i % 2 == 0 ? MOST - RS_COPY_AHEAD : 30000), bytes;
        struct rsched_message source = {
            .pieces = sent, .num_pieces = draw_blocks(from, SPACE, total, least, sent), .bytes = total};
        struct rsched_message target = {
            .pieces = got, .num_pieces = draw_blocks(to, SPACE, total, least, got), .bytes = total};

        if (i % 3 == 0) { /* of blocks that are as the receiver's are */
            source.num_pieces = 1;
            sent[0] = (struct rsched_piece){from + SPACE - total, total, 1, 0};
        }
        cr_assert_eq(rs_copies_compile_pair(&list, &source, &target), 0);
        list.nontemporal = false;
        memset(to, -1, SPACE);
        rs_copies_run_pair(&list);
        memcpy(plain, to, SPACE);
        memset(to, -1, SPACE);
        list.nontemporal = nontemporal;
        rs_copies_divide(&list, total, &parts);
        for (int part = 0; part < RS_COPY_PARTS; part++)
            cr_assert_leq(parts.begin[part], parts.begin[part + 1]);
        cr_assert(parts.begin[0] == 0 && parts.begin[RS_COPY_PARTS] == total);
        bytes = rs_copies_run_in_turn(&list, &parts);
        cr_assert_eq(memcmp(to, plain, SPACE), 0, "list %d of %d bytes", i, (int)total);
        cr_assert(bytes <= total && bytes % RS_COPY_LINE == 0);
        /* Most of it is copied in turn. */
        if (total > MOST / 2 && nontemporal && RS_HAS_NONTEMPORAL) {
            cr_assert_gt(bytes, total - total / 8, "%d of %d bytes", (int)bytes, (int)total);
            long_ones++;
        }
    }
    cr_assert(long_ones > 0 || !nontemporal || !RS_HAS_NONTEMPORAL);
    free(plain);
    rs_copies_fini(&list);
}

Test(base_copy, lists_in_turn)
{
    if (!rs_copy_use(32))
        printf("no moves of 32 bytes here\n");
    if (rs_copy_prefetch() != RS_PREFETCH_IN_TURN)
        return;
    lists_in_turn(false);
    lists_in_turn(true);
}

/* Rows, and blocks by themselves, in their places, whether they are asked for in advance or
 * not; the least length counts for each. */
Test(base_copy, lists_ahead)
{
    enum { ROW = RS_COPY_AHEAD + 100, ROWS = 3, BYTES = ROW * ROWS + 5000, STRIDE = ROW + 40 };
    static char from[BYTES], to[STRIDE * ROWS + 5000], plain[sizeof(to)];
    struct rsched_piece sent = {from, BYTES, 1, 0};
    struct rsched_piece got[] = {{to, ROW, ROWS, STRIDE}, {to + STRIDE * ROWS, 5000, 1, 0}};
    struct rsched_message source = {.pieces = &sent, .num_pieces = 1, .bytes = BYTES};
    struct rsched_message target = {.pieces = got, .num_pieces = 2, .bytes = BYTES};
    struct rs_copies list = {0};
    uint64_t bytes;

    for (int i = 0; i < BYTES; i++)
        from[i] = (char)(i * 5 + i / 200);
    cr_assert_eq(rs_copies_compile_pair(&list, &source, &target), 0);
    cr_assert(rs_copies_are_long(&list, &bytes));
    cr_assert_eq(bytes, BYTES);
    for (int ahead = 0; ahead < (rs_copy_use(64) ? 2 : 1); ahead++) {
        memset(to, -1, sizeof(to));
        if (ahead == 0)
            cr_assert_eq(rs_copies_run_pair(&list), 0);
        else
            rs_copies_run_ahead(&list);
        if (ahead == 0)
            memcpy(plain, to, sizeof(to));
        else
            cr_assert_arr_eq(to, plain, sizeof(to));
    }
    for (int row = 0; row < ROWS; row++) {
        cr_assert_arr_eq(to + row * STRIDE, from + row * ROW, ROW);
        cr_assert_eq(to[row * STRIDE + ROW], -1);
    }
    cr_assert_arr_eq(to + ROWS * STRIDE, from + ROWS * ROW, 5000);
    sent.bytes -= 5000 - RS_COPY_AHEAD + 1;
    source.bytes = target.bytes = sent.bytes;
    got[1].bytes = RS_COPY_AHEAD - 1;
    cr_assert_eq(rs_copies_compile_pair(&list, &source, &target), 0);
    cr_assert_not(rs_copies_are_long(&list, &bytes));
    rs_copies_fini(&list);
}
