/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every single bit of every kind of WQE is turned over between writing it and
 * ringing. Either that is noticed (a violation, an error completion, a
 * completion that the producer did not expect), or the bit is one of those that
 * are named here as payload. In no case is anything written elsewhere.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/mlx5/kinds.h"

enum { MAX_FREE = 3 };

/* Bits that may be turned: of bytes [first, last], those in the mask. */
struct free_bits {
    uint32_t first, last;
    unsigned char mask;
    const char *why;
};

#define EVERY 0xff

static const struct free_bits free_bits[NUM_KINDS][MAX_FREE] = {
    [KIND_EPOCH] = {{36, 43, EVERY, "payload"}},
    [KIND_INLINE] = {{36, 135, EVERY, "payload"}},
    [KIND_IMM_ALONE] = {{11, 11, RS_WQE_SOLICITED, "solicited or not"},
                        {12, 15, EVERY, "the immediate"},
                        {16, 27, EVERY, "where it writes nothing to"}},
    [KIND_IMM_BEHIND_DATA] = {{11, 11, RS_WQE_SOLICITED, "solicited or not"},
                              {12, 15, EVERY, "the immediate"}},
    [KIND_FETCH_ADD] = {{32, 39, EVERY, "what is added"}},
    [KIND_PADDED] = {{192 + 36, 192 + 43, EVERY, "payload"}},
};

/* Post, turn a bit (-1: none), ring and see. */
static bool is_accepted(const struct kind *kind, int bit)
{
    const struct rs_softnic_options options = {.seed = 1,
                                               .rnr_steps = KIND_RNR_STEPS};
    const struct rs_rdma_queue_ops *q = &rs_mlx5_queue_ops;
    struct rs_rdma_done done = {.failed = true};
    struct kind_memory memory;
    struct pair pair;
    struct rs_rdma_list *list = kind_begin(kind, &options, &pair, &memory);
    bool accepted;
    int news;

    cr_assert_eq(((struct rs_wqe_list *)list)->blocks, kind->blocks);
    cr_assert(q->post(list, 0x5555555555555555, 0));
    if (bit >= 0)
        ((unsigned char *)pair.a.memory.send_ring)[bit / 8] ^=
            (unsigned char)(1 << bit % 8);
    cr_assert_eq(q->ring(&pair.a.queue.base), 0);
    rs_softnic_settle(pair.nic);
    news = q->poll(&pair.a.queue.base, &done);
    accepted = news == 1 && !done.failed &&
               rs_softnic_violation(pair.nic)[0] == '\0';
    cr_expect(kind_kept_within(kind, &memory), "%s: byte %d bit %d", kind->name,
              bit / 8, bit % 8);
    q->list_destroy(list);
    pair_fini(&pair);
    return accepted;
}

static const char *why_free(int kind, int bit)
{
    uint32_t byte = (uint32_t)bit / 8;

    for (int i = 0; i < MAX_FREE; i++) {
        const struct free_bits *f = &free_bits[kind][i];

        if (byte >= f->first && byte <= f->last && (f->mask >> bit % 8 & 1))
            return f->why;
    }
    return NULL;
}

static void turn_every_bit(int kind)
{
    const struct kind *k = &kinds[kind];

    cr_assert(is_accepted(k, -1), "%s: as it is", k->name);
    for (int bit = 0; bit < (int)k->blocks * RS_WQE_BLOCK * 8; bit++) {
        const char *why = why_free(kind, bit);
        bool accepted = is_accepted(k, bit);

        cr_expect_eq(accepted, why != NULL, "%s: byte %d bit %d is %s (%s)",
                     k->name, bit / 8, bit % 8,
                     accepted ? "accepted" : "refused",
                     why == NULL ? "it must not be" : why);
    }
}

Test(bits, each_is_checked_or_known_to_be_free)
{
    for (int kind = 0; kind < NUM_KINDS; kind++)
        turn_every_bit(kind);
}
