/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An engine for the conformance tests: the lanes of engines/rdma, the lists and
 * queues of engines/mlx5, and a softnic as the device of each rail. Between
 * instances, in threads or processes, the softnics talk to each other.
 *
 * SOFTNIC_ORDER: devices do not say that they keep writes in order, with `unknown`;
 * and they do not, with `relaxed`. SOFTNIC_REFUSED: process 0 can connect no queue pairs
 * of its first rail.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engines/mlx5/ring.h"
#include "engines/rdma/rdma.h"
#include "librsched/base/error.h"
#include "tests/conformance/node.h"
#include "tests/mlx5/pair.h"

enum {
    RAILS = 2,
    DOMAIN = 1,
    MAX_OPS = 64,
    MAX_PIECES = 16,
    MAX_INLINE = 220,
    MAX_SEGMENTS = 2 + MAX_PIECES + 4, /* of what is inlined for kernels */
    BLOCKS_OF_AN_OP = 5, /* of MAX_PIECES pieces */
    BLOCKS = 1024,       /* MAX_OPS of them, padded to a power of two */
    RECEIVES = 128,
};

static_assert(MAX_OPS * BLOCKS_OF_AN_OP * 2 <= BLOCKS, "lists fit");

struct port {
    struct rs_rdma_port port; /* first: the public part */
    struct rs_softnic *nic;
    struct rs_softnic_address address;
    bool recur;
    bool refused;
};
static_assert(sizeof(struct rs_softnic_address) <= RS_PORT_ADDRESS_BYTES,
              "wire layout");

struct queue {
    struct rs_mlx5_queue queue; /* first: the public part */
    struct rs_rdma_queue_ops ops;
    struct rs_softnic_qp *qp;
    struct rs_rq rq;
    struct rs_cq receive_cq;
    bool refused;
};

static struct port *port_of(struct rs_rdma_port *port)
{
    return (struct port *)port;
}

/* What the lists did wrong fails the test, whatever the engine made of it. */
static void port_close(struct rs_rdma_port *port)
{
    struct port *p = port_of(port);
    const char *violation;

    rs_softnic_stop(p->nic);
    violation = rs_softnic_violation(p->nic);
    if (violation[0] != '\0') {
        fprintf(stderr, "%s: %s\n", port->name, violation);
        abort();
    }
    rs_softnic_destroy(p->nic);
    free(p);
}

static void port_address(const struct rs_rdma_port *port,
                         unsigned char *address)
{
    memcpy(address, &((const struct port *)port)->address,
           sizeof(struct rs_softnic_address));
}

/* It does not go away. */
static int port_check(struct rs_rdma_port *port)
{
    (void)port;
    return 0;
}

static int register_at(struct rs_rdma_port *port, uintptr_t address,
                       void *memory, uint64_t bytes, enum rs_rdma_access access,
                       struct rs_rdma_keys *keys)
{
    unsigned allowed = access == RS_RDMA_LOCAL
                           ? 0
                           : RS_SOFTNIC_LOCAL_WRITE | RS_SOFTNIC_REMOTE_WRITE |
                                 RS_SOFTNIC_REMOTE_ATOMIC;
    uint32_t key;
    int error = rs_softnic_register_at(port_of(port)->nic, DOMAIN, address,
                                       memory, bytes, allowed, &key);

    if (error == 0)
        *keys = (struct rs_rdma_keys){.lkey = key, .rkey = key};
    return error;
}

/* A GPU's has no access rights; there is no peer memory here. Sanitizers do not
 * look at this call: the page may have others' bytes in it, or freed ones. */
