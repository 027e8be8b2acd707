/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiling messages: where their pieces lie, which way they go. */
#include <stdlib.h>
#include <string.h>

#include "engines/cuda/lane.h"
#include "librsched/base/array.h"
#include "librsched/base/config.h"
#include "librsched/base/coordinator.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"

extern const struct rsched_gpu_ops rs_cuda_gpu_ops;

/* All blocks of a piece lie in one allocation. */
static int place_piece(const struct rsched_piece *p, struct rsched_place *place)
{
    int64_t span = (int64_t)(p->count - 1) * p->stride;
    const char *low = p->address + (span < 0 ? span : 0);
    const char *high = p->address + (span > 0 ? span : 0) + p->bytes;

    /* Without a driver, or with one that the program has not asked for memory,
     * there is none but the host's. */
    *place = (struct rsched_place){RSCHED_PLACE_HOST, -1};
    if (rs_cuda_gpu_ops.attach())
        rs_cuda_gpu_ops.place(low, (uint64_t)(high - low), place);
    if (place->kind != RSCHED_PLACE_UNKNOWN)
        return 0;
    return rs_fail(RSCHED_ENOTSUP,
                   "cuda: a block that does not lie in one allocation of host "
                   "memory, or of a GPU's primary context");
}

static int add_piece(struct rsched_engine *engine, struct rs_cuda_message *m,
                     const struct rsched_piece *p)
{
    struct rsched_place place;
    int error = place_piece(p, &place);

    if (error != 0)
        return error;
    m->pieces[m->num_pieces++] = (struct rs_cuda_piece){*p, place.gpu};
    if (place.kind != RSCHED_PLACE_GPU) {
        m->all_gpu = m->one_gpu = false;
        return 0;
    }
    if (!m->on_gpu)
        m->gpu = place.gpu;
    m->on_gpu = true;
    m->one_gpu = m->one_gpu && place.gpu == m->gpu;
    return rs_cuda_synchronise(engine, place.gpu, p->address);
}

/* For rs_cuda_gpu_of_block(), which is asked for each copy. */
static int find_spans(struct rs_cuda_message *m)
{
    int error = 0;

    for (size_t i = 0; i < m->num_pieces && error == 0; i++) {
        if (m->pieces[i].gpu >= 0)
            error = rs_spans_add(&m->spans, &m->pieces[i].piece, m->pieces[i].gpu);
    }
    rs_spans_sort(&m->spans);
    return error;
}

int rs_cuda_keep_message(struct rsched_engine *engine,
                         struct rs_cuda_message *m,
                         const struct rsched_message *message)
{
    struct rs_cuda_piece *larger =
        rs_array_grow(m->pieces, &m->room_pieces, message->num_pieces,
                      sizeof(*larger));
    int error = 0;

    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory for pieces");
    m->pieces = larger;
    m->num_pieces = 0;
    m->bytes = message->bytes;
    m->signature = message->signature;
    m->on_gpu = false;
    m->all_gpu = m->one_gpu = true;
    for (size_t i = 0; i < message->num_pieces && error == 0; i++) {
        const struct rsched_piece *p = &message->pieces[i];

        if (p->bytes > 0 && p->count > 0)
            error = add_piece(engine, m, p);
    }
    rs_spans_clear(&m->spans);
    return error == 0 && m->on_gpu && !m->one_gpu ? find_spans(m) : error;
}

int rs_cuda_gpu_of_block(const struct rs_cuda_message *m, const char *address)
{
    return m->one_gpu ? m->gpu : rs_spans_find(&m->spans, address);
}

enum rs_mover rs_cuda_mover_of_slots(const void *arg, const struct rs_copy *c)
{
    const struct rs_cuda_lane *l = arg;
    int gpu = rs_cuda_gpu_of_block(&l->message, c->user);

    if (gpu < 0)
        return RS_MOVER_PROCESSOR;
    return l->batch != NULL && l->slots_of_kernel != 0 && gpu == l->stream.gpu
               ? RS_MOVER_KERNEL
               : RS_MOVER_COPY_ENGINE;
}

/* Of the process's copies to itself. A kernel has the memory of its own GPU
 * only, unless the program has given it more. */
static enum rs_mover mover_of_self(const void *arg, const struct rs_copy *c)
{
    const struct rs_cuda_lane *tx = arg;
    int from = rs_cuda_gpu_of_block(&tx->message, c->user);
    int to = rs_cuda_gpu_of_block(&tx->other->message, c->other);

    if (from < 0 && to < 0)
        return RS_MOVER_PROCESSOR;
    return tx->batch != NULL && from == to && from == tx->stream.gpu
               ? RS_MOVER_WITHIN
               : RS_MOVER_COPY_ENGINE;
}

