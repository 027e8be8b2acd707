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

/* Once somebody has written a byte. */
static void run_child(int begin, bool main_thread_ends)
{
    char byte;

    if (read(begin, &byte, 1) == 1 && main_thread_ends)
        end_main_thread();
    stay(NULL);
}

/* One that stayed would keep the test's output open. */
static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

enum { PATIENCE_MS = 60000 };

static void live_and_die(bool main_thread_ends)
{
    int begin[2], pidfd;
    siginfo_t info;
    pid_t child;

    cr_assert_eq(pipe(begin), 0);
    child = fork();
    if (child == 0)
        run_child(begin[0], main_thread_ends);
    /* Before its main thread has ended: then it cannot be read either. */
    if (!rs_process_may_read(child)) {
        end_child(child);
        cr_skip_test("process_vm_readv() is forbidden here");
    }
    cr_assert_eq(write(begin[1], "", 1), 1);
    pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    for (int ms = 0; main_thread_ends && rs_process_may_read(child); ms++) {
        if (ms == PATIENCE_MS) {
            end_child(child);
            cr_assert_fail("the child's main thread does not end");
        }
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
