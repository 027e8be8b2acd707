/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that are not short: which of them go through slots, and those that do
 * not: the slot says where the sender has them, and the receiver copies them out
 * of its memory (S3 of docs/persistent.md). */
#include "mpi/request.h"

#include <stdlib.h>

static_assert(sizeof(struct rsched_pull_notice) <= RS_LANE_LEAST_ROOM,
              "an announcement fits into every slot");

/* ---- senders' memory ---- */

/* All pairs with a process share what is mapped of it. */
struct rs_sender {
    struct rs_sender *next;
    struct rsched_pull_peer *peer;
    int world;
    unsigned pairs;
};

static struct rs_sender *senders;

struct rs_sender *rs_sender_get(int world,
                                const struct rsched_pull_memory *memory)
{
    struct rs_sender *s = senders;

    while (s != NULL && s->world != world)
        s = s->next;
    if (s == NULL) {
        s = calloc(1, sizeof(*s));
        if (s == NULL || rsched_pull_peer_create(memory, &s->peer) != 0) {
            free(s);
            return NULL;
        }
        s->world = world;
        s->next = senders;
        senders = s;
    }
    s->pairs++;
    return s;
}

void rs_sender_put(struct rs_sender *sender)
{
    struct rs_sender **at = &senders;

    if (sender == NULL || --sender->pairs > 0)
        return;
    while (*at != sender)
        at = &(*at)->next;
    *at = sender->next;
    rsched_pull_peer_destroy(sender->peer);
    free(sender);
}

bool rs_sender_is_readable(const struct rs_sender *sender)
{
    return rsched_pull_peer_is_readable(sender != NULL ? sender->peer : NULL);
}

struct rsched_pull_reader rs_sender_reader(const struct rs_sender *sender)
{
    struct rsched_pull_reader reader;

    rsched_pull_peer_describe(sender != NULL ? sender->peer : NULL, &reader);
    return reader;
}

/* ---- layouts ---- */

/* The message's pieces in host memory. One that is contiguous needs none but `only`,
 * nor does a receive into GPU memory.
 * @return false: no memory; else those of a layout are to be freed */
static bool have_pieces(struct rs_message *message,
                        struct rsched_piece *only, struct rsched_message *all)
{
    const struct rs_flat *layout = message->layout;
    struct rsched_piece *pieces = only;

    *only = (struct rsched_piece){message->buffer, message->bytes, 1, 0};
    *all = (struct rsched_message){.num_pieces = 1, .bytes = message->bytes};
    if (message->gpu >= 0) {
        only->address = rs_gpu_memory(message);
        if (only->address == NULL)
            return false;
    } else if (layout != NULL) {
        pieces = calloc(layout->num_runs, sizeof(*pieces));
        if (pieces == NULL)
            return false;
        all->num_pieces = layout->num_runs;
        rs_message_pieces(message, pieces);
    }
    all->pieces = pieces;
    return true;
}

static void drop_pieces(const struct rs_message *message,
                        struct rsched_message *all)
{
    if (message->layout != NULL && message->gpu < 0)
        free((void *)(uintptr_t)all->pieces);
}

/* ---- sender ---- */

static void list_block(const struct rs_message *m, rsched_pull_block *add, void *list)
{
    /* Of a layout that is not known `bytes` are not where the message lies. */
    if (m->sends && m->layout == NULL && m->gpu == RS_GPU_NONE &&
        m->reason != RS_REASON_LAYOUT && m->reason != RS_REASON_MEMORY)
        add(list, m->buffer, m->bytes);
}

/* Whether the program cannot know yet that it is over: one that is complete it may have
 * asked about (MPI_Request_get_status), and write its buffer. */
static bool is_under_way(const struct rs_message *m)
{
    enum rs_state state = m->request->state;

    return !m->in_doubt && (state == RS_PUT || state == RS_MATCHED || state == RS_NATIVE);
}

static void list_blocks(const struct rs_message *messages, rsched_pull_block *add,
                        void *list)
{
    for (const struct rs_message *m = messages; m != NULL; m = m->next) {
        if (is_under_way(m))
            list_block(m, add, list);
    }
}

/* Send buffers of messages that are started, or under way. */
static void list_frozen(void *context, rsched_pull_block *add, void *list)
{
    (void)context;
    for (int i = 0; i < rs_starting.count; i++) {
        const struct rs_request *request = rs_request_find(rs_starting.handles[i]);

        if (request != NULL && request->message != NULL)
            list_block(request->message, add, list);
    }
    for (const struct rs_pair *p = rs_pairs_first(); p != NULL; p = p->next_all) {
        list_blocks(p->messages, add, list);
        list_blocks(p->unattached, add, list);
    }
}

