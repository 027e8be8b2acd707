/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every single bit of every kind of WQE is turned over between writing it and
 * ringing. Either that is noticed (a violation, an error completion, a
 * completion that the producer did not expect), or the bit is one of those that
 * are named here as payload.
 *
 * Registered memory is exactly as long as what is moved, and lengths are such
 * that no turned bit makes a shorter one, so that addresses and lengths count.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/mlx5/pair.h"

enum { BLOCKS = 16, MAX_OPS = 3, MAX_FREE = 3, RNR_STEPS = 20 };

/* Bits that may be turned: of bytes [first, last], those in the mask. */
struct free_bits {
    uint32_t first, last;
    unsigned char mask;
    const char *why;
};

struct bit_case {
    const char *name;
    struct rs_rdma_op ops[MAX_OPS];
    uint32_t num_ops;
    bool recur;
    uint32_t blocks;                  /* of the list */
    struct free_bits free[MAX_FREE];
};

/* Memory of the two sides; pieces lie in `from`, apart from each other. */
struct memory {
    _Alignas(64) char from[1024];
    _Alignas(64) char to[1024];
    _Alignas(8) uint64_t result;
};

enum { PIECES = 2, PIECE_BYTES = 64, PIECE_AT = 512 };

/* What operations of cases stand for is filled in for each run. */
static const struct rs_rdma_piece one_piece = {.bytes = PIECE_BYTES};
static const struct rs_rdma_piece two_pieces[PIECES] = {{.bytes = PIECE_BYTES},
                                                        {.bytes = PIECE_BYTES}};
static const struct rs_rdma_piece inline_piece = {.bytes = 100};
static const struct rs_rdma_piece result_piece = {.bytes = 8};

#define FLAG {.opcode = RS_RDMA_WRITE, .stamp = RS_STAMP_EPOCH}
#define EVERY 0xff

static const struct bit_case cases[] = {
    {.name = "write of one piece",
     .ops = {{.opcode = RS_RDMA_WRITE, .pieces = &one_piece, .num_pieces = 1}},
     .num_ops = 1,
     .blocks = 1},
    {.name = "write of two pieces",
     .ops = {{.opcode = RS_RDMA_WRITE,
              .pieces = two_pieces,
              .num_pieces = PIECES}},
     .num_ops = 1,
     .blocks = 1},
    {.name = "epoch",
     .ops = {FLAG},
     .num_ops = 1,
     .blocks = 1,
     .free = {{36, 43, EVERY, "payload"}}},
    {.name = "inline data over two blocks",
     .ops = {{.opcode = RS_RDMA_WRITE,
              .inlined = true,
              .pieces = &inline_piece,
              .num_pieces = 1}},
     .num_ops = 1,
     .blocks = 3,
     .free = {{36, 135, EVERY, "payload"}}},
    {.name = "immediate alone",
     .ops = {{.opcode = RS_RDMA_WRITE_IMM, .imm = 0x1234}},
     .num_ops = 1,
     .blocks = 1,
     .free = {{11, 11, RS_WQE_SOLICITED, "solicited or not"},
              {12, 15, EVERY, "the immediate"},
              {16, 27, EVERY, "where it writes nothing to"}}},
    {.name = "immediate behind data",
     .ops = {{.opcode = RS_RDMA_WRITE_IMM,
              .imm = 0x1234,
              .pieces = &one_piece,
              .num_pieces = 1}},
     .num_ops = 1,
     .blocks = 1,
     .free = {{11, 11, RS_WQE_SOLICITED, "solicited or not"},
              {12, 15, EVERY, "the immediate"}}},
    {.name = "fetch-and-add",
     .ops = {{.opcode = RS_RDMA_FETCH_ADD,
              .add = 1,
              .pieces = &result_piece,
              .num_pieces = 1}},
     .num_ops = 1,
     .blocks = 1,
     .free = {{32, 39, EVERY, "what is added"}}},
    {.name = "list with padding",
     .ops = {{.opcode = RS_RDMA_WRITE,
              .pieces = two_pieces,
              .num_pieces = PIECES},
             {.opcode = RS_RDMA_WRITE, .pieces = &one_piece, .num_pieces = 1},
             FLAG},
     .num_ops = 3,
     .recur = true,
     .blocks = 4,
     .free = {{192 + 36, 192 + 43, EVERY, "payload"}}},
};

