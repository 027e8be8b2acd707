/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a process is dead, by its number, where no descriptor is left. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engines/common/process.h"

static void *stay(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void end_main_thread(void)
{
    pthread_t thread;

    pthread_create(&thread, NULL, stay, NULL);
    syscall(SYS_exit, 0);
}

/* By its number and by its descriptor, if there is one. */
static bool is_dead(pid_t pid, int pidfd)
{
    struct rlimit limit, none;
    bool by_number, by_descriptor;

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){1, limit.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    by_number = rs_process_is_dead(pid, -1);
    by_descriptor = pidfd < 0 ? by_number : rs_process_is_dead(0, pidfd);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_eq(by_number, by_descriptor);
    return by_number;
}

enum { PATIENCE_MS = 60000 };

static void live_and_die(bool main_thread_ends)
{
    pid_t child = fork();
    siginfo_t info;
    int pidfd;

    if (child == 0) {
        if (main_thread_ends)
            end_main_thread();
        stay(NULL);
    }
    if (!rs_process_may_read(child))
        cr_skip_test("process_vm_readv() is forbidden here");
    pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    for (int ms = 0; main_thread_ends && rs_process_may_read(child); ms++) {
        cr_assert_lt(ms, PATIENCE_MS, "the child's main thread does not end");
        usleep(1000);
    }
    cr_assert_not(is_dead(child, pidfd));
    cr_assert_eq(kill(child, SIGKILL), 0);
    cr_assert_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    cr_assert(is_dead(child, pidfd), "not reaped");
    cr_assert_eq(waitpid(child, NULL, 0), child);
    cr_assert(is_dead(child, pidfd), "reaped");
}

Test(base_process, the_dead_need_not_be_reaped)
{
    live_and_die(false);
}

Test(base_process, whose_main_thread_has_ended_is_alive)
{
    live_and_die(true);
}

Test(base_process, of_one_without_a_number_nothing_is_known)
{
    cr_assert_not(rs_process_is_dead(0, -1));
}
