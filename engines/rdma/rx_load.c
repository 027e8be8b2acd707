/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a message is to go, and how the sender learns of it. */
#include "engines/rdma/rx.h"
#include "librsched/base/clock.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"

/* Register where the message goes. @return whether it can go there directly; if
 * not, and it lies in GPU memory, the last error says why */
static bool prepare_targets(struct rs_rdma_rx *rx,
                            const struct rsched_message *message,
                            struct rs_rdma_regions *regions)
{
    struct rs_rdma_lane *l = &rx->lane;
    int error = rs_rdma_table_make(rx->table, l->link->memory,
                                   l->gpu != NULL ? NULL
                                                  : rs_rdma_lane_costs(l),
                                   message, l->meta, l->gpu, regions);

    if (error < 0 && l->gpu == NULL)
        rs_log(RS_LOG_WARN, "receive buffers go through landing slots: %s",
               rsched_last_error());
    return error == 0;
}

/* Of what publishes a table: the table, and behind it the word that says so. */
enum part { TABLE = 1, WORD = 2, BOTH = TABLE | WORD };

static int make_publish(struct rs_rdma_rx *rx, enum part parts)
{
    const struct rs_rdma_lane *l = &rx->lane;
    const struct rs_rdma_queue_ops *ops = l->link->queue->ops;
    struct rs_rdma_piece piece = {
        .address = (uintptr_t)rx->table,
        .bytes = (uint32_t)(offsetof(struct rs_rdma_table, pieces) +
                            rx->table->num_pieces *
                                sizeof(struct rs_rdma_target)),
        .lkey = l->block->keys->lkey};
    struct rs_rdma_op ops_of[] = {
        {.opcode = RS_RDMA_WRITE,
         .remote = rx->remote_credits + sizeof(struct rs_rdma_credits),
         .rkey = rx->remote_rkey,
         .num_pieces = 1,
         .pieces = &piece},
        {.opcode = RS_RDMA_WRITE,
         .stamp = RS_STAMP_EPOCH,
         .inlined = true,
         .remote = rx->remote_credits + offsetof(struct rs_rdma_credits, table),
         .rkey = rx->remote_rkey},
    };

    if (rx->publish != NULL)
        ops->list_destroy(rx->publish);
    rx->publish = NULL;
    return ops->list_create(l->link->queue,
                            (parts & TABLE) != 0 ? ops_of : ops_of + 1,
                            parts == BOTH ? 2 : 1, &rx->publish);
}

static int publish_parts(struct rs_rdma_rx *rx, enum part parts, bool direct)
{
    struct rs_rdma_lane *l = &rx->lane;
    int error = make_publish(rx, parts);

    if (error != 0)
        return error;
    while (!rs_rdma_lane_post(l, rx->publish, rx->version << 1 | direct)) {
        if (rs_rdma_link_is_broken(l->link))
            return rs_rdma_link_failed(l->link);
        rs_clock_sleep(UINT64_C(50000000));
    }
    return 0;
}

/* The sender reads its table between our `ready` and the data, so it does not
 * now. */
static int publish(struct rs_rdma_rx *rx, bool direct)
{
    bool apart = direct && rx->lane.serial;
    int error = apart ? publish_parts(rx, TABLE, direct) : 0;

    if (error != 0)
        return error;
    if (apart)
        rs_rdma_lane_drain(&rx->lane, UINT64_MAX);
    rx->version = rs_rdma_bundle_advance(rx->lane.bundle, rx->version);
    error = publish_parts(rx, direct && !apart ? BOTH : WORD, direct);
    if (error == 0)
        rx->is_direct = direct;
    return error;
}

/* Direct where the work requests for the receiver's pieces cost less than the
 * copy out of landing slots, if that is not what copy engines do. */
static int load_direct(struct rs_rdma_rx *rx,
                       const struct rsched_message *message)
{
    struct rs_rdma_regions *regions = &rx->lane.regions;
    bool direct;

    rx->is_direct = false;
    /* The device may still read the last table. */
    rs_rdma_lane_drain(&rx->lane, UINT64_MAX);
    rs_rdma_lane_lock(&rx->lane);
    /* First: at the same addresses there may be other pages now. */
    rs_rdma_regions_release(rx->lane.link->memory, regions);
    direct = rx->lane.stage == NULL && prepare_targets(rx, message, regions);
    rs_rdma_lane_unlock(&rx->lane);
    /* Nothing has been said: it is loaded with other memory. */
    if (!direct && rx->lane.gpu != NULL)
        return RSCHED_ENOTSUP;
    return publish(rx, direct);
}

int rs_rdma_rx_load(struct rsched_lane *lane,
                    const struct rsched_message *message)
{
    struct rs_rdma_rx *rx = rs_rdma_rx_of(lane);
    struct rs_rdma_lane *l = &rx->lane;
    int error = rs_rdma_lane_load(l, message);

    if (error == 0 && l->gpu != NULL && !l->offers)
        error = rs_fail(RSCHED_ENOTSUP,
                        "messages of variable length, and all with "
                        "RSCHED_DIRECT=no, land in slots");
    if (error == 0)
        error = rs_copies_compile(&l->copies, message, l->ring.chunk_bytes);
    if (error != 0)
        return error;
    rs_rdma_ring_load(&l->ring, l->copies.num_chunks);
    if (l->stage != NULL)
        error = rsched_gpus()->stage_pin(l->stage, l->block->memory,
                                         l->block->bytes);
    if (error == 0 && l->offers)
        error = load_direct(rx, message);
    return error;
}
