/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs engine with RSCHED_MLX5 over two mlx5 devices that are none: the
 * functions of libibverbs and libmlx5 that it needs are defined here, and a
 * softnic reads the rings. Everything from the discovery of devices to the
 * doorbell is the engine's own; posting through libibverbs ends the test.
 * Instances are threads of one process.
 *
 * VERBS_ENGINE_WRS: of how many requests a queue pair is at most, sends and receives
 * each; a power of two. VERBS_ENGINE_RELAXED: writes come in any order, and libmlx5
 * says so.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mlx5/cq.h"
#include "engines/mlx5/rq.h"
#include "engines/rdma/rdma.h"
#include "engines/verbs/verbs.h"
#include "tests/conformance/node.h"
#include "tests/mlx5/pair.h"
#include "tests/mlx5/verbs_engine.h"

enum { DEVICES = 2, MAX_QPS = 4096, BLOCKS = 2048, RECEIVES = 256, WRS = 256 };

struct fake_cq {
    struct ibv_cq cq; /* first */
    struct fake_qp *receiver;
};

struct fake_qp {
    struct ibv_qp qp; /* first */
    struct rs_softnic_qp *nic_qp;
    struct rs_rq rq;
    struct rs_cq receive_cq;
};

struct fake_pd {
    struct ibv_pd pd; /* first */
    uint32_t domain;
};

static struct ibv_device devices[DEVICES] = {
    {.name = "mlx5_0", .transport_type = IBV_TRANSPORT_IB},
    {.name = "mlx5_1", .transport_type = IBV_TRANSPORT_IB},
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rs_softnic *nic;
static struct fake_qp *qps[MAX_QPS];
static uint32_t num_qps, num_domains, num_contexts, num_driven;
static atomic_uint num_stopped;

static uint32_t max_wrs(void)
{
    const char *wrs = getenv("VERBS_ENGINE_WRS");

    return wrs != NULL ? (uint32_t)strtoul(wrs, NULL, 10) : WRS;
}

unsigned verbs_engine_stopped(void)
{
    return atomic_load(&num_stopped);
}

/* ---- devices ---- */

struct ibv_device **ibv_get_device_list(int *num)
{
    struct ibv_device **list = calloc(DEVICES + 1, sizeof(*list));

    PAIR_NEEDS(list != NULL);
    for (int i = 0; i < DEVICES; i++)
        list[i] = &devices[DEVICES - 1 - i];
    *num = DEVICES;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

static int no_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
                        struct ibv_send_wr **bad)
{
    (void)qp, (void)wr, (void)bad;
    fprintf(stderr, "ibv_post_send() on a queue pair that was taken away\n");
    abort();
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
                     struct ibv_recv_wr **bad)
{
    (void)bad;
    PAIR_NEEDS(wr->next == NULL && wr->num_sge == 0);
    rs_rq_post(&((struct fake_qp *)qp)->rq, 1);
    return 0;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    struct fake_qp *q = ((struct fake_cq *)cq)->receiver;
    struct rs_cqe cqe;

    PAIR_NEEDS(q != NULL && most == 1); /* not a send completion queue */
    if (!rs_cq_poll(&q->receive_cq, &cqe))
        return 0;
    PAIR_NEEDS(cqe.kind == RS_CQE_RECEIVED_IMM);
    rs_rq_take(&q->rq);
    *wc = (struct ibv_wc){.status = IBV_WC_SUCCESS,
                          .imm_data = htonl(cqe.imm)};
    return 1;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *c = calloc(1, sizeof(*c));
    struct rs_softnic_options options = {
        .seed = 7,
        .drop_percent = 10,
        .late_steps = 5,
        .relaxed = getenv("VERBS_ENGINE_RELAXED") != NULL,
        .check_sources = true,
        .free_ends = true};

