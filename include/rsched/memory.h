/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * MEMORY: buffers that the neighbors on this node can reach.
 *
 * Between processes of one node a message is normally copied twice: into
 * memory that both have mapped, and out of it. Where the send buffer itself
 * lies in such memory, it is copied once, straight from send buffer to receive
 * buffer. Nothing else changes: every buffer of an exchange may lie in such
 * memory, or in any other, or partly in both.
 *
 * The memory belongs to the process, not to a context, and has no name: it
 * goes with the process, however that ends. Neighbors map what they need of it
 * when they need it for the first time, through /proc/PID/fd, which the kernel
 * allows to processes of the same user that may look at each other. Processes of
 * that user that may not, since their namespaces, groups or capabilities differ,
 * they have no /proc, or they must not be dumped, send each other the descriptors,
 * where abstract sockets lead from one to the other. For that they know of each
 * other as of when their contexts were made: of a process that changes any of this
 * afterwards, by prctl(PR_SET_DUMPABLE) or setgid(), say, exchanges with neighbors
 * that it has not had yet may fail with RSCHED_EUNREACH, or go another way.
 *
 * Ordinary memory is adopted in place if its owner promises to say when it
 * ends: rsched_memory_offer(). The preload object librsched-heap.so does so for
 * the memory of malloc.
 *
 * Fork: a child made by fork() has a copy of the memory of rsched_alloc() and
 * of adopted pages, at the same addresses, as of all other memory; neither process sees what the
 * other writes later. (The copy is made at once, of all pages that have been
 * touched. Where there is no memory for it the child does not have this one.) A child
 * made in a way that runs no handlers of pthread_atfork(), such as _Fork() or
 * a bare clone(), does not have this memory at all.
 *
 * Thread-safety: all functions may be called by any thread at any time.
 */
#ifndef RSCHED_MEMORY_H
#define RSCHED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rsched/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Allocate memory that neighbors can map.
 *
 * @param bytes at least 1; rounded up to whole pages
 * @param memory where the address is stored: zeroed memory that begins on a
 *               page, from 2 MiB on at a multiple of 2 MiB, so that it can
 *               have huge pages. Free it with rsched_free().
 * @return 0, RSCHED_EINVAL, RSCHED_ENOMEM (as malloc(); where there is less than
 *         the kernel has promised, touching it may be a signal), RSCHED_ESYS
 */
RSCHED_API int rsched_alloc(size_t bytes, void **memory);

/**
 * Free memory of rsched_alloc(); NULL is allowed. No exchange that uses it may
 * be active. An inactive one may be destroyed later, or bound to other
 * buffers.
 *
 * @return 0; RSCHED_EINVAL: it is not the address of such memory
 */
RSCHED_API int rsched_free(void *memory);

/**
 * Tell that memory is mapped by several processes anyway, such as a window of
 * MPI_Win_allocate_shared: neighbors that have told the same id then copy out
 * of it where they have it themselves. It stays the caller's.
 *
 * @param id    the same in all processes for the same memory, and for no other
 *              memory as long as any of them runs, nor again after it was
 *              taken back, since neighbors remember where it was; drawn at
 *              random, say
 * @param address where this process has it
 * @param bytes at least 1; the memory is the same number of bytes everywhere
 * @return 0, RSCHED_EINVAL (also if this process has told the id already),
 *         RSCHED_ENOMEM
 */
RSCHED_API int rsched_memory_add(uint64_t id, void *address, size_t bytes);

/**
 * Take that back, before the memory is unmapped or becomes another's. As
 * rsched_free().
 *
 * @return 0; RSCHED_EINVAL: no such id was told
 */
RSCHED_API int rsched_memory_remove(uint64_t id);

/**
 * Offer memory to be adopted: when a send buffer lies in it, an exchange may
 * move whole pages of the buffer, while it is active, onto memory that
 * neighbors can map, at the same address and with the same contents. The
 * memory must be private and anonymous, as that of malloc() or mmap(), and a
 * forked child has it like all other memory (no MADV_WIPEONFORK, no
 * MADV_DONTFORK). It stays the caller's, who does with it as before but for
 * this: before he frees or unmaps it, hands it to whoever expects fresh memory,
 * or has the kernel empty it (MADV_DONTNEED, MADV_FREE) or treat it otherwise in
 * a child, he calls rsched_memory_reclaim(). What lies in two pieces, such as
 * a pool and a part of it, is not adopted, and must not be offered a second time
 * when it has been. RSCHED_ADOPT says in which start it is looked at first, and 0 that it is not;
 * rsched_memory_adoptions() what has become of it.
 *
 * It is a hint: there is room for some 60000 pieces, and more are not
 * remembered. It calls no function of the C library.
 *
 * @param bytes at least 1
 */
RSCHED_API void rsched_memory_offer(void *address, size_t bytes);

