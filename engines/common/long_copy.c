/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/long_copy.h"

#include <stdbool.h>
#include <string.h>

/* Sanitizers cannot see what the instruction touches. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED                                                            \
    (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED 0
#endif

#if defined(__x86_64__) && !SANITIZED
#include <cpuid.h>
#include <immintrin.h>

enum { LINE = 64 };

typedef void copy_fn(char *to, const char *from, uint64_t bytes);
typedef void ahead_fn(char *to, const char *from, uint64_t bytes, const char *next_to,
                      const char *next_from);

/* For what does not lie alike in its lines, and for what is asked for in advance; NULL:
 * there is none. */
static copy_fn *copy_lines;
static ahead_fn *copy_ahead;
static bool has_string; /* `rep movsb` is fast for all lengths */
static bool gains_ahead;

/* In each of these functions ROUND is what a round copies, which writes whole lines: the
 * destination begins with one. */
#define COPY_ROUNDS(to, from, bytes, vector, load, store, ask)                           \
    for (; (bytes) >= ROUND; (to) += ROUND, (from) += ROUND, (bytes) -= ROUND) {         \
        vector part[ROUND / sizeof(vector)];                                             \
                                                                                         \
        ask;                                                                             \
        for (size_t i = 0; i < ROUND / sizeof(vector); i++)                              \
            part[i] = load((const vector *)(const void *)(from) + i);                    \
        for (size_t i = 0; i < ROUND / sizeof(vector); i++)                              \
            store((vector *)(void *)(to) + i, part[i]);                                  \
    }

#define ASK(to, from)                                                                    \
    for (size_t at = 0; at < ROUND; at += LINE) {                                        \
        _mm_prefetch((from) + at, _MM_HINT_T1);                                          \
        __builtin_prefetch((to) + at, 1);                                                \
    }

/* The destination's first line, and what is before: @return how many bytes these are. */
static uint64_t copy_head(char *to, const char *from)
{
    memcpy(to, from, LINE);
    return LINE - (uintptr_t)to % LINE;
}

/* The block before has asked for the lines of the first DISTANCE bytes, and this one, whose
 * rounds begin behind a head of a line at most, asks for what is behind them. */
enum { DISTANCE = RS_COPY_AHEAD - LINE };

#define DEFINE_COPIES(name, isa, size, vector, load, store)                              \
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
    }                                                                                    \
                                                                                         \
    static void __attribute__((target(isa ",prfchw")))                                   \
    copy_ahead_##name(char *to, const char *from, uint64_t bytes, const char *next_to,   \
                      const char *next_from)                                             \
    {                                                                                    \
        enum { ROUND = (size) };                                                         \
        uint64_t head = copy_head(to, from), most = bytes - DISTANCE - head;             \
        uint64_t rest = bytes - head - most / ROUND * ROUND;                             \
                                                                                         \
        _mm_prefetch(from + DISTANCE, _MM_HINT_T1); /* or the head's line has none */    \
        __builtin_prefetch(to + DISTANCE, 1);                                            \
        to += head;                                                                      \
        from += head;                                                                    \
        COPY_ROUNDS(to, from, most, vector, load, store,                                 \
                    ASK(to + DISTANCE, from + DISTANCE))                                 \
        if (next_to == NULL) {                                                           \
            COPY_ROUNDS(to, from, rest, vector, load, store, )                           \
        } else {                                                                         \
            COPY_ROUNDS(to, from, rest, vector, load, store,                             \
                        ASK(next_to, next_from) next_to += ROUND; next_from += ROUND)    \
        }                                                                                \
        memcpy(to, from, rest);                                                          \
    }

/* One line at a time where one store writes it: two loads before two stores take a tenth
 * longer on a Xeon (Sapphire Rapids, 16 KiB). */
DEFINE_COPIES(32, "avx2", 2 * LINE, __m256i, _mm256_loadu_si256, _mm256_store_si256)
DEFINE_COPIES(64, "avx512f", LINE, __m512i, _mm512_loadu_si512, _mm512_store_si512)

bool rs_copy_use(unsigned move_bytes)
{
    __builtin_cpu_init();
    switch (has_string ? move_bytes : 0) {
    case 32:
        if (!__builtin_cpu_supports("avx2"))
            return false;
        copy_lines = copy_lines_32;
        copy_ahead = copy_ahead_32;
        return true;
    case 64:
        if (!__builtin_cpu_supports("avx512f"))
            return false;
        copy_lines = copy_lines_64;
        copy_ahead = copy_ahead_64;
        return true;
    default:
        return false;
    }
}

static void __attribute__((constructor)) detect(void)
{
    enum { LEAF = 7, FSRM = 1 << 4 };
    unsigned a, b, c, d;

    __builtin_cpu_init();
    has_string = __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) != 0 && (d & FSRM) != 0;
    if (__builtin_cpu_is("amd"))
        rs_copy_use(32);
    else
        gains_ahead = rs_copy_use(64) && __builtin_cpu_is("intel");
}

enum rs_copy_means rs_copy_means(const char *to, const char *from)
{
    if (has_string && ((uintptr_t)to - (uintptr_t)from) % LINE == 0)
        return RS_COPY_STRING;
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
    if (copy_ahead != NULL)
        copy_ahead(to, from, bytes, next_to, next_from);
    else
        memcpy(to, from, bytes);
}

bool rs_copy_asks_ahead(void)
{
    return copy_ahead != NULL;
}

bool rs_copy_gains_ahead(void)
{
    return gains_ahead;
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

bool rs_copy_asks_ahead(void)
{
    return false;
}

bool rs_copy_gains_ahead(void)
{
    return false;
}
#endif
