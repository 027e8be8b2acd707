/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that copy engines bring to the device's side, piece by piece. A piece is
 * what a slot of the receiver's holds, also where the message goes directly, and has
 * a place as slots have, in memory of the lane's own that is pinned. It is posted
 * when it has been copied; its place has the next one when the device has let go of
 * it. Copies begin with the epoch, before the receiver has said that it is ready.
 */
#include <stdlib.h>

#include "engines/rdma/tx.h"
#include "librsched/base/error.h"

/* Where piece i of the message that comes next is. Lists that go directly have
 * their places when they are made, so such messages must begin at the same place
 * each time: they do, since only those that land go on around the ring. */
static uint32_t place_of(const struct rs_rdma_tx *tx, uint32_t piece)
{
    const struct rs_rdma_ring *ring = &tx->lane.ring;

    return (uint32_t)((ring->position + piece) % ring->num_slots);
}

int rs_rdma_tx_stage_prepare(struct rs_rdma_tx *tx)
{
    const struct rs_rdma_lane *l = &tx->lane;

    for (uint32_t i = 0; i < l->ring.num_slots; i++) {
        rs_rdma_tx_place(tx, i)->meta = l->meta;
        tx->leaves[i] = 0;
    }
    return rsched_gpus()->stage_pin(l->stage, tx->staging->memory,
                                    tx->staging->bytes);
}

static int fail(const struct rs_rdma_tx *tx, int error)
{
    return rs_fail_within(error, "%s: peer %d", tx->lane.link->engine,
                          tx->lane.link->peer);
}

/* Whether the device has let go of what was there before. */
static bool is_free(struct rs_rdma_tx *tx, uint32_t place)
{
    struct rs_rdma_lane *l = &tx->lane;

    if (atomic_load_explicit(&l->completed, memory_order_acquire) >=
        tx->leaves[place])
        return true;
    rs_rdma_link_lock(l->link);
    rs_rdma_link_poll(l->link);
    rs_rdma_link_unlock(l->link);
    /* Acquire: it has read what is about to be written. */
    return atomic_load_explicit(&l->completed, memory_order_acquire) >=
           tx->leaves[place];
}

int rs_rdma_tx_stage_go_on(struct rs_rdma_tx *tx)
{
    struct rs_rdma_lane *l = &tx->lane;
    const struct rsched_gpu_ops *gpus = rsched_gpus();
    int status;

    while (tx->begun < l->ring.num_chunks &&
           tx->begun - tx->left < l->ring.num_slots &&
           is_free(tx, place_of(tx, tx->begun))) {
        status = gpus->stage_begin(
            l->stage, tx->begun,
            rs_rdma_tx_place(tx, place_of(tx, tx->begun))->data);
        if (status != 0)
            return fail(tx, status);
        tx->begun++;
    }
    while (tx->copied < tx->begun) {
        status = gpus->stage_poll(l->stage, tx->copied);
        if (status != RSCHED_LANE_DONE)
            return status < 0 ? fail(tx, status) : 0;
        tx->copied++;
        l->lane.stats.chunks++;
    }
    return 0;
}

void rs_rdma_tx_stage_posted(struct rs_rdma_tx *tx)
{
    /* Of a piece that goes directly there may be more lists. */
    if (tx->is_direct && tx->next < tx->ends[tx->left])
        return;
    tx->leaves[place_of(tx, tx->left)] = tx->lane.posted;
    tx->left++;
}

/* ---- lists that go directly ---- */

/* Where a table is being filled. */
struct cursor {
    const struct rs_rdma_target *target;
    uint64_t filled; /* of it */
};

/* The writes of so many bytes in a row. */
static int add_piece(struct rs_rdma_tx *tx, const char *from, uint64_t bytes,
                     struct cursor *to)
{
    int error = 0;

    while (bytes > 0 && error == 0) {
        uint64_t room = to->target->bytes - to->filled;
        uint64_t part = bytes < room ? bytes : room;

        error = rs_rdma_writes_add(&tx->writes, (uintptr_t)from,
                                   tx->staging->keys->lkey, part,
                                   to->target->address + to->filled,
                                   (uint32_t)to->target->rkey);
        from += part;
        bytes -= part;
        to->filled += part;
        if (to->filled == to->target->bytes)
            *to = (struct cursor){.target = to->target + 1};
    }
    return error;
}

static int make_ends(struct rs_rdma_tx *tx)
{
    uint32_t *ends = realloc(tx->ends,
                             tx->lane.ring.num_chunks * sizeof(*ends));

    if (ends == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a program");
    tx->ends = ends;
    return 0;
}

int rs_rdma_tx_stage_compile_direct(struct rs_rdma_tx *tx)
{
    const struct rs_rdma_lane *l = &tx->lane;
    const struct rs_copies *copies = &l->copies;
    struct cursor to = {.target = tx->table->pieces};
    int error = make_ends(tx);

    for (uint32_t i = 0; i < copies->num_chunks && error == 0; i++) {
        rs_rdma_writes_clear(&tx->writes);
        error = add_piece(tx, rs_rdma_tx_place(tx, place_of(tx, i))->data,
                          copies->chunks[i].bytes, &to);
        if (error == 0 && i + 1 == copies->num_chunks)
            error = rs_rdma_tx_add_notify(
                tx, tx->remote_arrivals +
                        offsetof(struct rs_rdma_arrivals, arrived));
        if (error == 0)
            error = rs_rdma_program_append(
                &tx->direct, l->link->queue, &tx->writes,
                l->link->memory->port->max_ops / 2);
        tx->ends[i] = tx->direct.num_lists;
    }
    return error;
}
