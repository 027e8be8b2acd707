/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/long_copy.h"

#include <assert.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

enum { LINE = RS_COPY_LINE };

typedef void copy_fn(char *to, const char *from, uint64_t bytes);

static copy_fn *copy_lines; /* for what does not lie alike in its lines, or NULL */
static enum rs_copy_prefetch prefetch;
static bool has_string, gains; /* of struct rs_processor */

/* The loops over a round's moves are written out at all levels of optimization: else what is
 * moved goes through the stack. */
#define WRITTEN_OUT _Pragma("GCC unroll 8")

/* In each of these functions ROUND is what a round copies, which writes whole lines: the
 * destination begins with one. */
#define COPY_ROUND(to, from, vector, load, store)                                        \
    do {                                                                                 \
        vector part[ROUND / sizeof(vector)];                                             \
                                                                                         \
        WRITTEN_OUT for (size_t i = 0; i < ROUND / sizeof(vector); i++)                  \
            part[i] = load((const vector *)(const void *)(from) + i);                    \
        WRITTEN_OUT for (size_t i = 0; i < ROUND / sizeof(vector); i++)                  \
            store((vector *)(void *)(to) + i, part[i]);                                  \
    } while (0)

#define COPY_ROUNDS(to, from, bytes, vector, load, store, ask)                           \
    for (; (bytes) >= ROUND; (to) += ROUND, (from) += ROUND, (bytes) -= ROUND) {         \
        ask;                                                                             \
        COPY_ROUND(to, from, vector, load, store);                                       \
    }

#define ASK(to, from)                                                                    \
    do {                                                                                 \
        _mm_prefetch(from, _MM_HINT_T1);                                                 \
        __builtin_prefetch(to, 1);                                                       \
    } while (0)

/* The destination's first line, and what is before: @return how many bytes these are. */
static uint64_t copy_head(char *to, const char *from)
{
    memcpy(to, from, LINE);
    return LINE - (uintptr_t)to % LINE;
}

/* The block before has asked for the lines of the first DISTANCE bytes, and this one, whose
 * rounds begin behind a head of a line at most, asks for what is behind them. */
enum { DISTANCE = RS_COPY_AHEAD - LINE };

#define DEFINE_LINES(name, isa, size, vector, load, store)                               \
    static void __attribute__((target(isa)))                                             \
    copy_lines_##name(char *to, const char *from, uint64_t bytes)                        \
    {                                                                                    \
        enum { ROUND = (size) };                                                         \
        uint64_t head = copy_head(to, from);                                             \
                                                                                         \
        to += head;                                                                      \
        from += head;                                                                    \
        bytes -= head;                                                                   \
        COPY_ROUNDS(to, from, bytes, vector, load, store, )                              \
        memcpy(to, from, bytes);                                                         \
    }

/* One line at a time where one store writes it: two loads before two stores take a tenth
 * longer on a Xeon (Sapphire Rapids, 16 KiB). */
DEFINE_LINES(32, "avx2", 2 * LINE, __m256i, _mm256_loadu_si256, _mm256_store_si256)
DEFINE_LINES(64, "avx512f", LINE, __m512i, _mm512_loadu_si512, _mm512_store_si512)

static void __attribute__((target("avx512f,prfchw")))
copy_ahead_64(char *to, const char *from, uint64_t bytes, const char *next_to,
              const char *next_from)
{
    enum { ROUND = LINE };
    uint64_t head = copy_head(to, from), most = bytes - DISTANCE - head;
    uint64_t rest = bytes - head - most / ROUND * ROUND;

    _mm_prefetch(from + DISTANCE, _MM_HINT_T1); /* or the head's line has none */
    __builtin_prefetch(to + DISTANCE, 1);
    to += head;
    from += head;
    COPY_ROUNDS(to, from, most, __m512i, _mm512_loadu_si512, _mm512_store_si512,
                ASK(to + DISTANCE, from + DISTANCE))
    if (next_to == NULL) {
        COPY_ROUNDS(to, from, rest, __m512i, _mm512_loadu_si512, _mm512_store_si512, )
    } else {
        COPY_ROUNDS(to, from, rest, __m512i, _mm512_loadu_si512, _mm512_store_si512,
                    ASK(next_to, next_from); next_to += ROUND; next_from += ROUND)
    }
    memcpy(to, from, rest);
}

/* How far in advance the source's lines are asked for where the destination's go past the
 * caches: gains a twentieth between far cores (Zen 3). */
enum { TURNS_AHEAD = 512 };

