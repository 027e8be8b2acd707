/* SPDX-License-Identifier: BSD-3-Clause */
/* docs/persistent.md for a model checker: one pair of processes with two
 * lanes, and beside them plain sends, a wildcard, a probe and a cancel, in all
 * orders. The rules' names are those of the document.
 *
 * Several requests of a lane may be active, each message is short or is pulled,
 * and slots are used again.
 *
 * Checked: a receive takes the first message that it can take, a message goes
 * to the first receive that can take it, both sides agree on what is matched,
 * a slot and the buffer of a message that is pulled hold it until it has been
 * taken, and in the end nothing is left that fits together or that a sender
 * waits for.
 *
 * BROKEN_* leave out one rule each; the checker must find that out. */

#ifndef SENDS
#define SENDS 3     /* messages */
#endif
#ifndef RECEIVES
#define RECEIVES 3  /* receives and wildcards together */
#endif
#ifndef PROBES
#define PROBES 1
#endif
#ifndef CANCELS
#define CANCELS 1
#endif

#ifndef LANES
#define LANES 2     /* tags 0 and 1; tag 2 is no lane */
#endif
#ifndef ACTIVE
#define ACTIVE 1    /* requests of a lane and a direction at the same time */
#endif
#ifndef WILDCARDS
#define WILDCARDS 1 /* whether there are any */
#endif
#ifndef LONG
#define LONG 1      /* whether messages may be long ones */
#endif
#ifndef GROWTH
#define GROWTH 0    /* whether the receiver may give a lane other slots */
#endif
#ifndef LEAVES
#define LEAVES 0    /* whether lane 0 has receives that are always native */
#endif
#define SLOTS 2     /* of a lane */
#define MOST 3      /* numbers of a lane in an incarnation */
#define OTHER 2
#define ANY 3
#define NONE 15

/* ---- what really happened: for the assertions, nobody else reads it ---- */

byte sent;                  /* messages, numbered in the order of the calls */
byte tag_of[SENDS];
bool taken[SENDS];
bool pulls[SENDS];          /* is pulled, if it goes through a lane */
bool reusable[SENDS];       /* then: its request is complete */
byte posted;                /* receives, likewise */
byte covers[RECEIVES];      /* a tag, or ANY */
bool served[RECEIVES];      /* or cancelled */

inline matches(r, m)
{
    d_step {
        assert(!taken[m] && !served[r]);
        assert(covers[r] == ANY || covers[r] == tag_of[m]);
        i = 0;
        do
        :: i < m ->
            assert(taken[i] || (covers[r] != ANY && covers[r] != tag_of[i]));
            i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < r ->
            assert(served[i] ||
                   (covers[i] != ANY && covers[i] != tag_of[m]));
            i++
        :: else -> break
        od;
        i = 0;
        taken[m] = true;
        served[r] = true
    }
}

/* ---- the native MPI: messages travel in order, then match ---- */

chan wire = [SENDS] of { byte };
byte waiting[RECEIVES];     /* native receives, in the order of posting */
byte num_waiting;
byte early[SENDS];          /* messages that no receive waits for */
byte num_early;
bool sync[SENDS], acknowledged[SENDS];

