/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent point-to-point requests: communicators' names, pairs and lanes.
 * docs/persistent.md has the rules that the comments name.
 *
 * One thread at a time: with MPI_THREAD_MULTIPLE there are no pairs. */
#ifndef RS_MPI_PERSISTENT_H
#define RS_MPI_PERSISTENT_H

#include <rsched/pull.h>

#include "mpi/internal.h"
#include "mpi/lane.h"

/* ---- names of communicators (names.c) ---- */

struct rs_pair;

/** What all processes of a communicator call it. */
struct rs_name {
    unsigned refs;
    uint64_t id;
    MPI_Comm comm; /* MPI_COMM_NULL when it is gone */
    MPI_Errhandler errhandler; /* that it had then */
    bool is_freed; /* by the program; it stays while requests do */
    struct rs_pair *pairs;
};

/** The communicator's name, or NULL. Local. */
struct rs_name *rs_name_find(MPI_Comm comm);
/** Agree on one for a communicator that has been made of another one. Collective;
 * intercommunicators get none, nor do those with processes of another world. */
void rs_name_give(MPI_Comm comm, MPI_Comm parent);
void rs_name_drop(struct rs_name *name);
int rs_name_raise(struct rs_name *name, int error);
void rs_names_init(void);
void rs_names_fini(void);

/* ---- pairs and lanes (pairs.c) ---- */

/** Lanes without requests that a pair keeps, in case that one is made again. */
enum { RS_IDLE_LANES = 64 };
/** Native starts of a pair that are its last ones, of as many lanes as it has. */
enum { RS_RECENT_GOES = 4 };

struct rs_lane {
    /* What each start and completion touches. */
    struct rs_pair *pair;
    /* While it is in an incarnation: one more than the most bytes of a message
     * that it carries; else 0. */
    uint64_t limit;
    struct rs_slots slots; /* if attached */
    uint64_t started; /* `native_starts` when it was last */
    uint64_t natives; /* sender: messages sent natively */
    bool attached;
    bool barred; /* by this side (N3, N7) */
    bool barred_for_good;
    bool quiet;         /* sender: all its messages have been matched (O1) */
    unsigned requests;  /* that exist */
    unsigned posted;    /* receiver: natively, and not complete (O2) */
    unsigned active;    /* sender: native sends that the program has not completed */
    unsigned in_go;     /* sender: native sends since none was active */
    unsigned last;      /* which one of these is synchronous, or the next one (O1) */

    struct rs_lane *next, *previous; /* of the pair */
    struct rs_lane *next_same; /* in the table */
    struct rs_lane **idle;     /* where it is among the pair's, or NULL */
    int tag;
    unsigned index; /* of the shared words, if attached */

    /* The sender's. */
    unsigned misses;    /* times that there were not as many in a go as `last` */
    unsigned torn;      /* a stop has come between those of this go, or of the last one */
    uint64_t starts;    /* before it was attached */
    uint64_t offer_at;  /* of these, the first one at which it may be offered */
    unsigned outside;   /* starts since it could join the open incarnation */
    MPI_Request sync;   /* the synchronous one, or null */
    uint64_t sync_number; /* `natives` with it */
    char *copy;         /* its bytes */
    uint64_t wanted;    /* bytes that there was no room for, */
    unsigned wanted_num; /* and of slots (G1) */

    /* The receiver's. */
    uint64_t covers;    /* nonblocking receives that covered it */
    bool full;          /* there is no memory for more room, */
    bool full_num;      /* or for more slots */
    struct rs_cohort *cohort; /* while it has requests, or NULL */
    bool placed;          /* its slots have room for messages */
    uint64_t slots_bytes; /* of all its slots; 0: it has none yet */
    unsigned stood;     /* times that a native receive was posted for long */
};

