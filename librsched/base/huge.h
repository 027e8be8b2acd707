/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ordinary memory in huge pages. Where a kernel reads another process's memory
 * (process_vm_readv) it looks up and pins every page, which for pages of 4 KiB
 * takes several times as long as the copy; of huge pages there are 512 times
 * fewer.
 *
 * MADV_COLLAPSE (Linux 6.1) copies what is in the small pages into a huge one, at
 * the same addresses, and takes their place at once: programs see none of it,
 * neither threads that write meanwhile nor a fork. A kernel that finds pages
 * pinned or shared leaves them as they are.
 */
#ifndef RS_BASE_HUGE_H
#define RS_BASE_HUGE_H

#include <stdbool.h>
#include <stdint.h>

/** The bytes of a huge page, or 0 if there are none, or if the administrator wants
 * none (/sys/kernel/mm/transparent_hugepage/enabled is `never`). */
uint64_t rs_huge_unit(void);

/** What putting a byte into a huge page takes, in ps, about: it is copied once, the
 * page is cleared before and others are freed (0.2 to 0.5 ms for 2 MiB). */
#define RS_HUGE_PS_PER_BYTE UINT64_C(200)

/**
 * Find memory that can be put into huge pages: none of it, nor of what would come
 * with it, need be added. It is looked for page by page of the huge ones.
 *
 * @param low  where to look from; moved to where the first such part begins
 * @param high where to end
 * @return where the part ends, or NULL if there is none
 */
char *rs_huge_find(char **low, char *high);

/** Put it into huge pages, with what else is in these, but for its ends, if other
 * mappings reach into their huge pages: [*low, *high) is what is in such pages then.
 * rsched_memory_huge() counts it.
 * @return false: nothing is, as far as is known, and errno says why; ENOMEM: there is
 *         no memory for such pages now */
bool rs_huge_make(const char **low, const char **high);

#endif
