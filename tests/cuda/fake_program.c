/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver in software: kernels of programs, compiled for the processor from what
 * nvcc compiles. The solver's has one thread, that of words all of its threads.
 *
 * A kernel runs in a process of its own, which is this one as it was, but for
 * memory: that of the GPU may be touched, and what is mapped for kernels is where
 * it is mapped, and not where processors have it. All else is a copy, so what a
 * kernel stores there nobody sees. What is mapped for kernels has to be shared
 * memory, as pages of others cannot be mapped a second time.
 */
#include "tests/cuda/fake_inside.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/gpu/words.h"
#include "examples/jacobi-device/jacobi.h"

void fake_jacobi(void *jacobi)
{
    const struct rsched_device_group alone = rsched_device_thread();

    jacobi_run(jacobi, &alone);
}

void fake_words(void *job)
{
    words_run_threads(job);
}

/* ---- what a kernel has ---- */

static size_t whole_pages(size_t bytes)
{
    return (bytes + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
}

/* Memory that is not shared stays out of reach. */
static void map_there(const struct fake_memory *m)
{
    size_t offset = (uintptr_t)m->address % FAKE_PAGE;
    size_t bytes = whole_pages(m->bytes + offset);

    if (mremap(m->address - offset, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               m->there - offset) != MAP_FAILED)
        mprotect(m->address - offset, bytes, PROT_NONE);
}

static void give(const struct fake_memory *m, void *context)
{
    if (m->there != NULL)
        map_there(m);
    else if (m->touch != m->address && fake_is_reached(m, context, false))
        mprotect(m->address, whole_pages(m->bytes), PROT_READ | PROT_WRITE);
}

void fake_run_program(CUcontext context, CUhostFn kernel, void *arg)
{
    pid_t parent = getpid(), child;
    int status = -1;

    /* Nobody else may have the lock in the child. */
    pthread_mutex_lock(&fake_lock);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        fake_for_all(give, context);
        kernel(arg);
        _exit(0);
    }
    pthread_mutex_unlock(&fake_lock);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0)
        fake_die("is what a kernel was given that came to no good end", arg);
}

OWN void fakeRun(void (*kernel)(void *arg), void *arg)
{
    fake_run_program(fake_current(), kernel, arg);
}
