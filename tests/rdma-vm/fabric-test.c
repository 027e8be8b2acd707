/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether the simulated fabric is what measurements on it assume: rails that
 * are shared and rails that are not, and the operations that engines need.
 * Usage: fabric-test TEST, in the controller of 2 hosts with 2 rails or more.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/verbs/queues.h"

enum { LARGE = 200000, SMALL = 20000, ROUNDS = 20, SKIP = 77 };

/* The shortest of two runs with one put per lane. */
static uint64_t shortest(struct queue *queues, size_t num_queues)
{
    const uint64_t first = queues_run(queues, num_queues);
    const uint64_t second = queues_run(queues, num_queues);

    return first < second ? first : second;
}

/* Expect the time of two large writes at once over that of one. Both are the
 * shortest of up to ROUNDS: what other work on the machine adds is only ever
 * added, so they get closer to the truth. */
static void expect(struct fabric *fabric, const char *what,
                   const unsigned from[2][2], const unsigned to[2][2],
                   double least, double most)
{
    const uint64_t bytes = LARGE;
    uint64_t one = UINT64_MAX, two = UINT64_MAX;
    double ratio = 0;
    struct lane lanes[2];
    struct queue queues[2];

    for (int i = 0; i < 2; i++) {
        lane_create(&lanes[i], fabric_rail(fabric, from[i][0], from[i][1]),
                    fabric_rail(fabric, to[i][0], to[i][1]), LARGE, 1);
        queue_create(&queues[i], &lanes[i], &bytes, 1);
    }
    for (int i = 0; i < ROUNDS && (ratio < least || ratio > most); i++) {
        const uint64_t one_now = shortest(queues, 1);
        const uint64_t two_now = shortest(queues, 2);

        one = one_now < one ? one_now : one;
        two = two_now < two ? two_now : two;
        ratio = (double)two / (double)one;
    }
    printf("%s: %.2f times one\n", what, ratio);
    if (ratio < least || ratio > most)
        die("%s: %.2f is not within %.2f and %.2f", what, ratio, least, most);
    for (int i = 0; i < 2; i++) {
        queue_destroy(&queues[i]);
        lane_destroy(&lanes[i]);
    }
}

/* Queue pairs on one rail share its rate, also at the receiver; those on two
 * rails do not, nor do the two directions of one. */
static void test_sharing(struct fabric *fabric)
{
    expect(fabric, "two writes on one rail",
           (const unsigned[2][2]){{0, 0}, {0, 0}},
           (const unsigned[2][2]){{1, 0}, {1, 0}}, 1.7, 2.3);
    expect(fabric, "two writes on two rails",
           (const unsigned[2][2]){{0, 0}, {0, 1}},
           (const unsigned[2][2]){{1, 0}, {1, 1}}, 0.8, 1.3);
    expect(fabric, "two writes into one port",
           (const unsigned[2][2]){{0, 0}, {0, 1}},
           (const unsigned[2][2]){{1, 0}, {1, 0}}, 1.7, 2.3);
    expect(fabric, "two writes against each other",
           (const unsigned[2][2]){{0, 0}, {1, 0}},
           (const unsigned[2][2]){{1, 0}, {0, 0}}, 0.8, 1.3);
}

/* A list is posted twice: all of it arrives, with one completion each time. */
static void test_chain(struct fabric *fabric)
{
    enum { PUTS = 20, BYTES = 100 };
    struct lane lane;
    struct ibv_sge sges[PUTS];
    struct ibv_send_wr wrs[PUTS], *bad;
    struct ibv_wc wc;

    lane_create(&lane, fabric_rail(fabric, 0, 0), fabric_rail(fabric, 1, 0),
                PUTS * BYTES, PUTS);
    for (unsigned i = 0; i < PUTS; i++) {
        sges[i] = (struct ibv_sge){
            .addr = (uintptr_t)lane.from.buffer + i * BYTES, .length = BYTES,
            .lkey = lane.from.mr->lkey};
        wrs[i] = (struct ibv_send_wr){
            .wr_id = i, .next = i + 1 < PUTS ? &wrs[i + 1] : NULL,
            .sg_list = &sges[i], .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
            .send_flags = i + 1 < PUTS ? 0 : IBV_SEND_SIGNALED,
            .wr.rdma = {(uintptr_t)lane.to.buffer + i * BYTES,
                        lane.to.mr->rkey}};
    }
    for (int round = 1; round <= 2; round++) {
        memset(lane.from.buffer, round, PUTS * BYTES);
        check(ibv_post_send(lane.from.qp, wrs, &bad), "ibv_post_send");
        wc = lane_wait(lane.from.send_cq);
        if (wc.wr_id != PUTS - 1)
            die("work request %" PRIu64 " completed, not the last", wc.wr_id);
        if (memcmp(lane.from.buffer, lane.to.buffer, PUTS * BYTES) != 0)
            die("round %d: not all of the list has arrived", round);
    }
    if (lane_poll(lane.from.send_cq, &wc, 1) != 0)
        die("a work request that was not signalled completed");
    lane_destroy(&lane);
}

