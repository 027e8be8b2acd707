/* SPDX-License-Identifier: BSD-3-Clause */
/* From puts with layouts and addresses to the messages that lanes compile. */
#include "librsched/run/run.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "librsched/base/error.h"
#include "librsched/base/log.h"

typedef const struct rsched_put *look_fn(const struct rsched_pattern *pattern,
                                         size_t id);

static int reserve_pieces(struct rsched_exchange *x, size_t number)
{
    struct rsched_piece *larger;
    size_t room = x->room_pieces == 0 ? 16 : x->room_pieces;

    if (number <= x->room_pieces)
        return 0;
    while (room < number)
        room *= 2;
    larger = realloc(x->pieces, room * sizeof(*larger));
    if (larger == NULL)
        return rs_fail(RSCHED_ENOMEM, "exchange: no memory for pieces");
    x->pieces = larger;
    x->room_pieces = room;
    return 0;
}

/* Append the pieces of a put; blocks that touch become one. */
static int add_put(struct rsched_exchange *x, size_t *num_pieces,
                   const struct rsched_put *put, char *address)
{
    size_t runs = put->layout.num_runs;
    int error = reserve_pieces(x, *num_pieces + (runs == 0 ? 1 : runs));

    if (error != 0 || put->bytes == 0)
        return error;
    if (runs == 0) {
        x->pieces[(*num_pieces)++] = (struct rsched_piece){
            .address = address, .bytes = put->bytes, .count = 1};
        return 0;
    }
    for (size_t i = 0; i < runs; i++) {
        const struct rsched_run *run = &put->layout.runs[i];

        x->pieces[(*num_pieces)++] = (struct rsched_piece){
            /* Not pointer arithmetic: with absolute offsets the address is
             * NULL. */
            .address = (char *)((uintptr_t)address + (uintptr_t)run->offset),
            .bytes = run->bytes,
            .count = run->count,
            .stride = run->stride};
    }
    return 0;
}

/* Lanes that are not made for it would have a processor copy GPU memory. */
static int check_place(const struct rsched_exchange *x,
                       const struct rs_edge *edge, bool out, uint32_t id,
                       const struct rsched_put *put,
                       const void *const *addresses)
{
    struct rsched_place place;
    int error = rs_exchange_check_address(x, out, id, put, addresses);

    if (error == 0)
        error = rs_exchange_place(x, out, id, put, addresses, &place);
    if (error != 0 || place.kind != RSCHED_PLACE_GPU ||
        rs_peer_has_gpus(edge->peer))
        return error;
    return rs_fail(RSCHED_ENOTSUP,
                   "exchange %llu: %s %u lies in the memory of GPU %d, but was "
                   "in host memory when the exchange was made",
                   (unsigned long long)x->tag, out ? "put" : "receive", id,
                   place.gpu);
}

/* A message that is being put together; its pieces are in x->pieces. */
struct draft {
    size_t num_pieces;
    uint64_t bytes, hash;
};

static int add_edge(struct rsched_exchange *x, const struct rs_edge *edge,
                    look_fn *look, const struct rsched_pattern *pattern,
                    const void *const *addresses, struct draft *draft)
{
    for (uint32_t i = 0; i < edge->num_order; i++) {
        uint32_t id = edge->order[i];
        const struct rsched_put *put = look(pattern, id);
        int error = add_put(x, &draft->num_pieces, put,
                            addresses == NULL ? NULL : (char *)addresses[id]);

        if (error == 0 && put->bytes > 0)
            error = check_place(x, edge, look == rsched_pattern_put, id, put,
                                addresses);
        if (error != 0)
            return error;
        if (__builtin_add_overflow(draft->bytes, put->bytes, &draft->bytes))
            return rs_fail(RSCHED_ELIMIT,
                           "exchange %llu: an edge of more than 2^64 bytes",
                           (unsigned long long)x->tag);
        draft->hash = XXH64(&put->bytes, sizeof(put->bytes), draft->hash);
    }
    return 0;
}

static struct rsched_message message_of(const struct rsched_exchange *x,
                                        const struct draft *draft)
{
    return (struct rsched_message){.pieces = x->pieces,
                                   .num_pieces = draft->num_pieces,
                                   .bytes = draft->bytes,
                                   .signature = (uint16_t)draft->hash,
                                   .exchange = x};
}

