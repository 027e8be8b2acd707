/* SPDX-License-Identifier: BSD-3-Clause */
/* SIDES: both sides of one pair in this process, over mpi/incarnation.c, mpi/covers.c, mpi/attempts.c,
 * mpi/losses.c and mpi/lane.c alone. No messages are sent. */
#ifndef TESTS_MPI_SIDES_H
#define TESTS_MPI_SIDES_H

#include "mpi/message.h"
#include "mpi/native.h"
#include "tests/model/check.h"

enum { BARRED, OTHER, LANES, MOST = 4096 };

struct side {
    struct rs_pair pair;
    struct rs_lane lanes[LANES], *attached[LANES];
    const struct rs_slots *slots[LANES];
};

extern struct side sender, receiver;
extern struct rs_pair_words *words; /* that both share */

extern bool is_crowded;              /* processes outnumber cores */
extern struct rs_pair *sides_others; /* this process has besides */

/* The clock has begun at clock_start of the real one. A look at it is counted, and
 * calls at_clock. */
extern uint64_t clock_start;
extern unsigned looks_at_clock;
extern void (*at_clock)(void);
uint64_t __real_rs_now_ns(void);

/* Called once when the sender, which has chosen the lanes, is to open the pair. */
extern void (*meanwhile)(void);
bool __real_rs_pair_open(struct rs_pair_view *pair, const struct rs_lane_set *joined);

/** Whether these have joined, and no others. */
bool sides_joined(const struct side *side, bool barred, bool other);
/** Both sides anew: connected, all lanes attached, nothing open. */
void sides_begin(void);
/** As when a nonblocking receive is to be posted on BARRED. */
void sides_bar(void);
/** Until both are in an incarnation. @return false: they have given up */
bool sides_open(void);
/** Until they are, of OTHER alone. */
void sides_expect_only_other(void);

#endif