struct rs_pair {
    struct rs_pair *next;      /* of the communicator */
    struct rs_pair *next_same; /* in the table */
    struct rs_pair *next_all, *previous_all;
    struct rs_name *name;
    MPI_Comm handle; /* that the communicator had */
    int peer;  /* rank in the communicator */
    int world; /* in MPI_COMM_WORLD */
    struct rs_pair *back; /* the other direction's, if there is one */
    unsigned requests; /* on its lanes */
    struct rs_lane *lanes;
    struct rs_lane **attached; /* by their index; some may be NULL */
    const struct rs_slots **slots; /* of these */
    unsigned num_attached, room;   /* of these, and that the arrays are for */
    unsigned num_used;             /* of these, with requests */
    unsigned stuck; /* the one that kept the pair from being opened, or ready, last */
    struct rs_lane *idle[RS_IDLE_LANES]; /* not attached; some may be NULL */
    unsigned retired;  /* lanes that have become idle */
    size_t mapped; /* bytes */
    unsigned char *touched; /* of their pages, a bit each; NULL: none yet */
    int fd;        /* receiver: until the sender has mapped it; else -1 */
    bool handed;   /* receiver: it has been sent to the sender's socket */
    struct rs_sender *sender; /* receiver: its memory; NULL: this process */
    bool pulls;    /* the receiver may read there, or might: rs_pair_pulls() */
    struct rsched_pull_reader reader; /* sender: then, who that is */
    struct rsched_pull_group *sources; /* sender: of its messages; NULL: none yet */
    bool greeted;  /* sender: a synchronous message has been there; receiver: the
                      greeting has come */
    struct rs_rows rows; /* receiver */
    bool outgrown; /* receiver: pulled what lanes could have room for */
    int pid;       /* receiver: of the sender; 0: not known */
    struct rs_gpu_link *gpu; /* NULL: no end has been in GPU memory */
    unsigned num_taken; /* receiver: matched, and not yet consumed */
    struct rs_pair_view view;
    /* Oldest first. */
    struct rs_message *messages, *last; /* of requests whose lanes are attached, */
    struct rs_message *unattached, *last_unattached; /* and of others: these are never open, */
    unsigned num_unattached;       /* so many are there, */
    unsigned unlooked;             /* and so often was one started */
    uint64_t starts;   /* puts and grants */
    uint64_t closed_starts; /* of these, when none was open */
    struct rs_message *open_one; /* NULL, or one that was */
    uint64_t native_starts;
    uint64_t native_starts_before; /* the end of the last incarnation */
    /* T4. The sender's, but `tries`. */
    unsigned penalty, skip; /* native starts before the next attempt */
    unsigned before;        /* `penalty` before the last stop */
    unsigned tries;         /* starts that did not open the pair */
    unsigned futile;        /* times that it was left alone for that, in a row */
    bool parked;            /* until the receiver is ready, or has been */
    bool new_sends;         /* none is started since a native one was over */
    uint32_t held;          /* incarnation whose receiver holds, */
    unsigned held_looks;    /* and how often that was seen before sends */
    uint32_t readies;       /* of the words, when last looked at */
    bool loses, lost;       /* since `looked`; it has rested for that since it was open */
    uint64_t looked;        /* ns */
    uint64_t loss;          /* ns of a wait that may have been for nothing */
    uint64_t awaited;       /* `rs_num_awaited` at its end */
    uint64_t rests_until;   /* ns: then all losses are a small part of the time */
    uint64_t given_up;      /* a copy was not waited for any more (O1): `native_starts` then */
    uint64_t strays;        /* native starts on lanes that are not attached, */
    uint64_t counted;       /* since there were so many starts in all */
    bool strays_much;       /* they have been too many a part of these */
    unsigned active;        /* native sends that the program has not completed */
    struct rs_lane_set chosen; /* lanes that can join, */
    bool has_chosen;           /* if that is known, */
    uint64_t chosen_at;        /* and `native_starts` is so many */
    bool passed_barred;        /* one that is barred would have to be quiet otherwise */
    uint64_t foreseen_at;      /* `native_starts` at the last look in advance */
    uint32_t moved;            /* rs_pair_moves() when it had gone to all of them */
    /* The receiver's. */
    uint64_t latest_over;   /* of the native receives that are over, the one that was
                               started last: `native_starts` then */
    bool new_receives; /* none is started natively since a native one was over */
    unsigned vain;   /* receiver: times that it has been alone in vain, in a row */
    unsigned shy;    /* times that it could be and goes natively instead */
    struct rs_message *probed; /* that was probed for last; NULL: none */
    uint32_t asked;  /* rs_pair_asks() when all lanes had what they ask for */
};

/* Read by each start and completion: without a way round the global offset
 * table. */
#pragma GCC visibility push(hidden)
/** Pairs of this process; plain calls need not look when there are none. */
extern unsigned rs_num_pairs;
/** Messages in incarnations that are not known to be matched, and receives of which
 * a copy is under way. */