/* The message of one edge. */
static int make_message(struct rsched_exchange *x, const struct rs_edge *edge,
                        look_fn *look, const struct rsched_pattern *pattern,
                        const void *const *addresses, uint64_t incoming,
                        struct rsched_message *message)
{
    struct draft draft = {0};
    int error = add_edge(x, edge, look, pattern, addresses, &draft);

    if (error != 0)
        return error;
    *message = message_of(x, &draft);
    message->incoming = incoming;
    return 0;
}

int rs_exchange_message(struct rsched_exchange *x, int process, bool out,
                        struct rsched_message *message)
{
    const struct rs_edge *edges = out ? x->out : x->in;
    uint32_t num_edges = out ? x->num_out : x->num_in;
    struct draft draft = {0};
    int error = 0;

    for (uint32_t i = 0; i < num_edges && error == 0; i++) {
        if (edges[i].peer->process != process)
            continue;
        error = out ? add_edge(x, &edges[i], rsched_pattern_put, x->pattern,
                               x->send, &draft)
                    : add_edge(x, &edges[i], rsched_pattern_receive, x->pattern,
                               (const void *const *)x->receive, &draft);
    }
    if (error == 0)
        *message = message_of(x, &draft);
    return error;
}

/* The bytes that an epoch brings to this process; at most 2^64 - 1. */
static uint64_t count_incoming(const struct rsched_exchange *x,
                               const struct rsched_pattern *pattern)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < x->num_in; i++) {
        for (uint32_t k = 0; k < x->in[i].num_order; k++) {
            uint32_t id = x->in[i].order[k];

            if (__builtin_add_overflow(
                    bytes, rsched_pattern_receive(pattern, id)->bytes, &bytes))
                return UINT64_MAX;
        }
    }
    return bytes;
}

static bool is_self(const struct rsched_exchange *x, const struct rs_edge *e)
{
    return e->peer->process == x->context->params.process;
}

static bool is_sent(const struct rs_edge *edge,
                    const struct rsched_pattern *pattern)
{
    for (uint32_t i = 0; i < edge->num_order; i++) {
        if (rsched_pattern_put(pattern, edge->order[i])->bytes > 0)
            return true;
    }
    return false;
}

/* Messages of an exchange start together. */
static uint64_t count_gpu_messages(const struct rsched_exchange *x,
                                   const struct rsched_pattern *pattern)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < x->num_out; i++)
        count += rs_peer_has_gpus(x->out[i].peer) &&
                 is_sent(&x->out[i], pattern);
    return count;
}

/* What the ways of the exchange's messages are chosen for. */
static uint64_t in_flight(struct rsched_exchange *x)
{
    x->stats.gpu_messages = x->epoch_gpu_messages;
    x->stats.gpu_in_flight =
        x->epoch_gpu_messages == 0
            ? 0
            : rs_coordinator_in_flight(&x->context->coordinator,
                                       x->epoch_gpu_messages);
    return x->stats.gpu_in_flight;
}

static int load_out(struct rsched_exchange *x,
                    const struct rsched_pattern *pattern,
                    const void *const *send, uint64_t incoming)
{
    struct rsched_message message;
    uint64_t together;

    x->epoch_gpu_messages = count_gpu_messages(x, pattern);
    together = in_flight(x);
    for (uint32_t i = 0; i < x->num_out; i++) {
        struct rs_edge *e = &x->out[i];
        int error = make_message(x, e, rsched_pattern_put, pattern, send,
                                 incoming, &message);

        if (error != 0)
            return error;
        e->bytes = message.bytes;
        if (message.bytes == 0)
            continue;
        if (rs_peer_has_gpus(e->peer))
            message.in_flight = together;
        error = e->lane->ops->tx_load(e->lane, &message);
        if (error != 0)
            return error;
    }
    return 0;
}

int rs_compare_sizes(uint32_t k, int process, uint64_t bytes, uint64_t expected)
{
    if (bytes == expected)
        return 0;
    return rs_fail(bytes > expected ? RSCHED_ETRUNC : RSCHED_EMISMATCH,
                   "put %u of process %d has %llu bytes, this one expects %llu", k, process,
                   (unsigned long long)bytes, (unsigned long long)expected);
}

/* What the process sends to itself over the connection of an edge, put by put in the order
 * of its receives. */
static int check_self(const struct rsched_exchange *x, const struct rs_edge *in,
                      const struct rsched_pattern *pattern)
{
    const struct rs_edge *out = x->out;
    int error = 0;

    while (out->peer != in->peer)
        out++;
    for (uint32_t i = 0; error == 0 && i < in->num_order; i++)
        error = rs_compare_sizes(i, in->peer->process,
                                 rsched_pattern_put(pattern, out->order[i])->bytes,
                                 rsched_pattern_receive(pattern, in->order[i])->bytes);
    return error;
}

