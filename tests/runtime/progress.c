/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The three legal programs of docs/architecture.md, through the C API: what
 * one process leaves undone goes on although it does nothing for rsched.
 *
 *     progress [processes|threads|crossed]
 *
 * "Computing" waits for a message of the other side that only comes when its
 * exchange is complete: if nothing moved meanwhile, that is a hang.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

/* Long: several times what slots hold. */
enum { EPOCHS = 3, TAG = 900, LONG_BYTES = 2 << 20 };

/* `late` computes while `early` waits; bytes go one way, or both. */
struct program {
    uint64_t bytes;
    int late;
    int ways; /* bit 0: to the late one, bit 1: from it */
};

static int make(struct rank *self, const struct program *p, struct halo **h)
{
    static _Thread_local struct halo_edge edges[2];
    int n = 0;

    if ((p->ways & 1) != 0)
        edges[n++] = (struct halo_edge){1 - p->late, p->late, p->bytes};
    if ((p->ways & 2) != 0)
        edges[n++] = (struct halo_edge){p->late, 1 - p->late, p->bytes};
    return halo_create(self, edges, n, 1, 0, h);
}

static bool is_long(const struct program *p)
{
    return p->bytes > 1 << 20;
}

/* The late one must have been helped, and only where something was left. */
static int check_counters(struct rank *self, const struct program *p,
                          struct halo *h)
{
    struct rsched_context_stats all;
    struct rsched_stats stats;

    rsched_exchange_get_stats(h->x, &stats);
    rsched_context_get_stats(self->context, &all);
    RANK_CHECK(stats.epochs == EPOCHS);
    if (self->rank == p->late && is_long(p))
        RANK_CHECK(stats.thread_moves > 0 && all.tick_moves > 0 &&
                   all.ticks >= all.tick_moves);
    if (self->rank == p->late && is_long(p) && (p->ways & 2) != 0)
        RANK_CHECK(stats.deferred == EPOCHS);
    if (p->bytes <= 4096)
        RANK_CHECK(stats.deferred == 0 && stats.thread_moves == 0);
    return 0;
}

/* Programs 1 and 3: one side starts and computes until the other has its
 * epoch. */
static int compute(struct rank *self, const struct program *p)
{
    struct halo *h;
    char byte = 0;

    RANK_CHECK(make(self, p, &h) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        halo_fill(h, epoch);
        if (self->rank != p->late) /* so that the late one has work left */
            RANK_CHECK(mesh_receive(self->end, p->late, TAG, &byte, 1) == 0);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        if (self->rank == p->late) {
            RANK_CHECK(mesh_send(self->end, 1 - p->late, TAG, &byte, 1) == 0);
            RANK_CHECK(mesh_receive(self->end, 1 - p->late, TAG, &byte, 1) == 0);
            RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        } else {
            RANK_CHECK(rsched_exchange_wait(h->x) == 0);
            RANK_CHECK(mesh_send(self->end, p->late, TAG, &byte, 1) == 0);
        }
        RANK_CHECK(halo_wrong(h, epoch) == 0);
    }
    RANK_CHECK(check_counters(self, p, h) == 0);
    halo_destroy(h);
    return 0;
}

/* Short messages in mapped memory, which their senders ask to be pulled after some
 * starts. From then on the receiver has to be helped, too. */
enum { SHORT_BYTES = 4096, WARM_EPOCHS = 70 };

/* Waits begin so long after starts. */
static int step_late(struct halo *h, int epoch, unsigned us)
{
    int error;

    halo_fill(h, epoch);
    error = rsched_exchange_start(h->x);
    if (us > 0)
        usleep(us);
    if (error == 0)
        error = rsched_exchange_wait(h->x);
    return error != 0 || halo_wrong(h, epoch) != 0;
}

