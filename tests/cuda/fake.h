/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver in software: libcuda.so.1 for machines without one. Device memory is
 * host memory that processors may not touch: it has no access rights at the
 * address that the driver gives out, so whoever copies it like the host's dies
 * of SIGSEGV. It is strict: what the real driver forbids is an error, and what
 * it leaves undefined aborts.
 *
 * Memory lies in files without a name, so handles and descriptors really open
 * it in other processes. Copies and kernels are as late as may be: they are done when their
 * event is asked for the second time, or when somebody waits for the stream, in
 * the order of the stream. So whoever uses bytes before has others.
 *
 * It holds to this, among other things:
 *   - streams, events and handles are used in the context that they were made
 *     in, which must be current
 *   - a copy's ends lie in one allocation each, or in mappings that touch in
 *     what was reserved at once; what was freed is no end. Allocations lie back
 *     to back
 *   - a stream has room for so many operations; who enqueues more is kept in the
 *     driver until the stream goes on
 *   - copies in two dimensions within device memory have a pitch of whole
 *     FAKE_CUDA_PITCH bytes
 *   - handles and ranges are asked for in a context of the memory's GPU; the
 *     range that an attribute has is that of what was reserved
 *   - copies of the program within device memory (cuMemcpyDtoD) return before they
 *     are done, unless an end has CU_POINTER_ATTRIBUTE_SYNC_MEMOPS; that is set in
 *     a context of the memory's GPU
 *   - while a stream is captured (mode GLOBAL), what the capture could miss is
 *     refused in all threads that have not said RELAXED, and breaks the capture; a
 *     broken one takes nothing any more
 *   - host functions and destructors do not call the driver
 *   - who frees, closes, unmaps or unregisters memory, or unloads a module,
 *     waits for streams that wait for a word, and for kernels of the program
 *   - a context is not given up by its last holder with streams, events or
 *     modules of its own
 *   - what needs to go on while streams of the program wait has the highest
 *     priority
 *   - a handle is not opened in the process that it is of, nor twice in a context,
 *     nor while another one is open of what was freed there; what is closed was open
 *   - a kernel reaches memory of its own context, what has been opened in it, and pinned host memory at the address that kernels see it at,
 *     which is another one than that of processors; each access is aligned.
 *     Kernels of programs run in a process of their own, with no more than that
 *   - pages of host memory are registered once, by whoever has them mapped, and
 *     until he unregisters them; registers of a device (pages of a file named so)
 *     are registered as such, and nothing else is
 *   - what is open, or under way, when its owner ends is told on stderr
 *     ("fake driver: ..."), and the process aborts
 *
 * The environment says what there is:
 *
 *   FAKE_CUDA_GPUS=N      GPUs, 2 unless told; 0: cuInit finds none
 *   FAKE_CUDA_INIT=N      the result of cuInit
 *   FAKE_CUDA_NUMA=A,B,.. NUMA nodes of the GPUs; 0 for those left out
 *   FAKE_CUDA_PEERS=0     no GPU can access another one
 *   FAKE_CUDA_DIRECT=0    no GPUDirect RDMA
 *   FAKE_CUDA_DMABUF=0    no dma-bufs
 *   FAKE_CUDA_HOST_TABLES=1 GPUs use the host's page tables
 *   FAKE_CUDA_FLUSH=0     no flush; FAKE_CUDA_ORDERING=100 no need of one
 *   FAKE_CUDA_REGISTERS=0 registers of devices are not mapped: not permitted
 *   FAKE_CUDA_MODE=N      compute mode of all
 *   FAKE_CUDA_MPS=1       there is a server that shares them
 *   FAKE_CUDA_LOADING=2   modules are loaded lazily
 *   FAKE_CUDA_POINTERS=N  the result of cuPointerGetAttributes
 *   FAKE_CUDA_ASKED=N     an event has happened when it is asked for the N-th
 *                         time, 2 unless told
 *   FAKE_CUDA_LATE=N      and N milliseconds after it was recorded
 *   FAKE_CUDA_QUEUE=N     what a stream has room for, 1024 unless told
 *   FAKE_CUDA_PITCH=N     see above; 16 unless told
 *   FAKE_CUDA_REUSE=1     what is allocated lies where memory of its size was freed
 *   FAKE_CUDA_LINGER=N    microseconds that it takes to end something, 100 unless
 *                         told: others go on meanwhile
 *   FAKE_CUDA_WAITS=NAME,.. calls that wait for streams, besides those that always do:
 *                         of cuMemAlloc, cuMemHostAlloc, cuMemHostRegister, cuMemMap,
 *                         cuIpcOpenMemHandle, cuModuleLoadData
 *   FAKE_CUDA_FAIL=NAME:K:N[:M],..  the K-th call of a function, from 1, and M
 *                         in all, or all after it, return N; K=0 is none
 *
 * What it cannot show: whether hardware does what the driver's documentation
 * says.
 */
