/* SPDX-License-Identifier: BSD-3-Clause */
/* Epochs; lane.h has the protocol. */
#include <stdlib.h>
#include <string.h>

#include "engines/cuda/lane.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"
#include "librsched/base/log.h"

static unsigned event_of(uint64_t number)
{
    return (unsigned)(number % RS_STREAM_EVENTS);
}

static_assert((int)RS_STREAM_EVENTS >= (int)RS_CUDA_SLOTS,
              "each slot has an event");

/* ---- what is under way ---- */

/* Make the stream's context current until start or progress returns. */
static int enter(struct rs_cuda_lane *l)
{
    int error = l->entered ? 0 : rs_stream_enter(&l->stream);

    l->entered = error == 0;
    return error;
}

static void leave(struct rs_cuda_lane *l)
{
    if (l->entered)
        rs_stream_leave(&l->stream);
    l->entered = false;
}

/* Begin with a chunk of some moves, of the next slot. */
static int begin(struct rs_cuda_lane *l, const struct rs_moves *m,
                 uint32_t chunk)
{
    struct rs_begun *begun = &l->begun[l->issued % RS_CUDA_SLOTS];
    bool slots = m->direction != RS_STRAIGHT;
    int error = enter(l);

    if (error == 0)
        error = rs_moves_begin(
            m, chunk,
            slots ? rs_cuda_slot_data(rs_cuda_slot(l, l->issued)) : NULL,
            slots ? rs_cuda_data_of_kernel(l, l->issued) : 0, &l->stream,
            l->batch, begun);
    if (error == 0 && begun->enqueued)
        error = rs_stream_mark(&l->stream, event_of(l->issued));
    if (error == 0)
        l->issued++;
    return error;
}

/* Whether what was begun with the oldest slot is over. */
static int poll_oldest(struct rs_cuda_lane *l)
{
    const struct rs_begun *begun = &l->begun[l->finished % RS_CUDA_SLOTS];
    int error;

    if (begun->ticket != 0 && !rs_batch_is_done(l->batch, begun->ticket))
        return RSCHED_LANE_PENDING;
    if (!begun->enqueued)
        return RSCHED_LANE_DONE;
    error = enter(l);
    return error != 0 ? error
                      : rs_stream_poll(&l->stream, event_of(l->finished));
}

/* The next chunk, by processors: nothing of it is under way afterwards. */
static int do_chunk(struct rs_cuda_lane *l)
{
    int error = rs_moves_do(&l->moves, l->next,
                            rs_cuda_slot_data(rs_cuda_slot(l, l->issued)),
                            &l->mappings);

    if (error != 0)
        return error;
    l->begun[l->issued++ % RS_CUDA_SLOTS] = (struct rs_begun){0};
    l->next++;
    return 0;
}

static int begin_chunk(struct rs_cuda_lane *l)
{
    int error = begin(l, &l->moves, l->next);

    l->next += error == 0;
    return error;
}

static void went_idle(struct rs_cuda_lane *l)
{
    if (l->issued == l->finished)
        l->stream.busy = false;
}

/* ---- sender ---- */

static bool has_credit(struct rs_cuda_lane *l)
{
    /* Acquire: the receiver has read the slot before we write it again. */
    uint64_t consumed = atomic_load_explicit(&l->words->consumed,
                                             memory_order_acquire);

    if (l->issued - consumed < RS_CUDA_SLOTS)
        return true;
    if (l->refused_at != l->issued) {
        l->refused_at = l->issued;
        l->lane.stats.stalls++;
    }
    return false;
}

/* The oldest slot that is issued may be read. */
static void publish(struct rs_cuda_lane *l, enum rs_cuda_kind kind,
                    uint32_t part)
{
    struct rs_cuda_slot *slot = rs_cuda_slot(l, l->finished);

    slot->bytes = l->message.bytes;
    slot->signature = l->message.signature;
    slot->kind = (uint16_t)kind;
    slot->part = part;
    slot->version = l->version;
    slot->table = l->table_bytes;
    RS_FAILPOINT("tx:arrived");
    l->finished++;
    /* Release: what the slot holds is there before its number is. A copy
     * engine's bytes are, since its event has happened. */
    atomic_store_explicit(&slot->arrived, l->finished, memory_order_release);
    l->lane.stats.chunks++;
}

