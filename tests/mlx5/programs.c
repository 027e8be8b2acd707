/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random programs of several lanes, against memcpy:
 *
 *     mlx5_programs steps|threads
 *
 * A link has lanes (queue pairs) from a sender to a receiver. In each epoch the
 * sender fills its memory and posts one list per lane, which ends with a
 * notification; the receiver, when all lanes have notified, compares all of its
 * memory and grants the next epoch by a write of its own. `steps` runs sender,
 * receiver and device in turn, `threads` gives each a thread, and in half of the
 * runs sender and receiver a device each.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/mlx5/pair.h"

enum {
    BYTES = 16384,
    MAX_LANES = 4,
    MAX_OPS = 10,
    MAX_PIECES = 6,
    MAX_OP_BYTES = 900,
    RECEIVES = 8,
    EPOCHS = 25,
    UNTOUCHED = 0x3c,
};

enum notify { NOTIFY_FLAG, NOTIFY_ADD, NOTIFY_IMM };

struct put {
    struct rs_rdma_piece pieces[MAX_PIECES];
    struct rs_rdma_op op;
};

struct lane {
    struct end a, b; /* sender, receiver */
    struct put puts[MAX_OPS];
    uint32_t num_puts;
    struct rs_rdma_list *list;
    bool under_way;
    _Atomic uint64_t notified; /* a flag, or a counter */
    uint64_t immediates;
    uint64_t sink;
};

struct link {
    struct rs_softnic *nics[2]; /* of sender and receiver, or the same */
    unsigned seed;
    enum notify notify;
    uint32_t num_lanes;
    struct lane lanes[MAX_LANES];
    char *from, *to, *expected_from, *expected_to;
    uint64_t sent, received; /* epochs */
    _Atomic uint64_t granted; /* at the sender, written by the device */
    struct rs_rdma_list *grant;
    bool granting;
    _Atomic(const char *) failure;
};

static uint32_t draw(struct link *link, uint32_t below)
{
    return (uint32_t)rand_r(&link->seed) % below;
}

static void fill(char *bytes, uint64_t epoch)
{
    for (uint64_t i = 0; i < BYTES; i++)
        bytes[i] = (char)((epoch + 1) * (i + 7) >> 3 ^ i);
}

/* ---- making a link ---- */

static void make_put(struct link *link, struct put *put, uint32_t lkey,
                     uint32_t rkey, uint64_t *at)
{
    uint32_t n = 1 + draw(link, MAX_PIECES);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t length = draw(link, 3) == 0 ? draw(link, 9)
                                             : draw(link, MAX_OP_BYTES / n);

        if (i == 0)
            length++;
        put->pieces[i] = (struct rs_rdma_piece){
            .address = (uintptr_t)link->from + draw(link, BYTES - length),
            .bytes = length,
            .lkey = lkey,
        };
        bytes += length;
    }
    put->op = (struct rs_rdma_op){
        .opcode = RS_RDMA_WRITE,
        .inlined = bytes <= pair_inline() && draw(link, 3) == 0,
        .remote = (uintptr_t)link->to + *at,
        .rkey = rkey,
        .pieces = put->pieces,
        .num_pieces = n,
    };
    *at += bytes + draw(link, 3);
}

static struct rs_rdma_op make_notification(struct link *link, struct lane *lane,
                                           struct rs_rdma_piece *sink)
{
    struct rs_rdma_op op = {.remote = (uintptr_t)&lane->notified};

    if (link->notify != NOTIFY_IMM)
        op.rkey = end_register(&lane->b, &lane->notified, 8);
    switch (link->notify) {
    case NOTIFY_FLAG:
        op.opcode = RS_RDMA_WRITE;
        op.stamp = RS_STAMP_EPOCH;
        break;
    case NOTIFY_ADD:
        *sink = (struct rs_rdma_piece){
            (uintptr_t)&lane->sink, 8, end_register(&lane->a, &lane->sink, 8)};
        op.opcode = RS_RDMA_FETCH_ADD;
        op.add = 1;
        op.pieces = sink;
        op.num_pieces = 1;
        break;
    case NOTIFY_IMM:
        op.opcode = RS_RDMA_WRITE_IMM;
        op.stamp = RS_STAMP_IMM;
        op.imm = 0x5a0000;
        op.remote = 0;
        break;
    }
    return op;
}

