/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/mlx5/queue.h"

#include "librsched/base/error.h"

static struct rs_mlx5_queue *queue_of(struct rs_rdma_queue *queue)
{
    return (struct rs_mlx5_queue *)queue;
}

static struct rs_wqe_list *list_of(struct rs_rdma_list *list)
{
    return (struct rs_wqe_list *)list;
}

static bool is_power_of_two(uint32_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

static int check_memory(const struct rs_mlx5_memory *m)
{
    if (!is_power_of_two(m->send_blocks) || m->send_blocks > RS_MLX5_MAX_BLOCKS)
        return rs_fail(RSCHED_ENOTSUP,
                       "mlx5 qp 0x%x: a send queue of %u blocks", m->qpn,
                       m->send_blocks);
    if (!is_power_of_two(m->cq_entries) || m->cq_entries < m->send_blocks)
        return rs_fail(RSCHED_ENOTSUP,
                       "mlx5 qp 0x%x: a completion queue of %u entries for %u "
                       "blocks",
                       m->qpn, m->cq_entries, m->send_blocks);
    if (m->cqe_bytes != 64 && m->cqe_bytes != 128)
        return rs_fail(RSCHED_ENOTSUP, "mlx5 qp 0x%x: completions of %u bytes",
                       m->qpn, m->cqe_bytes);
    return 0;
}

int rs_mlx5_queue_init(struct rs_mlx5_queue *queue,
                       const struct rs_mlx5_memory *memory, bool recur)
{
    struct rs_mlx5_queue q = {
        .base.ops = &rs_mlx5_queue_ops,
        .memory = *memory,
        .limits = {.qpn = memory->qpn,
                   .blocks = memory->send_blocks,
                   .max_segments = memory->max_segments,
                   .max_inline = memory->max_inline,
                   .recur = recur},
    };
    int error = check_memory(memory);

    if (error == 0)
        error = rs_sq_init(&q.sq, memory);
    if (error != 0)
        return error;
    rs_cq_init(&q.cq, memory);
    *queue = q;
    return 0;
}

void rs_mlx5_queue_fini(struct rs_mlx5_queue *queue)
{
    rs_sq_fini(&queue->sq);
}

static int list_create(struct rs_rdma_queue *queue,
                       const struct rs_rdma_op *ops, uint32_t num_ops,
                       struct rs_rdma_list **list)
{
    struct rs_mlx5_queue *q = queue_of(queue);
    struct rs_wqe_list *l;
    int error = rs_wqe_list_create(&q->limits, ops, num_ops, &l);

    if (error != 0)
        return error;
    l->base.queue = queue;
    rs_sq_adopt(&q->sq, l);
    *list = &l->base;
    return 0;
}

static void list_destroy(struct rs_rdma_list *list)
{
    rs_wqe_list_destroy(list_of(list));
}

static bool post(struct rs_rdma_list *list, uint64_t epoch, uint64_t id)
{
    struct rs_mlx5_queue *q = queue_of(list->queue);

    return !q->failed && rs_sq_post(&q->sq, list_of(list), epoch, id);
}

static int ring(struct rs_rdma_queue *queue)
{
    rs_sq_ring(&queue_of(queue)->sq);
    return 0;
}

static struct rs_rdma_done done_of(const struct rs_sq_post *post,
                                   const struct rs_cqe *cqe)
{
    if (cqe->kind == RS_CQE_SENT)
        return (struct rs_rdma_done){.id = post->id};
    return (struct rs_rdma_done){
        .id = post->id,
        .failed = true,
        .flushed = cqe->syndrome == RS_SYNDROME_FLUSHED,
        .op = rs_wqe_list_op_at(post->list,
                                (uint16_t)(cqe->index - post->first)),
        .cause = rs_cqe_syndrome_text(cqe->syndrome),
        .vendor_error = cqe->vendor_error,
    };
}

/* Whether the device can mean the oldest post. */
static bool is_of(const struct rs_mlx5_queue *q, const struct rs_cqe *cqe,
                  const struct rs_sq_post *post)
{
    if (post == NULL || cqe->qpn != q->limits.qpn)
        return false;
    if (cqe->kind == RS_CQE_SENT)
        return !q->failed && cqe->index == rs_sq_post_index(post);
    return cqe->kind == RS_CQE_SEND_ERROR &&
           (uint16_t)(cqe->index - post->first) < post->list->blocks;
}

/* After a failure each WQE has a completion: those up to the end of the post
 * that failed say nothing new, of the others the last one of each post does. */
static bool is_news(const struct rs_mlx5_queue *q, const struct rs_cqe *cqe,
                    const struct rs_sq_post *post)
{
    return !q->failed ||
           (post != NULL && cqe->kind == RS_CQE_SEND_ERROR &&
            cqe->index == rs_sq_post_index(post));
}

/* What the device says of other posts cannot be trusted either. */
static int unexpected(struct rs_mlx5_queue *q, const struct rs_cqe *cqe)
{
    q->failed = true;
    return rs_fail(RSCHED_ESYS,
                   "mlx5 qp 0x%x: unexpected completion: kind %u, qp 0x%x, "
                   "index %u",
                   q->limits.qpn, cqe->kind, cqe->qpn, cqe->index);
}

static int poll(struct rs_rdma_queue *queue, struct rs_rdma_done *done)
{
    struct rs_mlx5_queue *q = queue_of(queue);
    struct rs_cqe cqe;

    while (rs_cq_poll(&q->cq, &cqe)) {
        const struct rs_sq_post *post = rs_sq_oldest(&q->sq);

        if (!is_news(q, &cqe, post))
            continue;
        if (!is_of(q, &cqe, post))
            return unexpected(q, &cqe);
        *done = done_of(post, &cqe);
        q->failed |= done->failed;
        rs_sq_retire(&q->sq);
        return 1;
    }
    return 0;
}

/* A driver does not clean a completion queue that it has given away. */
static void reset(struct rs_rdma_queue *queue)
{
    struct rs_mlx5_queue *q = queue_of(queue);
    struct rs_cqe cqe;

    while (rs_cq_poll(&q->cq, &cqe))
        ;
    rs_sq_reset(&q->sq);
    q->failed = false;
}

const struct rs_rdma_queue_ops rs_mlx5_queue_ops = {
    .name = "mlx5",
    .list_create = list_create,
    .list_destroy = list_destroy,
    .post = post,
    .ring = ring,
    .poll = poll,
    .reset = reset,
};