/* What comes first of a message that goes its way. */
static void begin_message(struct rs_cuda_lane *l)
{
    l->step = RS_CUDA_SENDS_DATA;
    if (l->way == RS_WAY_GDR_LOOPBACK) {
        l->step = RS_CUDA_SENDS_LOOP;
    } else if (l->way == RS_WAY_CUDA_IPC && l->version_sent == l->version) {
        l->step = RS_CUDA_SENDS_PULL;
    } else if (l->way == RS_WAY_CUDA_IPC) {
        l->step = RS_CUDA_SENDS_TABLE;
        l->table_at = 0;
    }
}

static int send_loop(struct rs_cuda_lane *l)
{
    if (!has_credit(l))
        return RSCHED_LANE_PENDING;
    RS_FAILPOINT("tx:announce");
    l->issued++;
    publish(l, RS_CUDA_LOOP, 0);
    l->step = RS_CUDA_ASKS;
    return RSCHED_LANE_DONE;
}

/* @return RSCHED_LANE_DONE: it has an answer, and the step is another one */
static int ask(struct rs_cuda_lane *l)
{
    int status;

    /* Acquire: the receiver has made its buffers free before it accepts. */
    if (atomic_load_explicit(&l->words->accepted, memory_order_acquire) ==
        l->issued) {
        l->step = RS_CUDA_LOOPS;
        status = rs_cuda_loop_start(l);
        return status < 0 ? status : RSCHED_LANE_DONE;
    }
    /* Consumed, and not accepted: what is accepted is consumed once the lane
     * beside has brought it, which we have not started. Acquire: with `accepted`
     * as it was before. */
    if (atomic_load_explicit(&l->words->consumed, memory_order_acquire) !=
        l->issued)
        return RSCHED_LANE_PENDING;
    l->loop_refused = true;
    l->way = l->otherwise;
    begin_message(l);
    return RSCHED_LANE_DONE;
}

static int loop(struct rs_cuda_lane *l)
{
    int status = rs_cuda_loop_progress(l);

    if (status != RSCHED_LANE_DONE)
        return status;
    l->step = RS_CUDA_SENT;
    l->lane.stats.bytes[RSCHED_WAY_GDR_LOOPBACK] += l->message.bytes;
    return RSCHED_LANE_DONE;
}

static int send_table(struct rs_cuda_lane *l)
{
    while (l->table_at < l->table_bytes) {
        size_t part = l->table_bytes - l->table_at;

        if (!has_credit(l))
            return RSCHED_LANE_PENDING;
        if (part > rs_cuda_room(l))
            part = rs_cuda_room(l);
        memcpy(rs_cuda_slot_data(rs_cuda_slot(l, l->issued)),
               l->table + l->table_at, part);
        l->table_at += part;
        l->issued++;
        publish(l, RS_CUDA_TABLE, (uint32_t)part);
    }
    l->version_sent = l->version;
    l->step = RS_CUDA_SENDS_PULL;
    return RSCHED_LANE_DONE;
}

static int send_pull(struct rs_cuda_lane *l)
{
    if (!has_credit(l))
        return RSCHED_LANE_PENDING;
    RS_FAILPOINT("tx:announce");
    l->issued++;
    publish(l, RS_CUDA_PULL, 0);
    l->step = RS_CUDA_WAITS;
    return RSCHED_LANE_DONE;
}

/* @return RSCHED_LANE_DONE: the receiver has taken it, or wants it through
 * slots (step is another one then) */
static int wait_for_pull(struct rs_cuda_lane *l)
{
    /* Acquire: the receiver's copy has read our buffers before the program
     * writes them. */
    if (atomic_load_explicit(&l->words->consumed, memory_order_acquire) !=
        l->issued)
        return RSCHED_LANE_PENDING;
    if (atomic_load_explicit(&l->words->unreachable, memory_order_relaxed) !=
        0) {
        l->refused = true;
        l->way = RS_WAY_STAGED;
        l->step = RS_CUDA_SENDS_DATA;
        return RSCHED_LANE_DONE;
    }
    l->step = RS_CUDA_SENT;
    l->lane.stats.bytes[RSCHED_WAY_CUDA_IPC] += l->message.bytes;
    l->lane.stats.chunks++; /* something has moved */
    return RSCHED_LANE_DONE;
}