    PAIR_NEEDS(c != NULL);
    pthread_mutex_lock(&lock);
    if (num_contexts++ == 0) {
        PAIR_NEEDS(rs_softnic_create(&options, &nic) == 0);
        PAIR_NEEDS(rs_softnic_start(nic) == 0);
        num_qps = 0;
    }
    pthread_mutex_unlock(&lock);
    c->device = device;
    c->async_fd = -1;
    c->ops.post_send = no_post_send;
    c->ops.post_recv = post_recv;
    c->ops.poll_cq = poll_cq;
    return c;
}

int ibv_close_device(struct ibv_context *context)
{
    free(context);
    pthread_mutex_lock(&lock);
    if (--num_contexts == 0) {
        rs_softnic_stop(nic);
        if (rs_softnic_violation(nic)[0] != '\0') {
            fprintf(stderr, "%s\n", rs_softnic_violation(nic));
            abort();
        }
        rs_softnic_destroy(nic);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    (void)context;
    *attr = (struct ibv_device_attr){.phys_port_cnt = 1,
                                     .max_qp_wr = (int)max_wrs(),
                                     .max_sge = 16,
                                     .atomic_cap = IBV_ATOMIC_HCA};
    return 0;
}

int(ibv_query_port)(struct ibv_context *context, uint8_t port,
                    struct _compat_ibv_port_attr *attr)
{
    (void)context, (void)port;
    ((struct ibv_port_attr *)attr)->state = IBV_PORT_ACTIVE;
    ((struct ibv_port_attr *)attr)->active_mtu = IBV_MTU_4096;
    ((struct ibv_port_attr *)attr)->lid = 1;
    return 0;
}

int ibv_get_async_event(struct ibv_context *context,
                        struct ibv_async_event *event)
{
    (void)context, (void)event;
    errno = EAGAIN;
    return -1;
}

/* ---- memory ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct fake_pd *pd = calloc(1, sizeof(*pd));

    PAIR_NEEDS(pd != NULL);
    pd->pd.context = context;
    pthread_mutex_lock(&lock);
    pd->domain = ++num_domains;
    pthread_mutex_unlock(&lock);
    return &pd->pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    free(pd);
    return 0;
}

static struct ibv_mr *register_memory(struct ibv_pd *pd, void *address,
                                      size_t bytes, unsigned access)
{
    struct ibv_mr *mr = calloc(1, sizeof(*mr));
    unsigned allowed = 0;
    uint32_t key;

    PAIR_NEEDS(mr != NULL);
    if ((access & IBV_ACCESS_LOCAL_WRITE) != 0)
        allowed |= RS_SOFTNIC_LOCAL_WRITE;
    if ((access & IBV_ACCESS_REMOTE_WRITE) != 0)
        allowed |= RS_SOFTNIC_REMOTE_WRITE;
    if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0)
        allowed |= RS_SOFTNIC_REMOTE_ATOMIC;
    PAIR_NEEDS(rs_softnic_register(nic, ((struct fake_pd *)pd)->domain, address,
                                   bytes, allowed, &key) == 0);
    mr->lkey = mr->rkey = key;
    return mr;
}

struct ibv_mr *(ibv_reg_mr)(struct ibv_pd *pd, void *address, size_t bytes,
                            int access)
{
    return register_memory(pd, address, bytes, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t bytes,
                                uint64_t iova, unsigned access)
{
    PAIR_NEEDS(iova == (uintptr_t)address);
    return register_memory(pd, address, bytes, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    rs_softnic_deregister(nic, mr->lkey);
    free(mr);
    return 0;
}

/* ---- queue pairs ---- */

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *arg,
                             struct ibv_comp_channel *channel, int vector)
{
    struct fake_cq *c = calloc(1, sizeof(*c));

