/* SPDX-License-Identifier: BSD-3-Clause */
/* What every engine over RDMA queue pairs is made of: instance, connections,
 * and the functions of its table but open and what names it. */
#ifndef RS_RDMA_H
#define RS_RDMA_H

#include <pthread.h>

#include "engines/rdma/lane.h"
#include "engines/rdma/link.h"

struct rsched_engine {
    struct rsched_engine_env env;
    const char *name;
    uint64_t nonce; /* tells instances apart */
    pthread_mutex_t lock; /* memories */
    struct rs_rdma_memory rails[RSCHED_MAX_RAILS];
    uint32_t num_rails;
};

struct rsched_connection {
    struct rsched_engine *engine;
    int peer;
    uint32_t num_links;
    struct rs_rdma_link links[RSCHED_MAX_RAILS];
    struct rs_rdma_link_offer offers[RSCHED_MAX_RAILS]; /* own ones */
    unsigned char addresses[RSCHED_MAX_RAILS][RS_PORT_ADDRESS_BYTES];
    /* Links, as bits: that this end could connect, and those of them that are in use:
     * that the peer could, too, once it has said so. The others are left out. */
    uint32_t connected, used;
    bool agreed; /* it has */
    uint64_t retry_ps; /* when another connection is worth a try */
};

/** The link that the lanes of a rail go over: its own, or the next one that is in use;
 * the same at both ends. */
struct rs_rdma_link *rs_rdma_find_link(struct rsched_connection *, uint32_t rail);

/** Make an instance of what the table calls `name`, with the ports found. */
int rs_rdma_open(const char *name, const struct rsched_engine_env *env,
                 rs_rdma_ports_fn *ports, struct rsched_engine **engine);
void rs_rdma_close(struct rsched_engine *);
void rs_rdma_address(struct rsched_engine *, unsigned char *address);
uint32_t rs_rdma_tell_ports(const struct rsched_engine *,
                            struct rsched_engine_port *ports);
int rs_rdma_connect(struct rsched_engine *, int peer,
                    const unsigned char *address, struct rsched_connection **);
void rs_rdma_offer(struct rsched_connection *, unsigned char *offer);
int rs_rdma_accept(struct rsched_connection *, const unsigned char *offer);
uint32_t rs_rdma_rails(const struct rsched_connection *);
uint32_t rs_rdma_rails_connected(const struct rsched_connection *);
int rs_rdma_rails_agree(struct rsched_connection *, uint32_t theirs);
uint32_t rs_rdma_rails_used(const struct rsched_connection *);
void rs_rdma_disconnect(struct rsched_connection *);
int rs_rdma_check(struct rsched_connection *);
bool rs_rdma_settle(struct rsched_connection *);
bool rs_rdma_is_whole(const struct rsched_connection *);
void rs_rdma_sleep(struct rsched_engine *, const struct rsched_lane *,
                   uint64_t limit_ps, bool (*ready)(void *arg), void *arg);
uint64_t rs_rdma_memory_bytes(struct rsched_engine *);
uint64_t rs_rdma_wakes(struct rsched_engine *);

/* gpu.c: lanes of which the own end may lie in GPU memory. Devices reach it where
 * it can be registered, else it is staged through host memory. */

int rs_rdma_gpu_rx_create(struct rsched_connection *,
                          const struct rsched_lane_spec *,
                          unsigned char *descriptor, struct rsched_lane **);
int rs_rdma_gpu_tx_create(struct rsched_connection *,
                          const struct rsched_lane_spec *,
                          const unsigned char *descriptor, unsigned char *reply,
                          struct rsched_lane **);
int rs_rdma_gpu_rx_attach(struct rsched_lane *, const unsigned char *reply);
void rs_rdma_gpu_rx_abandon(struct rsched_lane *);
void rs_rdma_gpu_tx_abandon(struct rsched_lane *);
int rs_rdma_gpu_rx_check(struct rsched_lane *);
int rs_rdma_gpu_tx_check(struct rsched_lane *);
void rs_rdma_gpu_rx_destroy(struct rsched_lane *);
void rs_rdma_gpu_tx_destroy(struct rsched_lane *);
int rs_rdma_gpu_tx_load(struct rsched_lane *, const struct rsched_message *);
int rs_rdma_gpu_rx_load(struct rsched_lane *, const struct rsched_message *);
int rs_rdma_gpu_tx_start(struct rsched_lane *);
int rs_rdma_gpu_rx_start(struct rsched_lane *);
int rs_rdma_gpu_tx_progress(struct rsched_lane *);
int rs_rdma_gpu_rx_progress(struct rsched_lane *);