/* Post one request, signalled. */
static void post(struct lane *lane, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;

    wr->send_flags |= IBV_SEND_SIGNALED;
    check(ibv_post_send(lane->from.qp, wr, &bad), "ibv_post_send");
}

/* The source may be written again as soon as the post has returned. */
static void test_inline(struct fabric *fabric)
{
    struct lane lane;
    char text[LANE_INLINE] = "before";
    struct ibv_sge sge = {.addr = (uintptr_t)text, .length = sizeof(text)};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_INLINE};

    lane_create(&lane, fabric_rail(fabric, 0, 0), fabric_rail(fabric, 1, 0),
                LANE_INLINE, 1);
    wr.wr.rdma.remote_addr = (uintptr_t)lane.to.buffer;
    wr.wr.rdma.rkey = lane.to.mr->rkey;
    post(&lane, &wr);
    strcpy(text, "after");
    lane_wait(lane.from.send_cq);
    if (strcmp(lane.to.buffer, "before") != 0)
        die("the receiver has '%s'", lane.to.buffer);
    lane_destroy(&lane);
}

/* The lane's buffer and then an immediate without data, in one list. Returns the
 * completion of the immediate at the receiver. */
static struct ibv_wc send_with_immediate(struct lane *lane)
{
    struct ibv_sge sge = {.addr = (uintptr_t)lane->from.buffer,
                          .length = (uint32_t)lane->bytes,
                          .lkey = lane->from.mr->lkey};
    struct ibv_send_wr wrs[2] = {
        {.next = &wrs[1], .sg_list = &sge, .num_sge = 1,
         .opcode = IBV_WR_RDMA_WRITE,
         .wr.rdma = {(uintptr_t)lane->to.buffer, lane->to.mr->rkey}},
        {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(0xfeed),
         .send_flags = IBV_SEND_SIGNALED}};
    struct ibv_send_wr *bad;
    struct ibv_wc wc;

    memset(lane->from.buffer, 1, lane->bytes);
    lane_post_receives(lane, 1);
    check(ibv_post_send(lane->from.qp, wrs, &bad), "ibv_post_send");
    wc = lane_wait(lane->to.receive_cq);
    if (memcmp(lane->from.buffer, lane->to.buffer, lane->bytes) != 0)
        die("the immediate has overtaken the data");
    lane_wait(lane->from.send_cq);
    return wc;
}

/* An immediate says that the data before it on the queue pair is there; it may
 * come alone. */
static void test_immediate(struct fabric *fabric)
{
    struct lane lane;
    struct ibv_wc wc;

    lane_create(&lane, fabric_rail(fabric, 0, 0), fabric_rail(fabric, 1, 0),
                LARGE, 2);
    wc = send_with_immediate(&lane);
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || ntohl(wc.imm_data) != 0xfeed)
        die("opcode %d, immediate 0x%x", wc.opcode, ntohl(wc.imm_data));
    lane_destroy(&lane);
}

/* Fetch-and-add returns what was there, and counts. */
static void test_fetch_add(struct fabric *fabric)
{
    struct lane lane;
    struct ibv_sge sge = {.length = sizeof(uint64_t)};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1,
                             .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                             .wr.atomic.compare_add = 3};
    uint64_t value;

    lane_create(&lane, fabric_rail(fabric, 0, 0), fabric_rail(fabric, 1, 0),
                sizeof(value), 1);
    sge.addr = (uintptr_t)lane.from.buffer;
    sge.lkey = lane.from.mr->lkey;
    wr.wr.atomic.remote_addr = (uintptr_t)lane.to.buffer;
    wr.wr.atomic.rkey = lane.to.mr->rkey;
    for (uint64_t before = 0; before < 9; before += 3) {
        post(&lane, &wr);
        lane_wait(lane.from.send_cq);
        memcpy(&value, lane.from.buffer, sizeof(value));
        if (value != before)
            die("the old value is %" PRIu64 ", not %" PRIu64, value, before);
        memcpy(&value, lane.to.buffer, sizeof(value));
        if (value != before + 3)
            die("the counter is %" PRIu64, value);
    }
    lane_destroy(&lane);
}