static int load_in(struct rsched_exchange *x,
                   const struct rsched_pattern *pattern, void *const *receive,
                   uint64_t incoming)
{
    struct rsched_message message;

    for (uint32_t i = 0; i < x->num_in; i++) {
        struct rs_edge *e = &x->in[i];
        int error = make_message(x, e, rsched_pattern_receive, pattern,
                                 (const void *const *)receive, incoming,
                                 &message);

        if (error != 0)
            return error;
        e->bytes = message.bytes;
        if (is_self(x, e))
            error = check_self(x, e, pattern);
        if (error != 0)
            return error;
        if (message.bytes == 0)
            continue;
        error = e->lane->ops->rx_load(e->lane, &message);
        if (error != 0)
            return error;
    }
    return 0;
}

static void list_out(struct rsched_exchange *x, bool self)
{
    for (uint32_t i = 0; i < x->num_out; i++) {
        const struct rs_edge *e = &x->out[i];

        if (e->by_kernel || is_self(x, e) != self)
            continue;
        x->epoch_puts += e->num_order;
        e->lane->peer = e->peer;
        if (e->bytes > 0)
            x->tx[x->num_tx++] = e->lane;
        x->epoch_bytes += e->bytes;
        x->epoch_self_bytes += self ? e->bytes : 0;
    }
}

void rs_exchange_list_lanes(struct rsched_exchange *x)
{
    x->num_tx = x->num_rx = 0;
    x->epoch_puts = x->epoch_bytes = x->epoch_self_bytes = 0;
    list_out(x, false);
    /* Nobody waits for what a process sends to itself: last. */
    list_out(x, true);
    for (uint32_t i = 0; i < x->num_in; i++) {
        const struct rs_edge *e = &x->in[i];

        e->lane->peer = e->peer;
        if (!e->by_kernel && e->bytes > 0 && !e->lane->passive)
            x->rx[x->num_rx++] = e->lane;
    }
}

/* Of an exchange that is not variable, whose rings are made from them later. */
static void keep_addresses(struct rsched_exchange *x, const void *const *send,
                           void *const *receive)
{
    if (x->num_puts > 0)
        memcpy(x->send, send, x->num_puts * sizeof(*send));
    if (x->num_receives > 0)
        memcpy(x->receive, receive, x->num_receives * sizeof(*receive));
}

int rs_exchange_compile(struct rsched_exchange *x,
                        const struct rsched_pattern *pattern,
                        const void *const *send, void *const *receive)
{
    uint64_t incoming = count_incoming(x, pattern);
    int error;

    rs_exchange_find_gpus(x);
    error = load_out(x, pattern, send, incoming);
    if (error == 0)
        error = load_in(x, pattern, receive, incoming);
    x->loaded = error == 0; /* half loaded: nothing may be started */
    x->loaded_at = x->stats.epochs;
    if (error == 0) {
        rs_exchange_list_lanes(x);
        rs_exchange_watch(x);
    }
    if (error == 0 && (x->flags & RSCHED_EXCHANGE_VARIABLE) == 0)
        keep_addresses(x, send, receive);
    return error;
}

static int check_inactive(const struct rsched_exchange *x)
{
    if (x->active || (x->order != NULL && rs_stream_is_busy(x)))
        return rs_fail(RSCHED_ESTATE, "exchange %llu: changed while active",
                       (unsigned long long)x->tag);
    if (x->error != 0) /* its lanes have been abandoned: no load any more */
        return rs_exchange_failed(x);
    return 0;
}

static int check_variable(const struct rsched_exchange *x, bool variable)
{
    int error = check_inactive(x);

    if (error == 0 && variable != ((x->flags & RSCHED_EXCHANGE_VARIABLE) != 0))
        return rs_fail(RSCHED_ESTATE, "exchange %llu is%s variable",
                       (unsigned long long)x->tag, variable ? " not" : "");
    return error;
}

static int no_addresses(const struct rsched_exchange *x)
{
    return rs_fail(RSCHED_EINVAL, "exchange %llu: no addresses of buffers",
                   (unsigned long long)x->tag);
}