static int send_data(struct rs_cuda_lane *l)
{
    bool mapped = l->way == RS_WAY_GDRCOPY;

    while (l->next < l->moves.copies.num_chunks && has_credit(l)) {
        int error;

        RS_FAILPOINT("tx:pack");
        error = mapped ? do_chunk(l) : begin_chunk(l);
        if (error != 0)
            return error;
    }
    while (l->finished < l->issued) {
        int status = poll_oldest(l);

        if (status != RSCHED_LANE_DONE)
            return status;
        publish(l, mapped ? RS_CUDA_MAPPED : RS_CUDA_DATA, 0);
    }
    went_idle(l);
    if (l->next < l->moves.copies.num_chunks)
        return RSCHED_LANE_PENDING;
    l->step = RS_CUDA_SENT;
    l->lane.stats.bytes[mapped ? RSCHED_WAY_GDRCOPY : RSCHED_WAY_STAGED] +=
        l->message.bytes;
    return RSCHED_LANE_DONE;
}

static int go_on_sending(struct rs_cuda_lane *l)
{
    int status = RSCHED_LANE_DONE;

    if (l->step == RS_CUDA_SENDS_LOOP)
        status = send_loop(l);
    if (status == RSCHED_LANE_DONE && l->step == RS_CUDA_ASKS)
        status = ask(l);
    if (status == RSCHED_LANE_DONE && l->step == RS_CUDA_LOOPS)
        status = loop(l);
    if (status == RSCHED_LANE_DONE && l->step == RS_CUDA_SENDS_TABLE)
        status = send_table(l);
    if (status == RSCHED_LANE_DONE && l->step == RS_CUDA_SENDS_PULL)
        status = send_pull(l);
    if (status == RSCHED_LANE_DONE && l->step == RS_CUDA_WAITS)
        status = wait_for_pull(l);
    if (status == RSCHED_LANE_DONE && l->step == RS_CUDA_SENDS_DATA)
        status = send_data(l);
    return status;
}

/* ---- the process with itself ---- */

static int go_on_self(struct rs_cuda_lane *l)
{
    int status;

    if (l->finished == l->issued) /* it was said to be over before */
        return RSCHED_LANE_DONE;
    status = poll_oldest(l);
    if (status != RSCHED_LANE_DONE)
        return status;
    l->finished++;
    went_idle(l);
    l->lane.stats.chunks++;
    return status;
}

static int start_self(struct rs_cuda_lane *l)
{
    int error = begin(l, &l->moves, 0);

    if (error != 0)
        return error;
    l->lane.stats.bytes[RSCHED_WAY_SELF] += l->message.bytes;
    return go_on_self(l);
}

/* ---- receiver ---- */

static int __attribute__((cold))
wrong_message(const struct rs_cuda_lane *l, uint64_t bytes)
{
    if (bytes == l->message.bytes)
        return rs_fail(RSCHED_EMISMATCH,
                       "%llu bytes, but divided among the puts in another way "
                       "than expected, or out of their order",
                       (unsigned long long)bytes);
    return rs_fail(bytes > l->message.bytes ? RSCHED_ETRUNC : RSCHED_EMISMATCH,
                   "a message of %llu bytes where %llu are expected",
                   (unsigned long long)bytes,
                   (unsigned long long)l->message.bytes);
}

/* The oldest slot has been read. */
static void consume(struct rs_cuda_lane *l)
{
    l->lane.stats.chunks++;
    l->finished++;
    RS_FAILPOINT("rx:consumed");
    /* Release: the slot, and what it announced, has been read before the sender
     * may write it again. A copy engine has read it, since its event has
     * happened. */
    atomic_store_explicit(&l->words->consumed, l->finished,
                          memory_order_release);
}

/* A sender that waits for us to pull does not close. */
static int __attribute__((cold)) nothing_to_pull(void)
{
    return rs_fail(RSCHED_EPEER, "it has given up the exchange");
}

static int begin_pull(struct rs_cuda_lane *l)
{
    int error = begin(l, &l->straight, 0);

    l->pulling = error == 0;
    return error;
}

