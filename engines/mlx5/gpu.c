/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/mlx5/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "engines/mlx5/cq.h"
#include "engines/mlx5/gpu_inside.h"
#include "librsched/base/error.h"

/* ---- memory ---- */

static int plain_allocate(void *arg, uint64_t bytes, bool in_host, void **memory)
{
    uint64_t whole = (bytes + RS_WQE_BLOCK - 1) / RS_WQE_BLOCK * RS_WQE_BLOCK;
    void *m = aligned_alloc(RS_WQE_BLOCK, whole);

    (void)arg;
    (void)in_host;
    if (m == NULL)
        return rs_fail(RSCHED_ENOMEM, "mlx5: no memory for what kernels use");
    *memory = memset(m, 0, whole);
    return 0;
}

static void plain_release(void *arg, void *memory)
{
    (void)arg;
    free(memory);
}

static int plain_map(void *arg, void *host, uint64_t bytes, bool is_register,
                     void **mapped)
{
    (void)arg;
    (void)bytes;
    (void)is_register;
    *mapped = host;
    return 0;
}

static void plain_unmap(void *arg, void *host, void *mapped)
{
    (void)arg;
    (void)host;
    (void)mapped;
}

const struct rs_gpu_memory rs_gpu_memory_plain = {
    .allocate = plain_allocate,
    .release = plain_release,
    .map = plain_map,
    .unmap = plain_unmap,
};

/* ---- queue pairs ---- */