/* ---- what tests of faults rely on; they use the last rail ---- */

static void rail_command(const struct rail *rail, const char *what)
{
    char command[64];

    snprintf(command, sizeof(command), "rail h%ur%u %s", rail->host,
             rail->number, what);
    if (system(command) != 0)
        die("failed: %s", command);
}

/* Packets are lost and sent again; the data is right. Messages are of few
 * packets: what is lost at the end of one, or twice, is only found by the queue
 * pair's timeout. */
static void test_loss(struct fabric *fabric)
{
    enum { MESSAGES = 40 }; /* of 6 packets: one in two loses some */
    struct rail *rail = fabric_rail(fabric, 0, fabric->num_rails - 1);
    const uint64_t before = fabric_retransmissions(fabric);
    struct lane lane;

    lane_create(&lane, rail, fabric_rail(fabric, 1, rail->number), SMALL, 2);
    rail_command(rail, "loss 10");
    for (int i = 0;
         i < MESSAGES && fabric_retransmissions(fabric) == before; i++)
        send_with_immediate(&lane);
    rail_command(rail, "loss 0");
    if (fabric_retransmissions(fabric) == before)
        die("nothing was sent again");
    lane_destroy(&lane);
}

/* A rail that is set down in the middle of a list makes it fail, in bounded
 * time, and works again once it is up. */
static void test_down(struct fabric *fabric)
{
    enum { PUTS = 120 }; /* 10 s at the usual rate, whatever "down" takes */
    struct rail *rail = fabric_rail(fabric, 0, fabric->num_rails - 1);
    struct rail *peer = fabric_rail(fabric, 1, rail->number);
    const uint64_t limit = now_ns() + UINT64_C(60000000000);
    struct ibv_send_wr wrs[PUTS], *bad;
    struct ibv_sge sge = {.length = LARGE};
    struct lane lane;
    struct ibv_wc wc;

    rail_command(rail, "loss 0"); /* should test_loss have failed */
    lane_create(&lane, rail, peer, LARGE, PUTS);
    sge.addr = (uintptr_t)lane.from.buffer;
    sge.lkey = lane.from.mr->lkey;
    for (int i = 0; i < PUTS; i++)
        wrs[i] = (struct ibv_send_wr){
            .next = i + 1 < PUTS ? &wrs[i + 1] : NULL, .sg_list = &sge,
            .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
            .send_flags = i + 1 < PUTS ? 0 : IBV_SEND_SIGNALED,
            .wr.rdma = {(uintptr_t)lane.to.buffer, lane.to.mr->rkey}};
    check(ibv_post_send(lane.from.qp, wrs, &bad), "ibv_post_send");
    rail_command(rail, "down");
    while (ibv_poll_cq(lane.from.send_cq, 1, &wc) == 0) {
        if (now_ns() > limit)
            die("no completion 60 s after the rail went down");
        lane_nap();
    }
    rail_command(rail, "up");
    if (wc.status != IBV_WC_RETRY_EXC_ERR && /* or the route has gone */
        wc.status != IBV_WC_LOC_QP_OP_ERR)
        die("the work request ended with: %s", ibv_wc_status_str(wc.status));
    lane_destroy(&lane);
    lane_create(&lane, rail, peer, LARGE, 2);
    send_with_immediate(&lane);
    lane_destroy(&lane);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct fabric *fabric);
    } tests[] = {
        {"sharing", test_sharing}, {"chain", test_chain},
        {"inline", test_inline},   {"immediate", test_immediate},
        {"fetch-add", test_fetch_add}, {"loss", test_loss}, {"down", test_down},
    };
    struct fabric fabric;

    if (!fabric_open(&fabric, RAIL_TIMEOUT)) {
        puts("SKIP: there are no devices h0r0, h0r1, ...");
        return SKIP;
    }
    for (size_t i = 0; argc == 2 && i < sizeof(tests) / sizeof(*tests); i++) {
        if (strcmp(tests[i].name, argv[1]) == 0) {
            tests[i].run(&fabric);
            fabric_close(&fabric);
            return EXIT_SUCCESS;
        }
    }
    die("usage: fabric-test sharing|chain|inline|immediate|fetch-add|loss|down");
}
