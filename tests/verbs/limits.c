/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the verbs engine makes of the limits, the GIDs and the refusals of a device:
 * libibverbs' functions that it needs to open a port are defined here, for one
 * device that says what it can do, and makes queue pairs that are no larger than
 * it likes.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>
#include <rsched/engine.h>

#include "engines/verbs/queue.h"
#include "engines/verbs/verbs.h"

/* The device. Each test is a process, and changes it before it opens it. */
static struct {
    int says_wr, says_sge;
    uint32_t max_wr, max_sge, max_inline; /* of a queue pair */
    uint32_t max_receives, received; /* that it may have; that were posted */
    uint32_t max_bytes; /* of all its requests together */
    int why;            /* it makes none that has more */
    int made;           /* queue pairs that there are */
    int tried;
    bool roce;
    int used_gid; /* its index, on the way of the last queue pair */
    int state;    /* of that */
    int takes;    /* work requests, before it refuses one */
} device = {.says_wr = 16384, .says_sge = 32, .max_wr = 16384, .max_sge = 32,
            .max_inline = 1024, .max_receives = 16384, .max_bytes = UINT32_MAX,
            .why = EINVAL, .used_gid = -1};

/* What a RoCE port has: first a GID of its MAC address, then one of its IP
 * address, each in both versions. */
static const struct ibv_gid_entry gids[] = {
    {.gid = {.raw = {0xfe, 0x80, [15] = 1}}, .gid_index = 0, .port_num = 1,
     .gid_type = IBV_GID_TYPE_ROCE_V1},
    {.gid = {.raw = {0xfe, 0x80, [15] = 1}}, .gid_index = 1, .port_num = 1,
     .gid_type = IBV_GID_TYPE_ROCE_V2},
    {.gid = {.raw = {[10] = 0xff, 0xff, 10, 77, 0, 1}}, .gid_index = 2,
     .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V1},
    {.gid = {.raw = {[10] = 0xff, 0xff, 10, 77, 0, 1}}, .gid_index = 3,
     .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2},
};

static struct ibv_device fake = {.name = "fake_0",
                                 .transport_type = IBV_TRANSPORT_IB};

struct ibv_device **ibv_get_device_list(int *num)
{
    struct ibv_device **list = calloc(2, sizeof(struct ibv_device *));

    cr_assert_not_null(list);
    list[0] = &fake;
    *num = 1;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *d)
{
    return d->name;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
                     struct ibv_send_wr **bad)
{
    (void)qp;
    for (; wr != NULL && device.takes > 0; wr = wr->next)
        device.takes--;
    *bad = wr;
    return wr == NULL ? 0 : ENOMEM;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
                     struct ibv_recv_wr **bad)
{
    (void)qp, (void)bad;
    cr_assert_null(wr->next);
    device.received++;
    return 0;
}

static int poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc)
{
    (void)cq, (void)num, (void)wc;
    return -1;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
    struct ibv_context *context = calloc(1, sizeof(*context));

    cr_assert_not_null(context);
    context->device = d;
    context->ops.post_send = post_send;
    context->ops.post_recv = post_recv;
    context->ops.poll_cq = poll_cq;
    context->async_fd = -1;
    return context;
}

int ibv_close_device(struct ibv_context *context)
{
    free(context);
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    (void)context;
    *attr = (struct ibv_device_attr){.phys_port_cnt = 1,
                                     .max_qp_wr = device.says_wr,
                                     .max_sge = device.says_sge,
                                     .atomic_cap = IBV_ATOMIC_HCA};
    return 0;
}

int(ibv_query_port)(struct ibv_context *context, uint8_t port,
                    struct _compat_ibv_port_attr *attr)
{
    (void)context, (void)port;
    ((struct ibv_port_attr *)attr)->state = IBV_PORT_ACTIVE;
    ((struct ibv_port_attr *)attr)->lid = 1;
    if (device.roce)
        ((struct ibv_port_attr *)attr)->link_layer = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context,
                             struct ibv_gid_entry *entries, size_t max_entries,
                             uint32_t flags, size_t entry_size)
{
    (void)context, (void)flags;
    cr_assert_geq(max_entries, sizeof(gids) / sizeof(gids[0]));
    cr_assert_eq(entry_size, sizeof(gids[0]));
    memcpy(entries, gids, sizeof(gids));
    return sizeof(gids) / sizeof(gids[0]);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof(*pd));

    cr_assert_not_null(pd);
    pd->context = context;
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    free(pd);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *arg,
                             struct ibv_comp_channel *channel, int vector)
{
    struct ibv_cq *cq = calloc(1, sizeof(*cq));

