/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/rdma/program.h"

#include <stdlib.h>

#include "librsched/base/error.h"

enum rs_rdma_source rs_rdma_source_choose(const struct rs_rdma_port *port,
                                          const struct rs_sources *costs,
                                          uint64_t bytes, uint64_t blocks)
{
    /* The slot's meta is a piece and eight bytes more. */
    if (bytes + sizeof(uint64_t) <= port->max_inline &&
        blocks < port->max_pieces)
        return RS_SOURCE_INLINE;
    if (port->max_pieces > 1 && rs_sources_gather(costs, bytes, blocks))
        return RS_SOURCE_GATHER;
    return RS_SOURCE_PACK;
}

bool rs_rdma_chunks_fit(const struct rs_rdma_port *port,
                        const struct rs_copies *copies)
{
    for (uint32_t k = 0; k < copies->num_chunks; k++) {
        uint64_t pieces = 1; /* the slot's meta */
        uint64_t ops;

        for (uint32_t i = copies->chunks[k].first; i < copies->chunks[k].end;
             i++)
            pieces += copies->copies[i].count;
        ops = (pieces + port->max_pieces - 1) / port->max_pieces;
        if (ops + 1 > port->max_ops)
            return false;
    }
    return true;
}

uint64_t rs_rdma_count_blocks(const struct rs_copies *copies)
{
    uint64_t blocks = 0;

    for (uint32_t i = 0; i < copies->num_copies; i++)
        blocks += copies->copies[i].count;
    return blocks;
}

int rs_rdma_writes_add_chunk(struct rs_rdma_writes *writes,
                             const struct rs_copies *copies,
                             const struct rs_chunk *chunk,
                             const struct rs_rdma_regions *regions,
                             uint64_t remote, uint32_t rkey)
{
    int error = 0;

    for (uint32_t i = chunk->first; i < chunk->end; i++) {
        const struct rs_copy *c = &copies->copies[i];
        uint32_t lkey =
            regions == NULL ? 0 : rs_rdma_regions_find(regions, c->user)->lkey;

        for (uint64_t b = 0; b < c->count && error == 0; b++)
            error = rs_rdma_writes_add(
                writes, (uintptr_t)c->user + b * (uint64_t)c->stride, lkey,
                c->bytes, remote + c->offset + b * c->bytes, rkey);
    }
    return error;
}

static uint32_t rkey_of(const struct rs_rdma_table *table, uint64_t address)
{
    const struct rs_rdma_target *t = table->pieces;

    while (address < t->address || address >= t->address + t->bytes)
        t++;
    return (uint32_t)t->rkey;
}

int rs_rdma_writes_add_pair(struct rs_rdma_writes *writes,
                            const struct rs_copies *copies,
                            const struct rs_rdma_regions *regions,
                            const struct rs_rdma_keys *keys,
                            const struct rs_rdma_table *table)
{
    int error = 0;

    for (uint32_t i = 0; i < copies->num_copies; i++) {
        const struct rs_copy *c = &copies->copies[i];
        uint32_t lkey = (keys != NULL ? keys
                                      : rs_rdma_regions_find(regions, c->user))
                            ->lkey;

        for (uint64_t b = 0; b < c->count && error == 0; b++) {
            uint64_t to = (uintptr_t)c->other + b * (uint64_t)c->other_stride;

            error = rs_rdma_writes_add(
                writes, (uintptr_t)c->user + b * (uint64_t)c->stride, lkey,
                c->bytes, to, rkey_of(table, to));
        }
    }
    return error;
}

/* The pieces, contiguous ones joined; 0: too many, or unpacking is cheaper, which
 * it is not where a copy engine would have to do it (no costs). */
static uint32_t list_targets(const struct rs_sources *costs,
                             const struct rsched_message *message,
                             struct rs_rdma_target *targets)
{
    uint32_t n = 0;

    for (size_t i = 0; i < message->num_pieces; i++) {
        const struct rsched_piece *p = &message->pieces[i];

        for (uint64_t b = 0; p->bytes > 0 && b < p->count; b++) {
            uint64_t at = (uintptr_t)p->address + b * (uint64_t)p->stride;

            if (n > 0 && targets[n - 1].address + targets[n - 1].bytes == at) {
                targets[n - 1].bytes += p->bytes;
                continue;
            }
            if (n == RS_RDMA_MAX_PIECES)
                return 0;
            targets[n++] =
                (struct rs_rdma_target){.address = at, .bytes = p->bytes};
        }
    }
    return costs == NULL || rs_sources_scatter(costs, message->bytes, n) ? n
                                                                         : 0;
}

