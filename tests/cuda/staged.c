/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that copy engines bring to and from the memory of an RDMA device piece by
 * piece, between two ranks that no other engine joins:
 *
 *     cuda_staged CASE
 *
 * The device is the interpreter of ../verbs, the driver the one in software; ranks are
 * threads. The lanes' counters tell in how many pieces a message went: a sender counts
 * each that is copied, and each that is posted, a receiver each that is copied.
 */
#include <string.h>

#include "tests/cuda/swap.h"
#include "tests/verbs/interpreter.h"
#include "tests/verbs/interpreter_gpu.h"
#include "tests/verbs/only.h"

/* As the engine has them: RSCHED_CHUNK, RSCHED_RING, slots of an edge. */
enum { CHUNK = 65536, RING = 524288, PLACES = 4 };
enum { EPOCHS = 3, LOOKS = 300 };

static const struct swap_kind short_one[] = {{1, 3, true, true, false, false}};
static const struct swap_kind one_piece[] = {{CHUNK, 0, true, true, false, false}};
static const struct swap_kind two_pieces[] = {
    {CHUNK + 1, 1, true, true, false, false}};
static const struct swap_kind all_places[] = {
    {4 * CHUNK + 1, 5, true, true, false, false}};
static const struct swap_kind in_turn[] = {{1000003, 7, true, true, false, false}};
static const struct swap_kind longest[] = {
    {(8 << 20) + 11, 0, true, true, false, false}};
static const struct swap_kind to_host[] = {{1000003, 0, true, false, false, false}};
static const struct swap_kind to_gpu[] = {{1000003, 0, false, true, false, false}};
static const struct swap_kind from_rows[] = {
    {24 * 20000, 0, true, true, true, false}};
static const struct swap_kind to_rows[] = {{24 * 20000, 0, true, true, false, true}};
/* Pieces end within puts, some of which lie in host memory. */
static const struct swap_kind mixed[] = {
    {100001, 1, true, true, false, false}, {7, 0, true, true, false, false},
    {70000, 9, false, true, false, false}, {130001, 0, true, false, false, false},
    {24 * 1000, 0, true, true, true, true}, {99, 2, true, false, false, false}};
static const struct swap_kind many_to_host[] = {
    {100001, 1, true, false, false, false}, {7, 0, true, false, false, false},
    {70000, 9, true, false, false, false}, {130001, 0, true, false, false, false},
    {3, 2, true, false, false, false},     {99999, 2, true, false, false, false}};

static int begin(struct rank *self, struct swap *s)
{
    *s = (struct swap){0};
    RANK_CHECK(only_interpreter(self, NULL) == 0);
    program_begin(&s->p, self->rank);
    return 0;
}

static const struct rsched_lane_stats *sent(const struct swap *s)
{
    return &s->x->out[0].lane->stats;
}

static const struct rsched_lane_stats *received(const struct swap *s)
{
    return &s->x->in[0].lane->stats;
}

/* ---- moves ---- */

struct move {
    const struct swap_kind *kinds;
    size_t puts;
    uint64_t pieces; /* of several puts, which go over two rails: at least */
    bool sends, receives; /* it is staged there */
};

static const struct move moves[] = {
    {SWAP_KINDS(short_one), 1, true, true},
    {SWAP_KINDS(one_piece), 1, true, true},
    {SWAP_KINDS(two_pieces), 2, true, true},
    {SWAP_KINDS(all_places), 4, true, true},
    {SWAP_KINDS(in_turn), 8, true, true}, /* of RING / PLACES at most */
    {SWAP_KINDS(longest), 65, true, true},
    {SWAP_KINDS(to_host), 8, true, false},
    {SWAP_KINDS(to_gpu), 8, false, true},
    {SWAP_KINDS(from_rows), 4, true, true},
    {SWAP_KINDS(to_rows), 4, true, true},
    {SWAP_KINDS(mixed), 4, true, true},
    {SWAP_KINDS(many_to_host), 4, true, false},
};