    (void)cqe, (void)arg, (void)channel, (void)vector;
    cr_assert_not_null(cq);
    cq->context = context;
    return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    free(cq);
    return 0;
}

static uint32_t max(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    const struct ibv_qp_cap *cap = &init->cap;
    struct ibv_qp *qp;

    device.tried++;
    if (cap->max_send_wr > device.max_wr ||
        cap->max_send_sge > device.max_sge ||
        cap->max_recv_wr > device.max_receives ||
        cap->max_inline_data > device.max_inline ||
        (uint64_t)cap->max_send_wr *
                max(16 * cap->max_send_sge, cap->max_inline_data) >
            device.max_bytes) {
        errno = device.why;
        return NULL;
    }
    qp = calloc(1, sizeof(*qp));
    cr_assert_not_null(qp);
    qp->context = pd->context;
    qp->qp_num = 7;
    device.made++;
    return qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    device.made--;
    free(qp);
    return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void)qp;
    device.state = (int)attr->qp_state;
    if ((mask & IBV_QP_AV) != 0 && attr->ah_attr.is_global)
        device.used_gid = attr->ah_attr.grh.sgid_index;
    return 0;
}

/* ---- what is made of it ---- */

static const struct rsched_engine_env env = {.job = 1};

/* No queue pair that was made to find limits is left. */
static struct rs_rdma_port *open_port(void)
{
    struct rs_rdma_port *ports[RSCHED_MAX_RAILS];

    cr_assert_eq(rs_verbs_ports_open(&env, ports), 1, "%s",
                 rsched_last_error());
    cr_assert_eq(device.made, 0);
    return ports[0];
}

/* A port has these limits, and a queue pair with them can be made. */
static void expect_limits(uint32_t ops, uint32_t pieces, uint32_t max_inline)
{
    struct rs_rdma_port *port = open_port();
    struct rs_rdma_endpoint endpoint;
    struct rs_rdma_queue *queue;

    cr_expect_eq(port->max_ops, ops, "%u requests", port->max_ops);
    cr_expect_eq(port->max_pieces, pieces, "%u pieces", port->max_pieces);
    cr_expect_eq(port->max_inline, max_inline, "%u inline", port->max_inline);
    cr_assert_eq(port->ops->queue_create(port, &endpoint, &queue), 0, "%s",
                 rsched_last_error());
    cr_assert_eq(device.made, 1);
    port->ops->queue_destroy(queue);
    port->ops->close(port);
    cr_assert_eq(device.made, 0);
}

static void expect_text(const char *part)
{
    cr_expect_not_null(strstr(rsched_last_error(), part), "no '%s' in '%s'",
                       part, rsched_last_error());
}

static void expect_no_port(const char *why)
{
    struct rs_rdma_port *ports[RSCHED_MAX_RAILS];

    cr_assert_eq(rs_verbs_ports_open(&env, ports), RSCHED_ENOTSUP);
    expect_text("verbs: no usable port: fake_0/1 ");
    expect_text(why);
}

Test(limits, of_a_large_device_are_those_of_the_engine)
{
    expect_limits(256, 16, 220);
    cr_assert_leq(device.tried, 3);
}

Test(limits, that_a_device_has_are_kept)
{
    device.says_wr = device.max_wr = 100;
    device.says_sge = device.max_sge = 3;
    device.max_inline = 64;
    expect_limits(100, 3, 64);
}

Test(limits, of_requests_that_a_device_conceals_are_found)
{
    device.max_wr = 64;
    expect_limits(64, 16, 220);
}