#define REMOVE(list, at) \
    do \
    :: at + 1 < num_##list -> list[at] = list[at + 1]; at++ \
    :: else -> break \
    od; \
    num_##list--; \
    list[num_##list] = 0

inline native_arrive(m)
{
    d_step {
        k = 0;
        do
        :: k < num_waiting && covers[waiting[k]] != ANY &&
           covers[waiting[k]] != tag_of[m] -> k++
        :: else -> break
        od;
        if
        :: k < num_waiting ->
            r = waiting[k];
            REMOVE(waiting, k);
            acknowledged[m] = sync[m]
        :: else ->
            r = NONE;
            early[num_early] = m;
            num_early++
        fi;
        k = 0
    }
    if
    :: r != NONE -> matches(r, m)
    :: else
    fi;
    r = NONE
}

inline native_post(r)
{
    d_step {
        k = 0;
        do
        :: k < num_early && covers[r] != ANY &&
           covers[r] != tag_of[early[k]] -> k++
        :: else -> break
        od;
        if
        :: k < num_early ->
            m = early[k];
            REMOVE(early, k);
            acknowledged[m] = sync[m]
        :: else ->
            m = NONE;
            waiting[num_waiting] = r;
            num_waiting++
        fi;
        k = 0
    }
    if
    :: m != NONE -> matches(r, m)
    :: else
    fi;
    m = NONE
}

active proctype network()
{
    byte m, k, i, r = NONE;

end:
    do
    :: atomic { wire?m -> native_arrive(m); m = 0 }
    od
}

/* ---- the words that both processes share ---- */

#define R_READY 2
#define OPEN 3
#define STOPPING 4

byte incarnation = 1;
byte mode;                  /* bits; together with `incarnation` one word */
byte slot_incarnation[(1 + GROWTH) * LANES * SLOTS];
byte slot_number[(1 + GROWTH) * LANES * SLOTS];
#if GROWTH
byte place[LANES], used[LANES];
#endif
byte granted_incarnation[LANES], granted_number[LANES];
byte consumed_incarnation[LANES], consumed_number[LANES];
byte joined[LANES];
byte final[LANES];
bool barred[LANES];
#if LEAVES
bool left[LANES]; /* N7: barred for good */
#define IS_NEVER(x) left[x]
#else
#define IS_NEVER(x) false
#endif
bool sender_done, receiver_done;

/* Which message and which receive have a number: for the assertions. */
byte put_message[LANES * (MOST + 1)];
byte granted_receive[LANES * (MOST + 1)];

#define AT(x, k) ((x) * (MOST + 1) + (k))
#if GROWTH
#define FIRST(x) ((at[x] * LANES + (x)) * SLOTS)
#else
#define FIRST(x) ((x) * SLOTS)
#endif
#define SLOT(x, k) (FIRST(x) + (k) % SLOTS)
#define BIT(k) (1 << (k))
#define IS_SET(set, k) ((set) >> (k) & 1)
#define NUM_SET(set) (IS_SET(set, 0) + IS_SET(set, 1) + IS_SET(set, 2) + \
                      IS_SET(set, 3))
/* The k-th put of a lane is in its slot. */
#define IS_PUT(x, k) (slot_incarnation[SLOT(x, k)] == mine && \
                      slot_number[SLOT(x, k)] == (k))
#define GRANTED(x) (granted_incarnation[x] == mine -> granted_number[x] : 0)
/* The highest put: who looks knows the slots only. */
#define IN_SLOT(x, i) (slot_incarnation[FIRST(x) + (i)] == mine -> \
                       slot_number[FIRST(x) + (i)] : 0)
#define PUT(x) (IN_SLOT(x, 0) > IN_SLOT(x, 1) -> IN_SLOT(x, 0) \
                                              : IN_SLOT(x, 1))

/* T1, the part after the swap: LEAST compares the other side's number on lane l
 * with ours. */
#define DECIDE(LEAST) \
    l = 0; \
    do \
    :: l < LANES -> LEAST; l++ \
    :: else -> break \
    od; \
    l = 0; \
    atomic { incarnation = mine + 1; mode = 0 }

/* T1 or T3: afterwards `final` is set. */
#define STOP(LEAST) \
    if \
    :: atomic { incarnation == mine && mode == OPEN -> mode = STOPPING } \
       DECIDE(LEAST) \
    :: atomic { else } \
       /* T3 */ \
       (incarnation != mine) \
    fi

/* Number k of lane x is matched, and so are those before it. */
inline conclude(x, k)
{
    c = 1;
    do
    :: c <= k ->
        if
        :: !taken[put_message[AT(x, c)]] ->
            matches(granted_receive[AT(x, c)], put_message[AT(x, c)])
        :: else
        fi;
        c++
    :: else -> break
    od;
    c = 0
}

/* ---- the sender ---- */

