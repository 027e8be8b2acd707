/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/mlx5/sq.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"

int rs_sq_init(struct rs_sq *sq, const struct rs_mlx5_memory *memory)
{
    uint32_t slots = memory->send_blocks;
    struct rs_sq s = {
        .ring = memory->send_ring,
        .mask = slots - 1,
        .dbrec = &memory->dbrec[RS_MLX5_DBREC_SEND],
        .doorbell = memory->doorbell,
        .other_doorbell =
            memory->doorbell + memory->doorbell_bytes / sizeof(uint64_t),
    };

    s.owners = calloc(slots, sizeof(*s.owners));
    s.posts = calloc(slots, sizeof(*s.posts));
    if (s.owners == NULL || s.posts == NULL) {
        rs_sq_fini(&s);
        return rs_fail(RSCHED_ENOMEM,
                       "mlx5 qp 0x%x: no memory for a send queue of %u blocks",
                       memory->qpn, slots);
    }
    *sq = s;
    return 0;
}

void rs_sq_fini(struct rs_sq *sq)
{
    free(sq->owners);
    free(sq->posts);
}

void rs_sq_adopt(struct rs_sq *sq, struct rs_wqe_list *list)
{
    list->number = ++sq->lists; /* 0 owns what nobody has written yet */
}

static unsigned char *slot_at(const struct rs_sq *sq, uint64_t block)
{
    return sq->ring + (size_t)(block & sq->mask) * RS_WQE_BLOCK;
}

static void place_blocks(struct rs_sq *sq, const struct rs_wqe_list *list)
{
    for (uint32_t i = 0; i < list->blocks; i++) {
        uint64_t *owner = &sq->owners[(sq->posted + i) & sq->mask];
        uint64_t wanted = list->number << 16 | i; /* of at most 32768 */

        if (*owner != wanted) {
            memcpy(slot_at(sq, sq->posted + i),
                   list->image + (size_t)i * RS_WQE_BLOCK, RS_WQE_BLOCK);
            *owner = wanted;
            sq->stats.copied_blocks++;
        }
    }
}

static void set_indices(struct rs_sq *sq, const struct rs_wqe_list *list)
{
    for (uint32_t i = 0; i < list->num_wqes; i++) {
        const struct rs_wqe_entry *w = &list->wqes[i];
        uint64_t block = sq->posted + w->block;
        struct rs_wqe_ctrl *ctrl = (void *)slot_at(sq, block);

        ctrl->index_opcode = rs_wqe_index_opcode(
            (uint16_t)block, (enum rs_wqe_opcode)w->opcode);
    }
}

static void apply_patches(struct rs_sq *sq, const struct rs_wqe_list *list,
                          uint64_t epoch)
{
    for (uint32_t i = 0; i < list->num_patches; i++) {
        const struct rs_wqe_patch *p = &list->patches[i];
        unsigned char *to = slot_at(sq, sq->posted + p->block) + p->offset;
        uint32_t imm;

        switch (p->kind) {
        case RS_PATCH_EPOCH:
            memcpy(to, &epoch, sizeof(epoch));
            break;
        case RS_PATCH_IMM:
            imm = htobe32(p->imm | (uint16_t)epoch);
            memcpy(to, &imm, sizeof(imm));
            break;
        case RS_PATCH_BYTES:
            memcpy(to, p->source, p->bytes);
            break;
        }
    }
}

bool rs_sq_post(struct rs_sq *sq, const struct rs_wqe_list *list,
                uint64_t epoch, uint64_t id)
{
    if (sq->posted + list->blocks - sq->retired > (uint64_t)sq->mask + 1)
        return false;
    place_blocks(sq, list);
    set_indices(sq, list);
    apply_patches(sq, list, epoch);
    sq->posts[sq->next_post++ & sq->mask] = (struct rs_sq_post){
        .list = list,
        .first = sq->posted,
        .id = id,
    };
    sq->last = (uint32_t)(sq->posted + list->wqes[list->num_wqes - 1].block) &
               sq->mask;
    sq->posted += list->blocks;
    sq->stats.posts++;
    sq->stats.blocks += list->blocks;
    return true;
}

void rs_sq_ring(struct rs_sq *sq)
{
    _Atomic uint64_t *doorbell = sq->doorbell;
    uint64_t head;

    if (sq->rung == sq->posted)
        return;
    sq->rung = sq->posted;
    memcpy(&head, sq->ring + (size_t)sq->last * RS_WQE_BLOCK, sizeof(head));
    /* The device sees the WQEs before the record that counts them. */
    rs_mlx5_to_device();
    atomic_store_explicit(sq->dbrec, htobe32(sq->posted & 0xffff),
                          memory_order_release);
    /* And the record before the doorbell that makes it read the record. */
    rs_mlx5_flush();
    atomic_store_explicit(doorbell, head, memory_order_release);
    /* Doorbells of one queue must not be combined, nor overtake each other
     * when the queue goes to another core. */
    rs_mlx5_flush();
    sq->doorbell = sq->other_doorbell;
    sq->other_doorbell = doorbell;
    sq->stats.rings++;
}

const struct rs_sq_post *rs_sq_oldest(const struct rs_sq *sq)
{
    return sq->first_post == sq->next_post
               ? NULL
               : &sq->posts[sq->first_post & sq->mask];
}

uint16_t rs_sq_post_index(const struct rs_sq_post *post)
{
    const struct rs_wqe_list *list = post->list;

    return (uint16_t)(post->first + list->wqes[list->num_wqes - 1].block);
}

void rs_sq_retire(struct rs_sq *sq)
{
    const struct rs_sq_post *post = rs_sq_oldest(sq);

    sq->retired = post->first + post->list->blocks;
    sq->first_post++;
}

void rs_sq_reset(struct rs_sq *sq)
{
    sq->posted = sq->rung = sq->retired = 0;
    sq->first_post = sq->next_post = 0;
}
