/* SPDX-License-Identifier: BSD-3-Clause */
/* PLAN of a random program, for programs.c: what its processes do, drawn by all
 * of them from the same numbers, and the matches that MPI allows.
 *
 * A program has phases, and each process has its steps in each of them. Which
 * messages are sent and which receives are posted, and in what order, is the
 * plan's; whether by persistent requests, and what is completed when, is drawn
 * or depends on the times. In an **exact** program at most one process sends
 * what a receive could take, so its matches are those of the plan alone. In the
 * others probes, cancels and receives of several senders' messages make them
 * depend on the times; then each match must be one that MPI allows. */
#ifndef TESTS_MPI_PROGRAMS_PLAN_H
#define TESTS_MPI_PROGRAMS_PLAN_H

#include "tests/mpi/common.h"

enum { MOST_RANKS = 8, LANE_TAGS = 3, TAGS = 4, MOST_PHASES = 3 };
enum { MOST_STEPS = 64, MOST_MESSAGES = 256, MOST_RECEIVES = 1024 };
enum { ANY = -1, NOBODY = -2, CANCELLED = -3 };

static uint64_t program_seed; /* of the program that runs */

#define EXPECT(condition, format, ...)                                       \
    CHECK(condition, "program %" PRIu64 ": " format, program_seed, __VA_ARGS__)

enum kind { SEND, RECEIVE, PROBE, CANCEL, LOOK, NEIGHBORS, NUM_STEP_KINDS };

struct step {
    enum kind kind;
    int peer, tag;
};

struct phase {
    int num_steps;
    struct step steps[MOST_STEPS]; /* of this process */
    int warm; /* how often all lanes are used before it */
    bool barrier;
};

/* What one process sends to this one, in its order. */
struct incoming {
    int num;
    int tags[MOST_MESSAGES];
};

struct plan {
    int size, me; /* of the communicator */
    bool exact;
    /* Receives that stay posted keep lanes out of incarnations. */
    bool stays;
    int num_phases;
    /* Lanes: persistent sends, persistent receives. */
    bool sends[MOST_RANKS][MOST_RANKS][LANE_TAGS];
    bool receives[MOST_RANKS][MOST_RANKS][LANE_TAGS];
    bool edges[MOST_RANKS][MOST_RANKS]; /* of the neighborhood collectives */
    bool one_sender; /* in the phase that is drawn */
};

/* Receives of this process in the order in which they were posted. */
struct history {
    struct incoming from[MOST_RANKS];
    int num_messages; /* of all of them */
    int num_received;
    int num, first; /* first: of the phase */
    struct receive {
        int source, tag;    /* wanted */
        int sender, number; /* got; or sender is NOBODY or CANCELLED */
    } receives[MOST_RECEIVES];
};

/* ---- drawing ---- */

static inline void plan_lanes(struct plan *plan, struct random *r)
{
    int most = 1 + random_below(r, LANE_TAGS), rare = 1 + random_below(r, 3);

    for (int i = 0; i < plan->size; i++) {
        for (int j = 0; j < plan->size; j++) {
            for (int tag = 0; tag < LANE_TAGS; tag++) {
                bool there = tag < most && random_one_in(r, rare);
                bool half = random_one_in(r, 8); /* on one side only */
                bool which = random_one_in(r, 2);

                plan->sends[i][j][tag] = there && !(half && which);
                plan->receives[i][j][tag] = there && !(half && !which);
            }
            plan->edges[i][j] = random_one_in(r, 2);
        }
    }
}

/* Whom process `i` sends to in this phase. */
static inline int plan_peer(const struct plan *plan, struct random *r,
                            const int *peers, int i)
{
    int other = random_below(r, plan->size);

    return plan->one_sender ? peers[i] : other;
}

static inline struct step plan_step(const struct plan *plan, struct random *r,
                                    const int *peers, const int *senders, int i)
{
    static const enum kind likely[] = {SEND, SEND, SEND, RECEIVE, RECEIVE,
                                       RECEIVE, LOOK, LOOK, PROBE, CANCEL};
    struct step step = {.kind = likely[random_below(r, 10)]};
    bool any_source = random_one_in(r, 4), any_tag = random_one_in(r, 4);
    bool wild = random_one_in(r, 3), rarely = random_one_in(r, 8);
    int source = random_below(r, plan->size);
    int to = plan_peer(plan, r, peers, i);

    step.tag = random_below(r, TAGS);
    if (plan->one_sender)
        source = senders[i];
    if (step.kind == SEND) {
        step.peer = to;
    } else if (step.kind == RECEIVE) {
        step.peer = source;
        if (!plan->stays) {
            step.tag %= LANE_TAGS;
        } else if (wild) {
            if (any_source && (!plan->exact || plan->one_sender))
                step.peer = ANY;
            if (any_tag)
                step.tag = ANY;
        }
    } else if (step.kind == PROBE || step.kind == CANCEL) {
        step.peer = any_source ? ANY : source;
        if (any_tag)
            step.tag = ANY;
        if (!rarely || (step.kind == CANCEL && plan->exact))
            step.kind = LOOK;
    }
    return step;
}

/* The next phase: this process's steps, and what is sent to it. All processes
 * draw the same, for all of them. */
static inline void plan_phase(struct plan *plan, struct random *r,
                              struct history *h, struct phase *phase)
{
    int calls = random_below(r, 3), peers[MOST_RANKS], senders[MOST_RANKS];
    int shift = random_below(r, plan->size);

