/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * That a start rings once for each lane, whatever it sends, and once for each
 * peer from which it receives directly. Only where long messages go over several
 * rails their rest follows later here (rs_rdma_port's head_bytes), with a doorbell
 * more, and no thread is to do that while it is counted. Soft-RoCE's doorbell is a
 * write of the command POST_SEND to the device's descriptor: such writes are
 * counted here, since this program's write() is the one that the provider calls.
 * And that start and test make no other system call, and allocate nothing. Run in
 * the guest of tests/rdma-vm.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "librsched/run/run.h"
#include "tests/runtime/counted.h"
#include "tests/runtime/halo.h"

enum { STARTS = 40, PUTS = 10, MOST_RAILS = 2, MOST_FILES = 256 };

/* What rank 0 sends to rank 1, which is one lane on each rail. */
struct sent {
    uint64_t bytes; /* of each of PUTS for each rail */
    enum rsched_way way;
    unsigned rails;
};

static unsigned doorbells, other_writes;

/* Looked up once, as that makes system calls of its own. */
static bool is_device(int fd)
{
    static enum { UNKNOWN, DEVICE, OTHER } files[MOST_FILES];
    char link[64], path[256] = "";

    if (fd < 0 || fd >= MOST_FILES)
        return false;
    if (files[fd] == UNKNOWN) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        files[fd] = readlink(link, path, sizeof(path) - 1) > 0 &&
                            strstr(path, "infiniband/uverbs") != NULL
                        ? DEVICE
                        : OTHER;
    }
    return files[fd] == DEVICE;
}

__attribute__((visibility("default"))) ssize_t
write(int fd, const void *data, size_t bytes)
{
    static ssize_t (*next)(int, const void *, size_t);
    struct ib_uverbs_cmd_hdr header = {0};

    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "write");
    if (bytes >= sizeof(header) && is_device(fd))
        memcpy(&header, data, sizeof(header));
    if (header.command == IB_USER_VERBS_CMD_POST_SEND)
        doorbells++;
    else
        other_writes++;
    return next(fd, data, bytes);
}

static void make_edges(const struct sent *sent, struct halo_edge *edges)
{
    for (unsigned i = 0; i < PUTS * sent->rails; i++)
        edges[i] = (struct halo_edge){0, 1, sent->bytes};
}

static uint64_t stalls(const struct halo *h)
{
    struct rsched_stats stats;

    rsched_exchange_get_stats(h->x, &stats);
    return stats.credit_stalls;
}

/* One epoch of the sender, who starts last. Where he had no credit in spite of
 * that it is not counted, since it is posted later.
 * @param whole lowered to the doorbells of start and wait, which may be more: now
 *              and then a wait probes whether its peer is alive */
static int send_one(struct rank *self, struct halo *h, const struct sent *sent,
                    int *counted, unsigned *whole)
{
    uint64_t before = stalls(h);
    unsigned first = doorbells, rung;

    RANK_CHECK(rsched_exchange_start(h->x) == 0);
    rung = doorbells - first;
    RANK_CHECK(rsched_exchange_wait(h->x) == 0);
    if (stalls(h) != before)
        return 0;
    RANK_CHECK(rung == sent->rails);
    *whole = doorbells - first < *whole ? doorbells - first : *whole;
    ++*counted;
    return 0;
}

static int receive_one(struct rank *self, struct halo *h,
                       const struct sent *sent)
{
    unsigned first = doorbells;

    RANK_CHECK(rsched_exchange_start(h->x) == 0);
    /* That all rails may be written. */
    RANK_CHECK(doorbells - first == (sent->way == RSCHED_WAY_DIRECT));
    mesh_barrier(self->end);
    RANK_CHECK(rsched_exchange_wait(h->x) == 0);
    return 0;
}

static int check_sent(struct rank *self, const struct halo *h,
                      const struct sent *sent, int counted, unsigned whole)
{
    bool heads = sent->way == RSCHED_WAY_DIRECT && sent->rails > 1;
    struct rsched_stats stats;

    rsched_exchange_get_stats(h->x, &stats);
    RANK_CHECK(stats.way_bytes[sent->way] ==
               STARTS * PUTS * sent->rails * sent->bytes);
    RANK_CHECK(counted >= STARTS / 4);
    RANK_CHECK(whole == (heads ? 2 : 1) * sent->rails);
    printf("%llu bytes: %d starts, each with %u doorbells for %u lanes, %u until "
           "the end\n",
           (unsigned long long)sent->bytes, counted, sent->rails, sent->rails,
           whole);
    return 0;
}