/* Where each of two softnics is found, when there are two. */
static struct rs_softnic_address addresses[2];

static void connect_ends(struct end *a, struct end *b)
{
    if (a->nic == b->nic) {
        rs_softnic_connect(a->qp, b->qp);
    } else {
        rs_softnic_connect_far(a->qp, &addresses[1], b->memory.qpn);
        rs_softnic_connect_far(b->qp, &addresses[0], a->memory.qpn);
    }
}

static void lane_init(struct link *link, struct lane *lane, uint64_t *at)
{
    struct pair_options options = {
        .blocks = UINT32_C(64) << draw(link, 3),
        .receives = RECEIVES,
        .cqe_bytes = draw(link, 2) == 0 ? 64 : 128,
        .recur = draw(link, 2) == 0,
    };
    struct rs_rdma_op ops[MAX_OPS + 1];
    struct rs_rdma_piece sink;
    uint32_t lkey, rkey;

    end_init(&lane->a, link->nics[0], 1, &options);
    end_init(&lane->b, link->nics[1], 2, &options);
    connect_ends(&lane->a, &lane->b);
    lkey = end_register(&lane->a, link->from, BYTES);
    rkey = end_register(&lane->b, link->to, BYTES);
    lane->num_puts = draw(link, MAX_OPS + 1);
    for (uint32_t i = 0; i < lane->num_puts; i++) {
        if (*at + MAX_OP_BYTES + MAX_PIECES * 9 > BYTES) {
            lane->num_puts = i;
            break;
        }
        make_put(link, &lane->puts[i], lkey, rkey, at);
        ops[i] = lane->puts[i].op;
    }
    ops[lane->num_puts] = make_notification(link, lane, &sink);
    lane->list = end_list(&lane->a, ops, lane->num_puts + 1);
    rs_rq_post(&lane->b.rq, RECEIVES / 2);
}

static void link_init(struct link *link, struct rs_softnic *const nics[2],
                      unsigned seed, bool relaxed)
{
    struct rs_rdma_op grant = {.opcode = RS_RDMA_WRITE,
                               .stamp = RS_STAMP_EPOCH,
                               .remote = (uintptr_t)&link->granted};
    uint64_t at = 0;

    *link = (struct link){.nics = {nics[0], nics[1]}, .seed = seed};
    link->notify =
        relaxed ? NOTIFY_ADD + draw(link, 2) : NOTIFY_FLAG + draw(link, 3);
    link->from = calloc(1, BYTES);
    link->to = malloc(BYTES);
    link->expected_from = malloc(BYTES);
    link->expected_to = malloc(BYTES);
    memset(link->to, UNTOUCHED, BYTES);
    link->num_lanes = 1 + draw(link, MAX_LANES);
    for (uint32_t i = 0; i < link->num_lanes; i++)
        lane_init(link, &link->lanes[i], &at);
    grant.rkey = end_register(&link->lanes[0].a, &link->granted, 8);
    link->grant = end_list(&link->lanes[0].b, &grant, 1);
}

static void link_fini(struct link *link)
{
    rs_mlx5_queue_ops.list_destroy(link->grant);
    for (uint32_t i = 0; i < link->num_lanes; i++) {
        rs_mlx5_queue_ops.list_destroy(link->lanes[i].list);
        end_fini(&link->lanes[i].a);
        end_fini(&link->lanes[i].b);
    }
    free(link->from);
    free(link->to);
    free(link->expected_from);
    free(link->expected_to);
}

/* ---- the sender ---- */

static void link_fail(struct link *link, const char *what)
{
    const char *none = NULL;

    atomic_compare_exchange_strong(&link->failure, &none, what);
}

/* @return whether a completion came */
static bool poll_end(struct link *link, struct end *end, bool *under_way)
{
    struct rs_rdma_done done;
    int news = end->queue.base.ops->poll(&end->queue.base, &done);

    if (news < 0)
        link_fail(link, "an unexpected completion");
    if (news == 1 && done.failed)
        link_fail(link, done.cause);
    if (news == 1)
        *under_way = false;
    return news == 1;
}

static bool is_sending(struct link *link)
{
    bool sending = false;

    for (uint32_t i = 0; i < link->num_lanes; i++) {
        struct lane *lane = &link->lanes[i];

        if (lane->under_way)
            poll_end(link, &lane->a, &lane->under_way);
        sending |= lane->under_way;
    }
    return sending;
}

