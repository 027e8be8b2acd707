/* SPDX-License-Identifier: BSD-3-Clause */
/* What a sender loses by waiting where natively it would not (T4 of docs/persistent.md). */
#include "mpi/message.h"

enum {
    LOSS = 64,          /* of so much time, one part may be lost, */
    LOSS_NS = 5000000,  /* and so much at once */
    LITTLE_NS = 2000,   /* is no loss, */
    MOST_NS = 10000000, /* and patience is shorter than that */
    GAP_NS = 50000,     /* between polls; in longer ones the program computes */
    EXCUSES = 256,      /* waits that a receive is on its way for */
};

uint64_t rs_num_awaited;

/* As far as this process knows. One that stays so for long is not waited for. */
static bool is_pending(const struct rs_message *message)
{
    if (message->excuses > EXCUSES &&
        message->excused == message->puts + message->natives)
        return false;
    return message->request->state == RS_GRANTED
               ? rs_lane_is_put(message->slots, message->number) == NULL
               : message->request->state == RS_NATIVE && !rs_lane_is_barred(message->lane);
}

static struct rs_message *find_pending_in(struct rs_message *list)
{
    struct rs_message *m = list;

    while (m != NULL && !is_pending(m))
        m = m->next;
    return m;
}

static struct rs_message *find_pending(void)
{
    struct rs_message *found = NULL;

    for (const struct rs_pair *p = rs_pairs_first(); p != NULL && found == NULL;
         p = p->next_all) {
        if (p->view.sends)
            continue;
        found = find_pending_in(p->messages);
        if (found == NULL)
            found = find_pending_in(p->unattached);
    }
    return found;
}

bool rs_incarnation_is_receiving(void)
{
    return find_pending() != NULL;
}

/* Who has no core of his own gives it to those that he waits for, and who waits for a receive
 * anyway loses nothing. */
static bool has_excuse(void)
{
    struct rs_message *message;
    uint64_t starts;

    if (rs_is_crowded())
        return true;
    message = find_pending();
    if (message == NULL)
        return false;
    starts = message->puts + message->natives;
    if (message->excused != starts)
        message->excuses = 0;
    message->excused = starts;
    message->excuses++;
    return true;
}

/* T4. The wait before this one, if none for a receive came after it, which would have been longer
 * without. */
static void count_loss(struct rs_pair *pair, uint64_t now)
{
    const uint64_t most = (uint64_t)LOSS * LOSS_NS;
    uint64_t ns = pair->loss < MOST_NS ? pair->loss : MOST_NS;

    pair->loss = 0;
    if (ns < LITTLE_NS || pair->awaited != rs_num_awaited)
        return;
    if (pair->rests_until + most < now) /* a clock may have begun just now */
        pair->rests_until = now - most;
    pair->rests_until += LOSS * ns;
    if (pair->rests_until <= now)
        return;
    pair->lost = true;
    if (pair->view.open != 0)
        rs_incarnation_stop(pair);
}

/* Messages may be waited for at the same time: there is one clock for all of the pair. */
void rs_incarnation_lose(struct rs_pair *pair, bool begins)
{
    uint64_t now = rs_now_ns(), ns = now - pair->looked;

    if (begins) {
        count_loss(pair, now);
        pair->loses = !has_excuse();
    } else if (pair->loses && (rs_has_rested || ns < GAP_NS)) {
        pair->loss += ns;
    }
    pair->looked = now;
    pair->awaited = rs_num_awaited;
    rs_has_rested = false;
}
