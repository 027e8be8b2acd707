/* SPDX-License-Identifier: BSD-3-Clause */
/* Which memory is a GPU's, and that processors cannot touch it. Criterion runs
 * each test in a process of its own, so each begins without a driver. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rsched/engine.h>

#include "tests/cuda/alone.h"

static enum rsched_place_kind kind_of(const void *address, uint64_t bytes)
{
    struct rsched_place place;

    rsched_gpus()->place(address, bytes, &place);
    cr_assert_eq(place.kind == RSCHED_PLACE_GPU, place.gpu >= 0);
    return place.kind;
}

/* Looking for the driver does not bring it in. */
Test(place, a_program_without_gpus_loads_no_driver)
{
    int on_stack;

    cr_assert_not(rsched_gpus()->attach());
    cr_assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
    cr_assert_eq(kind_of(&on_stack, sizeof(on_stack)), RSCHED_PLACE_HOST);
}

Test(place, a_driver_that_is_not_initialised_has_no_memory)
{
    int on_stack;

    cr_assert_not_null(dlopen("libcuda.so.1", RTLD_NOW));
    cr_assert(rsched_gpus()->attach());
    cr_assert_eq(kind_of(&on_stack, sizeof(on_stack)), RSCHED_PLACE_HOST);
}

Test(place, kinds_are_told_apart)
{
    struct program p;
    struct rsched_place place;
    CUdeviceptr managed;
    void *pinned;
    char *device, *heap = malloc(ALONE_BYTES);

    program_begin(&p, 1);
    cr_assert(rsched_gpus()->attach());
    device = alone_allocate(&p, ALONE_BYTES);
    cr_assert_eq(p.cuMemAllocManaged(&managed, ALONE_BYTES,
                                     CU_MEM_ATTACH_GLOBAL),
                 CUDA_SUCCESS);
    cr_assert_eq(p.cuMemHostAlloc(&pinned, ALONE_BYTES, 0), CUDA_SUCCESS);

    rsched_gpus()->place(device, ALONE_BYTES, &place);
    cr_assert_eq(place.kind, RSCHED_PLACE_GPU);
    cr_assert_eq(place.gpu, 1);
    cr_assert_eq(kind_of((void *)(uintptr_t)managed, ALONE_BYTES),
                 RSCHED_PLACE_MANAGED);
    cr_assert_eq(kind_of(pinned, ALONE_BYTES), RSCHED_PLACE_HOST);
    cr_assert_eq(kind_of(heap, ALONE_BYTES), RSCHED_PLACE_HOST);

    cr_assert_eq(p.cuMemFree(managed), CUDA_SUCCESS);
    cr_assert_eq(p.cuMemFreeHost(pinned), CUDA_SUCCESS);
    cr_assert_eq(p.cuMemFree((CUdeviceptr)(uintptr_t)device), CUDA_SUCCESS);
    cr_assert_eq(kind_of(device, ALONE_BYTES), RSCHED_PLACE_HOST,
                 "what has been freed is no GPU's");
    free(heap);
    program_end(&p, 1);
}

/* Kernels, which run in the primary context, would fault on it. */
Test(place, memory_of_other_contexts_is_not_ours)
{
    struct program p;
    char *device, *ours;

    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    cr_assert_eq(p.cuCtxSetCurrent(p.fakeContext(0)), CUDA_SUCCESS);
    device = alone_allocate(&p, ALONE_BYTES);
    cr_assert_eq(kind_of(device, ALONE_BYTES), RSCHED_PLACE_UNKNOWN);
    cr_assert_eq(p.cuCtxSetCurrent(p.context), CUDA_SUCCESS);
    ours = alone_allocate(&p, ALONE_BYTES);
    cr_assert_eq(kind_of(ours, ALONE_BYTES), RSCHED_PLACE_GPU);
    cr_assert_eq(kind_of(device, ALONE_BYTES), RSCHED_PLACE_UNKNOWN);
    /* Nobody else's context is made to look. */
    cr_assert_eq(p.cuCtxSetCurrent(p.fakeContext(1)), CUDA_SUCCESS);
    device = alone_allocate(&p, ALONE_BYTES);
    cr_assert_eq(kind_of(device, ALONE_BYTES), RSCHED_PLACE_UNKNOWN);
    cr_assert_eq(p.fakeCount(FAKE_CONTEXTS), 1);
    cr_assert_eq(p.cuCtxSetCurrent(p.context), CUDA_SUCCESS);
    program_end(&p, 0);
}

Test(place, an_allocation_has_a_number)
{
    uint64_t (*number)(const void *) = rsched_gpus()->allocation;
    struct program p;
    CUdeviceptr managed;
    void *pinned;
    char *first, *second, here;
    uint64_t of_first;

    cr_assert_eq(number(&here), 0);
    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    first = alone_allocate(&p, ALONE_BYTES);
    second = alone_allocate(&p, ALONE_BYTES);
    of_first = number(first);
    cr_assert_neq(of_first, 0);
    cr_assert_eq(number(first + ALONE_BYTES - 1), of_first);
    cr_assert_neq(number(second), 0);
    cr_assert_neq(number(second), of_first);
    cr_assert_eq(p.cuMemFree((CUdeviceptr)(uintptr_t)first), CUDA_SUCCESS);
    cr_assert_eq(number(first), 0);
    cr_assert_eq(p.cuMemAllocManaged(&managed, ALONE_BYTES,
                                     CU_MEM_ATTACH_GLOBAL),
                 CUDA_SUCCESS);
    cr_assert_eq(p.cuMemHostAlloc(&pinned, ALONE_BYTES, 0), CUDA_SUCCESS);
    cr_assert_eq(number((void *)(uintptr_t)managed), 0);
    cr_assert_eq(number(pinned), 0);
    cr_assert_eq(number(&here), 0);
    program_end(&p, 0);
}

