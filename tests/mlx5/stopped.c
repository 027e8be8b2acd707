/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs of the verbs engine with RSCHED_MLX5 that are stopped, as those that
 * libibverbs drives: one whose device tells of what nobody asked for, and one whose peer
 * has no receive for an immediate.
 */
#include <sched.h>
#include <string.h>

#include "engines/mlx5/queue.h"
#include "engines/verbs/verbs.h"
#include "tests/mlx5/pair.h"
#include "tests/mlx5/verbs_engine.h"

static const struct rsched_engine_env env = {.job = 1};

/* A queue pair of the port that is its own peer. */
static struct rs_rdma_queue *make(struct rs_rdma_port *port)
{
    unsigned char address[RS_PORT_ADDRESS_BYTES];
    struct rs_rdma_endpoint endpoint;
    struct rs_rdma_queue *queue;

    port->ops->address(port, address);
    PAIR_NEEDS(port->ops->queue_create(port, &endpoint, &queue) == 0);
    PAIR_NEEDS(port->ops->queue_connect(queue, address, &endpoint) == 0);
    return queue;
}

/* An immediate comes without a byte. */
static struct rs_rdma_list *word(struct rs_rdma_port *port,
                                 struct rs_rdma_queue *queue,
                                 enum rs_rdma_opcode opcode, uint64_t *to,
                                 struct rs_rdma_keys *keys)
{
    struct rs_rdma_op op = {.opcode = opcode,
                            .stamp = opcode == RS_RDMA_WRITE ? RS_STAMP_EPOCH
                                                             : RS_STAMP_NONE,
                            .inlined = opcode == RS_RDMA_WRITE,
                            .remote = (uintptr_t)to};
    struct rs_rdma_list *list;

    PAIR_NEEDS(port->ops->memory_register(port, to, sizeof(*to),
                                          RS_RDMA_REMOTE, keys) == 0);
    op.rkey = keys->rkey;
    PAIR_NEEDS(queue->ops->list_create(queue, &op, 1, &list) == 0);
    return list;
}

static int finish(struct rs_rdma_queue *queue, struct rs_rdma_done *done)
{
    int got;

    while ((got = queue->ops->poll(queue, done)) == 0)
        sched_yield();
    return got;
}

static void destroy(struct rs_rdma_port *port, struct rs_rdma_queue *queue,
                    struct rs_rdma_list *list, struct rs_rdma_keys *keys)
{
    queue->ops->list_destroy(list);
    port->ops->queue_destroy(queue);
    port->ops->memory_release(port, keys);
}

static void check_unexpected(struct rs_rdma_port *port)
{
    struct rs_rdma_queue *queue = make(port);
    struct rs_rdma_done done;
    struct rs_rdma_keys keys;
    struct rs_rdma_list *list;
    uint64_t to = 0;

    list = word(port, queue, RS_RDMA_WRITE, &to, &keys);
    PAIR_NEEDS(queue->ops->post(list, 1, 0) && queue->ops->ring(queue) == 0);
    PAIR_NEEDS(finish(queue, &done) == 1 && !done.failed);
    PAIR_NEEDS(verbs_engine_stopped() == 0);
    ((struct rs_mlx5_queue *)queue)->cq.taken--; /* it comes once more */
    PAIR_NEEDS(finish(queue, &done) == RSCHED_ESYS);
    PAIR_NEEDS(strstr(rsched_last_error(), "unexpected completion") != NULL);
    PAIR_NEEDS(verbs_engine_stopped() == 1);
    PAIR_NEEDS(!queue->ops->post(list, 2, 0));
    destroy(port, queue, list, &keys);
}

/* Its peer, which it is itself, has no receive. What the device says of it tells that it
 * does not try any more. */
static void check_not_taken(struct rs_rdma_port *port)
{
    struct rs_rdma_queue *queue = make(port);
    struct rs_rdma_done done;
    struct rs_rdma_keys keys;
    struct rs_rdma_list *list;
    uint64_t to = 0;

    list = word(port, queue, RS_RDMA_WRITE_IMM, &to, &keys);
    PAIR_NEEDS(queue->ops->post(list, 1, 0) && queue->ops->ring(queue) == 0);
    PAIR_NEEDS(queue->ops->poll(queue, &done) == 0);
    queue->ops->stop(queue);
    PAIR_NEEDS(verbs_engine_stopped() == 2);
    PAIR_NEEDS(finish(queue, &done) == 1 && done.failed && done.flushed);
    PAIR_NEEDS(!queue->ops->post(list, 2, 0));
    destroy(port, queue, list, &keys);
}

int main(void)
{
    struct rs_rdma_port *ports[RSCHED_MAX_RAILS];
    int num = rs_verbs_ports_open(&env, ports);

    PAIR_NEEDS(num > 0);
    check_unexpected(ports[0]);
    check_not_taken(ports[0]);
    for (int i = 0; i < num; i++)
        ports[i]->ops->close(ports[i]);
    return 0;
}
