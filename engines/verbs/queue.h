/* SPDX-License-Identifier: BSD-3-Clause */
/* A reliable-connected queue pair, its completion queue and what was posted. */
#ifndef RS_VERBS_QUEUE_H
#define RS_VERBS_QUEUE_H

#include <infiniband/verbs.h>

#include "engines/rdma/port.h"
#include "engines/verbs/chain.h"

enum {
    RS_VERBS_LEAST_DEPTH = 4,  /* data, its notification, and as much again */
    RS_VERBS_LEAST_INLINE = 8, /* a word of a notification */
};

struct rs_verbs_port;

/* A list that has been posted; complete in the order of the posts. */
struct rs_verbs_post {
    uint64_t id;
    uint32_t num_requests;
};

struct rs_verbs_queue {
    struct rs_rdma_queue queue; /* first: the public part */
    struct rs_verbs_port *port;
    struct ibv_cq *cq, *receive_cq;
    struct ibv_qp *qp;
    /* Posted and not rung yet: one chain over several lists. */
    struct ibv_send_wr *head, *tail;
    uint64_t rings;
    /* Under way: a ring, oldest first. */
    struct rs_verbs_post *posts;
    uint32_t first_post, num_posts;
    struct ibv_qp_cap cap; /* as granted */
    uint32_t depth, used; /* in requests */
    uint32_t psn; /* of the first packet sent */
    bool failed;
};

extern const struct rs_rdma_queue_ops rs_verbs_queue_ops;

int rs_verbs_queue_create(struct rs_rdma_port *port,
                          struct rs_rdma_endpoint *endpoint,
                          struct rs_rdma_queue **queue);
int rs_verbs_queue_connect(struct rs_rdma_queue *queue,
                           const unsigned char *address,
                           const struct rs_rdma_endpoint *endpoint);
#ifdef RSCHED_HAVE_ORDER
/** As rs_rdma_port_ops.queue_is_in_order. Most drivers know nothing of it, and say
 * no. */
bool rs_verbs_queue_is_in_order(struct rs_rdma_queue *queue, bool in_gpu);
#endif
void rs_verbs_queue_destroy(struct rs_rdma_queue *queue);

/** Its queue pair does nothing more, at either end: whoever is told that it has
 * failed takes what it reads, and what the peer writes through it, for his own
 * again. */
void rs_verbs_queue_stop(struct rs_rdma_queue *queue);

/** The same of one of whose posts the completions are still polled for. */
void rs_verbs_queue_end(struct rs_rdma_queue *queue);

/** Lower the port's `receives`, `max_ops` and `max_pieces`, and set its
 * `max_inline`, until a queue pair can be made that has all of them.
 * @return 0; or what errno says of one that has the least */
int rs_verbs_find_limits(struct rs_verbs_port *port);

#endif