extern unsigned rs_num_open;
/** Pairs in whose incarnations the receiver, this process, is alone. */
extern unsigned rs_num_alone;
/** Puts or grants since the last fence. */
extern bool rs_unfenced;
/** Times that a receive was waited for that was not there. */
extern uint64_t rs_num_awaited;
/** Calls that may find complete what they ask for before one of them looks at the
 * time; threads may disagree. */
extern _Atomic unsigned rs_num_quick;
#pragma GCC visibility pop

/** The lane, made if need be, for a request that is to be made; NULL and *reason:
 * there can be none. */
struct rs_lane *rs_lane_hold(struct rs_name *name, bool sends, int peer,
                             int tag, enum rs_reason *reason);
/** The request exists no more, nor may the lane. */
void rs_lane_release(struct rs_lane *lane);
/** A pair's lane, made if need be; NULL: there is no memory. */
struct rs_lane *rs_lane_of(struct rs_pair *pair, int tag);
struct rs_pair *rs_pair_find(MPI_Comm comm, bool sends, int peer);
/** The same by names that another process uses. */
struct rs_pair *rs_pair_named(uint64_t id, bool sends, int world);
/** A communicator is gone; its pairs follow when nobody can be using them. */
void rs_pairs_detach(void);
/** The program frees it, if it is one, from here on to rs_pairs_comm_freed(); requests on
 * it may be left. Attributes may go with it before that, by functions of the program's. */
void rs_pairs_comm_free(MPI_Comm comm);
void rs_pairs_comm_freed(void);
/** Messages of ours that nobody waits for. Communicators may go with them, so only calls
 * that are in the middle of nothing look at them. */
extern unsigned rs_num_orphans;
void rs_orphans_reap(void);
/* ---- what their two sides share (shared.c) ---- */

/** The longest message that goes through slots. */
uint64_t rs_lane_most(void);
/** The receiver makes the shared memory. */
bool rs_pair_share(struct rs_pair *pair);
/** The sender maps it, once: through /proc, where that leads to the receiver. */
bool rs_pair_reach(struct rs_pair *pair, int pid, int fd, uint64_t nonce);
/** The same memory, of a descriptor that is taken over; below 0: there is none. */
bool rs_pair_map(struct rs_pair *pair, int file, uint64_t nonce);
/** Either side. */
void rs_pair_unmap(struct rs_pair *pair, struct rs_pair_words *words);
/** The receiver first: it takes memory for messages of up to `bytes`. */
bool rs_lane_attach(struct rs_lane *lane, unsigned index, uint64_t bytes);
/** A message of a request joins its lane's pair, or leaves it. */
void rs_pair_add(struct rs_message *message);
void rs_pair_remove(struct rs_message *message);
/** It has slots from now on, and so have its messages. */
void rs_lane_is_attached(struct rs_lane *lane);
/** Sender: a message of so many bytes, at most rs_lane_most(), does not fit into
 * the slots and should, or there should be so many of them (G1). 0: as they are. */
void rs_lane_want(struct rs_lane *lane, uint64_t bytes, unsigned num);
/** Receiver: whether the sender wants slots for such a message, and may get
 * them. */
bool rs_lane_is_wanted(const struct rs_lane *lane, uint64_t bytes);
/** Receiver: take memory for lanes whose messages have become longer. */
void rs_pair_grow(struct rs_pair *pair);
/** Where the slots of an attached lane shall be. */
static inline uint64_t rs_lane_place(const struct rs_lane *lane)
{
    /* Relaxed: nothing is read there. */
    return atomic_load_explicit(&rs_bank_of(lane->pair->view.words, lane->index)
                                     ->places[lane->index % RS_BANK_LANES],
                                memory_order_relaxed);
}
/** Go to where the lane's slots shall be: see rs_slots_move(). */
void rs_lane_move(struct rs_lane *lane);
/** Whether the receiver copies out of the sender's memory. */
static inline bool rs_pair_pulls(const struct rs_pair *pair)
{
    /* Relaxed: who puts after a message that has been consumed sees what the
     * receiver has written before that. */
    return pair->pulls &&
           (pair->view.words == NULL ||
            atomic_load_explicit(&pair->view.words->refuses,
                                 memory_order_relaxed) == 0);
}
/** The most bytes of a message that goes through slots wherever it lies. */
uint64_t rs_pair_most(const struct rs_pair *pair);
/** Whether the kernel lets us read `cookie` at `at` in the process. */
bool rs_pair_can_pull(int pid, uint64_t at, uint64_t cookie);
/** The memory of a process that sends (announced.c), until it is put back; NULL:
 * there is none of our own to know it. */