active proctype sender()
{
    byte mine;              /* the incarnation it is in, 0: none */
    byte number[LANES];
    byte open_put[LANES];   /* its numbers that are not known to be matched */
    byte matched[LANES];    /* and those that are and have yet to be pulled */
    byte matched_in[LANES]; /* incarnation of these */
    byte last[LANES];       /* native message after which nothing was sent */
#if GROWTH
    byte at[LANES];         /* its slots */
#endif
    byte l, i, j, k, c, m, t, n, q;

    l = 0;
    do
    :: l < LANES -> last[l] = NONE; l++
    :: else -> break
    od;
    l = 0;

#if LANES > 1
#define UNMATCHED (open_put[0] != 0 || open_put[1] != 0)
#define UNPULLED (matched[0] != 0 || matched[1] != 0)
#else
#define UNMATCHED (open_put[0] != 0)
#define UNPULLED (matched[0] != 0)
#endif
#define NATIVE_SEND(msg) \
    atomic { \
        if \
        :: tag_of[msg] != OTHER -> last[tag_of[msg]] = msg; sync[msg] = true \
        :: tag_of[msg] != OTHER -> last[tag_of[msg]] = msg \
        :: else \
        fi; \
        wire!msg \
    }
#define NEW_MESSAGE(tag) \
    atomic { m = sent; tag_of[m] = tag; sent++ }
#define NUMBERS_OF_SENDER \
    d_step { \
        final[l] = number[l]; \
        if \
        :: GRANTED(l) < final[l] -> final[l] = GRANTED(l) \
        :: else \
        fi \
    }
#ifdef BROKEN_FINAL /* takes every put for matched */
#undef NUMBERS_OF_SENDER
#define NUMBERS_OF_SENDER final[l] = number[l]
#endif

/* Put k of lane x is matched: S2, S3. */
#ifdef BROKEN_PULL /* complete before it has been pulled */
#define MUST_WAIT(msg) false
#else
#define MUST_WAIT(msg) pulls[msg]
#endif
#define DONE(msg) reusable[msg] = pulls[msg] /* of interest for these only */
#define MATCHED(x, k) \
    conclude(x, k); \
    open_put[x] = open_put[x] & ~BIT(k); \
    if \
    :: MUST_WAIT(put_message[AT(x, k)]) -> \
        assert(matched[x] == 0 || matched_in[x] == mine); \
        matched[x] = matched[x] | BIT(k); matched_in[x] = mine \
    :: else -> DONE(put_message[AT(x, k)]) \
    fi

/* T2 and T3: after a stop, by whomever. Messages leave in their order. */
#define SETTLE() \
    atomic { \
        l = 0; \
        do \
        :: l < LANES -> \
            k = 1; \
            do \
            :: k <= MOST -> \
                if \
                :: IS_SET(open_put[l], k) && k <= final[l] -> MATCHED(l, k) \
                :: else \
                fi; \
                k++ \
            :: else -> break \
            od; \
            l++ \
        :: else -> break \
        od; \
        l = 0; k = 0 \
    } \
    do \
    :: UNMATCHED -> \
        atomic { \
            n = NONE; l = 0; \
            do \
            :: l < LANES -> \
                k = 1; \
                do \
                :: k <= MOST -> \
                    if \
                    :: IS_SET(open_put[l], k) && \
                       put_message[AT(l, k)] < n -> \
                        n = put_message[AT(l, k)]; t = l; j = k \
                    :: else \
                    fi; \
                    k++ \
                :: else -> break \
                od; \
                l++ \
            :: else -> break \
            od; \
            assert(!taken[n]); \
            open_put[t] = open_put[t] & ~BIT(j); \
            l = 0; k = 0; t = 0; j = 0 \
        } \
        NATIVE_SEND(n); \
        n = 0 \
    :: else -> break \
    od; \
    mine = 0

#define LOOK() \
    if \
    :: atomic { mine != 0 && (incarnation != mine || mode != OPEN) } -> \
        (incarnation != mine); SETTLE() \
    :: atomic { else } \
    fi

/* S2, S3: first the mode, then the word. */
#define POLL() \
    if \
    :: atomic { mine != 0 && incarnation == mine && mode == OPEN } -> \
        atomic { \
            select_set(open_put); \
            if \
            :: k != 0 && GRANTED(t) >= k -> MATCHED(t, k) \
            :: else \
            fi; \
            t = 0; k = 0 \
        } \
    :: atomic { mine != 0 && !(incarnation == mine && mode == OPEN) } -> \
        (incarnation != mine); SETTLE() \
    :: atomic { mine == 0 } \
    fi

/* Any member of a set, or k == 0. */
#define select_set(set) \
    k = 0; \
    if \
    :: IS_SET(set[0], 1) -> t = 0; k = 1 \
    :: IS_SET(set[0], 2) -> t = 0; k = 2 \
    :: IS_SET(set[0], 3) -> t = 0; k = 3 \
    SELECT_OTHER(set) \
    :: else \
    fi
#if LANES > 1
#define SELECT_OTHER(set) \
    :: IS_SET(set[1], 1) -> t = 1; k = 1 \
    :: IS_SET(set[1], 2) -> t = 1; k = 2 \
    :: IS_SET(set[1], 3) -> t = 1; k = 3
#else
#define SELECT_OTHER(set)
#endif

/* What was announced in an incarnation before this one has been pulled. */
#define REACHED(x, k) \
    (consumed_incarnation[x] > matched_in[x] || \
     (consumed_incarnation[x] == matched_in[x] && consumed_number[x] >= (k)))
#define PULLED(x, k) \
    matched[x] = matched[x] & ~BIT(k); \
    DONE(put_message[AT(x, k)])
#define ENTER_SENDER() \
    mine = incarnation; \
    l = 0; \
    do \
    :: l < LANES -> \
        number[l] = 0; k = 1; \
        do \
        :: k <= MOST -> \
            if \
            :: IS_SET(matched[l], k) -> assert(REACHED(l, k)); PULLED(l, k) \
            :: else \
            fi; \
            k++ \
        :: else -> break \
        od; \
        l++ \
    :: else -> break \
    od; \
    l = 0; k = 0

#define CLOSE_SENDER() \
    if \
    :: mine != 0 -> STOP(NUMBERS_OF_SENDER); SETTLE() \
    :: else \
    fi

#ifdef BROKEN_OVERTAKE /* N1 for the same lane only */
#define N1(tag) \
    if \
    :: tag != OTHER -> CLOSE_SENDER() \
    :: else \
    fi
#else
#define N1(tag) \
    if \
    :: tag != OTHER -> CLOSE_SENDER() \
    :: tag == OTHER && UNMATCHED -> STOP(NUMBERS_OF_SENDER); SETTLE() \
    :: else \
    fi
#endif

#ifdef BROKEN_QUIET /* O1 without waiting for the acknowledgement */
#define IS_QUIET(x) true
#else
#define IS_QUIET(x) (last[x] == NONE || acknowledged[last[x]])
#endif

/* S1: a slot that is free. */
#ifdef BROKEN_SLOT
#define IS_FREE(x, k) true
#else
#define IS_FREE(x, k) \
    ((k) <= SLOTS || (consumed_incarnation[x] == mine && \
                      consumed_number[x] >= (k) - SLOTS))
#endif
#if GROWTH
#define MOVE_SENDER() \
    atomic { \
        l = 0; \
        do \
        :: l < LANES -> at[l] = place[l]; used[l] = at[l]; l++ \
        :: else -> break \
        od; \
        l = 0 \
    }
#else
#define MOVE_SENDER()
#endif
#define MAY_SEND(x) (NUM_SET(open_put[x]) + NUM_SET(matched[x]) < ACTIVE)

    do
    :: sent < SENDS ->
        /* MPI_Start on lane q */
        if
        :: MAY_SEND(0) -> q = 0
#if LANES > 1
        :: MAY_SEND(1) -> q = 1
#endif
        :: else -> goto settle_one
        fi;
        LOOK();
        NEW_MESSAGE(q);
        if
        :: mine != 0 && joined[q] == mine && number[q] < MOST &&
           IS_FREE(q, number[q] + 1) -> /* S1 */
            atomic {
                number[q] = number[q] + 1;
                put_message[AT(q, number[q])] = m;
                open_put[q] = open_put[q] | BIT(number[q]);
                if
                :: LONG -> pulls[m] = true
                :: true
                fi;
                slot_number[SLOT(q, number[q])] = number[q];
                slot_incarnation[SLOT(q, number[q])] = mine
            }
        :: else ->
            CLOSE_SENDER();
            NATIVE_SEND(m)
        fi;
        m = 0; q = 0
    :: sent < SENDS -> /* a plain send, on lane 0 or with another tag */
        if
        :: q = 0
        :: q = OTHER
        fi;
        LOOK();
        NEW_MESSAGE(q);
        N1(q);
        NATIVE_SEND(m);
        m = 0; q = 0
    :: mine == 0 && mode == R_READY && sent < SENDS ->
        MOVE_SENDER(); /* G3 */
        /* O1 */
        atomic {
            n = incarnation;
            joined[0] = (IS_QUIET(0) && !IS_NEVER(0) -> n : 0)
#if LANES > 1
            ; joined[1] = (IS_QUIET(1) && !IS_NEVER(1) -> n : 0)
#endif
        }
        atomic {
            if
            :: mode == R_READY && incarnation == n -> mode = OPEN; ENTER_SENDER()
            :: else
            fi;
            n = 0
        }
#if LEAVES && !defined(BROKEN_LEFT)
        if /* barred since it looked */
        :: mine != 0 && left[0] && joined[0] == mine ->
            STOP(NUMBERS_OF_SENDER); SETTLE()
        :: else
        fi
#endif
    :: UNMATCHED -> LOOK(); POLL()
    /* S3 */
#define WHEN_PULLED(x, k) \
    atomic { IS_SET(matched[x], k) && REACHED(x, k) -> PULLED(x, k) }
    :: WHEN_PULLED(0, 1)
    :: WHEN_PULLED(0, 2)
    :: WHEN_PULLED(0, 3)
#if LANES > 1
    :: WHEN_PULLED(1, 1)
    :: WHEN_PULLED(1, 2)
    :: WHEN_PULLED(1, 3)
#endif
    :: UNMATCHED -> /* N4, N6 */
settle_one:
        if
        :: UNMATCHED -> STOP(NUMBERS_OF_SENDER); SETTLE()
        :: else
        fi
    :: sent == SENDS && !UNMATCHED && !UNPULLED -> break
    od;
    LOOK();
    sender_done = true
}