Test(place, an_allocation_has_two_ends)
{
    struct program p;
    char *device;

    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    device = alone_allocate(&p, ALONE_BYTES);
    cr_assert_eq(kind_of(device, 1), RSCHED_PLACE_GPU);
    cr_assert_eq(kind_of(device + ALONE_BYTES - 1, 1), RSCHED_PLACE_GPU);
    cr_assert_eq(kind_of(device + 1, ALONE_BYTES - 1), RSCHED_PLACE_GPU);
    cr_assert_eq(kind_of(device + 1, ALONE_BYTES), RSCHED_PLACE_UNKNOWN);
    cr_assert_eq(kind_of(device, UINT64_MAX), RSCHED_PLACE_UNKNOWN);
    program_end(&p, 0);
}

/* Pages that are reserved at once, of which the first is mapped; and, where it
 * is asked for, the last one, on another GPU. */
Test(place, mapped_memory_ends_where_its_mapping_ends)
{
    enum { PAGE = 4096 };
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemGenericAllocationHandle memory[3];
    struct program p;
    CUdeviceptr start;
    char *address;

    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    cr_assert_eq(p.cuMemAddressReserve(&start, 3 * PAGE, 0, 0, 0),
                 CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        prop.location.id = i == 2;
        cr_assert_eq(p.cuMemCreate(&memory[i], PAGE, &prop, 0), CUDA_SUCCESS);
    }
    address = (char *)(uintptr_t)start;
    cr_assert_eq(p.cuMemMap(start, PAGE, 0, memory[0], 0), CUDA_SUCCESS);
    cr_assert_eq(kind_of(address, PAGE), RSCHED_PLACE_GPU);
    cr_assert_eq(kind_of(address + 1, PAGE), RSCHED_PLACE_UNKNOWN);
    cr_assert_eq(p.cuMemMap(start + PAGE, PAGE, 0, memory[1], 0), CUDA_SUCCESS);
    cr_assert_eq(kind_of(address + 1, 2 * PAGE - 1), RSCHED_PLACE_GPU);
    cr_assert_eq(kind_of(address + 1, 2 * PAGE), RSCHED_PLACE_UNKNOWN);
    cr_assert_eq(p.cuMemMap(start + 2 * PAGE, PAGE, 0, memory[2], 0),
                 CUDA_SUCCESS);
    cr_assert_eq(kind_of(address + 1, 2 * PAGE), RSCHED_PLACE_UNKNOWN,
                 "another GPU's");
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(p.cuMemUnmap(start + (CUdeviceptr)i * PAGE, PAGE),
                     CUDA_SUCCESS);
        cr_assert_eq(p.cuMemRelease(memory[i]), CUDA_SUCCESS);
    }
    cr_assert_eq(p.cuMemAddressFree(start, 3 * PAGE), CUDA_SUCCESS);
    program_end(&p, 0);
}

/* Processors have it elsewhere. */
Test(place, the_gpus_address_of_pinned_memory_is_not_the_hosts)
{
    struct program p;
    CUdeviceptr there;
    void *pinned;

    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    cr_assert_eq(p.cuMemHostAlloc(&pinned, ALONE_BYTES,
                                  CU_MEMHOSTALLOC_PORTABLE |
                                      CU_MEMHOSTALLOC_DEVICEMAP),
                 CUDA_SUCCESS);
    cr_assert_eq(p.cuMemHostGetDevicePointer(&there, pinned, 0), CUDA_SUCCESS);
    cr_assert_neq((uintptr_t)there, (uintptr_t)pinned);
    cr_assert_eq(kind_of((char *)pinned + 8, 8), RSCHED_PLACE_HOST);
    cr_assert_eq(kind_of((char *)(uintptr_t)there + 8, 8),
                 RSCHED_PLACE_UNKNOWN);
    cr_assert_eq(p.cuMemFreeHost(pinned), CUDA_SUCCESS);
    program_end(&p, 0);
}

Test(place, a_driver_in_trouble_vouches_for_nothing)
{
    struct program p;
    int on_stack;

    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    setenv("FAKE_CUDA_POINTERS", "999", 1); /* CUDA_ERROR_UNKNOWN */
    cr_assert_eq(kind_of(&on_stack, sizeof(on_stack)), RSCHED_PLACE_UNKNOWN);
    setenv("FAKE_CUDA_POINTERS", "201", 1); /* CUDA_ERROR_INVALID_CONTEXT */
    cr_assert_eq(kind_of(&on_stack, sizeof(on_stack)), RSCHED_PLACE_HOST);
    program_end(&p, 0);
}

/* The driver does not survive a fork; neither does its memory. */
Test(place, a_child_has_host_memory_only)
{
    struct program p;
    char *device;
    int status;
    pid_t child;

    program_begin(&p, 0);
    cr_assert(rsched_gpus()->attach());
    device = alone_allocate(&p, ALONE_BYTES);
    child = fork();
    if (child == 0)
        _exit(kind_of(device, ALONE_BYTES) == RSCHED_PLACE_HOST ? 0 : 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    program_end(&p, 0);
}

/* The double has teeth: what processors touch by mistake is not there. The
 * kernel says so without a signal. */
Test(place, processors_cannot_touch_it)
{
    struct program p;
    int ends[2];

    program_begin(&p, 0);
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(write(ends[1], alone_allocate(&p, ALONE_BYTES), 1), -1);
    cr_assert_eq(errno, EFAULT);
    program_end(&p, 0);
}