struct rs_sender *rs_sender_get(int world,
                                const struct rsched_pull_memory *memory);
void rs_sender_put(struct rs_sender *sender);
/** Whether the kernel lets us read it. NULL: it is this process. */
bool rs_sender_is_readable(const struct rs_sender *sender);
/** What it has to know of this process. NULL: it is this one. */
struct rsched_pull_reader rs_sender_reader(const struct rs_sender *sender);
/** Call `visit` for all pairs. */
void rs_pairs_visit(void (*visit)(struct rs_pair *pair));
/** The first of all, of which each has the next one. */
struct rs_pair *rs_pairs_first(void);
void rs_pairs_fini(void);

/* ---- lanes by their tags (lanes.c) ---- */

struct rs_lane *rs_lane_find(const struct rs_pair *pair, int tag);
/** Among the lanes of its pair. */
void rs_lane_add(struct rs_lane *lane);
void rs_lane_remove(struct rs_lane *lane);
/** Of all pairs. */
size_t rs_lanes_count(void);
void rs_lanes_fini(void);

/* ---- how many slots they have (cohorts.c) ---- */

/** A start has gone natively, as the first ones of a lane do. */
extern bool rs_cohort_started;
/** The lane has got requests; it has none any more. */
void rs_cohort_join(struct rs_lane *lane);
void rs_cohort_leave(struct rs_lane *lane);
/** Bytes that its slots are to have together. */
uint64_t rs_cohort_share(const struct rs_lane *lane);
/** It has slots of so many bytes; `placed`: with room for messages. */
void rs_cohort_place(struct rs_lane *lane, bool placed, uint64_t bytes);
/** Of all slots of lanes that receive from others and have requests. */
uint64_t rs_lanes_slot_bytes(void);

/* ---- how lanes are made (notes.c) ---- */

/** At a start on a lane that is not attached: offer it to its receiver, if it is
 * time for that. */
void rs_note_offer(struct rs_lane *lane, uint64_t bytes);
/** Whether the receiver has read the offers that it got, but for so many. */
bool rs_note_may_be_sent(const struct rs_lane *lane);
/** Whether it may be time for that at this start, which is counted if not. */
static inline bool rs_note_is_due(struct rs_lane *lane)
{
    if (lane->starts + 1 >= lane->offer_at && rs_note_may_be_sent(lane))
        return true;
    lane->starts++;
    return false;
}
/** Ask the receiver of a pair whether it opens GPU memory. */
void rs_note_ask(struct rs_pair *pair, const struct rsched_pull_notice *notice);
/** Answer an offer that has come already. */
void rs_note_answer(struct rs_lane *lane);
/** At so many starts: take what has come; cheap when nothing is likely to. */
void rs_notes_poll(unsigned starts);
/** The receiver of a pair that goes: what is still to come for it is taken in
 * rs_notes_fini() at the latest. */
void rs_notes_leave(const struct rs_pair *pair);
void rs_notes_fini(void);
/** Offers that were sent. */
uint64_t rs_notes_offers(void);
/** Offers that are kept of others, for lanes that this process has no use for yet
 * (offers.c). */
size_t rs_offers_kept(void);
/** A communicator is gone. */
void rs_offers_forget(uint64_t id);

/* ---- GPU memory (gpu_message.c) ---- */

/** Receiver: try to open what a sender asks about, and say whether that is
 * possible. */
void rs_gpu_answer(struct rs_pair *pair,
                   const struct rsched_pull_notice *notice);
/** The pair goes. */
void rs_gpu_link_destroy(struct rs_gpu_link *link);
/** Whether a copy is under way. */
bool rs_gpu_is_copying(void);
/** Go on with all copies. */
void rs_gpu_progress(void);
/** N4: wait until no sender waits for one any more. */
void rs_gpu_settle(void);

/* ---- attempts to open pairs (attempts.c) ---- */