/* Start the next epoch once the last one is complete and consumed. */
static void sender_step(struct link *link)
{
    if (is_sending(link) || link->sent == EPOCHS ||
        atomic_load_explicit(&link->granted, memory_order_acquire) <
            link->sent)
        return;
    link->sent++;
    fill(link->from, link->sent);
    for (uint32_t i = 0; i < link->num_lanes; i++) {
        struct lane *lane = &link->lanes[i];

        end_start(&lane->a, lane->list, link->sent, link->sent);
        lane->under_way = true;
    }
}

static bool sender_is_done(const struct link *link)
{
    for (uint32_t i = 0; i < link->num_lanes; i++) {
        if (link->lanes[i].under_way)
            return false;
    }
    return link->sent == EPOCHS;
}

/* ---- the receiver ---- */

static void take_immediates(struct link *link, struct lane *lane)
{
    struct rs_cqe cqe;

    while (rs_cq_poll(&lane->b.receive_cq, &cqe)) {
        lane->immediates++;
        if (cqe.kind != RS_CQE_RECEIVED_IMM ||
            cqe.imm != (0x5a0000 | lane->immediates))
            link_fail(link, "a wrong immediate");
        rs_rq_take(&lane->b.rq);
        rs_rq_post(&lane->b.rq, 1);
    }
}

static bool has_arrived(struct link *link, uint64_t epoch)
{
    for (uint32_t i = 0; i < link->num_lanes; i++) {
        struct lane *lane = &link->lanes[i];
        uint64_t notified;

        take_immediates(link, lane);
        notified = link->notify == NOTIFY_IMM
                       ? lane->immediates
                       : atomic_load_explicit(&lane->notified,
                                              memory_order_acquire);
        if (notified < epoch)
            return false;
    }
    return true;
}

static void expect_lane(const struct link *link, const struct lane *lane)
{
    for (uint32_t i = 0; i < lane->num_puts; i++) {
        const struct rs_rdma_op *op = &lane->puts[i].op;
        char *to = link->expected_to + (op->remote - (uintptr_t)link->to);

        for (uint32_t k = 0; k < op->num_pieces; k++) {
            const struct rs_rdma_piece *p = &lane->puts[i].pieces[k];

            memcpy(to,
                   link->expected_from + (p->address - (uintptr_t)link->from),
                   p->bytes);
            to += p->bytes;
        }
    }
}

static void compare(struct link *link, uint64_t epoch)
{
    fill(link->expected_from, epoch);
    memset(link->expected_to, UNTOUCHED, BYTES);
    for (uint32_t i = 0; i < link->num_lanes; i++)
        expect_lane(link, &link->lanes[i]);
    if (memcmp(link->expected_to, link->to, BYTES) != 0)
        link_fail(link, "wrong data");
}

static void receiver_step(struct link *link)
{
    struct end *back = &link->lanes[0].b;

    if (link->granting)
        poll_end(link, back, &link->granting);
    if (link->granting || link->received == EPOCHS ||
        !has_arrived(link, link->received + 1))
        return;
    link->received++;
    compare(link, link->received);
    end_start(back, link->grant, link->received, 0);
    link->granting = true;
}

static bool receiver_is_done(const struct link *link)
{
    return link->received == EPOCHS && !link->granting;
}

/* ---- running ---- */

enum { MAX_LINKS = 2, STEP_SEEDS = 150, THREAD_SEEDS = 12 };

static struct rs_softnic_options make_options(unsigned seed)
{
    static const uint32_t drops[] = {0, 30, 100};

    return (struct rs_softnic_options){
        .seed = seed,
        .mtu = UINT32_C(64) << seed % 7,
        .drop_percent = drops[seed % 3],
        .late_steps = seed % 4 * 10,
        .relaxed = seed % 2 == 1,
        .check_sources = true,
    };
}

static bool is_over(const struct link *link, bool sender, bool receiver)
{
    return link->failure != NULL ||
           rs_softnic_violation(link->nics[0])[0] != '\0' ||
           rs_softnic_violation(link->nics[1])[0] != '\0' ||
           ((!sender || sender_is_done(link)) &&
            (!receiver || receiver_is_done(link)));
}