static int compute_asked(struct rank *self, bool asked, unsigned late_us)
{
    const struct program p = {SHORT_BYTES | HALO_SHARED, 0, 3};
    struct rsched_stats stats;
    uint64_t pulled, landed;
    struct halo *h;
    char byte = 0;

    RANK_CHECK(make(self, &p, &h) == 0);
    for (int epoch = 0; epoch < WARM_EPOCHS; epoch++)
        RANK_CHECK(step_late(h, epoch, late_us) == 0);
    rsched_exchange_get_stats(h->x, &stats);
    pulled = stats.way_bytes[RSCHED_WAY_PULL];
    landed = stats.way_bytes[RSCHED_WAY_LANDING];
    if ((asked && pulled == 0) || landed < 3 * SHORT_BYTES ||
        pulled + landed != WARM_EPOCHS * SHORT_BYTES || (!asked && pulled > 0))
        return RANK_FAIL("rank %d: %llu bytes pulled, %llu landed", self->rank,
                         (unsigned long long)pulled, (unsigned long long)landed);
    for (int epoch = 0; epoch < EPOCHS && asked; epoch++) {
        halo_fill(h, epoch);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        if (self->rank == 0) /* computes until the other has its epoch */
            RANK_CHECK(mesh_receive(self->end, 1, TAG + 2, &byte, 1) == 0);
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        if (self->rank == 1)
            RANK_CHECK(mesh_send(self->end, 0, TAG + 2, &byte, 1) == 0);
        RANK_CHECK(halo_wrong(h, epoch) == 0);
    }
    rsched_exchange_get_stats(h->x, &stats);
    RANK_CHECK(stats.way_bytes[RSCHED_WAY_LANDING] == landed);
    RANK_CHECK(self->rank == 1 || !asked || stats.thread_moves > 0);
    /* Other buffers: the first starts put them into slots again. */
    RANK_CHECK(halo_rebind(h) == 0);
    for (int epoch = 0; epoch < 3; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    rsched_exchange_get_stats(h->x, &stats);
    RANK_CHECK(stats.way_bytes[RSCHED_WAY_LANDING] == landed + 3 * SHORT_BYTES);
    halo_destroy(h);
    return 0;
}

static int run_asked(struct rank *self)
{
    return compute_asked(self, true, 0);
}

static int run_without_asking(struct rank *self)
{
    return compute_asked(self, false, 0);
}

/* Who computes between start and wait is asked in vain. */
static int run_overlapped(struct rank *self)
{
    return compute_asked(self, false, 200);
}

struct foreign {
    struct rank *self;
    struct rsched_oob_request *request;
    bool done;
};

/* The host's own communication moves only while the host is called. */
static void drive_foreign(void *arg)
{
    struct foreign *f = arg;

    if (!f->done && f->request != NULL)
        f->self->oob.test(f->self->oob.arg, f->request, &f->done);
}

/* Program 2: before its start one side waits until the other has a message
 * that it only takes while it waits for the exchange. */
static int foreign(struct rank *self, const struct program *p)
{
    struct foreign f = {.self = self};
    struct halo *h;
    char byte = 0;

    rank_close(self);
    self->host_progress = drive_foreign;
    self->host_arg = &f;
    RANK_CHECK(rank_open(self) == 0);
    RANK_CHECK(make(self, p, &h) == 0);
    halo_fill(h, 0);
    if (self->rank == p->late) {
        RANK_CHECK(mesh_receive(self->end, 1 - p->late, TAG + 1, &byte, 1) == 0);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
    } else {
        RANK_CHECK(self->oob.isend(self->oob.arg, p->late, TAG + 1, &byte, 1,
                                   &f.request) == 0);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        while (!f.done)
            drive_foreign(&f);
    }
    RANK_CHECK(halo_wrong(h, 0) == 0);
    halo_destroy(h);
    rank_close(self);
    self->host_progress = NULL;
    RANK_CHECK(rank_open(self) == 0);
    return 0;
}

static const uint64_t sizes[] = {8, 4096, 65536, 1 << 20, LONG_BYTES};

static int run_programs(struct rank *self)
{
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int variant = 0; variant < 6; variant++) {
            struct program p = {sizes[i], variant % 2, 1 + variant / 2};

            if (compute(self, &p) != 0 || foreign(self, &p) != 0)
                return RANK_FAIL("%llu bytes, rank %d late, ways %d",
                                 (unsigned long long)p.bytes, p.late, p.ways);
        }
    }
    return 0;
}

/* Without the thread nothing moves by itself, but calls for anything do: an
 * exchange goes on in rsched_context_progress() and in its own tests. */