/** Receiver: a native receive of the pair is over. */
void rs_incarnation_is_due(struct rs_pair *pair);
/** At a start: do what is to be done for the pair to open, if it is time for that. */
void rs_incarnation_try(struct rs_pair *pair);
/** Sender: whether the receiver is ready, which may be waited for. */
bool rs_incarnation_await_ready(struct rs_pair *pair);
/** Sender: a native send of the lane is over, or the program will not complete it. */
void rs_lane_send_is_over(struct rs_lane *lane);
/** Sender: whether it has been, at the last start. */
bool rs_incarnation_is_tried(const struct rs_pair *pair);
/** Sender: not for so many starts. */
void rs_incarnation_rest(struct rs_pair *pair, unsigned starts);
/** At a start on a lane: whether it can only go natively, and nothing else need be looked at,
 * since there is no attempt for now. For a sender it is one of the starts that it rests for. */
bool rs_incarnation_rests(struct rs_lane *lane);
/** Whether many starts have not opened the pair. */
bool rs_incarnation_is_futile(const struct rs_pair *pair);

/* ---- what waiting costs a sender (losses.c) ---- */

/** Whether something that this process receives by persistent requests is on its way. */
bool rs_incarnation_is_receiving(void);
/** Sender: a message that natively may not be waited for has been polled in vain, or is over
 * (not `begins`) after that. This may stop the incarnation.
 * @param begins of this message it is the first time */
void rs_incarnation_lose(struct rs_pair *pair, bool begins);

/* ---- incarnations (incarnation.c) ---- */

/** Receiver: become ready, if that is possible; sender: open the pair, if its receiver
 * is. True: this side is in an incarnation. */
bool rs_incarnation_open(struct rs_pair *pair);
/** Sender, of whom no native send of the pair is active: find out which lanes can join, before
 * the next start, so that this takes no time from which on the receiver may be ready no more. */
void rs_incarnation_foresee(struct rs_pair *pair);
/** R0. Receiver: enter the incarnation that the sender may open, if it is time for that. */
void rs_incarnation_enter_alone(struct rs_pair *pair);
/** Whether the incarnation that this side is in goes on; else it must stop it, too. */
bool rs_incarnation_is_open(struct rs_pair *pair);
/** Take this side's bit back (O3). It may find the pair open, and enters the
 * incarnation then. */
void rs_incarnation_unready(struct rs_pair *pair);
/** O3. Before a receive is posted natively on the lane; the same, but where the lane has been
 * barred by this side. */
void rs_incarnation_before_posting(struct rs_lane *lane);
/** T1 to T3: leave the incarnation. */
void rs_incarnation_stop(struct rs_pair *pair);
/** Whether one of the pair's latest native starts, since the last incarnation, was on it. */
bool rs_lane_is_in_use(const struct rs_lane *lane);
/** How many lanes of a pair count: those that are attached, which they stay, but beyond a bank
 * those that have requests. */
static inline unsigned rs_pair_lanes(const struct rs_pair *pair)
{
    unsigned most = pair->num_used > RS_BANK_LANES ? pair->num_used : RS_BANK_LANES;

    return pair->num_attached < most ? pair->num_attached : most;
}
/** How many starts of a pair are its last ones: some on each lane. */
static inline unsigned rs_recent_starts(const struct rs_pair *pair)
{
    unsigned lanes = rs_pair_lanes(pair);

    return RS_RECENT_GOES * (lanes > RS_BANK_LANES ? lanes : RS_BANK_LANES);
}
/** How much longer the other side may take for a go of all lanes of the pair than for one of a
 * bank, ns. */
