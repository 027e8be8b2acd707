/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the verbs engine share. */
#ifndef RS_VERBS_H
#define RS_VERBS_H

#include <assert.h>
#include <stdatomic.h>

#include <infiniband/verbs.h>

#include "engines/rdma/port.h"

/* What a peer must know of a port. */
struct rs_verbs_address {
    unsigned char gid[16];
    uint16_t lid;
    uint8_t mtu;   /* enum ibv_mtu */
    uint8_t roce;  /* the GID is needed, the LID means nothing */
};
static_assert(sizeof(struct rs_verbs_address) == RS_PORT_ADDRESS_BYTES,
              "wire layout");

struct rs_verbs_port {
    struct rs_rdma_port port; /* first: the public part */
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct rs_rdma_port_ops ops; /* where they are not those of all ports */
    uint32_t receives; /* that a queue pair has if immediates notify */
    bool mlx5;        /* its queue pairs are driven by engines/mlx5 */
    atomic_bool gone; /* the device has been removed */
    uint8_t number;
    uint8_t gid_index;
    struct rs_verbs_address address;
};

/** Open the ports that RSCHED_DEVICES names, or all; see rs_rdma_ports_fn. */
int rs_verbs_ports_open(const struct rsched_engine_env *env,
                        struct rs_rdma_port **ports);

#endif