/**
 * Take an offer back. Adopted pages are zeroed private memory afterwards, all
 * others what they were. No exchange that sends from them may be active; an
 * inactive one may be destroyed later, or bound to other buffers.
 *
 * @param address of an offer; anything else is ignored
 * @return 0; RSCHED_ENOMEM, RSCHED_ESTATE (a handler of pthread_atfork() has
 *         called): pages are still adopted and the memory must not be freed
 */
RSCHED_API int rsched_memory_reclaim(void *address);

/** Adopt nothing more of offers that have a byte of this range. */
RSCHED_API void rsched_memory_bar(const void *address, size_t bytes);

/** Ask `holds` each time before memory is adopted; where it says no, what was offered
 * is left as it is. It may be called by several threads at once, while an exchange
 * starts. librsched-heap.so asks so whether its wrappers are what programs call, unless
 * RSCHED_ADOPT is set. */
RSCHED_API void rsched_memory_guard(bool (*holds)(void));

/**
 * PINNED MEMORY: a device that memory has been registered with reads and writes the
 * pages that were there then, so they are not adopted until it is deregistered. Where a
 * device is open it is not known what it has, and nothing is adopted, unless the
 * device is told here, and all that is registered with it. librsched-heap.so does so for what
 * libibverbs opens and registers (docs/adopted.md).
 */
struct rsched_pin;

/**
 * Tell that memory is about to be registered. It waits while pages of it are being moved.
 * What may be registered already and what may not yet counts as pinned.
 *
 * @return what to give to rsched_memory_pinned() next; NULL if there was no memory: the
 *         range is barred (rsched_memory_bar())
 */
RSCHED_API struct rsched_pin *rsched_memory_pin(const void *address, size_t bytes);

/** Tell that it has been registered, by which handle it will be deregistered, or NULL:
 * it has not. `pin` is gone afterwards; NULL is ignored. */
RSCHED_API void rsched_memory_pinned(struct rsched_pin *pin, const void *handle);

/** Tell that what has been registered by this handle is about to be deregistered.
 *
 * @return what to give to rsched_memory_pinned(), with NULL, or with the handle if it still
 *         is; NULL if nothing is known of the handle */
RSCHED_API struct rsched_pin *rsched_memory_unpin(const void *handle);

/** Whether all that is registered with the device that has been opened as `fd` is told,
 * from now on; false before it is closed. There is room for 64 devices. */
RSCHED_API void rsched_memory_device(int fd, bool tells);

/**
 * Have adopted pages of a range read as zeros, as madvise(MADV_DONTNEED) has
 * private memory. They stay adopted. Other memory is left as it is. No exchange
 * that sends from them may be active.
 *
 * @param address a multiple of the page's size, else nothing is done
 * @param bytes   rounded up to whole pages
 * @return 0, RSCHED_ESYS, RSCHED_ESTATE (a handler of pthread_atfork() has called)
 */
RSCHED_API int rsched_memory_empty(void *address, size_t bytes);

/**
 * Take adopted pages out of a range of which the mapping goes, by munmap(), say;
 * what is adopted around it stays so. No exchange that sends from them may be
 * active.
 *
 * @param address,bytes as for rsched_memory_empty()
 * @param remove_it called with `arg`, while nobody looks where memory lies, unless
 *              there is an error; it calls no function of this file, and returns
 *              whether the mapping has gone
 * @return 0, RSCHED_ENOMEM, RSCHED_ESTATE
 */
RSCHED_API int rsched_memory_unmap(void *address, size_t bytes,
                                   bool (*remove_it)(void *arg), void *arg);

/**
 * The first adopted part of a range.
 *
 * @param first its address, if there is one
 * @return its bytes, 0 if there is none
 */
RSCHED_API size_t rsched_memory_adopted(const void *address, size_t bytes,
                                        void **first);

/** What has become of whole pages of send buffers that were to be adopted. */
enum rsched_adoption {
    RSCHED_ADOPTED,
    RSCHED_ADOPT_ORIGIN,  /**< it was not offered */
    RSCHED_ADOPT_MAPPING, /**< it is not plain private memory, or locked,
                               or has a policy of its own (mbind) */
    RSCHED_ADOPT_DEVICE,  /**< a device has it pinned, or may have */
    RSCHED_ADOPT_BUDGET,  /**< too much is adopted already */
    RSCHED_ADOPT_SYSTEM,  /**< the kernel refused */
    RSCHED_ADOPT_GUARD,   /**< rsched_memory_guard(): it would not be seen what the
                               program does with the mapping */
    RSCHED_NUM_ADOPTIONS
};

/** "adopted", "origin", ... NULL if it is none. */
RSCHED_API const char *rsched_adoption_name(enum rsched_adoption adoption);

/** Bytes of this process for which that has been the result. */
RSCHED_API uint64_t rsched_memory_adoptions(enum rsched_adoption adoption);

/** Bytes of ordinary send buffers of this process that were put into huge pages,
 * for the kernel to read them faster (RSCHED_HUGE). They stay there. */
RSCHED_API uint64_t rsched_memory_huge(void);

#ifdef __cplusplus
}
#endif

#endif
