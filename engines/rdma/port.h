/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PORT: what the lanes of an RDMA engine need of a port of a device, whoever
 * drives it. The ports of an instance are the rails of its connections, in
 * this order. The sending side of a queue pair is in queue.h.
 *
 * Threads: called with the context's lock held.
 */
#ifndef RS_RDMA_PORT_H
#define RS_RDMA_PORT_H

#include <rsched/engine.h>

#include "engines/rdma/queue.h"

enum {
    RS_PORT_ADDRESS_BYTES = 20,
    RS_PORT_NAME_BYTES = 80,
};

/* What remote access registered memory allows. */
enum rs_rdma_access {
    RS_RDMA_LOCAL,  /* none: what is sent from */
    RS_RDMA_REMOTE, /* it is written, in the order of the writes, and added to */
};

/* A registration; `device` belongs to the port. */
struct rs_rdma_keys {
    uint32_t lkey, rkey;
    void *device;
};

/* What the peer must know of a queue pair to connect to it. */
struct rs_rdma_endpoint {
    uint32_t number; /* of the queue pair */
    uint32_t psn;    /* of its first packet */
};

struct rs_rdma_port;

struct rs_rdma_port_ops {
    void (*close)(struct rs_rdma_port *port);
    /** Write what a peer must know of the port: at most RS_PORT_ADDRESS_BYTES,
     * the rest is zero. */
    void (*address)(const struct rs_rdma_port *port, unsigned char *address);
    /** Whether the device is still there; called now and then, by any thread,
     * without the lock. @return 0, or RSCHED_EPEER with a text that says what
     * became of it: nothing moves through the port any more */
    int (*check)(struct rs_rdma_port *port);
    /** Whether the port is up, by what its device says now. NULL: nothing is known of
     * that, it counts as up. */
    bool (*is_active)(struct rs_rdma_port *port);

    /** @return 0; RSCHED_ELIMIT: the limit on locked memory, which the text
     * names; RSCHED_ESYS */
    int (*memory_register)(struct rs_rdma_port *port, void *address,
                           uint64_t bytes, enum rs_rdma_access access,
                           struct rs_rdma_keys *keys);
    void (*memory_release)(struct rs_rdma_port *port,
                           struct rs_rdma_keys *keys);
    /** The same of memory that a dma-buf stands for, from its first byte: the
     * device has it at `address`. The descriptor may be closed afterwards. NULL:
     * the port takes none. @return 0, RSCHED_ENOTSUP, RSCHED_ESYS */
    int (*dmabuf_register)(struct rs_rdma_port *port, int fd, uintptr_t address,
                           uint64_t bytes, enum rs_rdma_access access,
                           struct rs_rdma_keys *keys);

    /** Make a queue pair that can be connected, and its sending side. */
    int (*queue_create)(struct rs_rdma_port *port,
                        struct rs_rdma_endpoint *endpoint,
                        struct rs_rdma_queue **queue);
    /** Connect it with one at a port that has this address. */
    int (*queue_connect)(struct rs_rdma_queue *queue,
                         const unsigned char *address,
                         const struct rs_rdma_endpoint *endpoint);
    /** Of one that is connected: whether the device says that what the peer
     * writes through it is seen in its order. NULL: `in_order` is all that is
     * known. @param in_gpu the writes go to a GPU's memory */
    bool (*queue_is_in_order)(struct rs_rdma_queue *queue, bool in_gpu);
    /** From now on nobody reads or writes through it. */
    void (*queue_destroy)(struct rs_rdma_queue *queue);
};

/* What every port begins with. */
struct rs_rdma_port {
    const struct rs_rdma_port_ops *ops;
    char name[RS_PORT_NAME_BYTES]; /* for texts */
    uint32_t max_pieces; /* of an operation, at least 1 */
    uint32_t max_inline; /* bytes of an inlined operation, at least 8 */
    uint32_t max_ops;    /* under way on a queue, at least 4 */
    /* 0, or: a device in software, which sends within the call that posts. Of long
     * messages so many bytes are posted first, the rest when all rails have begun. */
    uint64_t head_bytes;
    bool in_order;       /* writes of a queue are seen in their order */
    bool fetch_add;      /* RS_RDMA_FETCH_ADD works on its memory */
    /* How its peers say that data is there, by what the port can do; what
     * queues that are made later have to be ready for. */
    enum rs_rdma_notify {
        RS_NOTIFY_FLAG, /* they write the number of the chunk or notification */
        RS_NOTIFY_ADD,  /* they add one */
        RS_NOTIFY_IMM,  /* an immediate names the lane */
        RS_NUM_NOTIFIES
    } notify;
    bool immediates; /* queues can take them, if `notify` is that */
    bool rings;      /* its queues begin with a struct rs_mlx5_queue, so that
                      * kernels can be given them (engines/mlx5/ring.h) */
};

/** Find the ports to use.
 * @param ports room for RSCHED_MAX_RAILS
 * @return how many there are, at least one; or RSCHED_ENOTSUP: none, the text
 *         says why; or another error */
typedef int rs_rdma_ports_fn(const struct rsched_engine_env *env,
                             struct rs_rdma_port **ports);

#endif
