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
 * its way, in a word that belongs to who is first.
 *
 * A sender that cannot open the memory, as in another namespace for processes, sends the
 * answer back, with the name of a socket. The receiver puts the descriptor into its queue and
 * then answers again, so that the sender finds it there at once; a queue that is full
 * is tried again whenever the receiver looks for notes. */
#include "mpi/native.h"
#include "mpi/notes.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "librsched/base/hand.h"

RS_NATIVE(Isend)
RS_NATIVE(Issend)
RS_NATIVE(Improbe)
RS_NATIVE(Mrecv)

enum { NOTE_TAG = 8 }; /* oob.c has another one */
/* Offers to a process that it has not read, at most, and if it has read any; it says so after
 * TELL_AT of them. Some processes never look for notes, and the MPI library goes through those
 * that nobody has read again and again. */
enum { MOST_UNREAD = 16, MOST_UNREAD_OF_READER = 128, TELL_AT = 8 };

/* A lane is offered at its fourth start, so that those of messages that are sent once or
 * twice cost nothing; and again, since offers may be dropped. */
enum { FIRST_OFFER = 4, OFFER_AGAIN = 16 };

/* Whoever can read this word can read our memory. It is random, since a process of another
 * namespace may have the reader's own number and this word at the same address; 0: none yet. */
static uint64_t cookie;

/* What others may map of it. None is as good as one that they cannot open. */
static struct rsched_pull_memory memory = {.fd = -1};

static struct rs_letter *on_the_way;

/* Where receivers put memory that cannot be opened; made for the first of them. */
static struct rs_hands hands = {.socket = -1};

/* Answers that have come back, of receivers' pairs whose senders' queues are full. */
static struct rs_letter *owed;
static uint64_t num_offers; /* that were sent */

/* By rank in MPI_COMM_WORLD. */
static struct peer {
    bool reads; /* it has read some */
    uint8_t unread; /* offers to it, as far as it has told */
    uint8_t taken;  /* offers of its own, since it was told of that */
} *peers;

/* Greetings that are to come for pairs that are gone. */
static unsigned due;

/* Polls in vain since the last note: few come, and only at the beginning. */
static unsigned vain;
enum { EAGER_POLLS = 256, SELDOM = 64 };

/* NULL: without memory for it all stays native. */
static struct peer *peer_of(int world)
{
    if (peers == NULL)
        peers = calloc((size_t)rs_process.size, sizeof(*peers));
    return peers != NULL ? &peers[world] : NULL;
}