int rsched_exchange_bind(struct rsched_exchange *x, const void *const *send,
                         void *const *receive)
{
    int error;

    rs_exchange_own(x);
    error = check_variable(x, false);
    if (error == 0 && ((send == NULL && x->num_puts > 0) ||
                       (receive == NULL && x->num_receives > 0)))
        error = no_addresses(x);
    if (error == 0)
        error = rs_exchange_compile(x, x->pattern, send, receive);
    rs_exchange_leave(x);
    return error;
}

/* The pattern of a load has the same puts with the same processes. */
static int check_same_processes(const struct rsched_exchange *x,
                                const struct rsched_pattern *pattern)
{
    bool same = rsched_pattern_num_puts(pattern) == x->num_puts &&
                rsched_pattern_num_receives(pattern) == x->num_receives;

    for (uint32_t e = 0; same && e < x->num_out; e++) {
        for (uint32_t i = 0; same && i < x->out[e].num_order; i++)
            same = rsched_pattern_put(pattern, x->out[e].order[i])
                       ->destination == x->out[e].peer->process;
    }
    for (uint32_t e = 0; same && e < x->num_in; e++) {
        for (uint32_t i = 0; same && i < x->in[e].num_order; i++)
            same = rsched_pattern_receive(pattern, x->in[e].order[i])
                       ->source == x->in[e].peer->process;
    }
    if (same)
        return 0;
    return rs_fail(RSCHED_EINVAL,
                   "exchange %llu: loaded with a pattern of other processes",
                   (unsigned long long)x->tag);
}

/* Where nothing moves there need not be any. */
static int check_addresses(const struct rsched_exchange *x,
                           const struct rsched_pattern *pattern,
                           const void *const *send, void *const *receive)
{
    bool good = true;

    for (size_t i = 0; send == NULL && good && i < x->num_puts; i++)
        good = rsched_pattern_put(pattern, i)->bytes == 0;
    for (size_t i = 0; receive == NULL && good && i < x->num_receives; i++)
        good = rsched_pattern_receive(pattern, i)->bytes == 0;
    return good ? 0 : no_addresses(x);
}

int rsched_exchange_load(struct rsched_exchange *x,
                         const struct rsched_pattern *pattern,
                         const void *const *send, void *const *receive)
{
    int error;

    rs_exchange_own(x);
    error = check_variable(x, true);
    if (error == 0) {
        x->loaded = false; /* until this one is */
        error = check_same_processes(x, pattern);
        if (error == 0)
            error = check_addresses(x, pattern, send, receive);
        if (error == 0)
            error = rs_exchange_compile(x, pattern, send, receive);
    }
    rs_exchange_leave(x);
    return error;
}

/* Ways that have changed count even if one of the later ones cannot. */
static int rank(struct rsched_exchange *x, uint32_t *changed)
{
    uint64_t together = in_flight(x);

    for (uint32_t i = 0; i < x->num_out; i++) {
        const struct rs_edge *e = &x->out[i];
        int status;

        if (!rs_peer_has_gpus(e->peer) || e->bytes == 0 ||
            e->lane->ops->tx_rank == NULL)
            continue;
        status = e->lane->ops->tx_rank(e->lane, together);
        if (status < 0)
            return status;
        x->stats.way_changes += (uint64_t)status;
        *changed += (uint32_t)status;
    }
    return 0;
}

/* Updates of several exchanges take over what was counted once, and all of them
 * are for the same number. */
static void take_over(struct rsched_context *context)
{
    pthread_mutex_lock(&context->lock);
    rs_coordinator_update(&context->coordinator);
    pthread_mutex_unlock(&context->lock);
}

int rsched_exchange_update(struct rsched_exchange *x, uint32_t *changed)
{
    uint32_t number = 0;
    int error;

    if (x->open)
        return rs_fail(RSCHED_ESTATE, "exchange %llu: changed while it is open "
                                      "for kernels",
                       (unsigned long long)x->tag);
    rs_exchange_own(x);
    error = check_inactive(x);
    if (error == 0) {
        take_over(x->context);
        if (x->loaded)
            error = rank(x, &number);
    }
    if (number > 0)
        rs_log(RS_LOG_INFO,
               "exchange %llu: %u of %llu messages in GPU memory go another way, "
               "for %llu in flight",
               (unsigned long long)x->tag, number,
               (unsigned long long)x->epoch_gpu_messages,
               (unsigned long long)x->stats.gpu_in_flight);
    rs_exchange_leave(x);
    if (error == 0 && changed != NULL)
        *changed = number;
    return error;
}
