/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that processors copy: which may be, and their mappings. */
#include "engines/cuda/lane.h"
#include "librsched/base/error.h"

/* @return how many there are in GPU memory, of which those that fit are written;
 * SIZE_MAX: a piece of several blocks, which a kernel gathers better */
static size_t find_blocks(const struct rs_cuda_message *m,
                          struct rs_mapped_block *blocks)
{
    size_t num = 0;

    for (size_t i = 0; i < m->num_pieces; i++) {
        const struct rsched_piece *p = &m->pieces[i].piece;

        if (m->pieces[i].gpu < 0)
            continue;
        if (p->count > 1 && p->stride != (int64_t)p->bytes)
            return SIZE_MAX;
        if (num < RS_MAPPINGS)
            blocks[num] = (struct rs_mapped_block){
                p->address, p->bytes * p->count, m->pieces[i].gpu};
        num++;
    }
    return num;
}

static int check(size_t num)
{
    if (num == SIZE_MAX)
        return rs_fail(RSCHED_ENOTSUP, "blocks of the message lie apart from each "
                                       "other");
    if (num > RS_MAPPINGS)
        return rs_fail(RSCHED_ENOTSUP, "the message has more than %d blocks",
                       RS_MAPPINGS);
    return 0;
}

int rs_cuda_map_check(const struct rs_cuda_lane *l)
{
    struct rs_mapped_block blocks[RS_MAPPINGS];

    return check(find_blocks(&l->message, blocks));
}

int rs_cuda_map(struct rs_cuda_lane *l)
{
    struct rs_mapped_block blocks[RS_MAPPINGS];
    size_t num = find_blocks(&l->message, blocks);
    struct rs_gdr *gdr;
    int error = check(num);

    if (error != 0 || num == 0)
        return error;
    error = rs_cuda_gdr(l->lane.connection->engine, &gdr);
    return error != 0 ? error
                      : rs_mappings_complete(&l->mappings, gdr, blocks, num);
}

void rs_cuda_map_trim(struct rs_cuda_lane *l)
{
    struct rs_mapped_block blocks[RS_MAPPINGS];
    size_t num = find_blocks(&l->message, blocks);

    rs_mappings_trim(&l->mappings, blocks, num <= RS_MAPPINGS ? num : 0);
}