static void send_note(int world, const struct rs_note *note)
{
    struct rs_letter *letter = calloc(1, sizeof(*letter));

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
    struct rs_letter *letter = calloc(1, sizeof(*letter));

    if (letter == NULL || !rs_pair_greeting(&pair->view, RS_GREETED)) {
        free(letter);
        return;
    }
    letter->note = (struct rs_note){.kind = RS_NOTE_GREETING, .id = pair->name->id};
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
static void is_greeted(const struct rs_letter *letter)
{
    struct rs_pair *pair = rs_pair_named(letter->note.id, true, letter->peer);

    if (pair != NULL)
        pair->greeted = true;
}

static void reap(void)
{
    for (struct rs_letter **at = &on_the_way; *at != NULL;) {
        struct rs_letter *letter = *at;
        int done;

        PMPI_Test(&letter->request, &done, MPI_STATUS_IGNORE);
        if (!done) {
            at = &letter->next;
            continue;
        }
        *at = letter->next;
        if (letter->note.kind == RS_NOTE_GREETING)
            is_greeted(letter);
        free(letter);
    }
}

static void offer(const struct rs_lane *lane, uint64_t bytes)
{
    struct rs_note note = {.kind = RS_NOTE_OFFER, .tag = lane->tag,
                        .id = lane->pair->name->id, .bytes = bytes,
                        .pid = getpid(),
                        .at = (uintptr_t)&cookie};

    if (cookie == 0 && getrandom(&cookie, sizeof(cookie), 0) != (ssize_t)sizeof(cookie))
        return; /* all stays native */
    note.nonce = cookie;
    if (memory.fd < 0 && rsched_pull_memory_open(&memory) != 0)
        memory.fd = -1;
    note.memory = memory;
    note.memory.pid = note.pid;
    vain = 0;
    send_note(lane->pair->world, &note);
}

static bool is_behind(const struct peer *peer)
{
    return peer == NULL ||
           peer->unread >= (peer->reads ? MOST_UNREAD_OF_READER : MOST_UNREAD);
}

bool rs_note_may_be_sent(const struct rs_lane *lane)
{
    return !is_behind(peer_of(lane->pair->world));
}

void rs_note_offer(struct rs_lane *lane, uint64_t bytes)
{
    struct rs_pair *pair = lane->pair;
    struct peer *peer;

    if (lane->offer_at == 0)
        lane->offer_at = FIRST_OFFER;
    if (++lane->starts < lane->offer_at)
        return;
    if (pair->num_attached == RS_LANES) {
        lane->offer_at = UINT64_MAX;
        return;
    }
    peer = peer_of(pair->world);
    if (is_behind(peer))
        return;
    peer->unread++;
    num_offers++;
    lane->offer_at = OFFER_AGAIN * lane->starts;
    offer(lane, bytes);
}

uint64_t rs_notes_offers(void)
{
    return num_offers;
}

void rs_note_ask(struct rs_pair *pair, const struct rsched_pull_notice *notice)
{
    const struct rs_note note = {.kind = RS_NOTE_QUESTION, .id = pair->name->id,
                              .notice = *notice};

    vain = 0;
    send_note(pair->world, &note);
}

/* Whether this process can copy out of the sender's memory. */
static bool can_pull(struct rs_pair *pair, const struct rs_note *offer)
{
    if (!rs_pair_can_pull(offer->pid, offer->at, offer->nonce))
        return false;
    if (pair->world != rs_process.rank && pair->sender == NULL)
        pair->sender = rs_sender_get(pair->world, &offer->memory);
    return pair->world == rs_process.rank || pair->sender != NULL;
}

/* How many offers of a process have been read since it was told of that; it is
 * told now. */
static uint8_t tell_taken(int world)
{
    struct peer *peer = peer_of(world);
    uint8_t taken = peer != NULL ? peer->taken : 0;

    if (peer != NULL)
        peer->taken = 0;
    return taken;
}

/* The receiver's half of a lane that both sides want. */
static void answer(struct rs_lane *lane, const struct rs_note *offer)
{
    struct rs_pair *pair = lane->pair;
    struct rs_note note = *offer;

    if (lane->attached || pair->num_attached == RS_LANES ||
        !rs_pair_share(pair))
        return;
    if (pair->num_attached == 0)
        pair->pulls = can_pull(pair, offer);
    pair->pid = offer->pid;
    if (!rs_lane_attach(lane, pair->num_attached, offer->bytes))
        return;
    note.kind = RS_NOTE_ANSWER;
    note.taken = tell_taken(pair->world);
    note.index = lane->index;
    note.nonce = pair->view.words->nonce;
    note.pid = getpid();
    note.fd = pair->fd;
    note.pulls = pair->pulls;
    if (pair->pulls)
        note.reader = rs_sender_reader(pair->sender);
    send_note(pair->world, &note);
}

void rs_note_answer(struct rs_lane *lane)
{
    struct rs_letter *letter = rs_offer_take(lane);

    vain = 0;
    if (letter != NULL)
        answer(lane, &letter->note);
    free(letter);
}

/* ---- what comes ---- */

static void take_offer(struct rs_letter *letter)
{
    struct rs_pair *pair = rs_pair_named(letter->note.id, false, letter->peer);
    struct rs_lane *lane =
        pair != NULL ? rs_lane_find(pair, letter->note.tag) : NULL;
    struct peer *peer = peer_of(letter->peer);
    int world = letter->peer;

    if (peer != NULL)
        peer->taken++;
    if (lane == NULL || lane->requests == 0) {
        rs_offer_keep(letter);
    } else {
        answer(lane, &letter->note);
        free(letter);
    }
    if (peer != NULL && peer->taken >= TELL_AT)
        send_note(world, &(struct rs_note){.kind = RS_NOTE_TAKEN,
                                           .taken = tell_taken(world)});
}

/* So many more of our offers has the process read. */
static void is_told(const struct rs_letter *letter)
{
    struct peer *peer = peer_of(letter->peer);

    if (peer == NULL || letter->note.taken > peer->unread)
        return;
    peer->unread -= (uint8_t)letter->note.taken;
    peer->reads |= letter->note.taken > 0;
}

static bool have_socket(void)
{
    static bool tried;
    uint64_t nonce;

    if (!tried && getrandom(&nonce, sizeof(nonce), 0) == (ssize_t)sizeof(nonce)) {
        rs_hands_init(&hands, nonce);
        if (hands.socket < 0)
            rs_log(RS_LOG_INFO, "no socket for what cannot be opened: %m");
    }
    tried = true;
    return hands.socket >= 0;
}

static void send_back(const struct rs_letter *letter)
{
    struct rs_note note = letter->note;

    if (!have_socket())
        return; /* all stays native */
    note.kind = RS_NOTE_UNOPENED;
    note.socket = hands.nonce;
    vain = 0;
    send_note(letter->peer, &note);
}

/* What has been handed over for an answer, which may be all that was for this pair. It is
 * taken also where the pair is gone, or would stay open. */
static void take_memory(struct rs_pair *pair, uint64_t nonce)
{
    struct rs_hand *hand = rs_hands_take(&hands, nonce);

    if (hand == NULL)
        return;
    if (pair != NULL && pair->view.words == NULL) {
        rs_pair_map(pair, hand->fds[0], nonce);
        hand->fds[0] = -1;
    }
    rs_hand_destroy(hand);
}

/* @return whether the pair, if there is one, has the memory that the answer names */
static bool reach_memory(struct rs_pair *pair, const struct rs_letter *letter)
{
    const struct rs_note *note = &letter->note;

    if (note->socket != 0)
        take_memory(pair, note->nonce);
    else if (pair != NULL && !rs_pair_reach(pair, note->pid, note->fd, note->nonce))
        send_back(letter);
    return pair != NULL && pair->view.words != NULL &&
           pair->view.words->nonce == note->nonce;
}

static void take_answer(struct rs_letter *letter)
{
    const struct rs_note *note = &letter->note;
    struct rs_pair *pair = rs_pair_named(note->id, true, letter->peer);
    struct rs_lane *lane = NULL;

    is_told(letter);
    if (reach_memory(pair, letter))
        lane = rs_lane_of(pair, note->tag); /* it may be gone */
    if (lane != NULL && !lane->attached) {
        pair->pulls = note->pulls;
        pair->reader = note->reader;
        if (pair->num_attached == 0)
            greet(pair);
        rs_lane_attach(lane, note->index, note->bytes);
    }
    free(letter);
}

/* One process may be reached, another one not, and one text is enough. */
static void complain(int peer)
{
    static bool complained;

    if (!complained)
        rs_log(RS_LOG_INFO, "neither /proc nor a socket leads process %d here, so what it "
                            "sends is native: %m", peer);
    complained = true;
}

/* The pair's memory, for an answer that has come back.
 * @return false: there is no room for it now */
static bool hand_over(struct rs_pair *pair, const struct rs_letter *letter)
{
    struct rs_note note = letter->note;

    if (pair == NULL || pair->view.words == NULL)
        return true;
    if (!pair->handed) {
        /* It is closed once it has been mapped. */
        if (pair->fd < 0)
            return true;
        if (rs_hand_try(note.socket, note.nonce, pair->fd) != 0) {
            if (rs_hand_may_be_later(errno))
                return false;
            complain(letter->peer);
            return true;
        }
        pair->handed = true;
    }
    note.kind = RS_NOTE_ANSWER;
    note.taken = tell_taken(letter->peer);
    vain = 0;
    send_note(letter->peer, &note);
    return true;
}

static void take_unopened(struct rs_letter *letter)
{
    letter->next = owed;
    owed = letter;
}

static void hand_over_owed(void)
{
    for (struct rs_letter **at = &owed; *at != NULL;) {
        struct rs_letter *letter = *at;

        if (!hand_over(rs_pair_named(letter->note.id, false, letter->peer), letter)) {
            at = &letter->next;
            continue;
        }
        *at = letter->next;
        free(letter);
    }
}

static void take_greeting(struct rs_letter *letter)
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

static void take_question(struct rs_letter *letter)
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

/* The next one that has come, or NULL. */
static struct rs_letter *receive(void)
{
    struct rs_letter *letter;
    MPI_Message message;
    MPI_Status status;
    int flag = 0;

    native_Improbe(MPI_ANY_SOURCE, NOTE_TAG, rs_process.comm, &flag, &message,
                   &status);
    if (!flag)
        return NULL;
    letter = calloc(1, sizeof(*letter));
    if (letter == NULL) {
        rs_log(RS_LOG_ERROR, "out of memory");
        PMPI_Abort(MPI_COMM_WORLD, 1);
        return NULL;
    }
    letter->peer = status.MPI_SOURCE;
    native_Mrecv(&letter->note, sizeof(letter->note), MPI_BYTE, &message,
                 MPI_STATUS_IGNORE);
    return letter;
}

static void take(struct rs_letter *letter)
{
    switch ((enum rs_note_kind)letter->note.kind) {
    case RS_NOTE_OFFER:
        take_offer(letter);
        return;
    case RS_NOTE_ANSWER:
        take_answer(letter);
        return;
    case RS_NOTE_GREETING:
        take_greeting(letter);
        return;
    case RS_NOTE_QUESTION:
        take_question(letter);
        return;
    case RS_NOTE_TAKEN:
        is_told(letter);
        free(letter);
        return;
    case RS_NOTE_UNOPENED:
        take_unopened(letter);
        return;
    }
}

void rs_notes_poll(unsigned starts)
{
    struct rs_letter *letter;
    unsigned before = vain;

    vain += starts;
    if (vain > EAGER_POLLS && vain / SELDOM == before / SELDOM)
        return;
    while ((letter = receive()) != NULL) {
        vain = 0;
        take(letter);
    }
    hand_over_owed();
    reap();
}

void rs_notes_fini(void)
{
    struct rs_letter *letter;

    /* There are no pairs any more, and nobody is to be told of offers. */
    while ((letter = receive()) != NULL || due > 0) {
        due -= letter != NULL && letter->note.kind == RS_NOTE_GREETING;
        free(letter);
    }
    reap();
    while ((letter = owed) != NULL) {
        owed = letter->next;
        free(letter);
    }
    rs_hands_fini(&hands);
    rs_offers_fini();
    free(peers);
    peers = NULL;
    while ((letter = on_the_way) != NULL) {
        on_the_way = letter->next;
        PMPI_Request_free(&letter->request); /* and its bytes stay */
    }
    if (memory.fd >= 0)
        rsched_pull_memory_close();
    memory.fd = -1;
}