/* ---- the receiver ---- */

active proctype receiver()
{
    byte mine;
    bool alone;             /* the sender has not entered, as far as it knows */
    byte number[LANES];
    byte open_grant[LANES]; /* its numbers that are not complete */
    byte native[LANES];     /* its own native receives, a set */
    byte cancelled;         /* likewise */
#if GROWTH
    byte at[LANES];         /* its slots */
#endif
    byte covered = NONE;    /* the last wildcard */
    byte probes, cancels;
    byte l, i, j, k, c, r, n, t, q, m = NONE;

#if LANES > 1
#define UNGRANTED (open_grant[0] != 0 || open_grant[1] != 0)
#else
#define UNGRANTED (open_grant[0] != 0)
#endif
#define NUMBERS_OF_RECEIVER \
    d_step { \
        final[l] = number[l]; \
        if \
        :: PUT(l) < final[l] -> final[l] = PUT(l) \
        :: else \
        fi \
    }

/* Take number k of lane t, which is matched: R2, S3. */
#define TAKE_ONE(x, k) \
    atomic { assert(IS_PUT(x, k)); conclude(x, k) } \
    atomic { \
        assert(IS_PUT(x, k)); \
        assert(!pulls[put_message[AT(x, k)]] || \
               !reusable[put_message[AT(x, k)]]); \
        consumed_incarnation[x] = mine; consumed_number[x] = k; \
        open_grant[x] = open_grant[x] & ~BIT(k) \
    }

/* And all before it on the lane. */
#ifdef BROKEN_ORDER
#define TAKE(x, k) TAKE_ONE(x, k)
#else
#define TAKE(x, k) \
    j = 1; \
    do \
    :: j < k -> \
        if \
        :: IS_SET(open_grant[x], j) -> TAKE_ONE(x, j) \
        :: else \
        fi; \
        j++ \
    :: else -> break \
    od; \
    j = 0; \
    TAKE_ONE(x, k)
#endif

#define R_SETTLE() \
    t = 0; \
    do \
    :: t < LANES -> \
        k = 1; \
        do \
        :: k <= MOST -> \
            if \
            :: IS_SET(open_grant[t], k) && k <= final[t] -> TAKE_ONE(t, k) \
            :: else \
            fi; \
            k++ \
        :: else -> break \
        od; \
        t++ \
    :: else -> break \
    od; \
    t = 0; k = 0; \
    NATIVELY(true); \
    mine = 0

/* All that are open on such lanes, in their order. */
#define NATIVELY(WHICH) \
    do \
    :: true -> \
        atomic { \
            n = NONE; l = 0; \
            do \
            :: l < LANES -> \
                k = 1; \
                do \
                :: k <= MOST -> \
                    if \
                    :: IS_SET(open_grant[l], k) && WHICH && \
                       granted_receive[AT(l, k)] < n -> \
                        n = granted_receive[AT(l, k)]; t = l; j = k \
                    :: else \
                    fi; \
                    k++ \
                :: else -> break \
                od; \
                l++ \
            :: else -> break \
            od; \
            l = 0; k = 0; \
            if \
            :: n == NONE -> t = 0; j = 0; n = 0; break \
            :: else \
            fi; \
            assert(!served[n]); \
            open_grant[t] = open_grant[t] & ~BIT(j); \
            native[t] = native[t] | BIT(n); \
            t = 0; j = 0; \
            native_post(n); \
            n = 0 \
        } \
    od

/* R0: with mode 0 it is not ready yet. */
#define IS_ALONE (incarnation == mine && (mode == R_READY || mode == 0))

/* The sender has opened the pair, and may have stopped it by now. Lanes that have not
 * joined are none of the incarnation's. */
#define FOLLOW() \
    if \
    :: atomic { alone && !IS_ALONE -> alone = false } \
        MOVE_RECEIVER(); \
        NATIVELY(joined[l] != mine) \
    :: atomic { else } \
    fi

/* R0: what has been granted means nothing in the next incarnation. */
#ifdef BROKEN_ALONE
#define WITHDRAWN mine
#else
#define WITHDRAWN mine + 1
#endif
#define R_STOP() \
    if \
    :: atomic { alone && IS_ALONE -> \
                incarnation = WITHDRAWN; mode = 0; alone = false } \
        NATIVELY(true) \
    :: atomic { else } -> \
        FOLLOW(); STOP(NUMBERS_OF_RECEIVER) \
    fi
#define R_LOOK() \
    FOLLOW(); \
    if \
    :: atomic { mine != 0 && !alone && (incarnation != mine || mode != OPEN) } -> \
        (incarnation != mine); R_SETTLE() \
    :: atomic { else } \
    fi

/* R2: first the mode, then the slot. What else is there is taken too, without
 * another look at the mode, as where several messages are pulled at once. */
#define R_POLL() \
    if \
    :: atomic { mine != 0 && incarnation == mine && \
                mode == (alone -> R_READY : OPEN) } -> \
        do \
        :: atomic { select_set(open_grant); \
                    if \
                    :: k != 0 && IS_PUT(t, k) \
                    :: else -> t = 0; k = 0; break \
                    fi } \
           TAKE(t, k); \
           t = 0; k = 0 \
        :: break \
        od \
    :: atomic { else } \
    fi

/* G3. The incarnation can be over when it looks. */
#if GROWTH
#ifdef BROKEN_PLACE /* uses the newest */
#define NEXT_PLACE place
#else
#define NEXT_PLACE used
#endif
#define MOVE_RECEIVER() \
    atomic { \
        l = 0; \
        do \
        :: l < LANES -> at[l] = NEXT_PLACE[l]; l++ \
        :: else -> break \
        od; \
        l = 0 \
    }
#else
#define MOVE_RECEIVER()
#endif
#if LANES > 1
#define ENTER_RECEIVER() mine = incarnation; number[0] = 0; number[1] = 0
#else
#define ENTER_RECEIVER() mine = incarnation; number[0] = 0
#endif
#define CLOSE_RECEIVER() \
    if \
    :: mine != 0 -> R_STOP(); R_SETTLE() \
    :: else -> \
        if \
        :: atomic { mode == R_READY -> mode = 0 } \
        :: atomic { mode == OPEN -> ENTER_RECEIVER() } \
           MOVE_RECEIVER(); STOP(NUMBERS_OF_RECEIVER); R_SETTLE() \
        :: atomic { mode == STOPPING -> ENTER_RECEIVER() } \
           (incarnation != mine); R_SETTLE() \
        :: atomic { mode == 0 } \
        fi \
    fi

#ifdef BROKEN_COVER /* N2 forgotten */
#define N2()
#else
#define N2() CLOSE_RECEIVER()
#endif

#define SERVED(x, n) (!IS_SET(native[x], n) || served[n])
#if RECEIVES > 2
#define ALL_SERVED(x) (SERVED(x, 0) && SERVED(x, 1) && SERVED(x, 2))
#else
#define ALL_SERVED(x) (SERVED(x, 0) && SERVED(x, 1))
#endif
/* O2: none of its native receives on a lane is incomplete. */
#ifdef BROKEN_POSTED
#define IS_CLEAR(x) true
#else
#define IS_CLEAR(x) (IS_NEVER(x) || (!barred[x] && ALL_SERVED(x)))
#endif
#if LANES > 1
#define ALL_CLEAR (IS_CLEAR(0) && IS_CLEAR(1))
#else
#define ALL_CLEAR IS_CLEAR(0)
#endif
/* N3: a receive of the lane that was posted after the wildcard is matched, so
 * the wildcard is. */
#ifdef BROKEN_BAR
#define IS_LATER(n) true
#else
#define IS_LATER(n) ((n) > covered)
#endif
#define SHOWS(x, n) (IS_SET(native[x], n) && served[n] && \
                     !IS_SET(cancelled, n) && IS_LATER(n))
