/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of which an end lies in GPU memory: what the sender announces, and the
 * copies that receivers have under way. The rules' names are those of
 * docs/persistent.md. */
#include "mpi/message.h"

#include <sched.h>
#include <stdlib.h>

/* What a pair has for them. */
struct rs_gpu_link {
    struct rsched_gpu_peer *peer;
    /* The sender's: what the receiver has been asked about. */
    struct rsched_gpu_source *probe; /* NULL: it has not been */
    uint64_t needs;
    /* The receiver's: the same, once it has been opened. */
    struct rsched_pull_notice notice;
    uint64_t opened_by; /* GPUs of this process, a set */
    int gpu;            /* of these, which copies for host memory; below 0: the
                           sender's */
};

static const struct rsched_gpu_pull_ops *ops(void)
{
    return rsched_gpus()->pull;
}

static bool have_link(struct rs_pair *pair)
{
    bool itself = pair->world == rs_process.rank;
    struct rs_gpu_link *link;

    if (pair->gpu != NULL)
        return true;
    link = calloc(1, sizeof(*link));
    if (link == NULL ||
        ops()->peer_create(pair->pid, itself, &link->peer) != 0) {
        free(link);
        return false;
    }
    link->gpu = -1;
    pair->gpu = link;
    return true;
}

void rs_gpu_link_destroy(struct rs_gpu_link *link)
{
    if (link == NULL)
        return;
    ops()->source_destroy(link->probe);
    ops()->peer_destroy(link->peer);
    free(link);
}

/* The pieces, to be freed. NULL: no memory. */
static struct rsched_piece *pieces_of(const struct rs_message *message,
                                      struct rsched_message *all)
{
    const struct rs_flat *layout = message->layout;
    size_t num = layout != NULL ? layout->num_runs : 1;
    struct rsched_piece *pieces = calloc(num, sizeof(*pieces));

    if (pieces == NULL)
        return NULL;
    pieces[0] = (struct rsched_piece){message->buffer, message->bytes, 1, 0};
    if (layout != NULL)
        rs_message_pieces(message, pieces);
    *all = (struct rsched_message){
        .pieces = pieces, .num_pieces = num, .bytes = message->bytes};
    return pieces;
}

/* ---- sender ---- */

static struct rsched_gpu_source *make_source(const struct rs_message *message)
{
    struct rsched_gpu_source *source = NULL;
    struct rsched_message all;
    struct rsched_piece *pieces = pieces_of(message, &all);

    if (pieces != NULL &&
        ops()->source_create(message->lane->pair->gpu->peer, &all, &source) !=
            0)
        source = NULL;
    free(pieces);
    return source;
}

static void ask(struct rs_message *message)
{
    struct rs_pair *pair = message->lane->pair;
    struct rs_gpu_link *link = pair->gpu;
    struct rsched_gpu_source *source = make_source(message);
    struct rsched_pull_notice notice;
    int error;

    if (source == NULL)
        return;
    error = ops()->source_load(source, &notice, &link->needs);
    if (error != 0) {
        rs_log(RS_LOG_INFO, "GPU memory is sent natively: %s",
               rsched_last_error());
        ops()->source_destroy(source);
        if (error == RSCHED_ENOTSUP)
            rs_message_never(message, RS_REASON_GPU);
        return;
    }
    link->probe = source;
    rs_note_ask(pair, &notice);
}

void rs_gpu_ask(struct rs_message *message)
{
    struct rs_pair *pair = message->lane->pair;

    if (!rs_pair_pulls(pair) || !have_link(pair) ||
        atomic_load_explicit(&pair->view.words->opens, memory_order_relaxed) ==
            RS_OPENS_NOT)
        rs_message_never(message, RS_REASON_GPU);
    else if (pair->gpu->probe == NULL)
        ask(message);
}

bool rs_gpu_announce(struct rs_message *message, struct rs_slot *slot)
{
    const struct rs_pair *pair = message->lane->pair;
    struct rsched_pull_notice notice;
    uint64_t needs;

    /* Relaxed: the answer is all there is to it. */
    if (pair->gpu == NULL || !rs_pair_pulls(pair) ||
        atomic_load_explicit(&pair->view.words->opens, memory_order_relaxed) !=
            RS_OPENS)
        return false;
    if (message->gpu_source == NULL)
        message->gpu_source = make_source(message);
    if (message->gpu_source == NULL ||
        ops()->source_load(message->gpu_source, &notice, &needs) != 0)
        return false;
    if ((needs & ~pair->gpu->needs) != 0) { /* nobody has been asked that */
        rs_message_never(message, RS_REASON_GPU);
        return false;
    }
    memcpy(slot->data, &notice, sizeof(notice));
    return true;
}

