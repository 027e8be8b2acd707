/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/verbs/strided.h"

#include <math.h>
#include <string.h>

#include "bench/verbs/least.h"

enum {
    BYTES = 4096,       /* of a put */
    SPAN = 1 << 20,     /* of a buffer; blocks are spread over it */
    LOOPS = 16,         /* of what is too short to be timed alone */
    BLOCKS_MOST = LANE_PIECES,
};

/* From the post until the device says that all is through. */
static double post(struct lane *lane, struct ibv_send_wr *wr)
{
    uint64_t before = now_ns();
    struct ibv_send_wr *bad;
    struct ibv_wc wc;

    check(ibv_post_send(lane->from.qp, wr, &bad), "ibv_post_send");
    while (lane_poll(lane->from.send_cq, &wc, 1) == 0)
        ;
    return (double)(now_ns() - before);
}

/* BYTES in n blocks: as entries of one write, or as writes of their own. */
static double put(struct lane *lane, unsigned n, bool scattered,
                  size_t repetitions)
{
    struct ibv_sge entries[BLOCKS_MOST];
    struct ibv_send_wr writes[BLOCKS_MOST];
    double times[repetitions];

    for (unsigned i = 0; i < n; i++) {
        entries[i] = (struct ibv_sge){
            .addr = (uintptr_t)lane->from.buffer + i * (SPAN / BLOCKS_MOST),
            .length = BYTES / n,
            .lkey = lane->from.mr->lkey};
        writes[i] = (struct ibv_send_wr){
            .next = i + 1 < n ? &writes[i + 1] : NULL,
            .sg_list = &entries[i],
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_WRITE,
            .send_flags = i + 1 < n ? 0 : IBV_SEND_SIGNALED,
            .wr.rdma = {.remote_addr = (uintptr_t)lane->to.buffer +
                                       i * (SPAN / BLOCKS_MOST),
                        .rkey = lane->to.mr->rkey}};
    }
    if (!scattered) {
        writes[0].num_sge = (int)n;
        writes[0].next = NULL;
        writes[0].send_flags = IBV_SEND_SIGNALED;
    }
    for (size_t i = 0; i < repetitions; i++)
        times[i] = post(lane, writes);
    return median(times, repetitions);
}

/* The slope is at least 0. */
static void fit_puts(struct lane *lane, bool scattered, size_t repetitions,
                     double *message, double *block)
{
    struct equations equations = {.unknowns = 2};
    double x[UNKNOWNS_MOST];

    for (unsigned n = 1; n <= BLOCKS_MOST; n *= 2)
        equations_add(&equations, (double[]){1, n},
                      put(lane, n, scattered, repetitions));
    equations_solve(&equations, x);
    *message = fmax(0, x[0]);
    *block = fmax(0, x[1]);
}

static double pack(const char *from, char *to, size_t n, size_t bytes,
                   size_t repetitions)
{
    const size_t stride = SPAN / n;
    double times[repetitions];

    for (size_t i = 0; i < repetitions; i++) {
        uint64_t before = now_ns();

        for (int loop = 0; loop < LOOPS; loop++) {
            for (size_t b = 0; b < n; b++)
                memcpy(to + b * bytes, from + b * stride, bytes);
            __asm__ volatile("" : : "r"(to) : "memory");
        }
        times[i] = (double)(now_ns() - before) / LOOPS;
    }
    return median(times, repetitions);
}

static void fit_copies(struct lane *lane, size_t repetitions,
                       struct strided *strided)
{
    struct equations equations = {.unknowns = 2};
    double x[UNKNOWNS_MOST];

    for (size_t n = 16; n <= 256; n *= 4) {
        for (size_t bytes = 64; bytes <= 2048; bytes *= 2)
            equations_add(&equations, (double[]){(double)n, (double)(n * bytes)},
                          pack(lane->from.buffer, lane->to.buffer, n, bytes,
                               repetitions));
    }
    equations_solve(&equations, x);
    strided->pack_block = fmax(0, x[0]);
    strided->pack_byte = fmax(1e-3, x[1]);
}

struct strided strided_measure(struct rail *rail, size_t repetitions)
{
    const size_t runs = 20 * repetitions;
    struct strided strided;
    struct lane lane;
    double message;

    lane_create(&lane, rail, rail, SPAN, BLOCKS_MOST);
    put(&lane, 1, false, runs);
    fit_puts(&lane, false, runs, &strided.gather_message,
             &strided.gather_block);
    fit_puts(&lane, true, runs, &message, &strided.scatter_block);
    fit_copies(&lane, runs, &strided);
    lane_destroy(&lane);
    return strided;
}
