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

/* Copies of `bytes` that do not lie alike in their lines; NULL: memcpy. */
static void (*copy_lines)(char *to, const char *from, uint64_t bytes);
static bool has_string; /* `rep movsb` is fast for all lengths */

/* The lines of the destination, from the first that begins in it, and what is before and
 * behind them. */
#define COPY_LINES(to, from, bytes, vector, load, store)                                 \
    do {                                                                                 \
        enum { BOTH = 2 * LINE, MOVES = BOTH / sizeof(vector) };                         \
        uint64_t head = LINE - (uintptr_t)(to) % LINE;                                   \
                                                                                         \
        memcpy(to, from, LINE);                                                          \
        to += head;                                                                      \
        from += head;                                                                    \
        bytes -= head;                                                                   \
        for (; bytes >= BOTH; to += BOTH, from += BOTH, bytes -= BOTH) {                 \
            vector part[MOVES];                                                          \
                                                                                         \
            for (size_t i = 0; i < MOVES; i++)                                           \
                part[i] = load((const vector *)(const void *)from + i);                  \
            for (size_t i = 0; i < MOVES; i++)                                           \
                store((vector *)(void *)to + i, part[i]);                                \
        }                                                                                \
        memcpy(to, from, bytes);                                                         \
    } while (0)

static void __attribute__((target("avx2")))
copy_lines_32(char *to, const char *from, uint64_t bytes)
{
    COPY_LINES(to, from, bytes, __m256i, _mm256_loadu_si256, _mm256_store_si256);
}

static void __attribute__((target("avx512f")))
copy_lines_64(char *to, const char *from, uint64_t bytes)
{
    COPY_LINES(to, from, bytes, __m512i, _mm512_loadu_si512, _mm512_store_si512);
}

static void __attribute__((constructor)) detect(void)
{
    enum { LEAF = 7, FSRM = 1 << 4 };
    unsigned a, b, c, d;

    __builtin_cpu_init();
    has_string = __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) != 0 && (d & FSRM) != 0;
    if (!has_string)
        return;
    if (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx2"))
        copy_lines = copy_lines_32;
    else if (__builtin_cpu_supports("avx512f"))
        copy_lines = copy_lines_64;
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
#else
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
#endif