bool rs_gpu_pack(const struct rs_message *message, char *to)
{
    struct rs_packed *packed = NULL;
    bool native, good;

    if (!rs_block_off_gpu(message->layout, message->buffer, true, false,
                          &native, &packed) ||
        packed == NULL)
        return false;
    good = rs_stage_begin(packed) == MPI_SUCCESS &&
           rs_stage_finish(packed) == MPI_SUCCESS;
    if (good)
        memcpy(to, packed->bytes, message->bytes);
    rs_stage_destroy(packed);
    return good;
}

/* ---- receiver: what it can open ---- */

static bool try_to_open(struct rs_gpu_link *link, int gpu,
                        const struct rsched_pull_notice *notice)
{
    char byte;
    struct rsched_piece piece = {&byte, 1, 1, 0};
    const struct rsched_message message = {
        .pieces = &piece, .num_pieces = 1, .bytes = 1};
    struct rsched_gpu_target *target;
    int error = ops()->target_create(link->peer, &message, gpu, &target);

    if (error != 0)
        return false;
    error = ops()->target_open(target, notice);
    ops()->target_destroy(target);
    if (error == 0 && gpu >= 0)
        link->opened_by |= UINT64_C(1) << gpu % 64;
    return error == 0;
}

/* By all GPUs that receive from there; host memory is served by one of them. */
static bool can_open_for(struct rs_gpu_link *link, const struct rs_message *messages,
                         const struct rsched_pull_notice *notice)
{
    for (const struct rs_message *m = messages; m != NULL; m = m->next) {
        if (m->gpu < 0 || m->need == UINT64_MAX ||
            (link->opened_by >> m->gpu % 64 & 1) != 0)
            continue;
        if (!try_to_open(link, m->gpu, notice))
            return false;
        link->gpu = m->gpu;
    }
    return true;
}

static bool can_open(struct rs_pair *pair,
                     const struct rsched_pull_notice *notice)
{
    struct rs_gpu_link *link = pair->gpu;

    return can_open_for(link, pair->messages, notice) &&
           can_open_for(link, pair->unattached, notice) &&
           (link->gpu >= 0 || try_to_open(link, -1, notice));
}

void rs_gpu_answer(struct rs_pair *pair,
                   const struct rsched_pull_notice *notice)
{
    const struct rsched_gpu_ops *gpus = rsched_gpus();
    bool opens = false;

    if (rs_process.gpu && gpus != NULL && gpus->attach() && have_link(pair)) {
        opens = can_open(pair, notice);
        pair->gpu->notice = *notice;
        if (!opens)
            rs_log(RS_LOG_WARN,
                   "messages of process %d out of GPU memory are native: %s",
                   pair->world, rsched_last_error());
    }
    atomic_store_explicit(&pair->view.words->opens,
                          opens ? RS_OPENS : RS_OPENS_NOT,
                          memory_order_relaxed);
}

bool rs_gpu_may_receive(struct rs_message *message)
{
    const struct rs_pair *pair = message->lane->pair;

    return pair->gpu == NULL || pair->view.words == NULL ||
           atomic_load_explicit(&pair->view.words->opens,
                                memory_order_relaxed) != RS_OPENS ||
           (pair->gpu->opened_by >> message->gpu % 64 & 1) != 0 ||
           try_to_open(pair->gpu, message->gpu, &pair->gpu->notice);
}

/* ---- receiver: copies ---- */

static struct rs_message *copying; /* all of them */
static unsigned num_taken;         /* of these, not consumed */

static bool is_taken(const struct rs_message *message)
{
    return message->copying == RS_COPY_WAITS ||
           message->copying == RS_COPY_PULLS;
}

static void enter(struct rs_message *message, enum rs_copying how)
{
    if (rs_message_is_open(message))
        rs_message_matched();
    message->request->state = RS_MATCHED;
    message->copying = how;
    message->next_copying = copying;
    copying = message;
    rs_num_open++;
    num_taken += is_taken(message);
    message->lane->pair->num_taken += is_taken(message);
}