static void run_steps(struct link *links, uint32_t n)
{
    uint32_t over;

    do {
        over = 0;
        for (uint32_t i = 0; i < n; i++) {
            sender_step(&links[i]);
            receiver_step(&links[i]);
            over += is_over(&links[i], true, true);
        }
        rs_softnic_step(links[0].nics[0]);
    } while (over < n);
}

static void *sender(void *arg)
{
    struct link *link = arg;

    while (!is_over(link, true, false)) {
        sender_step(link);
        sched_yield();
    }
    return NULL;
}

static void *receiver(void *arg)
{
    struct link *link = arg;

    while (!is_over(link, false, true)) {
        receiver_step(link);
        sched_yield();
    }
    return NULL;
}

static void run_threads(struct link *links, uint32_t n)
{
    pthread_t threads[2 * MAX_LINKS];

    for (uint32_t i = 0; i < n; i++) {
        PAIR_NEEDS(pthread_create(&threads[2 * i], NULL, sender, &links[i]) ==
                   0);
        PAIR_NEEDS(pthread_create(&threads[2 * i + 1], NULL, receiver,
                                  &links[i]) == 0);
    }
    for (uint32_t i = 0; i < 2 * n; i++)
        pthread_join(threads[i], NULL);
}

static void nics_init(struct rs_softnic *nics[2], unsigned seed, bool threads)
{
    struct rs_softnic_options options = make_options(seed);
    int num_nics = threads && seed % 4 < 2 ? 2 : 1;

    for (int i = 0; i < num_nics; i++) {
        PAIR_NEEDS(rs_softnic_create(&options, &nics[i]) == 0);
        PAIR_NEEDS(rs_softnic_listen(nics[i], &addresses[i]) == 0);
        if (threads)
            PAIR_NEEDS(rs_softnic_start(nics[i]) == 0);
    }
    if (num_nics == 1)
        nics[1] = nics[0];
}

/* Both stop before one of them is gone. */
static void nics_fini(struct rs_softnic *const nics[2])
{
    rs_softnic_stop(nics[0]);
    rs_softnic_stop(nics[1]);
    rs_softnic_destroy(nics[0]);
    if (nics[1] != nics[0])
        rs_softnic_destroy(nics[1]);
}

static bool link_is_wrong(const struct link *link, unsigned seed)
{
    const char *failure = link->failure;
    const char *violation = rs_softnic_violation(link->nics[0]);

    if (violation[0] == '\0')
        violation = rs_softnic_violation(link->nics[1]);
    if (link->received == EPOCHS && failure == NULL && violation[0] == '\0')
        return false;
    fprintf(stderr, "seed %u: %llu epochs received: %s; %s\n", seed,
            (unsigned long long)link->received,
            failure == NULL ? "" : failure, violation);
    return true;
}

static int run(unsigned seed, bool threads)
{
    uint32_t n = 1 + seed % MAX_LINKS;
    struct link *links = calloc(n, sizeof(*links));
    struct rs_softnic *nics[2];
    int failed = 0;

    nics_init(nics, seed, threads);
    for (uint32_t i = 0; i < n; i++)
        link_init(&links[i], nics, seed * 16 + i, make_options(seed).relaxed);
    if (threads)
        run_threads(links, n);
    else
        run_steps(links, n);
    for (uint32_t i = 0; i < n; i++) {
        failed |= link_is_wrong(&links[i], seed);
        link_fini(&links[i]);
    }
    if (make_options(seed).drop_percent > 0 &&
        rs_softnic_stats(nics[0]).dropped == 0) {
        fprintf(stderr, "seed %u: no doorbell was lost\n", seed);
        failed = 1;
    }
    nics_fini(nics);
    free(links);
    return failed;
}

int main(int argc, char **argv)
{
    bool threads = argc == 2 && strcmp(argv[1], "threads") == 0;
    int failed = 0;

    if (argc != 2 || (!threads && strcmp(argv[1], "steps") != 0)) {
        fprintf(stderr, "usage: %s steps|threads\n", argv[0]);
        return 2;
    }
    alarm(200); /* a lost wake-up is a failure, not a hang */
    for (unsigned seed = 0; seed < (threads ? THREAD_SEEDS : STEP_SEEDS);
         seed++)
        failed |= run(seed, threads);
    return failed;
}