static bool is_the_hosts(const void *address)
{
    int ends[2];
    bool is;

    if (pipe(ends) != 0)
        return false;
    is = syscall(SYS_write, ends[1], address, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return is;
}

static int memory_register(struct rs_rdma_port *port, void *address,
                           uint64_t bytes, enum rs_rdma_access access,
                           struct rs_rdma_keys *keys)
{
    if (!is_the_hosts(address))
        return rs_fail(RSCHED_ESYS, "%s: not the host's memory", port->name);
    return register_at(port, (uintptr_t)address, address, bytes, access, keys);
}

struct mapped {
    void *memory;
    uint64_t bytes;
};

static int dmabuf_register(struct rs_rdma_port *port, int fd, uintptr_t address,
                           uint64_t bytes, enum rs_rdma_access access,
                           struct rs_rdma_keys *keys)
{
    struct mapped *m = malloc(sizeof(*m));
    int error;

    PAIR_NEEDS(m != NULL);
    m->bytes = bytes;
    m->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                     lseek(fd, 0, SEEK_CUR));
    PAIR_NEEDS(m->memory != MAP_FAILED);
    error = register_at(port, address, m->memory, bytes, access, keys);
    PAIR_NEEDS(error == 0);
    keys->device = m;
    return 0;
}

static void memory_release(struct rs_rdma_port *port, struct rs_rdma_keys *keys)
{
    struct mapped *m = keys->device;

    rs_softnic_deregister(port_of(port)->nic, keys->lkey);
    if (m == NULL)
        return;
    munmap(m->memory, m->bytes);
    free(m);
}

static int take(struct rs_rdma_queue *queue, uint32_t *imm)
{
    struct queue *q = (struct queue *)queue;
    struct rs_cqe cqe;

    if (!rs_cq_poll(&q->receive_cq, &cqe))
        return 0;
    if (cqe.kind != RS_CQE_RECEIVED_IMM)
        return rs_fail(RSCHED_ESYS, "softnic: a completion that is none");
    *imm = cqe.imm;
    rs_rq_take(&q->rq);
    rs_rq_post(&q->rq, 1);
    return 1;
}

static void stop(struct rs_rdma_queue *queue)
{
    rs_softnic_qp_stop(((struct queue *)queue)->qp);
}

static void begin_receives(struct queue *q, const struct rs_mlx5_memory *memory)
{
    struct rs_softnic_qp_view view = rs_softnic_qp_view(q->qp);
    struct rs_mlx5_memory receives = *memory;

    receives.cq_ring = view.receive_cq.ring;
    receives.cq_dbrec = view.receive_cq.dbrec;
    rs_rq_init(&q->rq, memory);
    rs_cq_init(&q->receive_cq, &receives);
    rs_rq_post(&q->rq, RECEIVES);
    q->ops = rs_mlx5_queue_ops;
    q->ops.stop = stop;
    q->ops.take = take;
    q->queue.base.ops = &q->ops;
}

static int queue_create(struct rs_rdma_port *port,
                        struct rs_rdma_endpoint *endpoint,
                        struct rs_rdma_queue **queue)
{
    static const struct rs_softnic_qp_attr attr = {.domain = DOMAIN,
                                                   .send_blocks = BLOCKS,
                                                   .receive_entries = RECEIVES,
                                                   .cq_entries = BLOCKS,
                                                   .cqe_bytes = 64,
                                                   .max_segments =
                                                       MAX_SEGMENTS};
    struct port *p = port_of(port);
    struct queue *q = calloc(1, sizeof(*q));
    struct rs_mlx5_memory memory;
    int error = RSCHED_ENOMEM;

    if (q == NULL)
        return error;
    error = rs_softnic_qp_create(p->nic, &attr, &q->qp);
    if (error != 0)
        goto err_free;
    memory = pair_memory(q->qp);
    memory.max_segments = MAX_SEGMENTS;
    memory.max_inline =
        rs_softnic_granted_inline(MAX_PIECES, RS_GPU_WORDS_INLINE);
    error = rs_mlx5_queue_init(&q->queue, &memory, p->recur);
    if (error != 0)
        goto err_destroy_qp;
    begin_receives(q, &memory);
    q->refused = p->refused;
    *endpoint = (struct rs_rdma_endpoint){.number = memory.qpn};
    *queue = &q->queue.base;
    return 0;

err_destroy_qp:
    rs_softnic_qp_destroy(q->qp);
err_free:
    free(q);
    return error;
}