    memset(phase, 0, sizeof(*phase));
    phase->warm = 8 + random_below(r, 20);
    phase->barrier = random_one_in(r, 2);
    plan->one_sender = random_one_in(r, 2);
    h->first = h->num;
    for (int i = 0; i < plan->size; i++) {
        peers[i] = (i + shift) % plan->size;
        senders[peers[i]] = i;
    }
    for (int i = 0; i < plan->size; i++) {
        int num = random_below(r, MOST_STEPS / 2), made = 0;

        for (int k = 0; k < num; k++) {
            struct step step = plan_step(plan, r, peers, senders, i);

            /* Collective calls are made by all, wherever. */
            if (made < calls && random_one_in(r, num / (calls + 1))) {
                made++;
                if (i == plan->me)
                    phase->steps[phase->num_steps++].kind = NEIGHBORS;
            }
            if (step.kind == SEND && step.peer == plan->me) {
                struct incoming *in = &h->from[i];

                EXPECT(in->num < MOST_MESSAGES, "%d messages", in->num);
                in->tags[in->num++] = step.tag;
                h->num_messages++;
            }
            if (i == plan->me)
                phase->steps[phase->num_steps++] = step;
        }
        for (; made < calls; made++) {
            if (i == plan->me)
                phase->steps[phase->num_steps++].kind = NEIGHBORS;
        }
    }
}

/* ---- the matches that MPI allows ---- */

static inline bool is_covered(const struct receive *r, int sender, int tag)
{
    return (r->source == ANY || r->source == sender) &&
           (r->tag == ANY || r->tag == tag);
}

/* Those of a phase of an exact program: sender and number for each receive that
 * has been posted. `taken` says which messages it leaves. */
static inline void exact_matches(const struct history *h,
                                 struct receive *expected,
                                 bool taken[MOST_RANKS][MOST_MESSAGES], int size)
{
    memset(taken, 0, sizeof(bool) * MOST_RANKS * MOST_MESSAGES);
    for (int r = 0; r < h->num; r++) {
        expected[r] = h->receives[r];
        if (expected[r].sender == CANCELLED)
            continue;
        if (r < h->first) {
            taken[expected[r].sender][expected[r].number] = true;
            continue;
        }
        expected[r].sender = NOBODY;
        for (int s = 0; s < size && expected[r].sender == NOBODY; s++) {
            for (int m = 0; m < h->from[s].num; m++) {
                if (taken[s][m] ||
                    !is_covered(&h->receives[r], s, h->from[s].tags[m]))
                    continue;
                taken[s][m] = true;
                expected[r].sender = s;
                expected[r].number = m;
                break;
            }
        }
    }
}

/* Each message is taken once, by a receive that can have it, and (3.5) a receive
 * does not take one while an earlier one of the same sender that it could have
 * is not taken by a receive posted before it. That is all: a receive posted
 * before one that takes a message which both could have, and not cancelled, has
 * taken another one before. */
static inline void check_matches(const struct history *h, int size)
{
    static int taker[MOST_RANKS][MOST_MESSAGES];

    for (int s = 0; s < size; s++) {
        for (int m = 0; m < h->from[s].num; m++)
            taker[s][m] = NOBODY;
    }
    for (int i = 0; i < h->num; i++) {
        const struct receive *r = &h->receives[i];

        EXPECT(r->sender != NOBODY, "receive %d is lost", i);
        if (r->sender == CANCELLED)
            continue;
        EXPECT(r->number >= 0 && r->number < h->from[r->sender].num,
              "receive %d: message %d", i, r->number);
        EXPECT(is_covered(r, r->sender, h->from[r->sender].tags[r->number]),
              "receive %d from %d, tag %d: message %d of %d has tag %d", i,
              r->source, r->tag, r->number, r->sender,
              h->from[r->sender].tags[r->number]);
        EXPECT(taker[r->sender][r->number] == NOBODY,
              "message %d of %d was received twice", r->number, r->sender);
        taker[r->sender][r->number] = i;
        for (int m = 0; m < r->number; m++) {
            EXPECT(taker[r->sender][m] != NOBODY ||
                      !is_covered(r, r->sender, h->from[r->sender].tags[m]),
                  "receive %d from %d, tag %d got message %d of %d before "
                  "message %d",
                  i, r->source, r->tag, r->number, r->sender, m);
        }
    }
    for (int s = 0; s < size; s++) {
        for (int m = 0; m < h->from[s].num; m++)
            EXPECT(taker[s][m] != NOBODY, "message %d of %d is lost", m, s);
    }
}

static inline uint64_t mixed_up(uint64_t a, uint64_t b)
{
    struct random r = {.state = a * UINT64_C(0x9e3779b97f4a7c15) + b};

    return random_next(&r);
}

/* The same in each run of the program, whatever the times: 0 where the matches
 * depend on them. */
static inline uint64_t digest(const struct history *h, const struct plan *plan)
{
    uint64_t sum = 0;

    for (int i = 0; i < h->num && plan->exact; i++) {
        const struct receive *r = &h->receives[i];
        uint64_t match = mixed_up((uint64_t)(r->sender * 4096 + r->number),
                                  (uint64_t)plan->me);

        sum = mixed_up(sum, r->sender == CANCELLED ? 1 : match);
    }
    return sum;
}

#endif