static bool have_source(struct rs_message *message)
{
    struct rs_pair *pair = message->lane->pair;
    const struct rs_ways *ways;
    struct rsched_piece only;
    struct rsched_message all;

    if (message->source != NULL)
        return true;
    ways = rsched_context_ways(rs_context());
    if (pair->sources == NULL && rsched_pull_group_create(list_frozen, NULL, &pair->sources) != 0)
        pair->sources = NULL;
    if (ways == NULL || pair->sources == NULL ||
        !have_pieces(message, &only, &all))
        return false;
    if (rsched_pull_source_create(&all, ways, &pair->reader, pair->sources,
                                  &message->source) != 0)
        message->source = NULL;
    drop_pieces(message, &all);
    return message->source != NULL;
}

/* Whether it is to go through slots that have room for so many bytes, whatever
 * that costs. */
static bool is_bound_to_slots(const struct rs_message *message, uint64_t room)
{
    return message->bytes <= room && (!rs_pair_pulls(message->lane->pair) ||
                                      message->bytes <= RS_LANE_SHORT_BYTES);
}

/* How many it goes through, if it does. */
static uint32_t num_slots(const struct rs_message *message)
{
    return message->bytes <= message->slots->room ? message->slots->num : 1;
}

/* How it goes where slots have room for so many bytes. */
static enum rsched_pull_way way_of(struct rs_message *message, uint64_t room)
{
    if (is_bound_to_slots(message, room))
        return RSCHED_PULL_SLOTS;
    return have_source(message) ? rsched_pull_source_way(message->source, room, num_slots(message))
                                : RSCHED_PULL_NOT;
}

/* How long the message that was timed last has been copied, if it has. Its slot may
 * be another message's, or elsewhere, since; and where it was sent natively after
 * all, nobody has written that. */
static void learn_time(struct rs_message *message)
{
    const struct rs_slot *slot;
    uint64_t ps = UINT64_MAX;

    if (!rs_lane_is_consumed(message->slots, message->timed))
        return;
    slot = rs_lane_is_put(message->slots, message->timed);
    if (slot != NULL && !rs_slot_is_timed(slot))
        ps = (message->took + slot->bytes) * 1000;
    rsched_pull_source_took(message->source, ps);
    message->timed = 0;
}

/* What the receiver says of its messages to us, if it leads. */
static const struct rsched_pull_told *told_of(const struct rs_pair *pair)
{
    const struct rs_pair *back = pair->back;

    return back != NULL && back->view.words != NULL &&
                   pair->world < rs_process.rank
               ? &back->view.words->told
               : NULL;
}

/* The same for the one that is started. */
static struct rsched_pull_start start_of(struct rs_message *message)
{
    uint64_t room = message->slots->room;
    struct rsched_pull_start start = {.way = RSCHED_PULL_SLOTS};

    if (is_bound_to_slots(message, room))
        return start;
    start.way = RSCHED_PULL_NOT;
    if (!have_source(message))
        return start;
    if (message->timed != 0)
        learn_time(message);
    return rsched_pull_source_start(message->source, room, num_slots(message),
                                    &message->lane->pair->view.words->told,
                                    told_of(message->lane->pair));
}

void rs_message_want(struct rs_message *message)
{
    uint64_t most = rs_lane_most();
    enum rsched_pull_way way = RSCHED_PULL_NOT;

    if (message->bytes <= most || rs_pair_pulls(message->lane->pair))
        way = way_of(message, most);
    if (way == RSCHED_PULL_SLOTS)
        rs_lane_want(message->lane, message->bytes, 0);
    else if (way == RSCHED_PULL_NOT && message->bytes > most)
        rs_message_never(message, RS_REASON_SIZE);
}

static bool announce(struct rs_message *message, struct rs_slot *slot,
                     enum rsched_pull_way way)
{
    struct rsched_pull_notice notice;

    if (message->bytes > message->slots->room)
        rs_message_want(message);
    if (!have_source(message) ||
        rsched_pull_source_load(message->source, &notice) != 0)
        return false;
    memcpy(slot->data, &notice, sizeof(notice));
    message->packed += way == RSCHED_PULL_PACKED;
    return true;
}

bool rs_message_write(struct rs_message *message, struct rs_slot *slot)
{
    struct rsched_pull_start start;
    bool written = true;
    uint64_t begin;

    if (message->gpu >= 0)
        return message->announced = rs_gpu_announce(message, slot);
    if (message->bytes > message->slots->room &&
        !rs_pair_pulls(message->lane->pair))
        return false;
    start = start_of(message);
    begin = start.timed ? rs_now_ns() : 0;
    message->announced = start.way != RSCHED_PULL_SLOTS;
    if (message->announced)
        written = announce(message, slot, start.way);
    else if (!start.nontemporal ||
             rsched_pull_source_pack(message->source, slot->data) != 0)
        rs_message_pack(message, slot->data);
    message->nontemporal += start.nontemporal;
    if (start.timed && written) {
        /* The receiver waits until it sees what has been written. */
        rs_lane_fence();
        message->timed = message->slots->number + 1;
        message->took = rs_now_ns() - begin;
    } else if (start.timed) {
        rsched_pull_source_took(message->source, UINT64_MAX);
    }
    return written;
}

