/* SPDX-License-Identifier: BSD-3-Clause */
/* How the two sides of a lane find each other: the sender offers it, the
 * receiver answers with shared memory once it has a persistent receive there.
 * Then the sender greets the receiver, synchronously: over UCX the first such
 * message to a process needs calls of its sender to get there, and one of the
 * program's must not (O1).
 *
 * Nobody waits for a note, but in MPI_Finalize: MPICH's waits for ever for a
 * synchronous message to a process that has ended without taking it. So the
 * receiver says when it takes greetings no more, and the sender that one is on
 * its way, in a word that belongs to who is first. */
#include "mpi/native.h"
#include "mpi/persistent.h"

#include <stdlib.h>
#include <unistd.h>

RS_NATIVE(Isend)
RS_NATIVE(Issend)
RS_NATIVE(Improbe)
RS_NATIVE(Mrecv)

enum { NOTE_TAG = 8 }; /* oob.c has another one */
enum { OFFER = 1, ANSWER = 2, GREETING = 3, QUESTION = 4 };

struct note {
    uint32_t kind;
    int32_t tag;
    uint64_t id;    /* the communicator's name */
    uint64_t bytes; /* of the longest message */
    int32_t pid;
    int32_t fd;     /* answer: of the memory */
    uint64_t nonce; /* answer: in it; offer: at `at` */
    uint64_t at;
    uint32_t index;
    uint32_t pulls; /* answer: the receiver can read our memory */
    struct rsched_pull_reader reader; /* answer: then, who that is */
    struct rsched_pull_memory memory; /* offer: where it finds it */
    struct rsched_pull_notice notice; /* question: GPU memory of ours */
};

/* Whoever can read this word can read our memory. */
static uint64_t cookie;

/* What others may map of it. None is as good as one that they cannot open. */
static struct rsched_pull_memory memory = {.fd = -1};

/* One on its way, or an offer that nobody has use for yet. */
struct letter {
    struct letter *next;
    MPI_Request request;
    int peer;
    struct note note;
};

static struct letter *on_the_way, *offers;

/* Greetings that are to come for pairs that are gone. */
static unsigned due;

/* Polls in vain since the last note: few come, and only at the beginning. */
static unsigned vain;
enum { EAGER_POLLS = 256, SELDOM = 64 };

static void send_note(int world, const struct note *note)
{
    struct letter *letter = calloc(1, sizeof(*letter));

    if (letter == NULL)
        return; /* all stays native */
    letter->note = *note;
    if (native_Isend(&letter->note, sizeof(letter->note), MPI_BYTE, world,
                     NOTE_TAG, rs_process.comm,
                     &letter->request) != MPI_SUCCESS) {
        free(letter);
        return;
    }
    letter->next = on_the_way;
    on_the_way = letter;
}