#if RECEIVES > 2
#define IS_SHOWN(x) (SHOWS(x, 0) || SHOWS(x, 1) || SHOWS(x, 2))
#else
#define IS_SHOWN(x) (SHOWS(x, 0) || SHOWS(x, 1))
#endif
#define MAY_RECEIVE(x) (NUM_SET(open_grant[x]) < ACTIVE && \
                        (ACTIVE > 1 || ALL_SERVED(x)))

    do
    :: posted < RECEIVES ->
        /* MPI_Start on lane q */
        if
        :: MAY_RECEIVE(0) -> q = 0
#if LANES > 1
        :: MAY_RECEIVE(1) -> q = 1
#endif
        :: else -> goto poll
        fi;
        R_LOOK();
        atomic { r = posted; covers[r] = q; posted++ }
        if
        :: mine == 0 && mode == OPEN ->
            atomic {
                if
                :: mode == OPEN -> ENTER_RECEIVER()
                :: else
                fi
            }
            MOVE_RECEIVER()
        :: mine == 0 && mode == R_READY -> /* R0 */
            atomic {
                if
                :: mode == R_READY -> ENTER_RECEIVER(); alone = true
                :: else
                fi
            }
        :: mine == 0 && mode == 0 -> /* R0, before it is ready */
            atomic { ENTER_RECEIVER(); alone = true }
        :: mine == 0 && (mode == R_READY || mode == 0)
        :: else
        fi;
        if
        :: mine != 0 && (alone -> !IS_NEVER(q) : joined[q] == mine) &&
           number[q] < MOST -> /* R1 */
            atomic {
                number[q] = number[q] + 1;
                granted_receive[AT(q, number[q])] = r;
                open_grant[q] = open_grant[q] | BIT(number[q]);
                granted_number[q] = number[q];
                granted_incarnation[q] = mine
            }
        :: else ->
            if
            :: IS_NEVER(q) && (mine == 0 || alone || joined[q] != mine)
            :: else -> CLOSE_RECEIVER()
            fi;
            atomic { native[q] = native[q] | BIT(r); native_post(r) }
        fi;
        r = 0; q = 0