/* ---- which way ---- */

static enum rs_distance distance(const struct rs_cuda_end *a,
                                 const struct rs_cuda_end *b)
{
    if (a->on_gpu && b->on_gpu && memcmp(a->id, b->id, sizeof(a->id)) == 0)
        return RS_DISTANCE_SAME_GPU;
    if (a->numa_node == b->numa_node && a->numa_node != RSCHED_NUMA_UNKNOWN)
        return RS_DISTANCE_SAME_NUMA;
    return RS_DISTANCE_OTHER_NUMA;
}

/* What the receiver has to be able to read. @return 0, or why it is not */
static int check_ipc(const struct rs_cuda_lane *l)
{
    const struct rs_cuda_message *m = &l->message;
    int gpu;

    if (l->refused)
        return rs_fail(RSCHED_ENOTSUP, "it cannot open GPU memory of this "
                                       "process");
    if (!m->all_gpu)
        return rs_fail(RSCHED_ENOTSUP, "some of the message lies in host memory");
    /* A GPU that is not visible here may be accessible all the same: the
     * receiver's driver will know. */
    if (!l->peer.on_gpu || rs_cuda_gpu_of(l->peer.id, &gpu) != 0 ||
        gpu == m->gpu)
        return 0;
    return rs_cuda_gpu_ops.check_way(m->gpu, gpu, RS_WAY_CUDA_IPC);
}

/* How far the two ends are apart. @return 0, or what the driver said */
static int find_distance(const struct rs_cuda_lane *l, enum rs_distance *d)
{
    const struct rsched_place place = {
        l->message.on_gpu ? RSCHED_PLACE_GPU : RSCHED_PLACE_HOST,
        l->message.on_gpu ? l->message.gpu : -1};
    struct rs_cuda_end own;
    int error = rs_cuda_end_of(&place, &own);

    if (error == 0)
        *d = distance(&own, &l->peer);
    return error;
}

/* Of those that may be chosen by their costs, the ways that look possible. A
 * message of host memory here is pulled from nowhere; of one to host memory that
 * would need the driver, which the program there may not have loaded. GDRCopy is
 * not even looked for where its costs are not known. */
static uint32_t possible_ways(const struct rs_cuda_lane *l, enum rs_distance d)
{
    const struct rs_ways *ways = l->lane.connection->engine->env.ways;
    uint32_t possible = RS_WAY_BIT(RS_WAY_STAGED);

    if (l->message.on_gpu && l->peer.on_gpu && check_ipc(l) == 0)
        possible |= RS_WAY_BIT(RS_WAY_CUDA_IPC);
    if (rs_gpu_way_costs(ways, RS_WAY_GDRCOPY, d)->given &&
        rs_config()->gdrcopy && rs_cuda_map_check(l) == 0)
        possible |= RS_WAY_BIT(RS_WAY_GDRCOPY);
    if (l->message.all_gpu && l->peer.on_gpu && rs_cuda_loop_check(l) == 0)
        possible |= RS_WAY_BIT(RS_WAY_GDR_LOOPBACK);
    return possible;
}

/* Have what a way needs, which stays if the message went it before.
 * @param now the way that it goes already, or NULL: it is new */
static int prepare(struct rs_cuda_lane *l, enum rs_way way,
                   const enum rs_way *now)
{
    if (way == RS_WAY_GDRCOPY)
        return rs_cuda_map(l);
    if (way == RS_WAY_GDR_LOOPBACK)
        return rs_cuda_loop_load_kept(l);
    return way != RS_WAY_CUDA_IPC || (now != NULL && *now == way)
               ? 0
               : rs_cuda_pull_load(l);
}

static void tell_impossible(const struct rs_cuda_lane *l, enum rs_way way)
{
    if (way == RS_WAY_GDRCOPY)
        rs_log(RS_LOG_WARN,
               "cuda: messages to peer %d are not copied by processors: %s",
               l->lane.connection->peer, rsched_last_error());
    if (way == RS_WAY_GDR_LOOPBACK)
        rs_log(RS_LOG_WARN, "cuda: messages to peer %d do not go through a NIC: %s",
               l->lane.connection->peer, rsched_last_error());
}

/* The cheapest of the ways that turn out to be possible, which `put` says then. */
static int choose_among(struct rs_cuda_lane *l, struct rs_gpu_put *put,
                        uint64_t in_flight, const enum rs_way *now,
                        enum rs_way *way)
{
    const struct rs_ways *ways = l->lane.connection->engine->env.ways;
    int error;