/** Lanes of either kind, as the edge is; those of the second kind bring their
 * own table. */
int rs_rdma_any_rx_create(struct rsched_connection *,
                          const struct rsched_lane_spec *,
                          unsigned char *descriptor, struct rsched_lane **);
int rs_rdma_any_tx_create(struct rsched_connection *,
                          const struct rsched_lane_spec *,
                          const unsigned char *descriptor, unsigned char *reply,
                          struct rsched_lane **);

/** The functions of an engine's table that are the same for all: of instances and
 * connections, ... */
#define RS_RDMA_ENGINE_OPS                                                  \
    .accept = rs_rdma_accept,                                               \
    .address = rs_rdma_address,                                             \
    .check = rs_rdma_check,                                                 \
    .close = rs_rdma_close,                                                 \
    .connect = rs_rdma_connect,                                             \
    .disconnect = rs_rdma_disconnect,                                       \
    .group_create = rs_rdma_group_create,                                   \
    .group_destroy = rs_rdma_group_destroy,                                 \
    .is_whole = rs_rdma_is_whole,                                           \
    .memory = rs_rdma_memory_bytes,                                         \
    .offer = rs_rdma_offer,                                                 \
    .ports = rs_rdma_tell_ports,                                            \
    .rails = rs_rdma_rails,                                                 \
    .rails_agree = rs_rdma_rails_agree,                                     \
    .rails_connected = rs_rdma_rails_connected,                             \
    .rails_used = rs_rdma_rails_used,                                       \
    .settle = rs_rdma_settle,                                               \
    .sleep = rs_rdma_sleep,                                                 \
    .wakes = rs_rdma_wakes

/** ... and those of lanes, whose memory is the host's, or may be a GPU's. */
#define RS_RDMA_LANE_OPS                                                    \
    .rx_abandon = rs_rdma_rx_abandon,                                       \
    .rx_attach = rs_rdma_rx_attach,                                         \
    .rx_check = rs_rdma_rx_check,                                           \
    .rx_create = rs_rdma_any_rx_create,                                     \
    .rx_destroy = rs_rdma_rx_destroy,                                       \
    .rx_load = rs_rdma_rx_load,                                             \
    .rx_progress = rs_rdma_rx_progress,                                     \
    .rx_start = rs_rdma_rx_start,                                           \
    .tx_abandon = rs_rdma_tx_abandon,                                       \
    .tx_check = rs_rdma_tx_check,                                           \
    .tx_create = rs_rdma_any_tx_create,                                     \
    .tx_destroy = rs_rdma_tx_destroy,                                       \
    .tx_load = rs_rdma_tx_load,                                             \
    .tx_progress = rs_rdma_tx_progress,                                     \
    .tx_start = rs_rdma_tx_start
#define RS_RDMA_GPU_LANE_OPS                                                \
    .rx_abandon = rs_rdma_gpu_rx_abandon,                                   \
    .rx_attach = rs_rdma_gpu_rx_attach,                                     \
    .rx_check = rs_rdma_gpu_rx_check,                                       \
    .rx_create = rs_rdma_gpu_rx_create,                                     \
    .rx_destroy = rs_rdma_gpu_rx_destroy,                                   \
    .rx_load = rs_rdma_gpu_rx_load,                                         \
    .rx_progress = rs_rdma_gpu_rx_progress,                                 \
    .rx_start = rs_rdma_gpu_rx_start,                                       \
    .tx_abandon = rs_rdma_gpu_tx_abandon,                                   \
    .tx_check = rs_rdma_gpu_tx_check,                                       \
    .tx_create = rs_rdma_gpu_tx_create,                                     \
    .tx_destroy = rs_rdma_gpu_tx_destroy,                                   \
    .tx_load = rs_rdma_gpu_tx_load,                                         \
    .tx_progress = rs_rdma_gpu_tx_progress,                                 \
    .tx_start = rs_rdma_gpu_tx_start

#endif