Test(limits, of_pieces_that_a_device_conceals_are_found)
{
    device.max_sge = 2;
    expect_limits(256, 2, 220);
}

/* Bytes inline are given up before pieces, and these before requests. */
Test(limits, that_do_not_hold_together_are_found)
{
    device.max_bytes = 64 * 128;
    expect_limits(256, 2, 28);
}

Test(limits, can_be_the_least)
{
    device.says_wr = device.max_wr = RS_VERBS_LEAST_DEPTH;
    device.says_sge = device.max_sge = 1;
    device.max_inline = 8;
    expect_limits(RS_VERBS_LEAST_DEPTH, 1, 8);
}

Test(limits, can_be_the_least_of_a_device_that_says_more)
{
    device.max_wr = RS_VERBS_LEAST_DEPTH + 1;
    device.max_sge = 1;
    device.max_inline = 8;
    expect_limits(RS_VERBS_LEAST_DEPTH, 1, 8);
}

/* Queue pairs with receives for immediates: as many as the device has. */
static void expect_receives(uint32_t receives, uint32_t ops)
{
    struct rs_rdma_port *port;
    struct rs_rdma_endpoint endpoint;
    struct rs_rdma_queue *queue;

    setenv("RSCHED_NOTIFY", "imm", 1);
    port = open_port();
    cr_expect_eq(port->max_ops, ops, "%u requests", port->max_ops);
    port->notify = RS_NOTIFY_IMM; /* as the engine sets it */
    cr_assert_eq(port->ops->queue_create(port, &endpoint, &queue), 0, "%s",
                 rsched_last_error());
    cr_expect_eq(device.received, receives, "%u receives", device.received);
    port->ops->queue_destroy(queue);
    port->ops->close(port);
}

Test(limits, receives_of_a_large_device_are_those_of_the_engine)
{
    expect_receives(256, 256);
}

Test(limits, receives_that_a_device_has_are_kept)
{
    device.says_wr = device.max_wr = device.max_receives = 100;
    expect_receives(100, 100);
}

Test(limits, receives_that_a_device_conceals_are_found)
{
    device.max_receives = 32;
    expect_receives(32, 256);
}

Test(limits, receives_can_be_the_least)
{
    device.says_wr = device.max_wr = RS_VERBS_LEAST_DEPTH;
    device.max_receives = 1;
    expect_receives(1, RS_VERBS_LEAST_DEPTH);
}

/* Immediates that nobody wants cost nothing. */
Test(limits, receives_are_for_immediates_only)
{
    device.max_receives = 1;
    expect_limits(256, 16, 220);
    cr_assert_eq(device.received, 0);
}

Test(limits, too_few_requests_are_told)
{
    device.says_wr = RS_VERBS_LEAST_DEPTH - 1;
    expect_no_port("at most 3 requests (max_qp_wr) with 32 pieces (max_sge), "
                   "and 4 with 1 are needed");
    cr_assert_eq(device.tried, 0);
}

Test(limits, no_pieces_are_told)
{
    device.says_sge = 0;
    expect_no_port("with 0 pieces (max_sge)");
    cr_assert_eq(device.tried, 0);
}

Test(limits, a_device_that_makes_no_queue_pairs_is_told_of)
{
    device.max_wr = RS_VERBS_LEAST_DEPTH - 1;
    device.why = EPERM;
    expect_no_port("cannot make a queue pair, even of 4 requests with 1 piece "
                   "or 8 bytes inline: Operation not permitted");
    cr_assert_eq(device.tried, 1);
}

/* Others have taken what there was. */
Test(limits, a_refused_queue_pair_is_told_of)
{
    struct rs_rdma_port *port = open_port();
    struct rs_rdma_endpoint endpoint;
    struct rs_rdma_queue *queue;

    device.max_wr = 0;
    device.why = ENOMEM;
    cr_assert_eq(port->ops->queue_create(port, &endpoint, &queue), RSCHED_ESYS);
    expect_text("verbs fake_0/1: making a queue pair of 256 requests with 16 "
                "pieces or 220 bytes inline: Cannot allocate memory");
    port->ops->close(port);
}