int rs_rdma_table_make(struct rs_rdma_table *table,
                       struct rs_rdma_memory *memory,
                       const struct rs_sources *costs,
                       const struct rsched_message *message, uint64_t meta,
                       struct rsched_gpu_hold *gpu,
                       struct rs_rdma_regions *regions)
{
    int error;

    table->meta = meta;
    table->num_pieces = list_targets(costs, message, table->pieces);
    if (table->num_pieces == 0) {
        rs_fail(RSCHED_ENOTSUP, "more than %d blocks", RS_RDMA_MAX_PIECES);
        return 1;
    }
    error = rs_rdma_regions_acquire(memory, message, RS_RDMA_REMOTE, gpu,
                                    regions);
    for (uint64_t i = 0; error == 0 && i < table->num_pieces; i++) {
        struct rs_rdma_target *t = &table->pieces[i];

        t->rkey =
            rs_rdma_regions_find(regions, (char *)(uintptr_t)t->address)->rkey;
    }
    return error;
}

bool rs_rdma_table_is_sound(const struct rs_rdma_table *table, uint64_t meta)
{
    uint64_t bytes = 0;

    if (table->meta != meta || table->num_pieces > RS_RDMA_MAX_PIECES)
        return false;
    for (uint64_t i = 0; i < table->num_pieces; i++)
        bytes += table->pieces[i].bytes;
    return bytes == rs_rdma_meta_bytes(meta);
}

int rs_rdma_table_pair(const struct rs_rdma_table *table,
                       const struct rsched_message *message, char *packed,
                       struct rs_copies *copies)
{
    struct rsched_piece targets[RS_RDMA_MAX_PIECES], whole;
    struct rsched_message to = *message, from = *message;

    for (uint64_t i = 0; i < table->num_pieces; i++)
        targets[i] = (struct rsched_piece){
            .address = (char *)(uintptr_t)table->pieces[i].address,
            .bytes = table->pieces[i].bytes,
            .count = 1};
    to.pieces = targets;
    to.num_pieces = table->num_pieces;
    if (packed != NULL) {
        whole = (struct rsched_piece){
            .address = packed, .bytes = message->bytes, .count = 1};
        from.pieces = &whole;
        from.num_pieces = 1;
    }
    return rs_copies_compile_pair(copies, &from, &to);
}

static int add_list(struct rs_rdma_program *program, struct rs_rdma_list *list)
{
    if (program->num_lists == program->room_lists) {
        uint32_t room = program->room_lists == 0 ? 4 : 2 * program->room_lists;
        struct rs_rdma_list **larger =
            realloc(program->lists, room * sizeof(struct rs_rdma_list *));

        if (larger == NULL)
            return rs_fail(RSCHED_ENOMEM, "no memory for a program");
        program->lists = larger;
        program->room_lists = room;
    }
    program->lists[program->num_lists++] = list;
    return 0;
}

int rs_rdma_program_append(struct rs_rdma_program *program,
                           struct rs_rdma_queue *queue,
                           struct rs_rdma_writes *writes, uint32_t max_ops)
{
    uint32_t end;
    int error = 0;

    rs_rdma_writes_finish(writes);
    for (uint32_t i = 0; i < writes->num_ops && error == 0; i = end) {
        uint32_t until = i < writes->head_ops ? writes->head_ops : writes->num_ops;
        struct rs_rdma_list *list;

        end = until - i < max_ops ? until : i + max_ops;
        error = queue->ops->list_create(queue, &writes->ops[i], end - i, &list);
        if (error != 0)
            break;
        error = add_list(program, list);
        if (error != 0)
            queue->ops->list_destroy(list);
    }
    return error;
}

void rs_rdma_program_clear(struct rs_rdma_program *program)
{
    for (uint32_t i = 0; i < program->num_lists; i++) {
        struct rs_rdma_list *list = program->lists[i];

        list->queue->ops->list_destroy(list);
    }
    program->num_lists = 0;
}

void rs_rdma_program_fini(struct rs_rdma_program *program)
{
    rs_rdma_program_clear(program);
    free(program->lists);
    *program = (struct rs_rdma_program){0};
}