static int run_without_thread(struct rank *self)
{
    struct program p = {LONG_BYTES, 0, 2};
    struct rsched_stats stats;
    struct halo *h;
    uint64_t chunks = 0; /* of an epoch */
    char byte = 0;
    bool done = false;

    RANK_CHECK(make(self, &p, &h) == 0);
    for (int epoch = 0; epoch < 2; epoch++) {
        halo_fill(h, epoch);
        if (self->rank == 1) /* so that rank 0 has work left */
            RANK_CHECK(mesh_receive(self->end, 0, TAG, &byte, 1) == 0);
        RANK_CHECK(rsched_exchange_start(h->x) == 0);
        if (self->rank == 0) {
            RANK_CHECK(mesh_send(self->end, 1, TAG, &byte, 1) == 0);
            usleep(20000);
            rsched_exchange_get_stats(h->x, &stats);
            RANK_CHECK(stats.thread_moves == 0);
            RANK_CHECK(stats.deferred == (uint64_t)epoch + 1);
            while (epoch == 0 && !done) {
                usleep(50);
                RANK_CHECK(rsched_exchange_test(h->x, &done) == 0);
            }
            while (epoch == 1 && stats.chunks_out < 2 * chunks) {
                rsched_context_progress(self->context);
                rsched_exchange_get_stats(h->x, &stats);
            }
            RANK_CHECK(mesh_receive(self->end, 1, TAG, &byte, 1) == 0);
        }
        RANK_CHECK(rsched_exchange_wait(h->x) == 0);
        rsched_exchange_get_stats(h->x, &stats);
        chunks = epoch == 0 ? stats.chunks_out : chunks;
        if (self->rank == 1)
            RANK_CHECK(mesh_send(self->end, 0, TAG, &byte, 1) == 0);
        RANK_CHECK(halo_wrong(h, epoch) == 0);
    }
    halo_destroy(h);
    return 0;
}

/* Two exchanges, of which one side waits for the second one first: it goes on with
 * the other one meanwhile, as its peer waits for that before it starts another. */
static int run_crossed(struct rank *self)
{
    const struct program p = {LONG_BYTES, 0, 3};
    struct rsched_context_stats all;
    struct rsched_stats stats;
    struct halo *first, *second;
    char byte = 0;

    RANK_CHECK(make(self, &p, &first) == 0);
    RANK_CHECK(make(self, &p, &second) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        halo_fill(first, epoch);
        halo_fill(second, epoch);
        if (self->rank == 0) /* so that rank 1 has work left */
            RANK_CHECK(mesh_receive(self->end, 1, TAG, &byte, 1) == 0);
        RANK_CHECK(rsched_exchange_start(first->x) == 0);
        if (self->rank == 1)
            RANK_CHECK(mesh_send(self->end, 0, TAG, &byte, 1) == 0);
        if (self->rank == 0)
            RANK_CHECK(rsched_exchange_wait(first->x) == 0);
        RANK_CHECK(rsched_exchange_start(second->x) == 0);
        RANK_CHECK(rsched_exchange_wait(second->x) == 0);
        if (self->rank == 1)
            RANK_CHECK(rsched_exchange_wait(first->x) == 0);
        RANK_CHECK(halo_wrong(first, epoch) == 0);
        RANK_CHECK(halo_wrong(second, epoch) == 0);
    }
    rsched_exchange_get_stats(first->x, &stats);
    rsched_context_get_stats(self->context, &all);
    RANK_CHECK(all.ticks == 0 && stats.thread_moves == 0);
    RANK_CHECK(self->rank == 0 || stats.deferred == EPOCHS);
    halo_destroy(second);
    halo_destroy(first);
    return 0;
}

int main(int argc, char **argv)
{
    const char *const without[] = {"RSCHED_PROGRESS=0", "RSCHED_PROGRESS=0"};
    bool threads = argc > 1 && strcmp(argv[1], "threads") == 0;

    alarm(RANKS_HANG_SECONDS);
    setenv("RSCHED_CMA", "0", 1); /* through slots */
    setenv("RSCHED_RING", "512k", 1); /* whatever the caches */
    if (argc > 1 && strcmp(argv[1], "crossed") == 0)
        return ranks_run(2, true, run_crossed, NULL);
    if (ranks_run(2, threads, run_programs, NULL) != 0)
        return 1;
    printf("PASS with the progress thread\n");
    if (threads)
        return 0;
    if (ranks_run_with(2, false, run_without_thread, NULL, without) != 0 ||
        ranks_run_with(2, false, run_crossed, NULL, without) != 0)
        return 1;
    /* By the costs that are built in on any machine. */
    setenv("RSCHED_WAYS", "host", 1);
    if (ranks_share_node(0, 1) &&
        (ranks_run(2, false, run_asked, NULL) != 0 ||
         ranks_run(2, false, run_overlapped, NULL) != 0 ||
         ranks_run_with(2, false, run_without_asking, NULL, without) != 0))
        return 1;
    printf("PASS without\n");
    return 0;
}
