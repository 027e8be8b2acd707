/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * That a start rings once for each lane, whatever it sends, and once for each peer
 * from which it receives directly. Only where long messages go over several rails
 * their rest follows later here (rs_rdma_port's head_bytes), with a doorbell more,
 * and no thread is to do that while it is counted. Soft-RoCE's doorbell is a write of the command POST_SEND to the device's
 * descriptor: such writes are counted here, since this program's write() is the one
 * that the provider calls. Run in the guest of tests/rdma-vm.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "librsched/run/run.h"
#include "tests/runtime/halo.h"

enum { STARTS = 40, PUTS = 10, MOST_RAILS = 2 };

/* What rank 0 sends to rank 1, which is one lane on each rail. */
struct sent {
    uint64_t bytes; /* of each of PUTS for each rail */
    enum rsched_way way;
    unsigned rails;
};

static unsigned doorbells;

__attribute__((visibility("default"))) ssize_t
write(int fd, const void *data, size_t bytes)
{
    static ssize_t (*next)(int, const void *, size_t);
    struct ib_uverbs_cmd_hdr header;
    char link[64], path[256] = "";

    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "write");
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (bytes >= sizeof(header) && readlink(link, path, sizeof(path) - 1) > 0 &&
        strstr(path, "infiniband/uverbs") != NULL) {
        memcpy(&header, data, sizeof(header));
        doorbells += header.command == IB_USER_VERBS_CMD_POST_SEND;
    }
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
    return 0;
}