    (void)arg, (void)channel, (void)vector;
    PAIR_NEEDS(c != NULL);
    c->cq.context = context;
    c->cq.cqe = cqe;
    return &c->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    free(cq);
    return 0;
}

static void begin_receives(struct fake_qp *q)
{
    struct rs_softnic_qp_view view = rs_softnic_qp_view(q->nic_qp);
    struct rs_mlx5_memory memory = pair_memory(q->nic_qp);

    memory.cq_ring = view.receive_cq.ring;
    memory.cq_dbrec = view.receive_cq.dbrec;
    rs_rq_init(&q->rq, &memory);
    rs_cq_init(&q->receive_cq, &memory);
    ((struct fake_cq *)q->qp.recv_cq)->receiver = q;
}

/* Grants as libmlx5 does. @return segments of the longest WQE of ours */
static uint32_t longest_wqe(struct ibv_qp_cap *cap)
{
    uint32_t gathered = 2 + cap->max_send_sge, inlined;

    cap->max_inline_data =
        rs_softnic_granted_inline(cap->max_send_sge, cap->max_inline_data);
    inlined = 2 + (cap->max_inline_data + 4 + 15) / 16;
    return gathered > inlined ? gathered : inlined;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct fake_qp *q = calloc(1, sizeof(*q));
    struct rs_softnic_qp_attr attr = {.domain = ((struct fake_pd *)pd)->domain,
                                      .send_blocks = BLOCKS / WRS * max_wrs(),
                                      .receive_entries = RECEIVES,
                                      .cq_entries = BLOCKS,
                                      .cqe_bytes = 64};

    PAIR_NEEDS(q != NULL);
    attr.max_segments = longest_wqe(&init->cap);
    if (init->cap.max_send_wr > max_wrs() ||
        init->cap.max_recv_wr > max_wrs()) {
        free(q);
        errno = EINVAL;
        return NULL;
    }
    q->qp.context = pd->context;
    q->qp.qp_type = init->qp_type;
    q->qp.send_cq = init->send_cq;
    q->qp.recv_cq = init->recv_cq;
    pthread_mutex_lock(&lock);
    PAIR_NEEDS(num_qps < MAX_QPS);
    PAIR_NEEDS(rs_softnic_qp_create(nic, &attr, &q->nic_qp) == 0);
    q->qp.qp_num = rs_softnic_qp_view(q->nic_qp).qpn;
    begin_receives(q);
    qps[num_qps++] = q; /* others look for its number from now on */
    pthread_mutex_unlock(&lock);
    return &q->qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    struct fake_qp *q = (struct fake_qp *)qp;

    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < num_qps; i++)
        qps[i] = qps[i] == q ? NULL : qps[i];
    rs_softnic_qp_destroy(q->nic_qp);
    pthread_mutex_unlock(&lock);
    free(q);
    return 0;
}

static struct fake_qp *find_qp(uint32_t number)
{
    for (uint32_t i = 0; i < num_qps; i++) {
        if (qps[i] != NULL && qps[i]->qp.qp_num == number)
            return qps[i];
    }
    return NULL;
}

/* Connects when one end is told of the other. */
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct fake_qp *peer;

    qp->state = attr->qp_state;
    if (qp->state == IBV_QPS_ERR) {
        num_stopped++;
        rs_softnic_qp_stop(((struct fake_qp *)qp)->nic_qp);
    }
    if ((mask & IBV_QP_DEST_QPN) == 0)
        return 0;
    pthread_mutex_lock(&lock);
    peer = find_qp(attr->dest_qp_num);
    PAIR_NEEDS(peer != NULL);
    rs_softnic_connect(((struct fake_qp *)qp)->nic_qp, peer->nic_qp);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* As libmlx5, which asks the device of a queue pair that can send only. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
                               uint32_t flags)
{
    PAIR_NEEDS(op == IBV_WR_RDMA_WRITE && flags == 0);
    return qp->state == IBV_QPS_RTS && getenv("VERBS_ENGINE_RELAXED") == NULL;
}

/* ---- libmlx5 ---- */

bool mlx5dv_is_supported(struct ibv_device *device)
{
    return strncmp(device->name, "mlx5_", 5) == 0;
}

int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t type)
{
    struct fake_qp *q = (struct fake_qp *)obj->qp.in;
    struct rs_softnic_qp_view v = rs_softnic_qp_view(q->nic_qp);

    PAIR_NEEDS(type == (MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ));
    PAIR_NEEDS(obj->cq.in == q->qp.send_cq &&
               (uint32_t)q->qp.send_cq->cqe >= v.send_blocks);
    *obj->qp.out = (struct mlx5dv_qp){
        .dbrec = (__be32 *)v.dbrec,
        .sq = {.buf = v.send_ring, .wqe_cnt = v.send_blocks, .stride = 64},
        .bf = {.reg = (void *)v.doorbell, .size = v.doorbell_bytes},
    };
    *obj->cq.out = (struct mlx5dv_cq){.buf = v.send_cq.ring,
                                      .dbrec = (__be32 *)v.send_cq.dbrec,
                                      .cqe_cnt = v.send_cq.entries,
                                      .cqe_size = v.send_cq.entry_bytes};
    pthread_mutex_lock(&lock);
    num_driven++;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* ---- the engine ---- */

extern const struct rsched_engine_ops rs_verbs_ops;

static void check_that_lists_were_driven(void)
{
    if (num_driven > 0)
        return;
    fprintf(stderr, "no queue pair was taken from libibverbs\n");
    _Exit(1);
}

static void check_at_exit(void)
{
    atexit(check_that_lists_were_driven);
}

const struct rsched_engine_ops *node_engine_at(size_t index)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, check_at_exit);
    return index == 0 ? &rs_verbs_ops : NULL;
}

bool node_device_outlives_process(void)
{
    return false;
}