static int check_move(struct rank *self, const struct swap *s,
                      const struct move *m, uint64_t epochs)
{
    uint64_t bytes = epochs * swap_bytes(s), pieces = epochs * m->pieces;
    enum rsched_way way = m->receives ? RSCHED_WAY_LANDING : RSCHED_WAY_DIRECT;

    RANK_CHECK(s->x->num_out == 1 && rs_peer_has_gpus(s->x->out[0].peer));
    RANK_CHECK(sent(s)->bytes[way] == bytes);
    if (m->sends) {
        RANK_CHECK(sent(s)->packed == bytes && sent(s)->gathered == 0);
        /* Of a piece that goes directly there may be more lists. */
        RANK_CHECK(m->receives ? sent(s)->chunks == 2 * pieces
                               : sent(s)->chunks >= 2 * pieces);
    }
    if (m->receives)
        RANK_CHECK(received(s)->chunks == pieces);
    return 0;
}

/* Several puts: a rail may have some that lie in host memory only, at one end. */
static int check_rails(struct rank *self, const struct swap *s,
                       const struct move *m, uint64_t epochs)
{
    uint64_t moved = 0, landed = 0, packed = 0, copied = 0, taken = 0;

    for (uint32_t i = 0; i < s->x->num_out; i++) {
        const struct rsched_lane_stats *stats = &s->x->out[i].lane->stats;

        RANK_CHECK(rs_peer_has_gpus(s->x->out[i].peer));
        landed += stats->bytes[RSCHED_WAY_LANDING];
        moved += stats->bytes[RSCHED_WAY_LANDING] +
                 stats->bytes[RSCHED_WAY_DIRECT];
        packed += stats->packed;
        copied += stats->chunks;
    }
    for (uint32_t i = 0; i < s->x->num_in; i++)
        taken += s->x->in[i].lane->stats.chunks;
    RANK_CHECK(moved == epochs * swap_bytes(s));
    RANK_CHECK(packed > 0 && copied >= 2 * epochs * m->pieces);
    RANK_CHECK(m->receives ? landed > 0 && taken >= epochs * m->pieces
                           : landed == 0);
    return 0;
}

static uint64_t memory(const struct rank *self)
{
    struct rs_engine *e = &self->context->engines[0];

    return e->ops->memory(e->engine);
}

/* The same exchange with host memory, which nobody stages, and back. */
static int rebind(struct rank *self, struct swap *s, const struct move *m)
{
    static const struct swap_kind in_host = {1000003, 7, false, false, false, false};
    struct swap host = *s;
    const void *send[SWAP_MOST];
    void *receive[SWAP_MOST];
    uint64_t chunks;

    swap_make_buffers(&host, &in_host, 1);
    swap_addresses(&host, send, receive);
    RANK_CHECK(rsched_exchange_bind(s->x, send, receive) == 0);
    RANK_CHECK(swap_run(self, &host, EPOCHS) == 0);
    swap_addresses(s, send, receive);
    RANK_CHECK(rsched_exchange_bind(s->x, send, receive) == 0);
    chunks = received(s)->chunks;
    RANK_CHECK(swap_run(self, s, EPOCHS) == 0);
    RANK_CHECK(received(s)->chunks == chunks + EPOCHS * m->pieces);
    swap_free_buffers(&host);
    return 0;
}

static int case_moves(struct rank *self)
{
    struct swap s;

    RANK_CHECK(begin(self, &s) == 0);
    for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
        const struct move *m = &moves[i];
        uint64_t before = memory(self);

        swap_make_buffers(&s, m->kinds, m->puts);
        RANK_CHECK(swap_create(self, &s) == 0);
        RANK_CHECK(swap_run(self, &s, EPOCHS) == 0);
        RANK_CHECK((m->puts == 1 ? check_move : check_rails)(self, &s, m,
                                                             EPOCHS) == 0);
        RANK_CHECK(interpreter_gpu_writes() == 0);
        /* Slots and places, of RSCHED_RING each and what is around them. */
        RANK_CHECK(memory(self) - before <= 3 * RING);
        if (m->kinds == in_turn)
            RANK_CHECK(rebind(self, &s, m) == 0);
        swap_forget(self, &s);
    }
    program_end(&s.p, self->rank);
    return 0;
}

