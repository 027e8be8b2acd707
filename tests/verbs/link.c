/* SPDX-License-Identifier: BSD-3-Clause */
/* A list that fails is counted before its link is seen to be broken: nobody waits
 * for counts of a broken link, so they may be gone with their lane by then. The
 * count is in a page that cannot be touched; whoever does looks at the link. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engines/rdma/link.h"

static struct rs_rdma_link subject;
static atomic_uint_fast64_t *count;
static size_t page;
static volatile sig_atomic_t touched, touched_late;

static void touch(int signal)
{
    (void)signal;
    touched = 1;
    touched_late = rs_rdma_link_is_broken(&subject);
    if (mprotect(count, page, PROT_READ | PROT_WRITE) != 0)
        _exit(2);
}

static bool post(struct rs_rdma_list *list, uint64_t epoch, uint64_t id)
{
    (void)list;
    (void)epoch;
    (void)id;
    return true;
}

static int ring(struct rs_rdma_queue *queue)
{
    (void)queue;
    return 0;
}

static int poll(struct rs_rdma_queue *queue, struct rs_rdma_done *done)
{
    (void)queue;
    *done = (struct rs_rdma_done){
        .id = (uintptr_t)count, .failed = true, .cause = "a cause"};
    return 1;
}

int main(void)
{
    static const struct rs_rdma_queue_ops ops = {
        .name = "test", .post = post, .ring = ring, .poll = poll};
    static struct rs_rdma_port port = {.name = "port"};
    struct sigaction action = {.sa_handler = touch};
    struct rs_rdma_memory memory = {.port = &port};
    struct rs_rdma_queue queue = {.ops = &ops};
    struct rs_rdma_list list = {.queue = &queue};

    page = (size_t)sysconf(_SC_PAGESIZE);
    count = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (count == MAP_FAILED || sigaction(SIGSEGV, &action, NULL) != 0) {
        perror("a page");
        return 2;
    }
    subject = (struct rs_rdma_link){.memory = &memory, .queue = &queue, .engine = "test"};
    if (!rs_rdma_link_post(&subject, &list, 1, count))
        return 1;
    rs_rdma_link_poll(&subject);
    printf("counted %llu, touched %d, late %d\n",
           (unsigned long long)atomic_load(count), (int)touched, (int)touched_late);
    return !(touched && !touched_late && atomic_load(count) == 1 &&
             rs_rdma_link_is_broken(&subject));
}
