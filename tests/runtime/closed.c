/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that have closed their standard input, output and error: nothing of the
 * library's gets these numbers, so what they print, and the library's own log, goes
 * nowhere. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

enum { STANDARD = 3, EPOCHS = 3 };

static void print(void)
{
    const char text[] = "what the application says at every step\n";

    for (int i = 0; i < 2000; i++) {
        for (int fd = 0; fd < STANDARD; fd++) {
            if (write(fd, text, sizeof(text) - 1) < 0)
                continue; /* as it should be */
        }
    }
}

static char name[64]; /* of what is under such a number */

/* @return such a descriptor that is open, or -1 */
static int find_open(void)
{
    char path[64];
    ssize_t length;

    for (int fd = 0; fd < STANDARD; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        length = readlink(path, name, sizeof(name) - 1);
        if (length < 0)
            continue;
        name[length] = '\0';
        return fd;
    }
    return -1;
}

static int work(struct rank *self, struct halo **halo)
{
    static const struct halo_edge edges[] = {{0, 1, 100}, {1, 0, 300000}, {0, 0, 50000}};
    int error = rank_open(self);

    if (error != 0 || find_open() >= 0)
        return error;
    print();
    error = halo_create(self, edges, 3, 1, 0, halo);
    for (int epoch = 0; epoch < EPOCHS && error == 0 && find_open() < 0; epoch++) {
        print();
        error = halo_step(*halo, epoch);
    }
    return error;
}

static int run_closed(struct rank *self)
{
    struct halo *halo = NULL;
    int saved[STANDARD], error, found;

    rank_close(self);
    for (int fd = 0; fd < STANDARD; fd++)
        saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, STANDARD);
    for (int fd = 0; fd < STANDARD; fd++)
        close(fd);
    error = work(self, &halo);
    found = find_open();
    for (int fd = 0; fd < STANDARD; fd++) {
        dup2(saved[fd], fd);
        close(saved[fd]);
    }
    if (found >= 0)
        return RANK_FAIL("rank %d: descriptor %d is %s", self->rank, found, name);
    RANK_CHECK(error == 0);
    mesh_barrier(self->end);
    halo_destroy(halo);
    return 0;
}

int main(void)
{
    static const char *const settings[] = {"RSCHED_LOG_LEVEL=debug",
                                           "RSCHED_LOG_LEVEL=debug"};

    alarm(RANKS_HANG_SECONDS);
    return ranks_run_with(2, false, run_closed, NULL, settings) != 0;
}
