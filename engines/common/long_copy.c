/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/common/long_copy.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <emmintrin.h>
#endif

/* Sanitizers cannot see what it touches. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED                                                            \
    (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED 0
#endif

#if defined(__x86_64__)
static bool has_fast_string_copy;

static void __attribute__((constructor)) detect_string_copy(void)
{
    enum { LEAF = 7, FSRM = 1 << 4 };
    unsigned a, b, c, d;

    has_fast_string_copy =
        __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) != 0 && (d & FSRM) != 0;
}

static void copy_by_lines(char *to, const char *from, uint64_t bytes)
{
    enum { LINE = 64, MOVES = LINE / sizeof(__m128i) };

    for (; bytes >= LINE; to += LINE, from += LINE, bytes -= LINE) {
        __m128i line[MOVES];

        for (int i = 0; i < MOVES; i++)
            line[i] = _mm_loadu_si128((const __m128i *)(const void *)from + i);
        for (int i = 0; i < MOVES; i++)
            _mm_storeu_si128((__m128i *)(void *)to + i, line[i]);
    }
    memcpy(to, from, bytes);
}

void rs_copy_long(char *to, const char *from, uint64_t bytes)
{
    if (!has_fast_string_copy) {
        memcpy(to, from, bytes);
        return;
    }
    if (rs_copy_trails(to, from)) {
        copy_by_lines(to, from, bytes);
        return;
    }
#if SANITIZED
    memcpy(to, from, bytes);
#else
    __asm__ volatile("rep movsb"
                     : "+D"(to), "+S"(from), "+c"(bytes)
                     :
                     : "memory");
#endif
}
#else
void rs_copy_long(char *to, const char *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
}
#endif