static void leave(struct rs_message *message)
{
    struct rs_message **at = &copying;

    while (*at != message)
        at = &(*at)->next_copying;
    *at = message->next_copying;
    rs_num_open--;
    num_taken -= is_taken(message);
    message->lane->pair->num_taken -= is_taken(message);
    message->copying = RS_COPYING_NOT;
}

static void __attribute__((cold)) complain(const struct rs_message *message)
{
    rs_log(RS_LOG_ERROR, "receiving from process %d: %s",
           message->lane->pair->world, rsched_last_error());
}

static bool have_target(struct rs_message *message)
{
    struct rs_pair *pair = message->lane->pair;
    struct rsched_message all;
    struct rsched_piece *pieces;

    if (message->gpu_target != NULL)
        return true;
    if (rsched_gpus() == NULL || !have_link(pair))
        return false;
    pieces = pieces_of(message, &all);
    if (pieces == NULL ||
        ops()->target_create(pair->gpu->peer, &all, pair->gpu->gpu,
                             &message->gpu_target) != 0)
        message->gpu_target = NULL;
    free(pieces);
    return message->gpu_target != NULL;
}

char *rs_gpu_memory(struct rs_message *message)
{
    void *memory;

    if (!have_target(message) ||
        ops()->target_memory(message->gpu_target, &memory) != 0)
        return NULL;
    return memory;
}

void rs_gpu_await(struct rs_message *message)
{
    enter(message, RS_COPY_WAITS);
}

void rs_gpu_pull(struct rs_message *message, struct rs_slot *slot)
{
    uint64_t sent = rs_slot_bytes(slot);
    struct rsched_pull_notice notice;

    if (sent > message->bytes) {
        rs_message_taken(message, slot, 0, false);
        return;
    }
    memcpy(&notice, slot->data, sizeof(notice));
    if (have_target(message) &&
        ops()->target_pull(message->gpu_target, &notice, sent) == 0) {
        enter(message, RS_COPY_PULLS);
        return;
    }
    complain(message);
    rs_message_taken(message, slot, 0, true);
}

bool rs_gpu_spread(struct rs_message *message, uint64_t bytes, int error)
{
    if (ops()->target_spread(message->gpu_target, bytes) != 0) {
        complain(message);
        return false;
    }
    message->got = bytes;
    message->copied = error;
    enter(message, RS_COPY_SPREADS);
    return true;
}

static void pull_is_over(struct rs_message *message, bool failed)
{
    if (failed)
        complain(message);
    message->opened += !failed;
    rs_message_taken(message, rs_slots_at(message->slots, message->number), 0,
                     failed);
}

static void spread_is_over(struct rs_message *message, bool failed)
{
    if (failed)
        complain(message);
    rs_count_number(RS_NUMBER_STAGED, message->got);
    rs_message_complete(message, message->got,
                        failed ? MPI_ERR_OTHER : message->copied);
}

bool rs_gpu_poll(struct rs_message *message)
{
    enum rs_copying how = message->copying;
    int status;

    if (how == RS_COPY_WAITS) {
        if (message->number != message->slots->seen + 1)
            return false;
        leave(message);
        return rs_message_take_slowly(
            message, rs_slots_at(message->slots, message->number));
    }
    status = ops()->target_poll(message->gpu_target);
    if (status == RSCHED_LANE_PENDING)
        return false;
    leave(message);
    if (how == RS_COPY_PULLS)
        pull_is_over(message, status < 0);
    else
        spread_is_over(message, status < 0);
    return true;
}

bool rs_gpu_is_copying(void)
{
    return copying != NULL;
}

void rs_gpu_progress(void)
{
    struct rs_message *next;

    for (struct rs_message *m = copying; m != NULL; m = next) {
        next = m->next_copying;
        rs_gpu_poll(m);
    }
}

void rs_gpu_settle(void)
{
    for (rs_gpu_progress(); num_taken > 0; rs_gpu_progress())
        sched_yield();
}

void rs_gpu_close(struct rs_message *message)
{
    if (message->copying != RS_COPYING_NOT)
        leave(message);
    if (message->gpu_source == NULL && message->gpu_target == NULL)
        return;
    ops()->source_destroy(message->gpu_source);
    ops()->target_destroy(message->gpu_target);
}
