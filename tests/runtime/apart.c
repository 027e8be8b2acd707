/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/runtime/apart.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

bool apart_is_possible(int spaces)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(unshare(spaces) == 0 ? 0 : 1);
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The own user is root of the new namespace, so that it may mount there. */
static void map_user(uid_t uid)
{
    char text[32];
    FILE *file = fopen("/proc/self/uid_map", "w");

    snprintf(text, sizeof(text), "0 %u 1\n", (unsigned)uid);
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
        perror("uid_map");
}

/* In the child of a namespace of processes, whose number there is 1. */
static int run_within(struct rank *self, bool mount_proc, rank_fn *main)
{
    int result;

    if (mount_proc &&
        (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
         mount("proc", "/proc", "proc", 0, NULL) != 0)) {
        /* Masked parts of /proc bar it for users that are no real root; the
         * old one stays, which shows other numbers. */
        printf("/proc is that of the parent: %s\n", strerror(errno));
    }
    if (rank_open(self) != 0)
        return 1;
    result = main(self);
    rank_close(self);
    return result;
}

/* The context that the harness has made is of the namespace before. */
int apart_run(struct rank *self, int spaces, rank_fn *main)
{
    uid_t uid = geteuid();
    int status;
    pid_t child;

    rank_close(self);
    if (unshare(spaces) != 0)
        return RANK_FAIL("unshare: %s", strerror(errno));
    if ((spaces & CLONE_NEWUSER) != 0)
        map_user(uid);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        status = run_within(self, (spaces & CLONE_NEWPID) != 0, main);
        fflush(NULL);
        _exit(status);
    }
    if (waitpid(child, &status, 0) != child)
        return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
