/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the loopback engine share. */
#ifndef RS_LOOPBACK_H
#define RS_LOOPBACK_H

#include <sys/types.h>

#include <rsched/engine.h>

#include "engines/common/copy.h"
#include "engines/loopback/pull.h"
#include "engines/loopback/segment.h"
#include "librsched/base/hand.h"
#include "librsched/base/ways.h"

struct rsched_engine {
    struct rsched_engine_env env;
    struct rs_segment segment;
    struct rs_shared_file memory; /* what peers may map of ours */
    struct rs_hands hands;
    uint64_t spaces; /* of this process: hand.h */
    int numa_node;   /* that it runs on, or RS_NUMA_UNKNOWN */
    atomic_uint_fast64_t wakes;
    struct rsched_connection *former; /* without lanes, of those who may still write */
    atomic_uint_fast64_t slots; /* bytes of those that others write, of sizes that stay */
};

struct rsched_connection {
    struct rsched_engine *engine;
    struct rsched_connection *next_former;
    int peer;
    bool self;      /* the peer is this very engine */
    enum rs_distance distance;
    pid_t pid;      /* here; 0 if it has no number in our namespace */
    uint64_t nonce; /* of the peer's segment */
    uint64_t memory_id;
    int segment_fd; /* the peer's memfd, -1 if self */
    int pidfd;      /* -1 if there is none */
    struct rs_segment_header *header; /* the peer's, mapped */
    struct rs_maps maps; /* of the peer's memory */
    bool reads; /* the kernel lets this process read the peer's memory */
};

extern const struct rsched_engine_ops rs_loopback_ops;

/** What the ways to and from this peer cost. */
static inline const struct rs_host_ways *
rs_connection_ways(const struct rsched_connection *connection)
{
    return rs_ways_host(connection->engine->env.ways, connection->distance);
}

/** Wake a process whose threads sleep: futex_wake, counted in `engine`. */
void rs_doorbell_ring(struct rsched_engine *engine, struct rs_doorbell *bell)
    __attribute__((cold));

/** The tag of what the lane's peer does for it. */
uint32_t rs_loopback_tag(const struct rsched_lane *lane);

/** Forget those with former instances of processes whose slots can be used again: they
 * have closed by now, or are dead. */
void rs_connections_sweep(struct rsched_engine *engine);

/** Whether nothing can come from the peer any more. */
bool rs_connection_is_dead(const struct rsched_connection *connection);

int rs_loopback_rx_create(struct rsched_connection *, const struct rsched_lane_spec *,
                          unsigned char *descriptor, struct rsched_lane **);
int rs_loopback_tx_create(struct rsched_connection *, const struct rsched_lane_spec *,
                          const unsigned char *descriptor,
                          unsigned char *reply, struct rsched_lane **);
int rs_loopback_rx_attach(struct rsched_lane *, const unsigned char *reply);
void rs_loopback_rx_abandon(struct rsched_lane *);
void rs_loopback_tx_abandon(struct rsched_lane *);
int rs_loopback_rx_check(struct rsched_lane *);
int rs_loopback_tx_check(struct rsched_lane *);
bool rs_loopback_rx_is_over(struct rsched_lane *);
void rs_loopback_rx_destroy(struct rsched_lane *);
void rs_loopback_tx_destroy(struct rsched_lane *);
int rs_loopback_tx_load(struct rsched_lane *, const struct rsched_message *);
int rs_loopback_rx_load(struct rsched_lane *, const struct rsched_message *);
int rs_loopback_tx_start(struct rsched_lane *);
int rs_loopback_rx_start(struct rsched_lane *);
int rs_loopback_tx_progress(struct rsched_lane *);
const struct rsched_piece *rs_loopback_tx_blocks(struct rsched_lane *,
                                                 size_t *number);
uint64_t rs_loopback_tx_saves(struct rsched_lane *,
                              const struct rsched_piece *pages, size_t number);
int rs_loopback_tx_remap(struct rsched_lane *);
int rs_loopback_rx_progress(struct rsched_lane *);

#endif
