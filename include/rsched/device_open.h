/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * OPENING: exchanges given to kernels, the host's side of rsched/device.h.
 *
 * A program makes two exchanges of one pattern, one for each set of buffers,
 * and opens them together. What it gets is a pointer that it hands to its
 * kernel, which starts and waits by itself, as often as it likes:
 *
 *     rsched_exchange_create(context, &even, &sets[0]);
 *     rsched_exchange_create(context, &odd, &sets[1]);
 *     rsched_exchange_open_device(sets, gpu, &opening);
 *     solve<<<1, 256, 0, stream>>>(..., rsched_opening_view(opening));
 *     cudaStreamSynchronize(stream);
 *     error = rsched_opening_check(opening);
 *     rsched_opening_close(opening);
 *
 * Epoch k of the kernel, counted from the opening, is the next epoch of
 * sets[k % 2]. Which calls a kernel makes, who may call together, and what
 * holds for the buffers: rsched/device.h.
 *
 * ## How it is started
 *
 * By the **proxy** so far: the kernel writes a request into a ring in pinned
 * host memory, a thread of the opening starts the exchange, goes on with it, and
 * says when it is complete in a word that the kernel looks at. So it works over
 * every engine, with and without a NIC, for buffers in GPU and in host memory.
 * Neighbors need not have opened theirs: they may start the same epochs from
 * the host.
 *
 * The thread looks for requests all the time: first without pause, then with
 * yields, and after some milliseconds without any 20000 times a second.
 *
 * ## What a kernel must leave free
 *
 * While it runs, rsched copies what it sends. Where that takes a kernel
 * (docs/gpu.md, Packing) some of the GPU's multiprocessors must be free, or
 * become free: a kernel that has all of them and waits, waits for ever. Where an
 * epoch is the first one of its exchange memory of peers is opened in it, for
 * which a driver may wait for running kernels: have the host start and wait for
 * one epoch of each set before. (The program knows when it has: epochs of the
 * host before the opening do not count.)
 *
 * ## Threads
 *
 * From open to close both exchanges are the opening's: nobody calls any
 * function with them. An opening is opened and closed by one thread at a time;
 * stop, check and get_stats may be called by any thread between the two.
 */
#ifndef RSCHED_DEVICE_OPEN_H
#define RSCHED_DEVICE_OPEN_H

#include <stdint.h>

#include <rsched/exchange.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rsched_device_exchange;
struct rsched_opening;

/** In the place of a GPU's number: the functions of rsched/device.h are called
 * by threads of this process. For tests, and for programs that run the same code
 * where there is no GPU. */
enum { RSCHED_NO_GPU = -1 };

/**
 * Open exchanges for kernels. Local: neighbors take no part.
 *
 * @param sets    of even and of odd epochs: of one context, inactive, loaded,
 *                never started on a stream; not the same one twice
 * @param gpu     that the kernels run on, as this process counts them (the
 *                number of cuDeviceGet), or RSCHED_NO_GPU
 * @param opening where it is stored; close it with rsched_opening_close(),
 *                before the exchanges are destroyed
 * @return 0; RSCHED_EINVAL (what `sets` may not be, a negative number);
 *         RSCHED_ESTATE (an exchange is active, nothing is loaded, it has been
 *         started on a stream, or is open already); RSCHED_ENOTSUP (built without
 *         cuda.h, the program has not loaded the driver, RSCHED_PROGRESS=0:
 *         rsched may have no thread); RSCHED_ENOMEM; RSCHED_ESYS (what the
 *         driver or the system said, also of a GPU that is not there); the
 *         error by which one of the exchanges has failed before
 */
RSCHED_API int
rsched_exchange_open_device(struct rsched_exchange *const sets[2], int gpu,
                            struct rsched_opening **opening);

/**
 * What kernels are given: valid on the GPU, not for processors (but with
 * RSCHED_NO_GPU), until the opening is closed.
 */
RSCHED_API struct rsched_device_exchange *
rsched_opening_view(const struct rsched_opening *opening);

/**
 * End the kernel's waits, now and in the future, with an error: where the host
 * has decided that nothing will come. The kernel's calls return it; nothing that
 * is asked later is started. An epoch that is under way stays so.
 *
 * @param error a negative RSCHED_E*
 */
RSCHED_API void rsched_opening_stop(struct rsched_opening *opening, int error);

/**
 * What has become of it. A kernel's calls return the same code, which has no
 * text there.
 *
 * @return 0; the error that an epoch has failed with, or that the opening was
 *         stopped with, and its text
 */
RSCHED_API int rsched_opening_check(struct rsched_opening *opening);

/** What an opening has done. */
struct rsched_opening_stats {
    uint64_t asked;     /**< epochs that kernels have started */
    uint64_t completed; /**< of them */
};

RSCHED_API void
rsched_opening_get_stats(const struct rsched_opening *opening,
                         struct rsched_opening_stats *stats);

/**
 * Close an opening; NULL is allowed. No kernel uses it any more. The exchanges
 * are the program's again. If a kernel has started an epoch and not waited for
 * it, its exchange may be active, and may be waited for then. The driver may wait
 * for streams.
 */
RSCHED_API void rsched_opening_close(struct rsched_opening *opening);

#ifdef __cplusplus
}
#endif

#endif