#if LEAVES
    :: posted < RECEIVES && MAY_RECEIVE(0) -> /* one that is always native */
        R_LOOK();
        atomic { r = posted; covers[r] = 0; posted++ }
        if
        :: !left[0] -> left[0] = true; CLOSE_RECEIVER() /* N7 */
        :: else
        fi;
        atomic { native[0] = native[0] | BIT(r); native_post(r); r = 0 }
#endif
    :: WILDCARDS && posted < RECEIVES && !barred[0] -> /* a nonblocking one */
        R_LOOK();
        N2();
        atomic {
            barred[0] = true; /* N3 */
#if LANES > 1
            barred[1] = true;
#endif
            r = posted; covers[r] = ANY; posted++; covered = r;
            native_post(r); r = 0
        }
    :: barred[0] && IS_SHOWN(0) -> barred[0] = false
#if LANES > 1
    :: barred[1] && IS_SHOWN(1) -> barred[1] = false
#endif
    :: probes < PROBES -> /* MPI_Iprobe with MPI_ANY_TAG */
        probes++;
        R_LOOK();
        N2();
        d_step {
            if
            :: num_early > 0 ->
                m = early[0];
                i = 0;
                do
                :: i < m -> assert(taken[i]); i++
                :: else -> break
                od;
                i = 0; m = NONE
            :: else
            fi
        }
    :: cancels < CANCELS && open_grant[0] != 0 -> /* N5 */
        cancels++;
        R_STOP(); R_SETTLE();
        d_step {
            k = 0;
            do
            :: k < num_waiting && !IS_SET(native[0], waiting[k]) -> k++
            :: else -> break
            od;
            if
            :: k < num_waiting ->
                served[waiting[k]] = true;
                cancelled = cancelled | BIT(waiting[k]);
                REMOVE(waiting, k)
            :: else
            fi;
            k = 0
        }
    :: mine == 0 && (mode & (R_READY | STOPPING)) == 0 && ALL_CLEAR &&
       posted < RECEIVES -> /* O2 */
        atomic {
            if
            :: (mode & (R_READY | STOPPING)) == 0 -> mode = mode | R_READY
            :: else
            fi
        }
    :: atomic { alone && incarnation == mine && mode == 0 && ALL_CLEAR ->
                mode = R_READY } /* O2, R0 */
#if GROWTH
    :: place[0] == 0 -> place[0] = 1 /* G1 */
#endif
    :: UNGRANTED ->
poll:
        R_LOOK(); R_POLL()
    :: UNGRANTED -> R_STOP(); R_SETTLE() /* N4 */
    :: posted == RECEIVES && !UNGRANTED -> break
    od;
    R_LOOK();
    receiver_done = true
}

/* ---- the end: nothing is left that fits together ---- */

active proctype judge()
{
    byte r, m;

    (sender_done && receiver_done && empty(wire) && timeout);
    d_step {
        do
        :: r < posted ->
            m = 0;
            do
            :: m < sent ->
                assert(served[r] || taken[m] ||
                       (covers[r] != ANY && covers[r] != tag_of[m]));
                m++
            :: else -> break
            od;
            r++
        :: else -> break
        od
    }
}