/* Messages whose lengths vary have slots of RSCHED_CHUNK. */
static int case_variable(struct rank *self)
{
    static const struct swap_kind *const turns[] = {in_turn, short_one, all_places};
    struct swap s;

    RANK_CHECK(begin(self, &s) == 0);
    s.flags = RSCHED_EXCHANGE_VARIABLE;
    swap_make_buffers(&s, in_turn, 1);
    RANK_CHECK(swap_create(self, &s) == 0);
    for (int turn = 0; turn < 9; turn++) {
        const struct swap_kind *k = turns[turn % 3];
        uint64_t pieces = (k->bytes + CHUNK - 1) / CHUNK;
        uint64_t before = received(&s)->chunks;
        struct rsched_pattern *pattern;
        const void *send[SWAP_MOST];
        void *receive[SWAP_MOST];

        s.kinds = k;
        pattern = swap_pattern(self, &s);
        swap_addresses(&s, send, receive);
        RANK_CHECK(rsched_exchange_load(s.x, pattern, send, receive) == 0);
        rsched_pattern_destroy(pattern);
        RANK_CHECK(swap_run(self, &s, 1) == 0);
        RANK_CHECK(received(&s)->chunks - before == pieces);
    }
    s.kinds = in_turn;
    swap_forget(self, &s);
    program_end(&s.p, self->rank);
    return 0;
}

/* ---- in the middle of a message ---- */

/* Rank 0 has posted what it has places for, and none of that has arrived. It goes on no
 * further, though half of the message has not been copied. */
static int halt(struct rank *self, struct swap *s)
{
    unsigned long long copies = s->p.fakeCount(FAKE_COPIES);
    bool done;

    if (self->rank == 0) {
        interpreter_hold(1000);
        RANK_CHECK(swap_start(self, s) == 0);
        while (sent(s)->chunks < 2 * PLACES)
            RANK_CHECK(rsched_exchange_test(s->x, &done) == 0);
        for (int i = 0; i < LOOKS; i++)
            RANK_CHECK(rsched_exchange_test(s->x, &done) == 0 && !done);
        RANK_CHECK(sent(s)->chunks == 2 * PLACES);
        RANK_CHECK(s->p.fakeCount(FAKE_COPIES) - copies == PLACES);
    } else {
        RANK_CHECK(swap_start(self, s) == 0);
    }
    mesh_barrier(self->end);
    return 0;
}

static int halfway(struct rank *self, struct swap *s)
{
    s->one_way = true;
    swap_make_buffers(s, SWAP_KINDS(in_turn));
    RANK_CHECK(swap_create(self, s) == 0);
    mesh_barrier(self->end);
    return halt(self, s);
}

/* An exchange that is made now is as good as any. */
static int again(struct rank *self, struct swap *s)
{
    RANK_CHECK(swap_create(self, s) == 0);
    RANK_CHECK(swap_run(self, s, EPOCHS) == 0);
    swap_forget(self, s);
    program_end(&s->p, self->rank);
    return 0;
}

/* Copies go on while what has been copied is on the wire. */
static int case_overlap(struct rank *self)
{
    struct swap s;

    RANK_CHECK(begin(self, &s) == 0);
    RANK_CHECK(halfway(self, &s) == 0);
    if (self->rank == 0)
        interpreter_deliver();
    RANK_CHECK(swap_wait(self, &s) == 0);
    if (self->rank == 0)
        RANK_CHECK(sent(&s)->chunks == 2 * 8);
    else
        RANK_CHECK(received(&s)->chunks == 8);
    rsched_exchange_destroy(s.x);
    mesh_barrier(self->end);
    return again(self, &s);
}

/* The sender gives up: that ends what the receiver waits for. */
static int case_gone(struct rank *self)
{
    struct swap s;

    RANK_CHECK(begin(self, &s) == 0);
    RANK_CHECK(halfway(self, &s) == 0);
    if (self->rank == 0) {
        interpreter_deliver();
        rsched_exchange_destroy(s.x);
    } else {
        RANK_CHECK(rsched_exchange_wait(s.x) == RSCHED_EPEER);
        rsched_exchange_destroy(s.x);
    }
    mesh_barrier(self->end);
    return again(self, &s);
}