Test(limits, more_requests_than_a_queue_has_are_refused)
{
    struct rs_rdma_op ops[17] = {0};
    struct rs_rdma_port *port;
    struct rs_rdma_endpoint endpoint;
    struct rs_rdma_queue *queue;
    struct rs_rdma_list *list;

    device.max_wr = 16;
    port = open_port();
    cr_assert_eq(port->ops->queue_create(port, &endpoint, &queue), 0);
    cr_assert_eq(queue->ops->list_create(queue, ops, 17, &list),
                 RSCHED_ELIMIT);
    expect_text("verbs fake_0/1: 17 work requests in a queue of 16");
    cr_assert_eq(queue->ops->list_create(queue, ops, 16, &list), 0);
    queue->ops->list_destroy(list);
    port->ops->queue_destroy(queue);
    port->ops->close(port);
}

static struct rs_rdma_list *word(struct rs_rdma_queue *queue)
{
    struct rs_rdma_op op = {.opcode = RS_RDMA_WRITE,
                            .stamp = RS_STAMP_EPOCH,
                            .inlined = true};
    struct rs_rdma_list *list;

    cr_assert_eq(queue->ops->list_create(queue, &op, 1, &list), 0);
    return list;
}

/* What the peer writes, and what was posted before, ends: its memory is used for
 * something else after a failure. */
static void expect_stopped(bool posts)
{
    struct rs_rdma_port *port = open_port();
    struct rs_rdma_endpoint endpoint;
    struct rs_rdma_queue *queue;
    struct rs_rdma_list *lists[2];
    struct rs_rdma_done done;

    cr_assert_eq(port->ops->queue_create(port, &endpoint, &queue), 0);
    for (int i = 0; i < 2; i++) {
        lists[i] = word(queue);
        cr_assert(queue->ops->post(lists[i], 1, 1));
    }
    cr_assert_neq(device.state, IBV_QPS_ERR);
    cr_assert_eq(queue->ops->ring(queue), posts ? 0 : RSCHED_ESYS);
    if (posts)
        cr_assert_eq(queue->ops->poll(queue, &done), RSCHED_ESYS);
    else
        expect_text("posting: Cannot allocate memory");
    cr_expect_eq(device.state, IBV_QPS_ERR, "state %d", device.state);
    cr_expect(!queue->ops->post(lists[0], 2, 2));
    for (int i = 0; i < 2; i++)
        queue->ops->list_destroy(lists[i]);
    port->ops->queue_destroy(queue);
    port->ops->close(port);
}

Test(failures, a_queue_pair_that_takes_some_requests_only_is_stopped)
{
    device.takes = 1;
    expect_stopped(false);
}

Test(failures, a_queue_pair_that_cannot_be_polled_is_stopped)
{
    device.takes = 2;
    expect_stopped(true);
}

/* Which GID the port tells its peers, and which one its packets come from. */
static void expect_gid(int index)
{
    unsigned char address[RS_PORT_ADDRESS_BYTES];
    struct rs_rdma_endpoint endpoint;
    struct rs_rdma_queue *queue;
    struct rs_rdma_port *port;

    device.roce = true;
    port = open_port();
    port->ops->address(port, address);
    cr_expect_arr_eq(address, gids[index].gid.raw, sizeof(gids[index].gid));
    cr_assert_eq(port->ops->queue_create(port, &endpoint, &queue), 0);
    cr_assert_eq(port->ops->queue_connect(queue, address, &endpoint), 0);
    cr_expect_eq(device.used_gid, index, "%d", device.used_gid);
    port->ops->queue_destroy(queue);
    port->ops->close(port);
}

Test(gids, a_routable_one_of_version_two_is_used)
{
    expect_gid(3);
}

/* Settings are read once in a process, and each test has one. */
Test(gids, the_setting_overrides_that)
{
    setenv("RSCHED_GID_INDEX", "1", 1);
    expect_gid(1);
}

Test(gids, one_that_is_not_there_is_told_of)
{
    device.roce = true;
    setenv("RSCHED_GID_INDEX", "9", 1);
    expect_no_port("has no GID of index 9 (RSCHED_GID_INDEX)");
}