#ifndef TESTS_CUDA_FAKE_H
#define TESTS_CUDA_FAKE_H

#include <cuda.h>

/* Functions that tests call by name, as programs do that use GPUs. */
#define FAKE_CALLS(XX)                                                       \
    XX(cuInit)                                                               \
    XX(cuDeviceGetCount)                                                     \
    XX(cuDevicePrimaryCtxRetain)                                             \
    XX(cuDevicePrimaryCtxRelease)                                            \
    XX(cuCtxSetCurrent)                                                      \
    XX(cuMemAlloc)                                                           \
    XX(cuMemAllocManaged)                                                    \
    XX(cuMemHostAlloc)                                                       \
    XX(cuMemFree)                                                            \
    XX(cuMemFreeHost)                                                        \
    XX(cuMemCreate)                                                          \
    XX(cuMemRelease)                                                         \
    XX(cuMemGetAllocationGranularity)                                        \
    XX(cuMemExportToShareableHandle)                                         \
    XX(cuMemAddressReserve)                                                  \
    XX(cuMemAddressFree)                                                     \
    XX(cuMemMap)                                                             \
    XX(cuMemUnmap)                                                           \
    XX(cuMemSetAccess)                                                       \
    XX(cuMemHostGetDevicePointer)                                            \
    XX(cuCtxGetCurrent)                                                      \
    XX(cuMemcpyAsync)                                                        \
    XX(cuMemcpyDtoD)                                                         \
    XX(cuStreamCreate)                                                       \
    XX(cuStreamDestroy)                                                      \
    XX(cuStreamSynchronize)                                                  \
    XX(cuStreamBeginCapture)                                                 \
    XX(cuStreamEndCapture)                                                   \
    XX(cuGraphInstantiate)                                                   \
    XX(cuGraphLaunch)                                                        \
    XX(cuGraphExecDestroy)                                                   \
    XX(cuGraphDestroy)

/* Functions of the fake alone. */
#define FAKE_OWN(XX)                                                         \
    XX(fakeTouch)                                                            \
    XX(fakeContext)                                                          \
    XX(fakeCount)                                                            \
    XX(fakeOnFlush)                                                          \
    XX(fakeRun)

/** Where processors may touch device memory of this process: the same bytes at
 * another address. NULL: it is none. */
void *fakeTouch(CUdeviceptr device);

enum fake_count {
    FAKE_COPIES,      /* that were done, in one or two dimensions */
    FAKE_ROWS,        /* that were enqueued in two */
    FAKE_LAUNCHES,    /* of kernels, that were enqueued */
    FAKE_MODULES,     /* that are loaded */
    FAKE_GRAPHS,      /* and user objects */
    FAKE_DEVICE,      /* allocations of device memory that there are */
    FAKE_HANDLES,     /* opened by this process */
    FAKE_HANDLES_OPEN,/* and not closed */
    FAKE_IMPORTS,     /* of descriptors */
    FAKE_IMPORTS_MAPPED, /* and still mapped */
    FAKE_STREAMS,     /* that there are */
    FAKE_EVENTS,
    FAKE_PINNED,      /* ranges of host memory that are registered */
    FAKE_CONTEXTS,    /* holders of primary contexts */
    FAKE_FLUSHES,     /* of what devices have written */
    FAKE_FULL,        /* times that somebody was kept since a stream was full */
    FAKE_PUSHES,      /* of contexts: whoever calls the driver begins with one */
    FAKE_QUESTIONS,   /* of what is at an address */
    FAKE_NUM_COUNTS
};

/** A context of a GPU that is not its primary one, as cuCtxCreate makes it, for
 * ever. */
CUcontext fakeContext(int gpu);

/** What this process has done so far, or has. */
unsigned long long fakeCount(enum fake_count what);

/** Call a function at each flush: a device in software then makes visible what it
 * has written. */
void fakeOnFlush(void (*hook)(void));

/** Run a function of the program as a kernel of the current context would, by one
 * thread, and wait for its end. `arg` may be the host's, to be read. */
void fakeRun(void (*kernel)(void *arg), void *arg);

#endif
