/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails and lanes, on libibverbs alone: what the measurements of the simulated
 * fabric are made with, so that they share nothing with the engine.
 *
 * One process opens the rails of all hosts, h0r0, h0r1, ... h1r0, ..., and holds
 * both ends of every lane. Whatever fails ends the program with a text.
 */
#ifndef BENCH_VERBS_RAILS_H
#define BENCH_VERBS_RAILS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Ends the program: "NAME: text", exit status 1. */
_Noreturn void die(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/** Fails if a pointer is NULL, with the text of errno. */
void *check_pointer(void *pointer, const char *what);

/** Fails if a verbs call did not return 0. */
void check(int error, const char *what);

/** Now, ns; the same clock on all simulated hosts. */
uint64_t now_ns(void);

/* Timeouts of queue pairs, 4.096 us * 2^n. The first one, 4 s: a guest whose CPUs
 * are taken away stalls for long, and on slow rails what is in flight both ways
 * takes a second. But in series of exchanges all that was in flight was sent again
 * now and then though nothing was lost: when all is acknowledged Soft-RoCE lets its
 * timer run on (rxe_comp.c: "let it expire"), and a later post starts none while one
 * runs (rxe_req.c, update_state), so it ends in the next exchange. The second one,
 * 137 s, is for series that are measured, where nothing is lost. */
enum { RAIL_TIMEOUT = 20, RAIL_TIMEOUT_MEASURED = 25 };

/** An open device. */
struct rail {
    unsigned host, number;
    uint8_t timeout; /* of its queue pairs that are made from now on */
    struct ibv_context *context;
    struct ibv_pd *pd;
    union ibv_gid gid; /* RoCE v2 over IPv4 */
    int gid_index;
    enum ibv_mtu mtu;
};

struct fabric {
    unsigned num_hosts, num_rails; /* per host */
    struct rail *rails;            /* host by host */
};

/** Open all devices named hHrR, whose queue pairs have this timeout.
 * @return false if there are none */
bool fabric_open(struct fabric *fabric, uint8_t timeout);
void fabric_close(struct fabric *fabric);

/** How often, since the devices were made, a requester had to start again from
 * a lost or early packet, or a receiver was not ready. */
uint64_t fabric_retransmissions(const struct fabric *fabric);

struct rail *fabric_rail(const struct fabric *fabric, unsigned host,
                         unsigned number);

/** One end of a lane. */
struct lane_end {
    struct rail *rail;
    struct ibv_qp *qp;
    struct ibv_cq *send_cq, *receive_cq;
    struct ibv_mr *mr;
    char *buffer;
};

/** An RC queue pair from one rail to another, and a buffer at each end. */
struct lane {
    struct lane_end from, to;
    uint64_t bytes;  /* of each buffer */
    unsigned depth;  /* work requests that fit into the send queue */
};

enum {
    LANE_INLINE = 64, /* bytes that may travel inline */
    LANE_PIECES = 16, /* entries of a work request */
};

void lane_create(struct lane *lane, struct rail *from, struct rail *to,
                 uint64_t bytes, unsigned depth);
void lane_destroy(struct lane *lane);

/** Post `count` receives, without buffers, for immediates. */
void lane_post_receives(struct lane *lane, size_t count);

/** Take completions. Fails if one is an error.
 * @return how many of at most `most` */
size_t lane_poll(struct ibv_cq *cq, struct ibv_wc *wcs, size_t most);

/** Sleep between two looks: whoever spins takes the CPU from Soft-RoCE. */
void lane_nap(void);

/** Wait, sleeping, for one completion; fails after 20 s. */
struct ibv_wc lane_wait(struct ibv_cq *cq);

#endif