/* It comes through slots, then. */
static int refuse_pull(struct rs_cuda_lane *l, int error)
{
    if (rs_config()->gpu_way == RS_CONFIG_GPU_WAY_IPC)
        return rs_fail_within(error, "RSCHED_GPU_WAY=cuda-ipc");
    rs_log(RS_LOG_WARN, "cuda: messages of peer %d are staged: %s",
           l->lane.connection->peer, rsched_last_error());
    /* Before `consumed`, which is stored with release. */
    atomic_store_explicit(&l->words->unreachable, 1, memory_order_relaxed);
    l->issued++;
    consume(l);
    return 0;
}

static int open_pull(struct rs_cuda_lane *l, const struct rs_cuda_slot *slot)
{
    int error;

    if (slot->version != l->version)
        return rs_fail(RSCHED_EMISMATCH, "another table than it sent");
    /* Not tried again here: start and progress may have entered none. */
    if (!rs_stream_is_open(&l->stream))
        return rs_fail(l->no_stream, "%s",
                       l->no_stream_text != NULL ? l->no_stream_text
                                                 : "no stream");
    error = enter(l);
    return error != 0 ? error : rs_cuda_pull_open(l);
}

/* It comes another way, then. */
static int refuse_loop(struct rs_cuda_lane *l)
{
    const char *why = l->no_loop != NULL ? l->no_loop : "there is no lane for it";

    if (rs_config()->gpu_way == RS_CONFIG_GPU_WAY_LOOPBACK)
        return rs_fail(RSCHED_ENOTSUP, "RSCHED_GPU_WAY=gdr-loopback: %s", why);
    rs_log(RS_LOG_WARN, "cuda: messages of peer %d do not come through a NIC: %s",
           l->lane.connection->peer, why);
    l->issued++;
    consume(l);
    return 0;
}

static int take_loop(struct rs_cuda_lane *l)
{
    int status;

    if (!l->loop_loaded)
        return refuse_loop(l);
    status = rs_cuda_loop_start(l);
    if (status < 0)
        return status;
    l->issued++;
    l->looping = true;
    /* Release: the buffers are free before the sender has them written. */
    atomic_store_explicit(&l->words->accepted, l->issued, memory_order_release);
    return 0;
}

/* The slot is consumed when what it announced is there. */
static int go_on_looping(struct rs_cuda_lane *l)
{
    int status = rs_cuda_loop_progress(l);

    if (status != RSCHED_LANE_DONE)
        return status;
    l->looping = false;
    l->next = l->moves.copies.num_chunks;
    consume(l);
    return RSCHED_LANE_DONE;
}

/* What was asked for, or a message's shape, is worth no warning. */
static void __attribute__((cold)) tell_out_of_reach(const struct rs_cuda_lane *l)
{
    bool usual = !rs_config()->gdrcopy || rs_cuda_map_check(l) != 0;

    rs_log(usual ? RS_LOG_INFO : RS_LOG_WARN,
           "cuda: messages of peer %d are not copied by processors here: %s",
           l->lane.connection->peer, rsched_last_error());
}

/* Whether processors can copy into the loaded message's memory. */
static bool is_in_reach(struct rs_cuda_lane *l)
{
    if (l->reach == RS_CUDA_NOT_TRIED) {
        l->reach = rs_cuda_map(l) == 0 ? RS_CUDA_REACHED : RS_CUDA_OUT_OF_REACH;
        if (l->reach == RS_CUDA_OUT_OF_REACH)
            tell_out_of_reach(l);
    }
    return l->reach == RS_CUDA_REACHED;
}

/* Once its last chunk is consumed, the epoch may be complete. */
static int take_chunk(struct rs_cuda_lane *l)
{
    int error = do_chunk(l);

    return error == 0 && l->next == l->moves.copies.num_chunks
               ? rs_mappings_flush(&l->mappings)
               : error;
}