enum { NUM_CASES = sizeof(cases) / sizeof(cases[0]) };

/* Give an operation memory, registered to the byte. */
static void bind(struct pair *pair, struct memory *m, struct rs_rdma_op *op,
                 struct rs_rdma_piece *pieces, uint32_t at)
{
    uint32_t bytes = op->stamp == RS_STAMP_EPOCH ? 8 : 0;

    for (uint32_t i = 0; i < op->num_pieces; i++) {
        char *source = op->opcode == RS_RDMA_FETCH_ADD
                           ? (char *)&m->result
                           : m->from + at + i * PIECE_AT;

        pieces[i] = op->pieces[i];
        pieces[i].address = (uintptr_t)source;
        if (!op->inlined)
            pieces[i].lkey = end_register(&pair->a, source, pieces[i].bytes);
        bytes += pieces[i].bytes;
    }
    op->pieces = pieces;
    op->remote = (uintptr_t)m->to + at;
    op->rkey = end_register(&pair->b, m->to + at, bytes);
}

static struct rs_rdma_list *make_list(struct pair *pair, struct memory *m,
                                      const struct bit_case *c)
{
    struct rs_rdma_piece pieces[MAX_OPS][PIECES];
    struct rs_rdma_op ops[MAX_OPS];

    for (uint32_t i = 0; i < c->num_ops; i++) {
        ops[i] = c->ops[i];
        bind(pair, m, &ops[i], pieces[i], i * 2 * PIECE_BYTES);
    }
    return end_list(&pair->a, ops, c->num_ops);
}

/* Post, turn a bit (-1: none), ring and see. */
static bool is_accepted(const struct bit_case *c, int bit)
{
    struct pair_options options = {
        .nic = {.seed = 1, .rnr_steps = RNR_STEPS},
        .blocks = BLOCKS,
        .receives = 4,
        .recur = c->recur,
    };
    struct rs_rdma_done done = {.failed = true};
    const struct rs_rdma_queue_ops *q = &rs_mlx5_queue_ops;
    struct rs_rdma_list *list;
    struct memory *m = calloc(1, sizeof(*m));
    struct pair pair;
    bool accepted;
    int news;

    pair_init(&pair, &options);
    memset(m->from, 0x77, sizeof(m->from));
    list = make_list(&pair, m, c);
    cr_assert_eq(((struct rs_wqe_list *)list)->blocks, c->blocks);
    if (c->ops[c->num_ops - 1].opcode == RS_RDMA_WRITE_IMM)
        rs_rq_post(&pair.b.rq, 1);
    cr_assert(q->post(list, 0x5555555555555555, 0));
    if (bit >= 0)
        ((unsigned char *)pair.a.memory.send_ring)[bit / 8] ^=
            (unsigned char)(1 << bit % 8);
    cr_assert_eq(q->ring(&pair.a.queue.base), 0);
    rs_softnic_settle(pair.nic);
    news = q->poll(&pair.a.queue.base, &done);
    accepted = news == 1 && !done.failed &&
               rs_softnic_violation(pair.nic)[0] == '\0';
    q->list_destroy(list);
    pair_fini(&pair);
    free(m);
    return accepted;
}

static const char *why_free(const struct bit_case *c, int bit)
{
    for (int i = 0; i < MAX_FREE; i++) {
        const struct free_bits *f = &c->free[i];
        uint32_t byte = (uint32_t)bit / 8;

        if (byte >= f->first && byte <= f->last && (f->mask >> bit % 8 & 1))
            return f->why;
    }
    return NULL;
}

static void turn_every_bit(const struct bit_case *c)
{
    cr_assert(is_accepted(c, -1), "%s: as it is", c->name);
    for (int bit = 0; bit < (int)c->blocks * RS_WQE_BLOCK * 8; bit++) {
        const char *why = why_free(c, bit);
        bool accepted = is_accepted(c, bit);

        cr_expect_eq(accepted, why != NULL, "%s: byte %d bit %d is %s (%s)",
                     c->name, bit / 8, bit % 8,
                     accepted ? "accepted" : "refused",
                     why == NULL ? "it must not be" : why);
    }
}

Test(bits, each_is_checked_or_known_to_be_free)
{
    for (int i = 0; i < NUM_CASES; i++)
        turn_every_bit(&cases[i]);
}
