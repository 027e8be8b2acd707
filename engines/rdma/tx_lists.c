/* SPDX-License-Identifier: BSD-3-Clause */
/* From a message to the lists of the sending half. */
#include <stdlib.h>
#include <string.h>

#include "engines/rdma/tx.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"

int rs_rdma_tx_add_notify(struct rs_rdma_tx *tx, uint64_t flag)
{
    struct rs_rdma_piece sink = {.address = (uintptr_t)tx->sink,
                                 .bytes = RS_RDMA_WORD,
                                 .lkey = tx->lane.block->keys->lkey};
    struct rs_rdma_op op = {.rkey = tx->remote_rkey,
                            .remote = tx->remote_arrivals +
                                      offsetof(struct rs_rdma_arrivals,
                                               arrived)};

    switch (tx->lane.notify) {
    case RS_NOTIFY_FLAG:
        op.opcode = RS_RDMA_WRITE;
        op.stamp = RS_STAMP_EPOCH;
        op.inlined = true;
        op.remote = flag;
        break;
    case RS_NOTIFY_ADD:
        op.opcode = RS_RDMA_FETCH_ADD;
        op.add = 1;
        op.num_pieces = 1;
        op.pieces = &sink;
        break;
    default:
        op.opcode = RS_RDMA_WRITE_IMM;
        op.imm = tx->imm;
    }
    return rs_rdma_writes_add_op(&tx->writes, &op);
}

/* The message's bytes of one chunk, with the meta word in front. */
static int add_chunk(struct rs_rdma_tx *tx, uint32_t chunk, uint32_t slot,
                     uint64_t remote)
{
    struct rs_rdma_lane *l = &tx->lane;
    const struct rs_chunk *c = &l->copies.chunks[chunk];
    int error;

    if (tx->source == RS_SOURCE_PACK || tx->source == RS_SOURCE_STAGE)
        return rs_rdma_writes_add(
            &tx->writes, (uintptr_t)&rs_rdma_tx_place(tx, slot)->meta,
            tx->staging->keys->lkey, RS_RDMA_WORD + c->bytes, remote,
            tx->remote_rkey);
    error = rs_rdma_writes_add(&tx->writes, (uintptr_t)tx->meta,
                               l->block->keys->lkey, RS_RDMA_WORD, remote,
                               tx->remote_rkey);
    if (error == 0)
        error = rs_rdma_writes_add_chunk(
            &tx->writes, &l->copies, c,
            tx->source == RS_SOURCE_INLINE ? NULL : &l->regions, remote + RS_RDMA_WORD,
            tx->remote_rkey);
    if (error == 0 && tx->source == RS_SOURCE_INLINE)
        tx->writes.ops[tx->writes.num_ops - 1].inlined = true;
    return error;
}

/* One list: data to a slot, then its notification. */
static int compile_chunk(struct rs_rdma_tx *tx, uint32_t chunk, uint32_t slot)
{
    uint64_t at = tx->remote_arrivals + sizeof(struct rs_rdma_arrivals) +
                  slot * tx->remote_stride;
    int error;

    rs_rdma_writes_clear(&tx->writes);
    error =
        add_chunk(tx, chunk, slot, at + offsetof(struct rs_rdma_slot, meta));
    if (error == 0)
        error = rs_rdma_tx_add_notify(
            tx, at + offsetof(struct rs_rdma_slot, arrived));
    if (error != 0)
        return error;
    return rs_rdma_program_append(&tx->landing, tx->lane.link->queue,
                                  &tx->writes,
                                  tx->lane.link->memory->port->max_ops);
}

static int compile_landing(struct rs_rdma_tx *tx)
{
    struct rs_rdma_ring *ring = &tx->lane.ring;
    int error = 0;

    rs_rdma_program_clear(&tx->landing);
    for (uint32_t start = 0; start < rs_rdma_ring_starts(ring); start++) {
        for (uint32_t i = 0; i < ring->num_chunks && error == 0; i++)
            error = compile_chunk(tx, i, (start + i) % ring->num_slots);
    }
    return error;
}