static bool is_power_of_two(uint32_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

static int check_queue(const struct rs_mlx5_memory *q)
{
    if (!is_power_of_two(q->send_blocks) ||
        q->send_blocks > RS_MLX5_MAX_BLOCKS ||
        !is_power_of_two(q->cq_entries) || q->cq_entries < q->send_blocks)
        return rs_fail(RSCHED_ENOTSUP,
                       "mlx5 qp 0x%x: a send queue of %u blocks with a "
                       "completion queue of %u",
                       q->qpn, q->send_blocks, q->cq_entries);
    return 0;
}

void rs_gpu_queue_unmap(const struct rs_gpu_memory *memory,
                        struct rs_gpu_mapped_queue *mapped)
{
    while (mapped->num_mappings > 0) {
        struct rs_gpu_mapping *m = &mapped->mappings[--mapped->num_mappings];

        memory->unmap(memory->arg, m->host, m->mapped);
    }
}

/* @return where the GPU sees it; NULL after a failure, which *error has */
static void *map_part(const struct rs_gpu_memory *memory,
                      struct rs_gpu_mapped_queue *mapped, void *host,
                      uint64_t bytes, bool is_register, int *error)
{
    void *there = NULL;

    if (*error != 0)
        return NULL;
    *error = memory->map(memory->arg, host, bytes, is_register, &there);
    if (*error == 0)
        mapped->mappings[mapped->num_mappings++] =
            (struct rs_gpu_mapping){host, there};
    return there;
}

int rs_gpu_queue_map(const struct rs_gpu_memory *memory,
                     const struct rs_mlx5_memory *from,
                     struct rs_gpu_mapped_queue *mapped,
                     struct rsched_device_queue *to)
{
    uint64_t cq_bytes = (uint64_t)from->cq_entries * from->cqe_bytes;
    struct rsched_device_queue q = {
        .mask = from->send_blocks - 1,
        .qpn = from->qpn,
        .cq_mask = from->cq_entries - 1,
        .cqe_stride = from->cqe_bytes,
    };
    unsigned char *cq;
    uint32_t *dbrec;
    int error = check_queue(from);

    q.ring = map_part(memory, mapped, from->send_ring,
                      (uint64_t)from->send_blocks * RS_WQE_BLOCK, false, &error);
    dbrec = map_part(memory, mapped, (void *)from->dbrec, 8, false, &error);
    q.doorbells[0] =
        map_part(memory, mapped, (void *)from->doorbell,
                 from->doorbell_bytes + sizeof(uint64_t), true, &error);
    cq = map_part(memory, mapped, from->cq_ring, cq_bytes, false, &error);
    q.cq_dbrec = map_part(memory, mapped, (void *)from->cq_dbrec, 4, false,
                          &error);
    if (error != 0) {
        rs_gpu_queue_unmap(memory, mapped);
        return error;
    }
    q.dbrec = dbrec + RS_MLX5_DBREC_SEND;
    q.doorbells[1] = q.doorbells[0] + from->doorbell_bytes / sizeof(uint64_t);
    /* Of a longer entry the last 64 bytes are the CQE. */
    q.cq = cq + from->cqe_bytes - 64;
    *to = q;
    return 0;
}

/* ---- rings ---- */

static int check_ops(const struct rs_mlx5_memory *queue,
                     const struct rs_rdma_op *ops, uint32_t num_ops)
{
    for (uint32_t i = 0; i + 1 < num_ops; i++) {
        if (ops[i].inlined || ops[i].stamp != RS_STAMP_NONE)
            return rs_fail(RSCHED_EINVAL,
                           "mlx5 qp 0x%x: operation %u: a kernel changes "
                           "nothing but the notification",
                           queue->qpn, i);
    }
    if (num_ops == 0 || ops[num_ops - 1].stamp != RS_STAMP_EPOCH)
        return rs_fail(RSCHED_EINVAL,
                       "mlx5 qp 0x%x: a list without a notification",
                       queue->qpn);
    return 0;
}

/* The lists of even and odd epochs, of one length. */
static int make_lists(const struct rs_gpu_lane *lane, struct rs_wqe_list **lists)
{
    struct rs_wqe_limits limits = {
        .qpn = lane->queue->qpn,
        .blocks = lane->queue->send_blocks / 2,
        .max_segments = lane->queue->max_segments,
        .max_inline = lane->queue->max_inline,
        .recur = true,
    };
    int error = 0;

    for (int set = 0; set < 2 && error == 0; set++)
        error = check_ops(lane->queue, lane->ops[set], lane->num_ops[set]);
    if (error == 0)
        error = rs_wqe_list_create(&limits, lane->ops[0], lane->num_ops[0],
                                   &lists[0]);
    if (error != 0)
        return error;
    limits.at_least = lists[0]->blocks;
    error = rs_wqe_list_create(&limits, lane->ops[1], lane->num_ops[1],
                               &lists[1]);
    if (error != 0 || lists[1]->blocks == lists[0]->blocks)
        return error;
    rs_wqe_list_destroy(lists[0]);
    lists[0] = NULL;
    limits.at_least = lists[1]->blocks;
    return rs_wqe_list_create(&limits, lane->ops[0], lane->num_ops[0],
                              &lists[0]);
}

/* The whole ring: a list for each epoch that fits. */
static void fill_ring(const struct rs_mlx5_memory *queue,
                      struct rs_wqe_list *const *lists)
{
    size_t bytes = (size_t)lists[0]->blocks * RS_WQE_BLOCK;
    uint32_t epochs = queue->send_blocks / lists[0]->blocks;

    for (uint32_t i = 0; i < epochs; i++)
        memcpy((char *)queue->send_ring + i * bytes, lists[i % 2]->image,
               bytes);
}

/* @param there where those who use it have the table */
static void describe_list(const struct rs_wqe_list *list, uint32_t *table,
                          const uint32_t *there, struct rsched_device_list *to)
{
    const struct rs_wqe_entry *last = &list->wqes[list->num_wqes - 1];
    const struct rs_wqe_patch *stamp = &list->patches[list->num_patches - 1];

    for (uint32_t i = 0; i < list->num_wqes; i++)
        table[i] = (uint32_t)list->wqes[i].block << 8 | list->wqes[i].opcode;
    *to = (struct rsched_device_list){
        .wqes = there,
        .num_wqes = list->num_wqes,
        .last_block = last->block,
        .stamp = (uint32_t)stamp->block * RS_WQE_BLOCK + stamp->offset,
    };
    memcpy(&to->second_word,
           list->image + (size_t)last->block * RS_WQE_BLOCK + 4, 4);
}

int rs_gpu_ring_create(const struct rs_gpu_memory *memory,
                       const struct rs_gpu_memory *looks,
                       const struct rs_gpu_lane *lane,
                       struct rs_gpu_ring **ring)
{
    void *arrived = (void *)(uintptr_t)lane->arrived, *there;
    struct rs_gpu_ring *r = calloc(1, sizeof(*r));
    int error;

    if (r == NULL)
        return rs_fail(RSCHED_ENOMEM, "mlx5: no memory for a ring");
    r->memory = *memory;
    r->looks = *looks;
    r->memory_of_queue = *lane->queue;
    error = make_lists(lane, r->lists);
    if (error == 0)
        error = rs_gpu_queue_map(memory, lane->queue, &r->mapped, &r->queue);
    if (error == 0)
        error = looks->map(looks->arg, arrived, sizeof(*lane->arrived), false,
                           &there);
    if (error != 0) {
        rs_gpu_ring_destroy(r);
        return error;
    }
    r->arrived = (struct rs_gpu_mapping){arrived, there};
    *ring = r;
    return 0;
}

void rs_gpu_ring_destroy(struct rs_gpu_ring *r)
{
    if (r == NULL)
        return;
    if (r->arrived.host != NULL)
        r->looks.unmap(r->looks.arg, r->arrived.host, r->arrived.mapped);
    rs_gpu_queue_unmap(&r->memory, &r->mapped);
    for (int set = 0; set < 2; set++) {
        if (r->lists[set] != NULL)
            rs_wqe_list_destroy(r->lists[set]);
    }
    free(r);
}

uint32_t rs_gpu_ring_words(const struct rs_gpu_ring *r)
{
    return r->lists[0]->num_wqes + r->lists[1]->num_wqes;
}

void rs_gpu_ring_fill(const struct rs_gpu_ring *r,
                      struct rsched_device_lane *lane, uint32_t *table,
                      const uint32_t *there)
{
    *lane = (struct rsched_device_lane){.queue = r->queue,
                                        .blocks = r->lists[0]->blocks,
                                        .arrived = r->arrived.mapped};
    for (int set = 0; set < 2; set++) {
        describe_list(r->lists[set], table, there, &lane->lists[set]);
        table += r->lists[set]->num_wqes;
        there += r->lists[set]->num_wqes;
    }
    fill_ring(&r->memory_of_queue, r->lists);
}

int rs_gpu_explain(uint32_t qpn, const struct rsched_device_failure *failure,
                   int status, uint32_t op)
{
    if (status == RSCHED_ESYS)
        return rs_fail(RSCHED_ESYS,
                       "mlx5 qp 0x%x: unexpected completion of index %u", qpn,
                       failure->index);
    return rs_fail(status,
                   "mlx5 qp 0x%x: operation %u (index %u): %s (syndrome 0x%x, "
                   "vendor error 0x%x)",
                   qpn, op, failure->index,
                   rs_cqe_syndrome_text(failure->syndrome), failure->syndrome,
                   failure->vendor_error);
}

int rs_gpu_ring_check(const struct rs_gpu_ring *r,
                      const struct rsched_device_lane *lane)
{
    /* Acquire: the failure comes before the status. */
    int status = (int)rsched_device_load32((const uint32_t *)&lane->status);
    uint64_t completed = rsched_device_load(&lane->completed);
    uint16_t block =
        (uint16_t)(lane->failure.index - completed * lane->blocks);

    return status == 0
               ? 0
               : rs_gpu_explain(r->queue.qpn, &lane->failure, status,
                         rs_wqe_list_op_at(r->lists[completed & 1], block));
}

/* ---- exchanges ---- */

static int allocate_view(struct rs_gpu_exchange *x)
{
    const struct rs_gpu_memory *m = &x->memory;
    uint64_t bytes = x->num_lanes * sizeof(*x->lanes);
    void *memory;
    int error;

    for (uint32_t i = 0; i < x->num_lanes; i++)
        bytes += rs_gpu_ring_words(x->rings[i]) * sizeof(uint32_t);
    error = m->allocate(m->arg, bytes, x->proxy != NULL, &memory);
    if (error != 0)
        return error;
    x->lanes = memory;
    error = m->allocate(m->arg, sizeof(*x->view), false, &memory);
    if (error != 0)
        return error;
    x->view = memory;
    error = m->allocate(m->arg, sizeof(*x->stop), true, &memory);
    if (error == 0)
        x->stop = memory;
    return error;
}

static void fill_view(struct rs_gpu_exchange *x)
{
    uint32_t *table = (uint32_t *)(x->lanes + x->num_lanes);

    for (uint32_t i = 0; i < x->num_lanes; i++) {
        rs_gpu_ring_fill(x->rings[i], &x->lanes[i], table, table);
        table += rs_gpu_ring_words(x->rings[i]);
    }
    x->host = (struct rsched_device_exchange){
        .lanes = x->lanes, .num_lanes = x->num_lanes, .stop = x->stop};
    *x->view = x->host;
    if (x->proxy != NULL) {
        x->view->lanes = NULL;
        x->view->num_lanes = 0;
        x->view->proxied = x->lanes;
        x->view->num_proxied = x->num_lanes;
        x->view->proxy = x->proxy->view;
        x->view->host = x;
        x->next = x->proxy->exchanges;
        x->proxy->exchanges = x;
    }
}

int rs_gpu_exchange_create(const struct rs_gpu_memory *memory,
                           const struct rs_gpu_lane *lanes, uint32_t num_lanes,
                           struct rs_gpu_proxy *proxy,
                           struct rs_gpu_exchange **exchange)
{
    struct rs_gpu_exchange *x = calloc(1, sizeof(*x));
    int error = 0;

    if (x == NULL)
        return rs_fail(RSCHED_ENOMEM, "mlx5: no memory for an exchange");
    x->memory = *memory;
    x->proxy = proxy;
    x->rings = calloc((size_t)num_lanes + 1, sizeof(struct rs_gpu_ring *));
    if (x->rings == NULL)
        error = rs_fail(RSCHED_ENOMEM, "mlx5: no memory for an exchange");
    /* Kernels look at `arrived` also where a proxy starts. */
    while (x->num_lanes < num_lanes && error == 0) {
        error = rs_gpu_ring_create(
            proxy == NULL ? memory : &rs_gpu_memory_plain, memory,
            &lanes[x->num_lanes], &x->rings[x->num_lanes]);
        x->num_lanes += error == 0;
    }
    if (error == 0)
        error = allocate_view(x);
    if (error != 0) {
        rs_gpu_exchange_destroy(x);
        return error;
    }
    fill_view(x);
    *exchange = x;
    return 0;
}

static void leave_proxy(struct rs_gpu_exchange *x)
{
    struct rs_gpu_exchange **link = &x->proxy->exchanges;

    while (*link != NULL && *link != x)
        link = &(*link)->next;
    if (*link == x)
        *link = x->next;
}

void rs_gpu_exchange_destroy(struct rs_gpu_exchange *x)
{
    const struct rs_gpu_memory *m = &x->memory;

    if (x->proxy != NULL)
        leave_proxy(x);
    while (x->num_lanes > 0)
        rs_gpu_ring_destroy(x->rings[--x->num_lanes]);
    if (x->lanes != NULL)
        m->release(m->arg, x->lanes);
    if (x->view != NULL)
        m->release(m->arg, x->view);
    if (x->stop != NULL)
        m->release(m->arg, x->stop);
    free(x->rings);
    free(x);
}

struct rsched_device_exchange *
rs_gpu_exchange_view(const struct rs_gpu_exchange *exchange)
{
    return exchange->view;
}

void rs_gpu_exchange_stop(struct rs_gpu_exchange *exchange, int error)
{
    rsched_device_store32((uint32_t *)exchange->stop, (uint32_t)error);
}

int rs_gpu_exchange_check(const struct rs_gpu_exchange *x)
{
    for (uint32_t i = 0; i < x->num_lanes; i++) {
        int error = rs_gpu_ring_check(x->rings[i], &x->lanes[i]);

        if (error != 0)
            return error;
    }
    if (x->view->status != 0)
        return rs_fail(x->view->status, "the exchange was stopped: %s",
                       rsched_strerror(x->view->status));
    return 0;
}