/* A line of each part in turn. */
#define COPY_TURNS(store, ask)                                                           \
    enum { ROUND = LINE };                                                               \
    char *const to_0 = to[0], *const to_1 = to[1], *const to_2 = to[2];                  \
    const char *const from_0 = from[0], *const from_1 = from[1], *const from_2 = from[2]; \
                                                                                         \
    for (uint64_t at = 0; at < lines * LINE; at += LINE) {                               \
        ask(from_0 + at);                                                                \
        COPY_ROUND(to_0 + at, from_0 + at, __m256i, _mm256_loadu_si256, store);          \
        ask(from_1 + at);                                                                \
        COPY_ROUND(to_1 + at, from_1 + at, __m256i, _mm256_loadu_si256, store);          \
        ask(from_2 + at);                                                                \
        COPY_ROUND(to_2 + at, from_2 + at, __m256i, _mm256_loadu_si256, store);          \
    }

#define ASK_NOTHING(from)
#define ASK_IN_TURN(from) _mm_prefetch((from) + TURNS_AHEAD, _MM_HINT_T0)

static_assert(RS_COPY_PARTS == 3, "COPY_TURNS has so many");

static void __attribute__((target("avx2")))
copy_turns(char *const *to, const char *const *from, uint64_t lines)
{
    COPY_TURNS(_mm256_store_si256, ASK_NOTHING)
}

static void __attribute__((target("avx2")))
copy_turns_nontemporal(char *const *to, const char *const *from, uint64_t lines)
{
    COPY_TURNS(_mm256_stream_si256, ASK_IN_TURN)
}

void rs_copy_in_turn(char *const to[RS_COPY_PARTS], const char *const from[RS_COPY_PARTS],
                     uint64_t lines, bool nontemporal)
{
    if (nontemporal)
        copy_turns_nontemporal(to, from, lines);
    else
        copy_turns(to, from, lines);
}

bool rs_copy_use(unsigned move_bytes)
{
    __builtin_cpu_init();
    if (move_bytes == 32 && __builtin_cpu_supports("avx2")) {
        copy_lines = copy_lines_32;
        prefetch = RS_PREFETCH_IN_TURN;
        return true;
    }
    if (move_bytes == 64 && __builtin_cpu_supports("avx512f")) {
        copy_lines = copy_lines_64;
        prefetch = RS_PREFETCH_AHEAD;
        return true;
    }
    return false;
}

static void __attribute__((constructor)) detect(void)
{
    struct rs_processor p;

    rs_processor_find(&p);
    has_string = p.has_string;
    gains = p.gains;
    if (p.prefetch != RS_PREFETCH_NONE)
        rs_copy_use(p.prefetch == RS_PREFETCH_IN_TURN ? 32 : 64);
    if (!has_string)
        copy_lines = NULL;
}

enum rs_copy_means rs_copy_means(const char *to, const char *from)
{
    if (has_string && ((uintptr_t)to - (uintptr_t)from) % LINE == 0)
        return RS_COPY_SANITIZED ? RS_COPY_MEMCPY : RS_COPY_STRING;
    return copy_lines != NULL ? RS_COPY_LOOP : RS_COPY_MEMCPY;
}

void rs_copy_long(char *to, const char *from, uint64_t bytes)
{
    switch (rs_copy_means(to, from)) {
    case RS_COPY_STRING:
        __asm__ volatile("rep movsb"
                         : "+D"(to), "+S"(from), "+c"(bytes)
                         :
                         : "memory");
        break;
    case RS_COPY_LOOP:
        copy_lines(to, from, bytes);
        break;
    case RS_COPY_MEMCPY:
        memcpy(to, from, bytes);
        break;
    }
}

void rs_copy_ahead(char *to, const char *from, uint64_t bytes, const char *next_to,
                   const char *next_from)
{
    copy_ahead_64(to, from, bytes, next_to, next_from);
}

enum rs_copy_prefetch rs_copy_prefetch(void)
{
    return prefetch;
}

bool rs_copy_prefetch_gains(void)
{
    return gains;
}
#else
bool rs_copy_use(unsigned move_bytes)
{
    (void)move_bytes;
    return false;
}

enum rs_copy_means rs_copy_means(const char *to, const char *from)
{
    (void)to;
    (void)from;
    return RS_COPY_MEMCPY;
}

void rs_copy_long(char *to, const char *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
}

void rs_copy_ahead(char *to, const char *from, uint64_t bytes, const char *next_to,
                   const char *next_from)
{
    (void)next_to;
    (void)next_from;
    memcpy(to, from, bytes);
}

void rs_copy_in_turn(char *const to[RS_COPY_PARTS], const char *const from[RS_COPY_PARTS],
                     uint64_t lines, bool nontemporal)
{
    (void)nontemporal;
    for (int i = 0; i < RS_COPY_PARTS; i++)
        memcpy(to[i], from[i], lines * RS_COPY_LINE);
}

enum rs_copy_prefetch rs_copy_prefetch(void)
{
    return RS_PREFETCH_NONE;
}

bool rs_copy_prefetch_gains(void)
{
    return false;
}
#endif
