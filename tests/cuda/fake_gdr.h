/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GDRCopy in software: libgdrapi.so.2 over the driver in software. Like that one it
 * is strict:
 *   - memory is pinned in whole pages of 64 KiB, mapped once, unmapped as it was
 *     mapped, and unpinned after that
 *   - mapped memory has no access rights: who does not use the library's functions
 *     dies
 *   - what is written is on its way, for ever, until something is read back through
 *     a mapping: whoever looks before has other bytes
 *   - what is pinned or open when the process ends is told on stderr, and the
 *     process aborts
 *
 *   FAKE_GDR_OPEN=0       gdr_open fails, as without its kernel module
 *   FAKE_GDR_V2=0         the kernel module does not know gdr_pin_buffer_v2
 *   FAKE_GDR_FAIL=NAME:K:N[:M],..  the K-th call of a function, from 1, and M in
 *                         all, or all after it, fail with errno N
 *
 * What it cannot show: what a bus does.
 */
#ifndef TESTS_CUDA_FAKE_GDR_H
#define TESTS_CUDA_FAKE_GDR_H

enum fake_gdr_count {
    FAKE_GDR_OPEN,   /* gdr_open that are not closed */
    FAKE_GDR_PINNED, /* that there are */
    FAKE_GDR_MAPPED,
    FAKE_GDR_PINS, /* that there were */
    FAKE_GDR_READS, /* out of mappings */
    FAKE_GDR_WRITES,
    FAKE_GDR_NUM_COUNTS
};

/** What this process has done so far, or has. */
unsigned long long fakeGdrCount(enum fake_gdr_count what);

#endif