    for (;;) {
        *way = now == NULL ? rs_gpu_way(ways, put, in_flight)
                           : rs_gpu_way_again(ways, put, in_flight, *now);
        error = prepare(l, *way, now);
        if (error == 0 || error == RSCHED_ENOMEM)
            return error;
        tell_impossible(l, *way);
        put->possible &= ~RS_WAY_BIT(*way);
    }
}

/* Staged is always possible. What the receiver may refuse has another way ready,
 * as an epoch cannot prepare one. */
static int choose_cheapest(struct rs_cuda_lane *l, uint64_t in_flight,
                           const enum rs_way *now)
{
    struct rs_gpu_put put = {.bytes = l->message.bytes,
                             .possible = RS_WAY_BIT(RS_WAY_STAGED)};
    enum rs_way way, otherwise = RS_WAY_STAGED;
    int error;

    if (find_distance(l, &put.distance) == 0)
        put.possible = possible_ways(l, put.distance);
    error = choose_among(l, &put, in_flight, now, &way);
    put.possible &= ~RS_WAY_BIT(RS_WAY_GDR_LOOPBACK);
    if (error == 0 && way == RS_WAY_GDR_LOOPBACK)
        error = choose_among(l, &put, in_flight, NULL, &otherwise);
    if (error == 0) {
        l->way = way;
        l->otherwise = otherwise;
    }
    return error;
}

/* The way that was asked for, or an error. */
static int insist(struct rs_cuda_lane *l, enum rs_way way, const char *asked)
{
    int error = 0;

    if (way == RS_WAY_CUDA_IPC)
        error = check_ipc(l);
    if (way == RS_WAY_GDR_LOOPBACK)
        error = rs_cuda_loop_check(l);
    if (error == 0)
        error = prepare(l, way, NULL);
    if (error != 0)
        return error == RSCHED_ENOMEM ? error
                                      : rs_fail_within(error, "%s", asked);
    l->way = way;
    l->otherwise = RS_WAY_STAGED;
    return 0;
}

/* Which way the message goes; the receiver sees it by what comes. */
static int choose_way(struct rs_cuda_lane *l, uint64_t in_flight,
                      const enum rs_way *now)
{
    switch (rs_config()->gpu_way) {
    case RS_CONFIG_GPU_WAY_AUTO:
        return choose_cheapest(l, in_flight, now);
    case RS_CONFIG_GPU_WAY_GDRCOPY:
        return insist(l, RS_WAY_GDRCOPY, "RSCHED_GPU_WAY=gdrcopy");
    case RS_CONFIG_GPU_WAY_IPC:
        /* What leaves host memory can be pulled from nowhere. */
        if (l->message.on_gpu)
            return insist(l, RS_WAY_CUDA_IPC, "RSCHED_GPU_WAY=cuda-ipc");
        break;
    case RS_CONFIG_GPU_WAY_LOOPBACK:
        if (l->message.on_gpu && l->peer.on_gpu)
            return insist(l, RS_WAY_GDR_LOOPBACK,
                          "RSCHED_GPU_WAY=gdr-loopback");
        break;
    default:
        break;
    }
    l->way = RS_WAY_STAGED;
    return 0;
}

static void set_streams(struct rs_cuda_lane *l)
{
    l->lane.streams = l->way == RS_WAY_CUDA_IPC ||
                      l->way == RS_WAY_GDR_LOOPBACK ||
                      (l->message.on_gpu && l->way == RS_WAY_STAGED) ||
                      l->moves.copies.num_chunks > RS_CUDA_SLOTS;
}

int rs_cuda_tx_rank(struct rsched_lane *lane, uint64_t in_flight)
{
    struct rs_cuda_lane *l = rs_cuda_lane_of(lane);
    enum rs_way now = l->way;
    int error;

    if (lane->connection->self ||
        rs_config()->gpu_way != RS_CONFIG_GPU_WAY_AUTO)
        return 0;
    error = choose_way(l, in_flight, &now);
    set_streams(l);
    if (error != 0)
        return rs_cuda_lane_fail(l, error);
    return l->way != now;
}

/* ---- loading ---- */

static int load(struct rs_cuda_lane *l, const struct rsched_message *message)
{
    struct rsched_engine *engine = l->lane.connection->engine;
    int error = rs_cuda_keep_message(engine, &l->message, message);

    if (error == 0 && l->message.on_gpu)
        error = rs_cuda_lane_stream(l, l->message.gpu);
    l->in_turns = error == 0 && rs_cuda_lane_takes_turns(l);
    return error;
}

