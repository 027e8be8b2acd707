/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LONG COPY: which instructions copy 1.5 KiB and more.
 *
 * `rep movsb`, where the processor says that it is fast for all lengths (FSRM). Measured
 * between two processes that take turns it needs 0.67 of memcpy's time at 2 KiB, 0.86 at
 * 4 KiB, 0.96 at 8 KiB, 1 up to 64 KiB (Zen 5, glibc 2.36); of 4 MiB, which both read out
 * of the other's cache at once, 0.91 to 0.93 (Zen 4, far cores). Loops of 32 or 64 byte
 * moves, aligned or not, are slower than either.
 *
 * But on a Zen 4 it goes byte by byte where the destination lies 1 to 15 bytes after the
 * source, within pages (modulo 4096): 8 KiB in the first cache take 2.3 to 5 us instead
 * of 0.1, and 0.2 to 0.4 where they lie 16 to 31 bytes after it. So does glibc's memcpy,
 * which is the same instruction from 2 KiB to the size of the second cache. A plain loop
 * takes 0.15 to 0.26 us at all distances.
 */
#ifndef RS_ENGINES_LONG_COPY_H
#define RS_ENGINES_LONG_COPY_H

#include <stdbool.h>
#include <stdint.h>

enum { RS_COPY_LONG = 1536 };

/** Copy at least RS_COPY_LONG bytes; the two do not overlap. */
void rs_copy_long(char *to, const char *from, uint64_t bytes);

/** Whether the destination lies so little after the source, within pages, that a loop
 * copies. */
static inline bool rs_copy_trails(const char *to, const char *from)
{
    enum { PAGE = 4096, MOST = 31 };

    return ((uintptr_t)to - (uintptr_t)from - 1) % PAGE < MOST;
}

#endif