static inline uint64_t rs_pair_more_ns(const struct rs_pair *pair)
{
    enum { NS_OF_LANE = 200 };
    unsigned lanes = rs_pair_lanes(pair);

    return lanes <= RS_BANK_LANES ? 0 : (uint64_t)NS_OF_LANE * (lanes - RS_BANK_LANES);
}
/** Whether all messages that the sender ever sent on it have been matched (O1). */
bool rs_lane_is_quiet(struct rs_lane *lane);
/** O4: a send is to be started on a lane that is not in the open incarnation. */
void rs_incarnation_widen(struct rs_lane *lane);
/** O3, N2: afterwards the pair is not open. */
void rs_incarnation_close(struct rs_pair *pair);
/** N1: nothing of the pair is unmatched afterwards. */
void rs_incarnation_settle(struct rs_pair *pair);
/** N4: likewise, for all pairs. */
void rs_incarnations_settle(void);
/** Whether anything of the pair is in the incarnation and not yet matched. */
bool rs_incarnation_has_open(struct rs_pair *pair);
/** Whether the peer may announce what it waits for to be taken. */
bool rs_incarnation_takes(struct rs_pair *pair);
/** Take what has been announced, and learn of stops. */
void rs_incarnations_look(void);
/** Before a native call that may block (N4). */
static inline void rs_settle(void)
{
    if (__builtin_expect(rs_num_open > 0, 0))
        rs_incarnations_settle();
}
/** In all other calls that a program may make again and again. */
static inline void rs_look(void)
{
    if (__builtin_expect(rs_num_open > 0, 0))
        rs_incarnations_look();
    if (__builtin_expect(rs_flights_queue(), 0))
        rs_flights_progress();
}
/** The same in those that complete nothing. */
static inline void rs_look_around(void)
{
    rs_look();
    if (__builtin_expect(rs_num_orphans > 0, 0))
        rs_orphans_reap();
}
/** Look, and have the native MPI go on, if nobody has for a while. */
void rs_progress_at_times(void);
/** At the end of those that complete something. One that had nothing to wait for has
 * not looked, nor has the native MPI gone on; a program may make such calls for ever, and
 * wait for something else by that. So some of them do: all that come seldom. */
static inline void rs_look_at_times(void)
{
    unsigned left = atomic_load_explicit(&rs_num_quick, memory_order_relaxed);

    if (__builtin_expect(left == 0, 0))
        rs_progress_at_times();
    else
        atomic_store_explicit(&rs_num_quick, left - 1, memory_order_relaxed);
}
/* ---- native calls beside them (covers.c) ---- */

/** Before a native send, of any kind but those of requests of ours. */
void rs_before_send(MPI_Comm comm, int peer, int tag);
/** How long a receive of the native MPI alone may be incomplete. */
enum rs_stay {
    RS_STAYS_NOT, /* not after the call */
    RS_STAYS,     /* for an unknown time, from the call on */
    RS_COMES,     /* it may be posted at any time */
};
/** Before a plain receive or a probe, any of them with wildcards. */
void rs_before_receive(MPI_Comm comm, int peer, int tag, enum rs_stay stay);
/** What nonblocking receives covered, ever: sets of hashes, RS_STAYS and RS_COMES. They are
 * kept from MPI_Init on, because a lane that is made later does not know whether one that was
 * posted is complete. */
enum { RS_FILTER_BITS = 1 << 16 };
typedef _Atomic uint64_t rs_filter[RS_FILTER_BITS / 64];
extern rs_filter rs_filters[2] __attribute__((visibility("hidden")));

static inline unsigned rs_filter_key(MPI_Comm comm, int peer, int tag)
{
    uint64_t key = (uint64_t)(uintptr_t)comm * UINT64_C(0x9e3779b97f4a7c15);

    key ^= (uint64_t)(uint32_t)peer << 32 | (uint32_t)tag;
    key *= UINT64_C(0xbf58476d1ce4e5b9);
    return (unsigned)(key >> 48);
}

static inline bool rs_filter_has(const rs_filter filter, MPI_Comm comm, int peer, int tag)
{
    unsigned key = rs_filter_key(comm, peer, tag);

    return atomic_load_explicit(&filter[key / 64], memory_order_relaxed) >> key % 64 & 1;
}

/** What was ever posted that covers it: the longest stay. */
enum rs_stay rs_is_covered(MPI_Comm comm, int peer, int tag);
/** N3: a receive covers the lane and may be incomplete. */
void rs_lane_bar(struct rs_lane *lane, enum rs_stay stay);
/** N7: a message of this side is to be started that never goes through the lane. The pair
 * is to be closed then, if the lane has joined. */
void rs_lane_leave_native(struct rs_lane *lane);
/** Whether it is to join no incarnation, as far as this side knows. */
bool rs_lane_is_barred(const struct rs_lane *lane);
/** N3: a native receive of the lane's own is posted, and nobody will know when it is
 * complete. */
void rs_lane_lose_receive(struct rs_lane *lane);
/** N3: those are complete that covered the lane when a native receive of its
 * own, which is matched now, was started. */
void rs_lane_unbar(struct rs_lane *lane, uint64_t covers);
/** Whether a plain ready send may meet a receive that is not posted
 * natively. */
bool rs_is_lane(MPI_Comm comm, int peer, int tag);

uint64_t rs_now_ns(void);

#endif