static int load_ring(struct rs_cuda_lane *l,
                     const struct rsched_message *message)
{
    int error = load(l, message);

    if (error == 0)
        error = rs_copies_compile(&l->moves.copies, message, rs_cuda_room(l));
    l->moves.aside = l->in_turns;
    return error == 0
               ? rs_moves_compile(&l->moves, l->sends ? RS_PACKS : RS_UNPACKS,
                                  rs_cuda_mover_of_slots, l,
                                  rs_cuda_lane_launch(l), &l->stream)
               : error;
}

int rs_cuda_tx_load(struct rsched_lane *lane,
                    const struct rsched_message *message)
{
    struct rs_cuda_lane *l = rs_cuda_lane_of(lane);
    int error;

    if (lane->connection->self) {
        error = load(l, message);
    } else {
        l->loop_loaded = l->loop_refused = false;
        error = load_ring(l, message);
        rs_cuda_map_trim(l);
        if (error == 0)
            error = choose_way(l, message->in_flight, NULL);
        set_streams(l);
    }
    return error == 0 ? 0 : rs_cuda_lane_fail(l, error);
}

struct rsched_piece *rs_cuda_plain_pieces(const struct rs_cuda_message *m)
{
    struct rsched_piece *pieces = calloc(m->num_pieces + 1, sizeof(*pieces));

    for (size_t i = 0; pieces != NULL && i < m->num_pieces; i++)
        pieces[i] = m->pieces[i].piece;
    return pieces;
}

/* The tx lane, which was loaded before, does the copies. */
static int load_self(struct rs_cuda_lane *l,
                     const struct rsched_message *message)
{
    struct rs_cuda_lane *tx = l->other;
    struct rsched_message from = {.num_pieces = tx->message.num_pieces,
                                  .bytes = tx->message.bytes,
                                  .signature = tx->message.signature};
    struct rsched_piece *pieces;
    int error;

    if (from.bytes != message->bytes || from.signature != message->signature)
        return rs_fail(from.bytes > message->bytes ? RSCHED_ETRUNC
                                                   : RSCHED_EMISMATCH,
                       "%llu bytes to the process itself, which expects %llu "
                       "or another division among puts",
                       (unsigned long long)from.bytes,
                       (unsigned long long)message->bytes);
    error = rs_cuda_keep_message(l->lane.connection->engine, &l->message,
                                 message);
    if (error == 0 && !tx->message.on_gpu && l->message.on_gpu)
        error = rs_cuda_lane_stream(tx, l->message.gpu);
    if (error != 0)
        return error;
    pieces = rs_cuda_plain_pieces(&tx->message);
    if (pieces == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory for pieces");
    from.pieces = pieces;
    error = rs_copies_compile_pair(&tx->moves.copies, &from, message);
    free(pieces);
    return error == 0 ? rs_moves_compile(&tx->moves, RS_STRAIGHT, mover_of_self,
                                         tx, rs_cuda_lane_launch(tx),
                                         &tx->stream)
                      : error;
}

/* Whether the NIC gets at it the sender learns if it asks. */
static int load_beside(struct rs_cuda_lane *l,
                       const struct rsched_message *message)
{
    int error;

    l->loop_loaded = false;
    if (l->lane.beside == NULL)
        return 0;
    error = rs_cuda_loop_load(l, message);
    return error == RSCHED_ENOTSUP ? 0 : error;
}

/* What the sender's pieces are is not known before they are pulled, in an epoch that a
 * stream may wait for, and the driver for that stream where it has to allocate. */
enum { MORE_COPIES = 64 };

static int reserve(struct rs_cuda_lane *l)
{
    if (!l->message.on_gpu || l->batch == NULL ||
        rs_config()->gpu_way == RS_CONFIG_GPU_WAY_STAGED)
        return 0;
    return rs_moves_reserve(&l->straight,
                            2 * l->message.num_pieces + MORE_COPIES,
                            &l->stream);
}

int rs_cuda_rx_load(struct rsched_lane *lane,
                    const struct rsched_message *message)
{
    struct rs_cuda_lane *l = rs_cuda_lane_of(lane);
    int error;

    if (lane->connection->self) {
        error = load_self(l, message);
    } else {
        error = load_ring(l, message);
        if (error == 0)
            error = reserve(l);
        rs_cuda_pull_forget(l);
        rs_cuda_pull_tidy(l);
        rs_cuda_region_collect(lane->connection);
        rs_cuda_map_trim(l);
        l->reach = RS_CUDA_NOT_TRIED;
        if (error == 0)
            rs_cuda_pull_recall(l);
        if (error == 0)
            error = load_beside(l, message);
    }
    return error == 0 ? 0 : rs_cuda_lane_fail(l, error);
}