static int keep_message(struct rs_rdma_tx *tx, const struct rsched_message *message)
{
    struct rsched_piece *pieces = (void *)(uintptr_t)tx->message.pieces;

    if (message->num_pieces > tx->room_pieces) {
        pieces = realloc(pieces, message->num_pieces * sizeof(*pieces));
        if (pieces == NULL)
            return rs_fail(RSCHED_ENOMEM, "no memory for pieces");
        tx->room_pieces = message->num_pieces;
    }
    memcpy(pieces, message->pieces, message->num_pieces * sizeof(*pieces));
    tx->message = *message;
    tx->message.pieces = pieces;
    return 0;
}

/* Memory of at least `bytes` to pack into, or to stage through. */
static int provide_staging(struct rs_rdma_tx *tx, uint64_t bytes,
                           struct rs_rdma_block **staging)
{
    bool pages = tx->lane.stage != NULL;
    struct rs_rdma_block *b = *staging;

    if (b != NULL && b->bytes >= bytes && (!pages || rs_rdma_block_has_pages(b)))
        return 0;
    *staging = NULL;
    rs_rdma_block_release(b);
    return rs_rdma_block_allocate(tx->lane.link->memory, bytes, pages, NULL,
                                  staging);
}

static int provide_places(struct rs_rdma_tx *tx)
{
    const struct rs_rdma_ring *ring = &tx->lane.ring;

    return provide_staging(
        tx, rs_rdma_ring_stride(ring->chunk_bytes) * ring->num_slots,
        &tx->staging);
}

/* Who sends messages of variable length may free their memory after an epoch, and
 * start the next one without a load since there is other memory of that size at its
 * address (MPI's blocking collectives do, when the arguments are the same). A
 * registration would still be of the pages that were there, so processors read it.
 * Of a GPU's memory whoever starts has looked. */
static bool may_be_replaced(const struct rs_rdma_lane *l)
{
    return !l->ring.fixed;
}

/* The engine's lock is held. Where the user's memory cannot be registered, or has
 * more blocks than a queue takes, it is packed. */
static int prepare_source(struct rs_rdma_tx *tx, const struct rsched_message *message)
{
    struct rs_rdma_lane *l = &tx->lane;
    struct rs_rdma_memory *memory = l->link->memory;

    /* First: at the same addresses there may be other pages now. */
    rs_rdma_regions_release(memory, &l->regions);
    if (l->stage != NULL) {
        tx->source = RS_SOURCE_STAGE;
        return provide_places(tx);
    }
    tx->source = rs_rdma_source_choose(memory->port, rs_rdma_lane_costs(l),
                                       message->bytes,
                                       rs_rdma_count_blocks(&l->copies));
    if (l->gpu != NULL) {
        tx->source = RS_SOURCE_GATHER;
        if (!rs_rdma_chunks_fit(memory->port, &l->copies))
            return rs_fail(RSCHED_ENOTSUP,
                           "%s: its blocks need more than the %u requests of "
                           "%u pieces that a queue has",
                           memory->port->name, memory->port->max_ops,
                           memory->port->max_pieces);
        return rs_rdma_regions_acquire(memory, message, RS_RDMA_LOCAL, l->gpu,
                                       &l->regions);
    }
    if (tx->source == RS_SOURCE_INLINE && l->offers)
        tx->source = RS_SOURCE_PACK; /* it may go directly */
    if (tx->source == RS_SOURCE_GATHER && may_be_replaced(l))
        tx->source = RS_SOURCE_PACK;
    if (tx->source == RS_SOURCE_GATHER &&
        !rs_rdma_chunks_fit(memory->port, &l->copies)) {
        rs_log(RS_LOG_INFO,
               "%s %s: send buffers are copied: their blocks need more than "
               "the %u requests of %u pieces that a queue has",
               l->link->engine, memory->port->name, memory->port->max_ops,
               memory->port->max_pieces);
        tx->source = RS_SOURCE_PACK;
    }
    if (tx->source == RS_SOURCE_GATHER &&
        rs_rdma_regions_acquire(memory, message, RS_RDMA_LOCAL, NULL,
                                &l->regions) != 0) {
        rs_log(RS_LOG_WARN, "send buffers are copied: %s",
               rsched_last_error());
        tx->source = RS_SOURCE_PACK;
    }
    return tx->source == RS_SOURCE_PACK ? provide_places(tx) : 0;
}

