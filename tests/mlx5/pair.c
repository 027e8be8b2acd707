/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/mlx5/pair.h"

struct rs_mlx5_memory pair_memory(const struct rs_softnic_qp *qp)
{
    struct rs_softnic_qp_view v = rs_softnic_qp_view(qp);

    return (struct rs_mlx5_memory){
        .qpn = v.qpn,
        .send_ring = v.send_ring,
        .send_blocks = v.send_blocks,
        .receive_ring = v.receive_ring,
        .receive_entries = v.receive_entries,
        .receive_stride = v.receive_stride,
        .dbrec = v.dbrec,
        .doorbell = v.doorbell,
        .doorbell_bytes = v.doorbell_bytes,
        .cq_ring = v.send_cq.ring,
        .cq_entries = v.send_cq.entries,
        .cqe_bytes = v.send_cq.entry_bytes,
        .cq_dbrec = v.send_cq.dbrec,
        .max_segments = PAIR_SEGMENTS,
        .max_inline = pair_inline(),
    };
}

void end_init(struct end *end, struct rs_softnic *nic, uint32_t domain,
              const struct pair_options *o)
{
    struct rs_softnic_qp_attr attr = {
        .domain = domain,
        .send_blocks = o->blocks,
        .receive_entries = o->receives,
        .cq_entries = o->blocks > o->receives ? o->blocks : o->receives,
        .cqe_bytes = o->cqe_bytes == 0 ? 64 : o->cqe_bytes,
    };
    struct rs_mlx5_memory receives;

    *end = (struct end){.nic = nic, .domain = domain};
    PAIR_NEEDS(rs_softnic_qp_create(nic, &attr, &end->qp) == 0);
    end->memory = receives = pair_memory(end->qp);
    PAIR_NEEDS(rs_mlx5_queue_init(&end->queue, &end->memory, o->recur) == 0);
    rs_rq_init(&end->rq, &end->memory);
    receives.cq_ring = rs_softnic_qp_view(end->qp).receive_cq.ring;
    receives.cq_dbrec = rs_softnic_qp_view(end->qp).receive_cq.dbrec;
    rs_cq_init(&end->receive_cq, &receives);
}

void end_fini(struct end *end)
{
    rs_mlx5_queue_fini(&end->queue);
}

void pair_init(struct pair *pair, const struct pair_options *options)
{
    PAIR_NEEDS(rs_softnic_create(&options->nic, &pair->nic) == 0);
    end_init(&pair->a, pair->nic, 1, options);
    end_init(&pair->b, pair->nic, 2, options);
    rs_softnic_connect(pair->a.qp, pair->b.qp);
}

void pair_fini(struct pair *pair)
{
    end_fini(&pair->a);
    end_fini(&pair->b);
    rs_softnic_destroy(pair->nic);
}

static void end_reset(struct end *end)
{
    struct rs_cqe cqe;

    rs_softnic_qp_reset(end->qp);
    end->queue.base.ops->reset(&end->queue.base);
    rs_rq_reset(&end->rq);
    while (rs_cq_poll(&end->receive_cq, &cqe))
        ;
}

void pair_reset(struct pair *pair)
{
    end_reset(&pair->a);
    end_reset(&pair->b);
}

uint32_t end_register(struct end *end, void *base, uint64_t bytes)
{
    uint32_t key;

    PAIR_NEEDS(rs_softnic_register(end->nic, end->domain, base, bytes,
                                   RS_SOFTNIC_LOCAL_WRITE |
                                       RS_SOFTNIC_REMOTE_WRITE |
                                       RS_SOFTNIC_REMOTE_ATOMIC,
                                   &key) == 0);
    return key;
}

struct rs_rdma_list *end_list(struct end *end, const struct rs_rdma_op *ops,
                              uint32_t num_ops)
{
    struct rs_rdma_list *list;

    PAIR_NEEDS(end->queue.base.ops->list_create(&end->queue.base, ops, num_ops,
                                                &list) == 0);
    return list;
}

void end_start(struct end *end, struct rs_rdma_list *list, uint64_t epoch,
               uint64_t id)
{
    PAIR_NEEDS(list->queue->ops->post(list, epoch, id));
    PAIR_NEEDS(end->queue.base.ops->ring(&end->queue.base) == 0);
}

bool end_finish(struct end *end, struct rs_rdma_done *done)
{
    int news;

    do {
        news = end->queue.base.ops->poll(&end->queue.base, done);
    } while (news == 0 && rs_softnic_step(end->nic));
    PAIR_NEEDS(news >= 0);
    return news == 1;
}