static int queue_connect(struct rs_rdma_queue *queue,
                         const unsigned char *address,
                         const struct rs_rdma_endpoint *endpoint)
{
    struct rs_softnic_address far;

    if (((struct queue *)queue)->refused)
        return rs_fail(RSCHED_ESYS, "softnic: no route");
    memcpy(&far, address, sizeof(far));
    rs_softnic_connect_far(((struct queue *)queue)->qp, &far, endpoint->number);
    return 0;
}

static bool order_is(const char *what)
{
    const char *order = getenv("SOFTNIC_ORDER");

    return order != NULL && strcmp(order, what) == 0;
}

static bool queue_is_in_order(struct rs_rdma_queue *queue, bool in_gpu)
{
    (void)queue, (void)in_gpu;
    return getenv("SOFTNIC_ORDER") == NULL;
}

static void queue_destroy(struct rs_rdma_queue *queue)
{
    struct queue *q = (struct queue *)queue;

    rs_softnic_qp_destroy(q->qp);
    rs_mlx5_queue_fini(&q->queue);
    free(q);
}

static const struct rs_rdma_port_ops port_ops = {
    .address = port_address,
    .check = port_check,
    .close = port_close,
    .dmabuf_register = dmabuf_register,
    .memory_register = memory_register,
    .memory_release = memory_release,
    .queue_connect = queue_connect,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .queue_is_in_order = queue_is_in_order,
};

/* Steps by which what has come is told later than it comes, at most. */
static uint32_t late_receives(void)
{
    const char *steps = getenv("SOFTNIC_LATE");

    return steps != NULL ? (uint32_t)strtoul(steps, NULL, 10) : 0;
}

static int port_open(const struct rsched_engine_env *env, uint32_t rail,
                     struct rs_rdma_port **port)
{
    struct rs_softnic_options options = {
        .seed = (uint64_t)env->process * RAILS + rail,
        .drop_percent = rail == 0 ? 10 : 0,
        .late_steps = 5,
        .late_receives = late_receives(),
        .relaxed = order_is("relaxed"),
        .check_sources = true,
        .free_ends = true,
    };
    struct port *p = calloc(1, sizeof(*p));
    int error = RSCHED_ENOMEM;

    if (p == NULL)
        return error;
    p->port = (struct rs_rdma_port){.ops = &port_ops,
                                    .max_pieces = MAX_PIECES,
                                    .max_inline = MAX_INLINE,
                                    .max_ops = MAX_OPS,
                                    .in_order = true,
                                    .fetch_add = true,
                                    .immediates = true,
                                    .rings = true};
    snprintf(p->port.name, sizeof(p->port.name), "softnic%u", rail);
    p->recur = rail == 0;
    p->refused = rail == 0 && env->process == 0 && getenv("SOFTNIC_REFUSED") != NULL;
    error = rs_softnic_create(&options, &p->nic);
    if (error != 0)
        goto err_free;
    error = rs_softnic_listen(p->nic, &p->address);
    if (error == 0)
        error = rs_softnic_start(p->nic);
    if (error != 0)
        goto err_destroy;
    *port = &p->port;
    return 0;

err_destroy:
    rs_softnic_destroy(p->nic);
err_free:
    free(p);
    return error;
}

static int ports_open(const struct rsched_engine_env *env,
                      struct rs_rdma_port **ports)
{
    for (uint32_t i = 0; i < RAILS; i++) {
        int error = port_open(env, i, &ports[i]);

        if (error != 0) {
            while (i > 0)
                port_close(ports[--i]);
            return error;
        }
    }
    return RAILS;
}

static int engine_open(const struct rsched_engine_env *env,
                       struct rsched_engine **engine)
{
    return rs_rdma_open("softnic", env, ports_open, engine);
}

static const struct rsched_engine_ops softnic_ops = {
    .name = "softnic",
    .help = "mlx5 lists over a device in software, for tests",
    .also_gpus = true,
    RS_RDMA_ENGINE_OPS,
    RS_RDMA_LANE_OPS,
    RS_MLX5_RING_OPS,
    .open = engine_open,
};

const struct rsched_engine_ops *node_engine_at(size_t index)
{
    return index == 0 ? &softnic_ops : NULL;
}

bool node_device_outlives_process(void)
{
    return false;
}
