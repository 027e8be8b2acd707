/* SPDX-License-Identifier: BSD-3-Clause */
/* docs/persistent.md for a model checker: one pair of processes with two
 * lanes, and beside them plain sends, a wildcard, a probe and a cancel, in all
 * orders. The rules' names are those of the document.
 *
 * Checked: a receive takes the first message that it can take, a message goes
 * to the first receive that can take it, both sides agree on what is matched,
 * and in the end nothing is left that fits together.
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

#define LANES 2     /* tags 0 and 1; tag 2 is no lane */
#define OTHER 2
#define ANY 3
#define NONE 15

/* ---- what really happened: for the assertions, nobody else reads it ---- */

byte sent;                  /* messages, numbered in the order of the calls */
byte tag_of[SENDS];
bool taken[SENDS];
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

#define S_READY 1
#define R_READY 2
#define OPEN 3
#define STOPPING 4

byte incarnation = 1;
byte mode;                  /* bits; together with `incarnation` one word */
byte put_incarnation[LANES], put_number[LANES];
byte put_message[LANES * 4]; /* the slots */
byte granted_incarnation[LANES], granted_number[LANES];
byte granted_receive[LANES * 4]; /* ghost: which receive has the number */
byte joined[LANES];
byte final[LANES];
bool barred[LANES];
bool sender_done, receiver_done;

