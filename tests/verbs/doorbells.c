/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * That a start rings once for each lane, whatever it sends, and once for each peer
 * from which it receives directly; the rest of long messages follows later here
 * (rs_rdma_port's head_bytes), and no thread is to do that while it is counted.
 * Soft-RoCE's doorbell is a write of the command POST_SEND to the device's
 * descriptor: such writes are counted here, since this program's write() is the one
 * that the provider calls. Run in the guest of tests/rdma-vm.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "librsched/run/run.h"
#include "tests/runtime/halo.h"

enum { STARTS = 40, RAILS = 2 };

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

/* Ten puts for each rail, from rank 0 to rank 1. */
static int make_edges(uint64_t bytes, struct halo_edge *edges)
{
    int n = 0;

    for (int i = 0; i < 10 * RAILS; i++)
        edges[n++] = (struct halo_edge){0, 1, bytes};
    return n;
}

static uint64_t stalls(const struct halo *h)
{
    struct rsched_stats stats;

    rsched_exchange_get_stats(h->x, &stats);
    return stats.credit_stalls;
}

/* The sender starts last. Where it had no credit in spite of that the epoch is
 * not counted, since it is posted later. */
static int run(struct rank *self, uint64_t bytes, enum rsched_way way)
{
    struct halo_edge edges[10 * RAILS];
    struct rsched_stats stats;
    int counted = 0;
    struct halo *h;

    RANK_CHECK(halo_create(self, edges, make_edges(bytes, edges), bytes, 0,
                           &h) == 0);
    RANK_CHECK(h->x->num_out == (self->rank == 0 ? RAILS : 0));
    for (int epoch = 0; epoch < STARTS; epoch++) {
        uint64_t before = stalls(h);
        unsigned rung;

        halo_fill(h, epoch);
        if (self->rank == 0)
            mesh_barrier(self->end);
        usleep(self->rank == 0 ? 5000 : 0);
        rung = doorbells;
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        rung = doorbells - rung;
        if (self->rank == 1) {
            /* That all rails may be written. */
            RANK_CHECK(rung == (way == RSCHED_WAY_DIRECT));
            mesh_barrier(self->end);
        }
        if (self->rank == 0 && stalls(h) == before) {
            RANK_CHECK(rung == h->x->num_out);
            counted++;
        }
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        RANK_CHECK(halo_wrong(h, epoch) == 0);
    }
    rsched_exchange_get_stats(h->x, &stats);
    if (self->rank == 0) {
        RANK_CHECK(stats.way_bytes[way] == STARTS * 10 * RAILS * bytes);
        RANK_CHECK(counted >= STARTS / 4);
        printf("%llu bytes: %d starts, each with %u doorbells for %u lanes\n",
               (unsigned long long)bytes, counted, h->x->num_out,
               h->x->num_out);
    }
    mesh_barrier(self->end);
    halo_destroy(h);
    return 0;
}

static int run_all(struct rank *self)
{
    if (run(self, 8, RSCHED_WAY_LANDING) != 0 ||
        run(self, 1000, RSCHED_WAY_LANDING) != 0 ||
        run(self, 20000, RSCHED_WAY_DIRECT) != 0)
        return 1;
    return 0;
}

int main(void)
{
    static const char *const nodes[2] = {"RSCHED_NODE=even", "RSCHED_NODE=odd"};

    setenv("RSCHED_DEVICES", "h0r0,h0r1/h1r0,h1r1", 1);
    setenv("RSCHED_PROGRESS", "0", 1);
    return ranks_run_with(2, false, run_all, NULL, nodes) != 0;
}