void rs_message_trials(const struct rs_message *message, uint64_t *trials,
                       uint64_t *changes)
{
    *trials = *changes = 0;
    if (message->source != NULL)
        rsched_pull_source_trials(message->source, trials, changes);
}

/* ---- receiver ---- */

static void __attribute__((cold)) complain(const struct rs_pair *pair)
{
    rs_log(RS_LOG_ERROR, "reading from process %d failed: %s", pair->world,
           rsched_last_error());
}

static bool have_target(struct rs_message *message)
{
    const struct rs_sender *sender;
    const struct rs_ways *ways;
    struct rsched_piece only;
    struct rsched_message all;

    if (message->target != NULL)
        return true;
    ways = rsched_context_ways(rs_context());
    if (ways == NULL || !have_pieces(message, &only, &all))
        return false;
    sender = message->lane->pair->sender;
    if (rsched_pull_target_create(sender != NULL ? sender->peer : NULL, &all,
                                  ways, &message->target) != 0)
        message->target = NULL;
    drop_pieces(message, &all);
    return message->target != NULL;
}

/* What comes before a message is written over by the next one of its request: a step
 * of the program ends where a request is pulled that has been in it. */
static struct {
    uint64_t number, bytes, bytes_before;
} step = {.number = 1};

/* @return bytes that come in a step, this message among them */
static uint64_t incoming(struct rs_message *message, uint64_t bytes)
{
    if (message->step == step.number) {
        step.number++;
        step.bytes_before = step.bytes;
        step.bytes = 0;
    }
    message->step = step.number;
    step.bytes += bytes;
    return step.bytes > step.bytes_before ? step.bytes : step.bytes_before;
}

/* Messages to be copied together: what the kernel reads is read in one call. */
enum { MOST = 16 };
struct batch {
    size_t num;
    struct rs_message *messages[MOST];
    struct rs_slot *slots[MOST];
    struct rsched_pull pulls[MOST];
};

static bool batch_add(struct batch *b, struct rs_message *message,
                      struct rs_slot *slot)
{
    struct rsched_pull *pull = &b->pulls[b->num];

    if (!have_target(message))
        return false;
    *pull = (struct rsched_pull){.target = message->target,
                                 .bytes = rs_slot_bytes(slot),
                                 .incoming = incoming(message,
                                                      rs_slot_bytes(slot))};
    memcpy(&pull->notice, slot->data, sizeof(pull->notice));
    b->messages[b->num] = message;
    b->slots[b->num++] = slot;
    return true;
}

/* What else the pair's sender has announced. While the pair is open only: what
 * is put later is not matched. */
static void batch_fill(struct batch *b, const struct rs_pair *pair)
{
    if (pair->view.open == 0)
        return;
    /* Most likely those that are waited for next. */
    for (struct rs_message *first = b->messages[0], *m = first; b->num < MOST;) {
        struct rs_slot *slot;

        m = m->next != NULL ? m->next : pair->messages;
        if (m == first)
            return;
        if (m->request->state != RS_GRANTED || m->number != m->slots->seen + 1)
            continue;
        slot = rs_lane_is_put(m->slots, m->number);
        if (slot != NULL && rs_slot_announces(slot) &&
            !rs_slot_is_on_gpu(slot) && !batch_add(b, m, slot))
            return;
    }
}

static bool is_any_timed(const struct batch *b)
{
    for (size_t i = 0; i < b->num; i++) {
        if (rs_slot_is_timed(b->slots[i]))
            return true;
    }
    return false;
}

void rs_message_pull(struct rs_message *message, struct rs_slot *slot)
{
    const struct rs_pair *pair = message->lane->pair;
    struct batch batch = {.num = 0};
    uint64_t begin, took, bytes = 0;
    bool timed;

    if (!batch_add(&batch, message, slot)) {
        complain(pair);
        rs_message_taken(message, slot, 0, true);
        return;
    }
    batch_fill(&batch, pair);
    timed = is_any_timed(&batch);
    for (size_t i = 0; i < batch.num; i++)
        batch.pulls[i].timed = timed;
    begin = timed ? rs_now_ns() : 0;
    rsched_pull_copy(batch.pulls, batch.num);
    took = begin > 0 ? rs_now_ns() - begin : 0;
    for (size_t i = 0; i < batch.num; i++)
        bytes += batch.pulls[i].bytes;
    for (size_t i = 0; i < batch.num; i++) {
        const struct rsched_pull *pull = &batch.pulls[i];
        struct rs_message *m = batch.messages[i];

        if (pull->error != 0)
            complain(pair);
        else if (pull->mapped == (pull->bytes < m->bytes ? pull->bytes
                                                         : m->bytes))
            m->mapped++;
        m->nontemporal += pull->nontemporal > 0;
        m->prefetched += pull->prefetched > 0;
        /* They were copied together. */
        rs_message_taken(m, batch.slots[i],
                         (uint64_t)((double)took * (double)pull->bytes /
                                    (double)bytes),
                         pull->error != 0);
    }
}