/* So does the receiver, to which nothing comes any more. */
static int case_given_up(struct rank *self)
{
    struct swap s;

    RANK_CHECK(begin(self, &s) == 0);
    RANK_CHECK(halfway(self, &s) == 0);
    if (self->rank == 1)
        rsched_exchange_destroy(s.x);
    mesh_barrier(self->end);
    if (self->rank == 0) {
        interpreter_deliver();
        RANK_CHECK(rsched_exchange_wait(s.x) == RSCHED_EPEER);
        rsched_exchange_destroy(s.x);
    }
    mesh_barrier(self->end);
    return again(self, &s);
}

/* The wires are cut while pieces are on them, as when the peer's node dies. */
static int case_cut(struct rank *self)
{
    struct swap s;
    int error;

    RANK_CHECK(begin(self, &s) == 0);
    RANK_CHECK(halfway(self, &s) == 0);
    if (self->rank == 0) {
        interpreter_cut(INTERPRETER_ALL_RAILS);
        interpreter_deliver();
    }
    mesh_barrier(self->end);
    error = rsched_exchange_wait(s.x);
    RANK_CHECK(error == RSCHED_EPEER);
    mesh_barrier(self->end);
    if (self->rank == 0)
        interpreter_cut(0);
    rsched_exchange_destroy(s.x);
    mesh_barrier(self->end);
    return again(self, &s);
}

/* What the sender had sent when it left is received, late as copies are. */
static int case_left(struct rank *self)
{
    struct swap s;

    RANK_CHECK(begin(self, &s) == 0);
    s.one_way = true;
    swap_make_buffers(&s, SWAP_KINDS(all_places));
    RANK_CHECK(swap_create(self, &s) == 0);
    RANK_CHECK(swap_start(self, &s) == 0);
    if (self->rank == 0) {
        RANK_CHECK(swap_wait(self, &s) == 0);
        rsched_exchange_destroy(s.x);
        mesh_barrier(self->end);
    } else {
        mesh_barrier(self->end);
        RANK_CHECK(swap_wait(self, &s) == 0);
        RANK_CHECK(received(&s)->chunks == PLACES);
        rsched_exchange_destroy(s.x);
    }
    mesh_barrier(self->end);
    return again(self, &s);
}

/* FAKE_CUDA_FAIL has one of the copies fail, of which there are those of the sender
 * only, or of the receiver: the second, so that the sender waits for places. */
static int failing(struct rank *self, const struct swap_kind *kind, int failed)
{
    struct swap s;
    int error;

    RANK_CHECK(begin(self, &s) == 0);
    s.one_way = true;
    swap_make_buffers(&s, kind, 1);
    RANK_CHECK(swap_create(self, &s) == 0);
    RANK_CHECK(swap_start(self, &s) == 0);
    error = rsched_exchange_wait(s.x);
    RANK_CHECK(error == (self->rank == failed ? RSCHED_ESYS : RSCHED_EPEER));
    if (self->rank == failed)
        RANK_CHECK(strstr(rsched_last_error(), "interpreter: peer ") != NULL &&
                   strstr(rsched_last_error(), "cuMemcpyAsync") != NULL);
    rsched_exchange_destroy(s.x);
    mesh_barrier(self->end);
    return again(self, &s);
}

static int case_failing_sender(struct rank *self)
{
    return failing(self, to_host, 0);
}

static int case_failing_receiver(struct rank *self)
{
    return failing(self, to_gpu, 1);
}

static const struct {
    const char *name;
    rank_fn *run;
} cases[] = {
    {"moves", case_moves},
    {"variable", case_variable},
    {"overlap", case_overlap},
    {"gone", case_gone},
    {"given-up", case_given_up},
    {"cut", case_cut},
    {"left", case_left},
    {"failing-sender", case_failing_sender},
    {"failing-receiver", case_failing_receiver},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[1], cases[i].name) == 0)
            return ranks_run(2, true, cases[i].run, NULL) == 0 ? 0 : 1;
    }
    return 2;
}