static int run(struct rank *self, const struct sent *sent)
{
    struct halo_edge edges[PUTS * MOST_RAILS];
    unsigned whole = UINT_MAX;
    int counted = 0;
    struct halo *h;

    make_edges(sent, edges);
    RANK_CHECK(halo_create(self, edges, PUTS * (int)sent->rails, sent->bytes, 0,
                           &h) == 0);
    RANK_CHECK(h->x->num_out == (self->rank == 0 ? sent->rails : 0));
    for (int epoch = 0; epoch < STARTS; epoch++) {
        halo_fill(h, epoch);
        if (self->rank == 0) {
            mesh_barrier(self->end);
            usleep(5000);
            RANK_CHECK(send_one(self, h, sent, &counted, &whole) == 0);
        } else {
            RANK_CHECK(receive_one(self, h, sent) == 0);
        }
        RANK_CHECK(halo_wrong(h, epoch) == 0);
    }
    if (self->rank == 0)
        RANK_CHECK(check_sent(self, h, sent, counted, whole) == 0);
    mesh_barrier(self->end);
    halo_destroy(h);
    return 0;
}

static int run_all(struct rank *self)
{
    const unsigned *rails = self->arg;
    const struct sent cases[] = {
        {8, RSCHED_WAY_LANDING, *rails},
        {1000, RSCHED_WAY_LANDING, *rails},
        {6000, RSCHED_WAY_LANDING, *rails},
        {20000, RSCHED_WAY_DIRECT, *rails},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        RANK_CHECK(run(self, &cases[i]) == 0);
    return 0;
}

/* ---- nothing else ---- */

enum { WARM_EPOCHS = 3, BARE_EPOCHS = 40 };

static atomic_bool *ended; /* rank 1 needs rank 0 no more */

/* Rank 0 only tests, since who waits may sleep, and is not to look whether its
 * peer is alive, as after many tests in vain. Rank 1 does as it likes. */
static int run_bare_epochs(struct rank *self, struct halo *h)
{
    for (int epoch = 0; epoch < BARE_EPOCHS; epoch++) {
        bool done = false;

        if (self->rank == 1) {
            RANK_CHECK(halo_step(h, epoch) == 0);
            continue;
        }
        halo_fill(h, epoch);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        while (!done) {
            h->x->vain_tests = 0;
            RANK_CHECK(rsched_exchange_test(h->x, &done) == 0);
        }
        RANK_CHECK(halo_wrong(h, epoch) == 0);
    }
    return 0;
}

/* Of one put on each rail, both ways. */
static int create_bare(struct rank *self, uint64_t bytes,
                       struct halo_edge *edges, struct halo **h)
{
    for (int i = 0; i < 2 * MOST_RAILS; i++)
        edges[i] = (struct halo_edge){i % 2, 1 - i % 2, bytes};
    RANK_CHECK(halo_create(self, edges, 2 * MOST_RAILS, bytes, 0, h) == 0);
    RANK_CHECK((*h)->x->num_out == MOST_RAILS);
    /* Lists of the direct way are made when a table comes. */
    for (int epoch = 0; epoch < WARM_EPOCHS; epoch++)
        RANK_CHECK(halo_step(*h, epoch) == 0);
    return 0;
}

/* Inlined, landing, direct, and that with heads. */
static int run_bare(struct rank *self)
{
    static const uint64_t bytes[] = {8, 6000, 30000, 200000};
    enum { NUM = sizeof(bytes) / sizeof(bytes[0]) };
    struct halo_edge edges[NUM][2 * MOST_RAILS];
    unsigned rung, others;
    struct halo *h[NUM];

    for (int i = 0; i < NUM; i++)
        RANK_CHECK(create_bare(self, bytes[i], edges[i], &h[i]) == 0);
    mesh_barrier(self->end);
    if (self->rank == 0 && counted_begin() != 0)
        return RANK_FAIL("no system call filter: %s", strerror(errno));
    rung = doorbells;
    others = other_writes;
    for (int i = 0; i < NUM; i++)
        RANK_CHECK(run_bare_epochs(self, h[i]) == 0);
    if (self->rank == 0) {
        while (!atomic_load(ended))
            continue;
        RANK_CHECK(doorbells - rung >= NUM * BARE_EPOCHS * MOST_RAILS);
        RANK_CHECK(other_writes == others);
        return counted_end(self);
    }
    atomic_store(ended, true);
    for (int i = 0; i < NUM; i++)
        halo_destroy(h[i]);
    return 0;
}

int main(void)
{
    static const char *const nodes[2] = {"RSCHED_NODE=even", "RSCHED_NODE=odd"};
    static const char *const devices[MOST_RAILS] = {"h0r0/h1r0",
                                                    "h0r0,h0r1/h1r0,h1r1"};

    setenv("RSCHED_PROGRESS", "0", 1);
    for (unsigned rails = 1; rails <= MOST_RAILS; rails++) {
        setenv("RSCHED_DEVICES", devices[rails - 1], 1);
        if (ranks_run_with(2, false, run_all, &rails, nodes) != 0)
            return 1;
    }
    ended = mmap(NULL, sizeof(*ended), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ended == MAP_FAILED)
        return 1;
    return ranks_run_with(2, false, run_bare, NULL, nodes);
}