static int take_slot(struct rs_cuda_lane *l, struct rs_cuda_slot *slot)
{
    int error;

    if (slot->bytes != l->message.bytes ||
        slot->signature != l->message.signature)
        return wrong_message(l, slot->bytes);
    if (slot->kind == RS_CUDA_MAPPED && is_in_reach(l))
        return take_chunk(l);
    if (slot->kind == RS_CUDA_DATA || slot->kind == RS_CUDA_MAPPED)
        return begin_chunk(l);
    /* All others come alone, at the beginning of an epoch. */
    if (l->next > 0 || l->issued != l->finished || slot->kind > RS_CUDA_LOOP)
        return wrong_message(l, slot->bytes);
    if (slot->kind == RS_CUDA_LOOP)
        return take_loop(l);
    if (slot->kind == RS_CUDA_TABLE) {
        error = rs_cuda_pull_take(l, slot, rs_cuda_slot_data(slot));
        if (error != 0)
            return error;
        l->issued++;
        consume(l);
        l->new_table = l->table_at == l->table_bytes;
        return 0;
    }
    error = open_pull(l, slot);
    if (rs_cuda_is_given_up(l))
        return nothing_to_pull();
    return error == 0 ? begin_pull(l) : refuse_pull(l, error);
}

/* Consume what copies have emptied. @return RSCHED_LANE_DONE: all of it */
static int finish_slots(struct rs_cuda_lane *l)
{
    while (l->finished < l->issued) {
        int status = poll_oldest(l);

        if (status != RSCHED_LANE_DONE)
            return status;
        RS_FAILPOINT("rx:pulled");
        if (l->pulling && rs_cuda_is_given_up(l))
            return nothing_to_pull();
        consume(l);
        if (l->pulling)
            l->next = l->moves.copies.num_chunks;
        l->pulling = false;
    }
    went_idle(l);
    return RSCHED_LANE_DONE;
}

static int go_on_receiving(struct rs_cuda_lane *l)
{
    int error;

    while (l->next < l->moves.copies.num_chunks && !l->pulling &&
           !l->looping && !l->new_table) {
        struct rs_cuda_slot *slot = rs_cuda_slot(l, l->issued);

        /* Acquire: what the slot holds is read after its number. It is that of
         * a slot that was not consumed, so it is not too old. */
        if (atomic_load_explicit(&slot->arrived, memory_order_acquire) !=
            l->issued + 1)
            break;
        RS_FAILPOINT("rx:arrived");
        error = take_slot(l, slot);
        if (error != 0)
            return error;
    }
    if (l->looping)
        return go_on_looping(l);
    error = finish_slots(l);
    l->lane.copying = l->finished < l->issued && !l->pulling;
    if (error != RSCHED_LANE_DONE)
        return error;
    return l->next == l->moves.copies.num_chunks ? RSCHED_LANE_DONE
                                           : RSCHED_LANE_PENDING;
}

/* ---- the interface ---- */

static int go_on(struct rs_cuda_lane *l, int (*step)(struct rs_cuda_lane *l))
{
    int status = step(l);

    leave(l);
    if (l->own_group && status >= 0) {
        int error = rs_cuda_group_flush(l->group);

        status = error != 0 ? error : status;
    }
    return status < 0 ? rs_cuda_lane_fail(l, status) : status;
}

int rs_cuda_tx_progress(struct rsched_lane *lane)
{
    return go_on(rs_cuda_lane_of(lane),
                 lane->connection->self ? go_on_self : go_on_sending);
}

int rs_cuda_rx_progress(struct rsched_lane *lane)
{
    struct rs_cuda_lane *l = rs_cuda_lane_of(lane);
    int status = go_on(l, go_on_receiving);

    if (status != RSCHED_LANE_PENDING || !l->new_table)
        return status;
    /* Without a stream the pull behind the table cannot be opened, and that is
     * where the error matters. */
    l->new_table = false;
    l->no_stream = rs_cuda_pull_stream(l);
    if (l->no_stream != 0) {
        free(l->no_stream_text);
        l->no_stream_text = strdup(rsched_last_error());
    }
    return go_on(l, go_on_receiving);
}

int rs_cuda_tx_start(struct rsched_lane *lane)
{
    struct rs_cuda_lane *l = rs_cuda_lane_of(lane);

    if (lane->connection->self)
        return go_on(l, start_self);
    l->next = 0;
    begin_message(l);
    return go_on(l, go_on_sending);
}

int rs_cuda_rx_start(struct rsched_lane *lane)
{
    rs_cuda_lane_of(lane)->next = 0;
    return lane->passive ? RSCHED_LANE_DONE : RSCHED_LANE_PENDING;
}
