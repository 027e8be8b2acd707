/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gpus.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "librsched/base/error.h"
#include "tools/tool.h"

enum rs_distance gpus_distance(const struct rsched_gpu *a,
                               const struct rsched_gpu *b)
{
    if (memcmp(a->id, b->id, sizeof(a->id)) == 0)
        return RS_DISTANCE_SAME_GPU;
    return a->numa_node == b->numa_node && a->numa_node != RSCHED_NUMA_UNKNOWN
               ? RS_DISTANCE_SAME_NUMA
               : RS_DISTANCE_OTHER_NUMA;
}

int gpus_describe(struct rsched_gpu **list, int *count)
{
    const struct rsched_gpu_ops *gpus = rsched_gpus();
    struct rsched_gpu *all;
    int number, error;

    if (gpus == NULL)
        return rs_fail(RSCHED_ENOTSUP, "built without cuda.h");
    error = gpus->open(&number);
    if (error != 0)
        return error;
    all = calloc((size_t)number, sizeof(*all));
    if (all == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for %d GPUs", number);
    for (int i = 0; i < number && error == 0; i++)
        error = gpus->describe(i, &all[i]);
    if (error != 0) {
        free(all);
        return error;
    }
    *list = all;
    *count = number;
    return 0;
}

static void add_pair(struct gpus_pairs *pairs, const struct rsched_gpu *list,
                     int count, enum rs_distance distance)
{
    for (int a = 0; a < count; a++) {
        for (int b = a; b < count; b++) {
            if (gpus_distance(&list[a], &list[b]) != distance)
                continue;
            pairs->of[pairs->num++] =
                (struct gpus_pair){{a, b}, distance};
            return;
        }
    }
}

static int find(void *arg)
{
    struct gpus_pairs *pairs = arg;
    struct rsched_gpu *list;
    int count;

    if (gpus_describe(&list, &count) != 0) {
        snprintf(pairs->reason, sizeof(pairs->reason), "%s",
                 rsched_last_error());
        return TOOL_OK;
    }
    for (enum rs_distance d = 0; d < RS_NUM_DISTANCES; d++)
        add_pair(pairs, list, count, d);
    free(list);
    return TOOL_OK;
}

void gpus_find_pairs(struct gpus_pairs *pairs)
{
    struct gpus_pairs *shared = gpus_share(sizeof(*shared));

    *pairs = (struct gpus_pairs){.reason = "no memory"};
    if (shared == NULL)
        return;
    if (gpus_run_apart(find, shared) == TOOL_OK)
        *pairs = *shared;
    else
        snprintf(pairs->reason, sizeof(pairs->reason),
                 "the process that asked the driver has failed");
    gpus_unshare(shared, sizeof(*shared));
}

int gpus_run_apart(int (*main)(void *arg), void *arg)
{
    pid_t parent = getpid(), child;
    int status;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(TOOL_FAILED);
        status = main(arg);
        fflush(NULL);
        exit(status); /* whoever looks for leaks at the end may do so */
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        tool_bad("another process: %s", strerror(errno));
        return TOOL_FAILED;
    }
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    tool_bad("another process has died of signal %d", WTERMSIG(status));
    return TOOL_FAILED;
}

void *gpus_share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

void gpus_unshare(void *memory, size_t bytes)
{
    if (memory != NULL)
        munmap(memory, bytes);
}
