/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LONG COPY: which instructions copy 1.5 KiB and more.
 *
 * Where source and destination lie alike in their lines, `rep movsb`, if the processor says
 * that it is fast for all lengths (FSRM). Measured between two processes that take turns it
 * needs 0.67 of memcpy's time at 2 KiB, 0.86 at 4 KiB, 0.96 at 8 KiB, 1 up to 64 KiB
 * (Zen 5, glibc 2.36); of 4 MiB, which both read out of the other's cache at once, 0.91 to
 * 0.93 (Zen 4, far cores).
 *
 * Where they do not, on such a processor, a loop that writes whole lines: of 32 byte moves if it is
 * of AMD, of 64 byte moves on others that have them (AVX-512; else memcpy). On a Zen 4 the
 * instruction goes byte by byte where the destination lies 1 to 15 bytes after the source
 * within pages (modulo 4096), and so does glibc's memcpy, which is the same instruction
 * from 2 KiB to the size of the second cache. Two threads that both read what the other has
 * just written (near cores; us: memcpy, `rep movsb`, the loop of 32 byte moves):
 *
 *   bytes     0 bytes after          8 bytes after          24 bytes after
 *   2048      0.08   0.08   0.08     0.17   1.25   0.14     0.15   0.18   0.11
 *   8192      0.41   0.40   0.38     4.76   4.79   0.35     0.48   0.47   0.36
 *   64 KiB    1.99   1.98   1.95     32.9   33.0   2.24     2.96   2.96   2.06
 *   1 MiB     27.3   25.7   26.1     45.0   615    43.6     30.0   41.5   26.3
 *   4 MiB     133    135    137      295    1951   220      153    310    151
 *
 * A Xeon (Sapphire Rapids, a line takes 0.12 to 0.18 us there and back) writes a line that one
 * store fills without having it before, and one that two fill not: there, of memcpy's time, which is
 * that of `rep movsb`, the loops of 32 and of 64 byte moves take
 *
 *   bytes     24 bytes after         40 bytes after
 *   2048      1.30   1.03            1.43   1.04
 *   8192      1.50   0.89            1.60   0.88
 *   64 KiB    1.91   0.94            2.08   0.89
 *   384 KiB   1.47   0.97            1.42   0.96
 *   3 MiB     1.14   1.00            1.20   0.99
 */
#ifndef RS_ENGINES_LONG_COPY_H
#define RS_ENGINES_LONG_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "librsched/base/processor.h"

/* Sanitizers cannot see what `rep movsb` touches. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RS_COPY_SANITIZED 1
#elif defined(__has_feature)
#define RS_COPY_SANITIZED                                                            \
    (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define RS_COPY_SANITIZED 0
#endif

enum { RS_COPY_LONG = 1536 };

/** Copy at least RS_COPY_LONG bytes; the two do not overlap. */
void rs_copy_long(char *to, const char *from, uint64_t bytes);

/** Copy any number of bytes; the two do not overlap. */
static inline void rs_copy_bytes(char *to, const char *from, uint64_t bytes)
{
    if (bytes >= RS_COPY_LONG)
        rs_copy_long(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

/** What rs_copy_long() copies with, for tests. */
enum rs_copy_means { RS_COPY_MEMCPY, RS_COPY_STRING, RS_COPY_LOOP };
enum rs_copy_means rs_copy_means(const char *to, const char *from);

/** What the processor has of it. */
enum rs_copy_prefetch rs_copy_prefetch(void);

/** Whether it gains by that. */
bool rs_copy_prefetch_gains(void);

/* So far in advance lines are asked for, and no block may be shorter. */
enum { RS_COPY_AHEAD = 2048 };

/** RS_PREFETCH_AHEAD: as rs_copy_long(), of RS_COPY_AHEAD bytes and more, while lines are asked for
 * nearly so far in advance (software prefetching): the source's into the second cache, the
 * destination's for writing. In the last of these bytes those of the block that is copied next;
 * NULL: there is none. */
void rs_copy_ahead(char *to, const char *from, uint64_t bytes, const char *next_to,
                   const char *next_from);

enum { RS_COPY_LINE = 64, RS_COPY_PARTS = 3 };

/** RS_PREFETCH_IN_TURN: copy so many whole lines of each of several parts, a line of each in turn,
 * each of which the processor fetches ahead of. The destinations begin lines.
 * @param nontemporal past the caches; the caller has a fence (sfence) behind it */
void rs_copy_in_turn(char *const to[RS_COPY_PARTS], const char *const from[RS_COPY_PARTS],
                     uint64_t lines, bool nontemporal);

/** For tests: have the loops of moves of 32 bytes, and copies in turn, or those of 64 bytes, and
 * copies ahead, whichever processor this is. @return whether it has such moves */
bool rs_copy_use(unsigned move_bytes);

#endif