/* Without memory for it, or a receiver, all stays native. */
static void greet(struct rs_pair *pair)
{
    struct letter *letter = calloc(1, sizeof(*letter));

    if (letter == NULL || !rs_pair_greeting(&pair->view, RS_GREETED)) {
        free(letter);
        return;
    }
    letter->note = (struct note){.kind = GREETING, .id = pair->name->id};
    letter->peer = pair->world;
    if (native_Issend(&letter->note, sizeof(letter->note), MPI_BYTE,
                      pair->world, NOTE_TAG, rs_process.comm,
                      &letter->request) != MPI_SUCCESS) {
        rs_log(RS_LOG_ERROR, "the MPI library refuses a message of its own");
        PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    letter->next = on_the_way;
    on_the_way = letter;
}

/* One that has been taken by its receiver. */
static void is_greeted(const struct letter *letter)
{
    struct rs_pair *pair = rs_pair_named(letter->note.id, true, letter->peer);

    if (pair != NULL)
        pair->greeted = true;
}

static void reap(void)
{
    for (struct letter **at = &on_the_way; *at != NULL;) {
        struct letter *letter = *at;
        int done;

        PMPI_Test(&letter->request, &done, MPI_STATUS_IGNORE);
        if (!done) {
            at = &letter->next;
            continue;
        }
        *at = letter->next;
        if (letter->note.kind == GREETING)
            is_greeted(letter);
        free(letter);
    }
}

void rs_note_offer(struct rs_lane *lane, uint64_t bytes)
{
    struct note note = {.kind = OFFER, .tag = lane->tag,
                        .id = lane->pair->name->id, .bytes = bytes,
                        .pid = getpid(),
                        .nonce = rs_process.job ^ (uintptr_t)&cookie,
                        .at = (uintptr_t)&cookie};

    lane->offered = true;
    cookie = note.nonce;
    if (memory.fd < 0 && rsched_pull_memory_open(&memory) != 0)
        memory.fd = -1;
    note.memory = memory;
    note.memory.pid = note.pid;
    vain = 0;
    send_note(lane->pair->world, &note);
}

void rs_note_ask(struct rs_pair *pair, const struct rsched_pull_notice *notice)
{
    const struct note note = {.kind = QUESTION, .id = pair->name->id,
                              .notice = *notice};

    vain = 0;
    send_note(pair->world, &note);
}

/* Whether this process can copy out of the sender's memory. */
static bool can_pull(struct rs_pair *pair, const struct note *offer)
{
    if (!rs_pair_can_pull(offer->pid, offer->at, offer->nonce))
        return false;
    if (pair->world != rs_process.rank && pair->sender == NULL)
        pair->sender = rs_sender_get(pair->world, &offer->memory);
    return pair->world == rs_process.rank || pair->sender != NULL;
}

/* The receiver's half of a lane that both sides want. */
static void answer(struct rs_lane *lane, const struct note *offer)
{
    struct rs_pair *pair = lane->pair;
    struct note note = *offer;

    if (lane->attached || pair->num_attached == RS_LANES ||
        !rs_pair_share(pair))
        return;
    if (pair->num_attached == 0)
        pair->pulls = can_pull(pair, offer);
    pair->pid = offer->pid;
    if (!rs_lane_attach(lane, pair->num_attached, offer->bytes))
        return;
    if (lane->barred)
        rs_pair_bar(&pair->view, lane->index);
    note.kind = ANSWER;
    note.index = lane->index;
    note.nonce = pair->view.words->nonce;
    note.pid = getpid();
    note.fd = pair->fd;
    note.pulls = pair->pulls;
    if (pair->pulls)
        note.reader = rs_sender_reader(pair->sender);
    send_note(pair->world, &note);
}

static bool fits(const struct rs_lane *lane, const struct letter *letter)
{
    return letter->peer == lane->pair->world &&
           letter->note.tag == lane->tag &&
           letter->note.id == lane->pair->name->id;
}

void rs_note_answer(struct rs_lane *lane)
{
    vain = 0;
    for (struct letter **at = &offers; *at != NULL; at = &(*at)->next) {
        struct letter *letter = *at;

        if (!fits(lane, letter))
            continue;
        *at = letter->next;
        answer(lane, &letter->note);
        free(letter);
        return;
    }
}

/* ---- what comes ---- */

static void take_offer(struct letter *letter)
{
    struct rs_pair *pair = rs_pair_named(letter->note.id, false, letter->peer);
    struct rs_lane *lane =
        pair != NULL ? rs_lane_find(pair, letter->note.tag) : NULL;

    if (lane == NULL || lane->requests == 0) {
        letter->next = offers;
        offers = letter;
        return;
    }
    answer(lane, &letter->note);
    free(letter);
}

static void take_answer(struct letter *letter)
{
    const struct note *note = &letter->note;
    struct rs_pair *pair = rs_pair_named(note->id, true, letter->peer);
    struct rs_lane *lane = pair != NULL ? rs_lane_find(pair, note->tag) : NULL;

    if (lane != NULL && !lane->attached &&
        rs_pair_map(pair, note->pid, note->fd, note->nonce)) {
        pair->pulls = note->pulls;
        pair->reader = note->reader;
        if (pair->num_attached == 0)
            greet(pair);
        rs_lane_attach(lane, note->index, note->bytes);
    }
    free(letter);
}

static void take_greeting(struct letter *letter)
{
    struct rs_pair *pair = rs_pair_named(letter->note.id, false, letter->peer);

    if (pair != NULL) {
        pair->greeted = true;
        /* The sender has mapped the memory. */
        if (pair->fd >= 0)
            close(pair->fd);
        pair->fd = -1;
    } else {
        due--;
    }
    free(letter);
}

static void take_question(struct letter *letter)
{
    struct rs_pair *pair = rs_pair_named(letter->note.id, false, letter->peer);

    if (pair != NULL && pair->view.words != NULL)
        rs_gpu_answer(pair, &letter->note.notice);
    free(letter);
}

void rs_notes_leave(const struct rs_pair *pair)
{
    if (!pair->greeted && !rs_pair_greeting(&pair->view, RS_LEFT))
        due++;
}

static bool take_one(void)
{
    struct letter *letter;
    MPI_Message message;
    MPI_Status status;
    int flag = 0;

    native_Improbe(MPI_ANY_SOURCE, NOTE_TAG, rs_process.comm, &flag, &message,
                   &status);
    if (!flag)
        return false;
    letter = calloc(1, sizeof(*letter));
    if (letter == NULL) {
        rs_log(RS_LOG_ERROR, "out of memory");
        PMPI_Abort(MPI_COMM_WORLD, 1);
        return false;
    }
    letter->peer = status.MPI_SOURCE;
    native_Mrecv(&letter->note, sizeof(letter->note), MPI_BYTE, &message,
                 MPI_STATUS_IGNORE);
    if (letter->note.kind == OFFER)
        take_offer(letter);
    else if (letter->note.kind == ANSWER)
        take_answer(letter);
    else if (letter->note.kind == QUESTION)
        take_question(letter);
    else
        take_greeting(letter);
    return true;
}

void rs_notes_poll(void)
{
    if (++vain > EAGER_POLLS && vain % SELDOM != 0)
        return;
    while (take_one())
        vain = 0;
    reap();
}

void rs_notes_fini(void)
{
    struct letter *letter;

    while (take_one() || due > 0)
        ;
    reap();
    while ((letter = offers) != NULL) {
        offers = letter->next;
        free(letter);
    }
    while ((letter = on_the_way) != NULL) {
        on_the_way = letter->next;
        PMPI_Request_free(&letter->request); /* and its bytes stay */
    }
    if (memory.fd >= 0)
        rsched_pull_memory_close();
    memory.fd = -1;
}
