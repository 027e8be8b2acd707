/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/verbs/mlx5.h"

#include <stdlib.h>

#include "engines/mlx5/device.h"
#include "engines/mlx5/queue.h"
#include "engines/verbs/queue.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"

struct queue {
    struct rs_mlx5_queue queue; /* first: the public part */
    struct rs_rdma_queue_ops ops;
    struct rs_rdma_queue *verbs; /* connects, and receives */
};

static struct queue *queue_of(struct rs_rdma_queue *queue)
{
    return (struct queue *)queue;
}

static int poll(struct rs_rdma_queue *queue, struct rs_rdma_done *done)
{
    int got = rs_mlx5_queue_ops.poll(queue, done);

    if (got < 0)
        rs_verbs_queue_stop(queue_of(queue)->verbs);
    return got;
}

static int take(struct rs_rdma_queue *queue, uint32_t *imm)
{
    struct queue *q = queue_of(queue);
    int got = q->verbs->ops->take(q->verbs, imm);

    if (got < 0)
        q->queue.failed = true; /* it has stopped the queue pair */
    return got;
}

static void stop(struct rs_rdma_queue *queue)
{
    rs_verbs_queue_end(queue_of(queue)->verbs);
}

static int queue_create(struct rs_rdma_port *port,
                        struct rs_rdma_endpoint *endpoint,
                        struct rs_rdma_queue **queue)
{
    struct queue *q = calloc(1, sizeof(*q));
    const struct rs_verbs_queue *v;
    struct rs_mlx5_memory memory;
    int error;

    if (q == NULL)
        return rs_fail(RSCHED_ENOMEM, "verbs %s: no memory", port->name);
    error = rs_verbs_queue_create(port, endpoint, &q->verbs);
    if (error != 0)
        goto err_free;
    v = (const struct rs_verbs_queue *)q->verbs;
    error = rs_mlx5_device_describe(v->qp, &v->cap, &memory);
    if (error == 0)
        error = rs_mlx5_queue_init(&q->queue, &memory, true);
    if (error != 0)
        goto err_destroy;
    q->ops = rs_mlx5_queue_ops;
    q->ops.poll = poll;
    q->ops.stop = stop;
    q->ops.take = take;
    q->queue.base.ops = &q->ops;
    *queue = &q->queue.base;
    return 0;

err_destroy:
    rs_verbs_queue_destroy(q->verbs);
err_free:
    free(q);
    return error;
}

static int queue_connect(struct rs_rdma_queue *queue,
                         const unsigned char *address,
                         const struct rs_rdma_endpoint *endpoint)
{
    return rs_verbs_queue_connect(queue_of(queue)->verbs, address, endpoint);
}

#ifdef RSCHED_HAVE_ORDER
static bool queue_is_in_order(struct rs_rdma_queue *queue, bool in_gpu)
{
    return rs_verbs_queue_is_in_order(queue_of(queue)->verbs, in_gpu);
}
#endif

static void queue_destroy(struct rs_rdma_queue *queue)
{
    struct queue *q = queue_of(queue);

    rs_verbs_queue_destroy(q->verbs);
    rs_mlx5_queue_fini(&q->queue);
    free(q);
}

void rs_verbs_mlx5_adopt(struct rs_verbs_port *port)
{
    if (!rs_config()->mlx5)
        return;
    if (rs_mlx5_device_check(port->context->device) != 0) {
        rs_log(RS_LOG_WARN, "RSCHED_MLX5: %s is driven by libibverbs: %s",
               port->port.name, rsched_last_error());
        return;
    }
    port->mlx5 = true;
    port->port.rings = true;
    port->ops = *port->port.ops;
    port->ops.queue_create = queue_create;
    port->ops.queue_connect = queue_connect;
#ifdef RSCHED_HAVE_ORDER
    port->ops.queue_is_in_order = queue_is_in_order;
#endif
    port->ops.queue_destroy = queue_destroy;
    port->port.ops = &port->ops;
}
