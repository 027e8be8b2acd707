/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/runtime/counted.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if COUNTED
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void __libc_free(void *p);

static _Thread_local uint64_t allocations;

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    allocations++;
    return __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
    allocations++;
    return __libc_realloc(p, bytes);
}

void free(void *p)
{
    allocations++;
    __libc_free(p);
}

static volatile sig_atomic_t calls, last_call;

static void on_call(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    calls++;
    last_call = info->si_syscall;
}

int counted_begin(void)
{
    static const unsigned allowed[] = {SYS_rt_sigreturn, SYS_write,
                                       SYS_exit_group, SYS_munmap};
    enum { NUM = sizeof(allowed) / sizeof(allowed[0]) };
    struct sock_filter code[NUM + 3] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    struct sock_fprog program = {.len = NUM + 3, .filter = code};
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};

    for (unsigned i = 0; i < NUM; i++)
        code[1 + i] = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K, allowed[i], (unsigned char)(NUM - i), 0);
    code[NUM + 1] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    code[NUM + 2] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    sigaction(SIGSYS, &action, NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return -1;
    allocations = 0;
    return 0;
}

struct counted counted_now(void)
{
    return (struct counted){allocations, calls, last_call};
}

int counted_end(const struct rank *self)
{
    const struct counted counted = counted_now();

    if (counted.allocations != 0 || counted.calls != 0)
        return RANK_FAIL("rank %d: %llu allocations, %d system calls, the last "
                         "of them %d",
                         self->rank, (unsigned long long)counted.allocations,
                         counted.calls, counted.last_call);
    fflush(NULL);
    _exit(0);
}
#endif