#define NUMBER_OF(word, l) \
    (word##_incarnation[l] == mine -> word##_number[l] : 0)

/* T1, the part after the swap. */
inline decide()
{
    l = 0;
    do
    :: l < LANES ->
        d_step {
#ifdef BROKEN_FINAL /* takes every put for matched */
            final[l] = NUMBER_OF(put, l)
#else
            final[l] = (NUMBER_OF(put, l) < NUMBER_OF(granted, l) ->
                        NUMBER_OF(put, l) : NUMBER_OF(granted, l))
#endif
        };
        l++
    :: else -> break
    od;
    l = 0;
    atomic { incarnation = mine + 1; mode = 0 }
}

/* T1 or T3: afterwards `final` is set. */
inline stop()
{
    if
    :: atomic { incarnation == mine && mode == OPEN -> mode = STOPPING }
       decide()
    :: atomic { else }
       /* T3 */
       (incarnation != mine)
    fi
}

/* The match of number n of lane l, at the first side that concludes it. */
inline conclude(n)
{
    atomic {
        if
        :: !taken[put_message[l * 4 + n]] ->
            assert(granted_number[l] >= n && put_number[l] >= n);
            matches(granted_receive[l * 4 + n], put_message[l * 4 + n])
        :: else
        fi
    }
}

/* ---- the sender ---- */

active proctype sender()
{
    byte mine;              /* the incarnation it is in, 0: none */
    byte number[LANES];
    byte open_put[LANES];   /* its number if not complete, else 0 */
    byte first = NONE;      /* message of the earliest such put, for T2 */
    byte last[LANES];       /* native message after which nothing was sent */
    byte l, i, m, t, n;
    bool quiet;

    last[0] = NONE; last[1] = NONE;

#define UNMATCHED (open_put[0] != 0 || open_put[1] != 0)
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

/* T2 and T3: after a stop, by whomever. Messages leave in their order. */
#define SETTLE() \
    l = 0; \
    do \
    :: l < LANES -> \
        if \
        :: open_put[l] != 0 && open_put[l] <= final[l] -> \
            conclude(open_put[l]); open_put[l] = 0 \
        :: else \
        fi; \
        l++ \
    :: else -> break \
    od; \
    l = 0; \
    do \
    :: UNMATCHED -> \
        atomic { \
            if \
            :: open_put[1] == 0 || (open_put[0] != 0 && \
               put_message[open_put[0]] < put_message[4 + open_put[1]]) -> \
                l = 0 \
            :: else -> l = 1 \
            fi; \
            n = put_message[l * 4 + open_put[l]]; \
            assert(!taken[n]); \
            open_put[l] = 0 \
        } \
        NATIVE_SEND(n); \
        l = 0; n = 0 \
    :: else -> break \
    od; \
    mine = 0

#define LOOK() \
    if \
    :: atomic { mine != 0 && (incarnation != mine || mode != OPEN) } -> \
        (incarnation != mine); SETTLE() \
    :: atomic { else } \
    fi

#define POLL(x) \
    if \
    :: mine != 0 && open_put[x] != 0 && \
       NUMBER_OF(granted, x) >= open_put[x] -> \
        if \
        :: atomic { incarnation == mine && mode == OPEN -> \
                    l = x; conclude(open_put[x]); l = 0; open_put[x] = 0 } \
        :: atomic { else } -> (incarnation != mine); SETTLE() \
        fi \
    :: else \
    fi

/* O3: take the bit back, or stop. */
#define CLOSE_SENDER() \
    if \
    :: mine != 0 -> stop(); SETTLE() \
    :: else -> \
        if \
        :: atomic { mode == S_READY -> mode = 0 } \
        :: atomic { mode == OPEN -> mine = incarnation } \
           stop(); SETTLE() \
        :: atomic { mode == STOPPING -> mine = incarnation } \
           (incarnation != mine); SETTLE() \
        :: atomic { mode == 0 || mode == R_READY } \
        fi \
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
    :: tag == OTHER && UNMATCHED -> stop(); SETTLE() \
    :: else \
    fi
#endif

#ifdef BROKEN_QUIET /* O1 without waiting for the acknowledgement */
#define IS_QUIET(x) true
#else
#define IS_QUIET(x) (last[x] == NONE || acknowledged[last[x]])
#endif

    do
    :: sent < SENDS ->
        /* MPI_Start on lane t */
        if
        :: open_put[0] == 0 -> t = 0
        :: open_put[1] == 0 -> t = 1
        :: else -> goto settle_one
        fi;
        LOOK();
        NEW_MESSAGE(t);
        if
        :: mine == 0 && mode == OPEN -> /* S1: it has become open */
            atomic {
                if
                :: mode == OPEN -> mine = incarnation; number[0] = 0; number[1] = 0
                :: else
                fi
            }
        :: else
        fi;
        if
        :: mine != 0 && joined[t] == mine && number[t] < 3 -> /* S1 */
            d_step {
                number[t] = number[t] + 1;
                put_message[t * 4 + number[t]] = m;
                open_put[t] = number[t]
            }
            atomic { put_number[t] = number[t]; put_incarnation[t] = mine }
        :: else ->
            CLOSE_SENDER();
            NATIVE_SEND(m)
        fi;
        m = 0; t = 0
    :: sent < SENDS -> /* a plain send, on lane 0 or with another tag */
        if
        :: t = 0
        :: t = OTHER
        fi;
        LOOK();
        NEW_MESSAGE(t);
        N1(t);
        NATIVE_SEND(m);
        m = 0; t = 0
    :: mine == 0 && (mode & (S_READY | STOPPING)) == 0 && sent < SENDS ->
        /* O1 */
        atomic {
            joined[0] = (IS_QUIET(0) -> incarnation : 0);
            joined[1] = (IS_QUIET(1) -> incarnation : 0)
        }
        atomic {
            if
            :: (mode & (S_READY | STOPPING)) == 0 -> mode = mode | S_READY
            :: else
            fi
        }
    :: UNMATCHED -> LOOK(); POLL(0); POLL(1)
    :: UNMATCHED -> /* N4, N6 */
settle_one:
        if
        :: UNMATCHED -> stop(); SETTLE()
        :: else
        fi
    :: sent == SENDS && !UNMATCHED -> break
    od;
    LOOK();
    sender_done = true
}

/* ---- the receiver ---- */

active proctype receiver()
{
    byte mine;
    byte number[LANES];
    byte open_grant[LANES]; /* its number if not complete, else 0 */
    byte native[LANES];     /* its own native receives, by number + 1 */
    byte probes, cancels;
    byte l, i, k, r, n, t, m = NONE;

#define UNGRANTED (open_grant[0] != 0 || open_grant[1] != 0)

#define R_SETTLE() \
    l = 0; \
    do \
    :: l < LANES -> \
        if \
        :: open_grant[l] != 0 && open_grant[l] <= final[l] -> \
            conclude(open_grant[l]); open_grant[l] = 0 \
        :: else \
        fi; \
        l++ \
    :: else -> break \
    od; \
    l = 0; \
    do \
    :: UNGRANTED -> \
        atomic { \
            if \
            :: open_grant[1] == 0 || (open_grant[0] != 0 && \
               granted_receive[open_grant[0]] < \
               granted_receive[4 + open_grant[1]]) -> l = 0 \
            :: else -> l = 1 \
            fi; \
            n = granted_receive[l * 4 + open_grant[l]]; \
            assert(!served[n]); \
            open_grant[l] = 0; \
            native[l] = n + 1; \
            native_post(n); \
            l = 0; n = 0 \
        } \
    :: else -> break \
    od; \
    mine = 0

#define R_LOOK() \
    if \
    :: atomic { mine != 0 && (incarnation != mine || mode != OPEN) } -> \
        (incarnation != mine); R_SETTLE() \
    :: atomic { else } \
    fi

#define R_POLL(x) \
    if \
    :: mine != 0 && open_grant[x] != 0 && \
       NUMBER_OF(put, x) >= open_grant[x] -> \
        if \
        :: atomic { incarnation == mine && mode == OPEN -> \
                    l = x; conclude(open_grant[x]); l = 0; \
                    open_grant[x] = 0 } \
        :: atomic { else } -> (incarnation != mine); R_SETTLE() \
        fi \
    :: else \
    fi

#define CLOSE_RECEIVER() \
    if \
    :: mine != 0 -> stop(); R_SETTLE() \
    :: else -> \
        if \
        :: atomic { mode == R_READY -> mode = 0 } \
        :: atomic { mode == OPEN -> mine = incarnation } \
           stop(); R_SETTLE() \
        :: atomic { mode == STOPPING -> mine = incarnation } \
           (incarnation != mine); R_SETTLE() \
        :: atomic { mode == 0 || mode == S_READY } \
        fi \
    fi

#ifdef BROKEN_COVER /* N2 forgotten */
#define N2()
#else
#define N2() CLOSE_RECEIVER()
#endif

/* O2: none of its native receives on a lane is incomplete. */
#ifdef BROKEN_POSTED
#define IS_CLEAR(x) true
#else
#define IS_CLEAR(x) (!barred[x] && (native[x] == 0 || served[native[x] - 1]))
#endif

    do
    :: posted < RECEIVES ->
        /* MPI_Start on lane t */
        if
        :: open_grant[0] == 0 && (native[0] == 0 || served[native[0] - 1]) ->
            t = 0
        :: open_grant[1] == 0 && (native[1] == 0 || served[native[1] - 1]) ->
            t = 1
        :: else -> goto poll
        fi;
        R_LOOK();
        atomic { r = posted; covers[r] = t; posted++ }
        if
        :: mine == 0 && mode == OPEN ->
            atomic {
                if
                :: mode == OPEN -> mine = incarnation; number[0] = 0; number[1] = 0
                :: else
                fi
            }
        :: else
        fi;
        if
        :: mine != 0 && joined[t] == mine && number[t] < 3 -> /* R1 */
            d_step {
                number[t] = number[t] + 1;
                granted_receive[t * 4 + number[t]] = r;
                open_grant[t] = number[t]
            }
            atomic { granted_number[t] = number[t]; granted_incarnation[t] = mine }
        :: else ->
            CLOSE_RECEIVER();
            atomic { native[t] = r + 1; native_post(r) }
        fi;
        r = 0; t = 0
    :: posted < RECEIVES && !barred[0] -> /* a nonblocking wildcard */
        R_LOOK();
        N2();
        atomic {
            barred[0] = true; barred[1] = true; /* N3 */
            r = posted; covers[r] = ANY; posted++;
            native_post(r); r = 0
        }
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
        stop(); R_SETTLE();
        d_step {
            k = 0;
            do
            :: k < num_waiting && waiting[k] != native[0] - 1 -> k++
            :: else -> break
            od;
            if
            :: native[0] != 0 && k < num_waiting ->
                served[native[0] - 1] = true;
                REMOVE(waiting, k)
            :: else
            fi;
            k = 0
        }
    :: mine == 0 && (mode & (R_READY | STOPPING)) == 0 &&
       IS_CLEAR(0) && IS_CLEAR(1) && posted < RECEIVES -> /* O2 */
        atomic {
            if
            :: (mode & (R_READY | STOPPING)) == 0 -> mode = mode | R_READY
            :: else
            fi
        }
    :: UNGRANTED ->
poll:
        R_LOOK(); R_POLL(0); R_POLL(1)
    :: UNGRANTED -> stop(); R_SETTLE() /* N4 */
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
