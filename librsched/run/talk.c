/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/run/talk.h"

#include <stdio.h>
#include <string.h>

#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"

/* Between two looks whether peers are dead or too late; whether they wait for us
 * while they connect. */
#define LOOK_PS (10 * UINT64_C(1000000000))
#define COLLECT_PS UINT64_C(1000000000)

void rs_creation_failed(struct rs_creation *c, int error)
{
    if (c->status != 0)
        return;
    c->status = error;
    snprintf(c->reason, sizeof(c->reason), "%s", rsched_last_error());
}

void rs_talk_failed(struct rs_creation *c, struct rs_talk *t, int error)
{
    if (t->status == 0) {
        t->status = error;
        snprintf(t->reason, sizeof(t->reason), "%s", rsched_last_error());
    }
    rs_creation_failed(c, error);
}

void rs_talk_peer_failed(struct rs_creation *c, struct rs_talk *t,
                         int32_t status, char *reason)
{
    reason[RS_TALK_REASON_BYTES - 1] = '\0';
    rs_talk_failed(c, t,
                   rs_fail(status < 0 ? status : RSCHED_EMISMATCH,
                           "process %d says: %s", t->process, reason));
}

int32_t rs_talk_status(const struct rs_creation *c, const struct rs_talk *t,
                       char *reason)
{
    memcpy(reason, t->status != 0 ? t->reason : c->reason,
           RS_TALK_REASON_BYTES);
    return t->status != 0 ? t->status : c->status;
}

void rs_talk_end(struct rs_creation *c, struct rs_talk *t, int error)
{
    const struct rsched_oob *oob = &c->context->params.oob;

    rs_talk_failed(c, t, error);
    t->over = true;
    pthread_mutex_lock(&c->context->oob_lock);
    for (int r = 0; r < 2; r++) {
        if (!t->done[r])
            oob->cancel(oob->arg, t->requests[r]);
        t->done[r] = true;
    }
    pthread_mutex_unlock(&c->context->oob_lock);
}

/* The host's callbacks have no text of ours. */
static int oob_failed(const struct rs_talk *t, int error)
{
    return rs_fail(error, "process %d: the out-of-band transport failed: %s",
                   t->process, rsched_strerror(error));
}

static void post(struct rs_creation *c, struct rs_talk *t,
                 rs_talk_round_fn *messages)
{
    const struct rsched_oob *oob = &c->context->params.oob;
    struct rs_talk_message out = {0}, in = {0};
    int error = 0;

    messages(t, &out, &in);
    pthread_mutex_lock(&c->context->oob_lock);
    if (in.bytes > 0) {
        error = oob->irecv(oob->arg, t->process, c->x->tag, in.buffer, in.bytes,
                           &t->requests[0]);
        t->done[0] = error != 0;
    }
    if (out.bytes > 0 && error == 0) {
        error = oob->isend(oob->arg, t->process, c->x->tag, out.buffer,
                           out.bytes, &t->requests[1]);
        t->done[1] = error != 0;
    }
    pthread_mutex_unlock(&c->context->oob_lock);
    if (error != 0)
        rs_talk_end(c, t, oob_failed(t, error));
}

static bool is_done(const struct rs_talk *t)
{
    return t->done[0] && t->done[1];
}

static void test(struct rs_creation *c, struct rs_talk *t)
{
    const struct rsched_oob *oob = &c->context->params.oob;
    int error = 0;

    for (int r = 0; r < 2 && error == 0; r++) {
        if (t->done[r])
            continue;
        pthread_mutex_lock(&c->context->oob_lock);
        error = oob->test(oob->arg, t->requests[r], &t->done[r]);
        pthread_mutex_unlock(&c->context->oob_lock);
    }
    if (error != 0)
        rs_talk_end(c, t, oob_failed(t, error));
}

/* @return whether a request is left */
static bool test_all(struct rs_creation *c)
{
    bool left = false;

    for (uint32_t i = 0; i < c->num_talks; i++) {
        if (!is_done(&c->talks[i]))
            test(c, &c->talks[i]);
        left = left || !is_done(&c->talks[i]);
    }
    return left;
}

/* Give up those that are dead. */
static void look_at_peers(struct rs_creation *c)
{
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];
        const struct rs_peer *peer = t->peers[RS_USE_HOST];
        struct rs_error_text kept;
        int error;

        if (is_done(t) || peer == NULL)
            continue;
        error = rs_context_check(c->context, peer);
        if (error == 0)
            continue;
        /* It may have said all that it had to before it died. */
        rs_error_save(&kept);
        test(c, t);
        if (is_done(t))
            continue;
        rs_error_restore(&kept);
        rs_talk_end(c, t, error);
    }
}

/* Give up those that have not answered in time.
 * @param dead whether those whose instance that was met last is dead, or the others */
static void give_up_late(struct rs_creation *c, const char *round, bool dead)
{
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];

        if (is_done(t) || rs_context_knows_dead(c->context, t->process) != dead)
            continue;
        rs_talk_end(c, t,
                    rs_fail(RSCHED_ETIMEOUT,
                            "process %d did not answer (%s) within "
                            "RSCHED_SETUP_TIMEOUT%s",
                            t->process, round,
                            dead ? "; the one that had this number is dead" : ""));
    }
}

/* A neighbor that has come may wait for one that does not, and says so when it has given
 * that one up: in the round before, which it had begun when this one begins, and in which
 * it has less time. So all hear who it was. */
static uint64_t choose_deadline(struct rs_creation *c)
{
    uint64_t timeout_ps = rs_config()->setup_timeout_ps;
    uint64_t more_ps = timeout_ps < RS_PS_PER_S ? timeout_ps : RS_PS_PER_S;
    uint64_t at_ps = timeout_ps == 0 ? UINT64_MAX : rs_clock_after(timeout_ps);

    more_ps *= c->num_rounds++;
    return at_ps < UINT64_MAX - more_ps ? at_ps + more_ps : UINT64_MAX;
}

void rs_talk_round(struct rs_creation *c, const char *name,
                   rs_talk_round_fn *messages)
{
    struct rsched_pause pause = {0};
    uint64_t next_collect_ps = rs_clock_now() + COLLECT_PS;
    uint64_t next_look_ps = next_collect_ps - COLLECT_PS + LOOK_PS;
    uint64_t deadline_ps = choose_deadline(c);

    for (uint32_t i = 0; i < c->num_talks; i++) {
        c->talks[i].done[0] = c->talks[i].done[1] = true;
        if (!c->talks[i].over)
            post(c, &c->talks[i], messages);
    }
    while (test_all(c)) {
        uint64_t now_ps = rs_clock_now();

        if (now_ps > next_collect_ps) {
            rs_context_collect(c->context);
            next_collect_ps = now_ps + COLLECT_PS;
        }
        if (now_ps > next_look_ps) {
            look_at_peers(c);
            next_look_ps = now_ps + LOOK_PS;
        }
        /* They may have said it by now. */
        if (now_ps > deadline_ps && test_all(c)) {
            give_up_late(c, name, true); /* the first text is told */
            give_up_late(c, name, false);
        }
        rsched_context_pause(c->context, &pause);
    }
}

struct rs_talk *rs_creation_talk(struct rs_creation *c, int process)
{
    if (process == c->context->params.process)
        return &c->self;
    for (uint32_t i = 0; i < c->num_talks; i++) {
        if (c->talks[i].process == process)
            return &c->talks[i];
    }
    return NULL;
}