int rs_rdma_tx_load(struct rsched_lane *lane,
                    const struct rsched_message *message)
{
    struct rs_rdma_tx *tx = rs_rdma_tx_of(lane);
    struct rs_rdma_lane *l = &tx->lane;
    int error = rs_rdma_lane_load(l, message);

    if (error == 0 && l->offers && l->bundle->credits == NULL)
        error = rs_fail(RSCHED_EMISMATCH, "%s: peer %d: a lane without leader",
                        l->link->engine, l->link->peer);
    if (error == 0)
        error = rs_copies_compile(&l->copies, message, l->ring.chunk_bytes);
    if (error != 0)
        return error;
    /* Lists that are under way are not destroyed. */
    rs_rdma_lane_drain(l, UINT64_MAX);
    rs_rdma_ring_load(&l->ring, l->copies.num_chunks);
    tx->version = 0;
    *tx->meta = l->meta;
    rs_rdma_lane_lock(l);
    error = prepare_source(tx, message);
    rs_rdma_lane_unlock(l);
    if (error == 0 && l->stage != NULL)
        error = rs_rdma_tx_stage_prepare(tx);
    if (error == 0)
        error = keep_message(tx, message);
    if (error == 0)
        error = compile_landing(tx);
    return error;
}

/* ---- the direct way ---- */

static int __attribute__((cold)) wrong_table(const struct rs_rdma_tx *tx)
{
    const struct rs_rdma_link *link = tx->lane.link;

    return rs_fail(RSCHED_EMISMATCH,
                   "%s: peer %d expects %llu bytes, this process sends %llu",
                   link->engine, link->peer,
                   (unsigned long long)rs_rdma_meta_bytes(tx->table->meta),
                   (unsigned long long)tx->lane.bytes);
}

/* How much of it is to be posted before other rails begin; 0: all. */
static uint64_t head_bytes(const struct rs_rdma_lane *l)
{
    uint64_t head = l->link->memory->port->head_bytes;

    return l->lane.connection->num_links > 1 && l->bytes >= 2 * head ? head : 0;
}

/* A head is packed before the rest, which would keep other rails from beginning. */
static int prepare_packing(struct rs_rdma_tx *tx, uint64_t head)
{
    struct rs_rdma_lane *l = &tx->lane;
    int error;

    rs_rdma_lane_lock(l);
    error = provide_staging(tx, l->bytes, &tx->straight_staging);
    rs_rdma_lane_unlock(l);
    if (error != 0)
        return error;
    return rs_copies_compile(&tx->parts, &tx->message,
                             head > 0 ? head : l->bytes);
}

int __attribute__((cold)) rs_rdma_tx_compile_direct(struct rs_rdma_tx *tx)
{
    struct rs_rdma_lane *l = &tx->lane;
    bool pack = tx->source == RS_SOURCE_PACK;
    uint64_t head = head_bytes(l);
    int error = 0;

    if (!rs_rdma_table_is_sound(tx->table, l->meta))
        return wrong_table(tx);
    rs_rdma_program_clear(&tx->direct);
    if (tx->source == RS_SOURCE_STAGE) {
        tx->has_head = false;
        return rs_rdma_tx_stage_compile_direct(tx);
    }
    if (pack)
        error = prepare_packing(tx, head);
    if (error == 0)
        error = rs_rdma_table_pair(tx->table, &tx->message,
                                   pack ? tx->straight_staging->memory : NULL,
                                   &tx->straight);
    if (error != 0)
        return error;
    rs_rdma_writes_clear(&tx->writes);
    tx->writes.head_bytes = head;
    tx->has_head = head > 0;
    error = rs_rdma_writes_add_pair(&tx->writes, &tx->straight, &l->regions,
                                    pack ? tx->straight_staging->keys : NULL,
                                    tx->table);
    if (error == 0)
        error = rs_rdma_tx_add_notify(
            tx,
            tx->remote_arrivals + offsetof(struct rs_rdma_arrivals, arrived));
    if (error == 0)
        error = rs_rdma_program_append(&tx->direct, l->link->queue, &tx->writes,
                                       l->link->memory->port->max_ops / 2);
    return error;
}
