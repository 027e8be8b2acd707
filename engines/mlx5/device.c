/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/mlx5/device.h"

#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdlib.h>

#include "engines/mlx5/wqe.h"
#include "librsched/base/error.h"

int rs_mlx5_device_check(struct ibv_device *device)
{
    const char *name = ibv_get_device_name(device);

    /* The driver looks at whether it is set only; a queue pair does not tell. */
    if (getenv("MLX5_QP_SIGNATURE") != NULL)
        return rs_fail(RSCHED_ENOTSUP,
                       "mlx5: %s: MLX5_QP_SIGNATURE is set, and WQEs written "
                       "here have no signature",
                       name);
    if (!mlx5dv_is_supported(device))
        return rs_fail(RSCHED_ENOTSUP, "mlx5: %s is not an mlx5 device", name);
    return 0;
}

static int check_queue_pair(const struct ibv_qp *qp)
{
    if (qp->qp_type != IBV_QPT_RC)
        return rs_fail(RSCHED_ENOTSUP, "mlx5 qp 0x%x: not of type RC",
                       qp->qp_num);
    if (qp->send_cq == qp->recv_cq)
        return rs_fail(RSCHED_ENOTSUP,
                       "mlx5 qp 0x%x: sends and receives share a completion "
                       "queue",
                       qp->qp_num);
    return 0;
}

/* A WQE is as long as the queue pair was made for. */
static uint32_t max_segments(const struct ibv_qp_cap *cap)
{
    uint32_t gathered = 2 + cap->max_send_sge;
    uint32_t inlined = 2 + rs_wqe_inline_segments(cap->max_inline_data);
    uint32_t most = gathered > inlined ? gathered : inlined;

    if (most < 4) /* an atomic operation */
        most = 4;
    return most < RS_WQE_MAX_SEGMENTS ? most : RS_WQE_MAX_SEGMENTS;
}

static struct rs_mlx5_memory memory_of(const struct ibv_qp *qp,
                                       const struct ibv_qp_cap *cap,
                                       const struct mlx5dv_qp *send,
                                       const struct mlx5dv_cq *cq)
{
    return (struct rs_mlx5_memory){
        .qpn = qp->qp_num,
        .send_ring = send->sq.buf,
        .send_blocks = send->sq.wqe_cnt,
        .dbrec = (_Atomic uint32_t *)send->dbrec,
        .doorbell = send->bf.reg,
        .doorbell_bytes = send->bf.size,
        .cq_ring = cq->buf,
        .cq_entries = cq->cqe_cnt,
        .cqe_bytes = cq->cqe_size,
        .cq_dbrec = (_Atomic uint32_t *)cq->dbrec,
        .max_segments = max_segments(cap),
        .max_inline = cap->max_inline_data,
    };
}

int rs_mlx5_device_describe(struct ibv_qp *qp, const struct ibv_qp_cap *cap,
                            struct rs_mlx5_memory *memory)
{
    struct mlx5dv_qp send = {0};
    struct mlx5dv_cq cq = {0};
    struct mlx5dv_obj objects = {.qp = {.in = qp, .out = &send},
                                 .cq = {.in = qp->send_cq, .out = &cq}};
    int error = rs_mlx5_device_check(qp->context->device);

    if (error == 0)
        error = check_queue_pair(qp);
    if (error != 0)
        return error;
    error = mlx5dv_init_obj(&objects, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ);
    if (error != 0) {
        errno = error;
        return rs_fail(RSCHED_ESYS, "mlx5 qp 0x%x: mlx5dv_init_obj: %m",
                       qp->qp_num);
    }
    if (send.sq.stride != RS_WQE_BLOCK)
        return rs_fail(RSCHED_ENOTSUP,
                       "mlx5 qp 0x%x: a send queue of %u-byte blocks",
                       qp->qp_num, send.sq.stride);
    *memory = memory_of(qp, cap, &send, &cq);
    return 0;
}
