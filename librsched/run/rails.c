/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The round `rails` of an agreement (see agree.c). A rail may work at one end of a
 * connection only, which nobody knows before both have accepted it; puts have been
 * dealt to rails by then. Both deal those of rails that are left out to the others, from
 * what they have told each other of the puts in the round `sizes`, so nothing more is said
 * of it; the hash over the table has it.
 *
 * Whether two processes have this round follows from what both have said in the
 * round before. What an end says of a connection never changes, so it does no harm
 * that one of the two has heard it before, or that two creations agree at a time.
 */
#include "librsched/base/failpoint.h"
#include "librsched/run/talk.h"

uint32_t rs_talk_undecided(const struct rs_talk *t)
{
    uint32_t uses = 0;

    for (int use = 0; use < RS_NUM_USES; use++) {
        const struct rs_peer *peer = t->peers[use];

        if (peer != NULL && peer->ops->rails_agree != NULL && !peer->rails_agreed)
            uses |= 1u << use;
    }
    return uses;
}

static bool takes_part(const struct rs_talk *t)
{
    const struct rs_sizes *out = t->sizes_out, *in = t->sizes_in;

    return !t->over && out != NULL && in != NULL && out->status == 0 &&
           in->status == 0 && (out->undecided | in->undecided) != 0;
}

static void fill_rails(struct rs_creation *c, struct rs_talk *t)
{
    struct rs_rails *r = &t->rails_out;

    r->status = rs_talk_status(c, t, r->reason);
    if (t->status != 0)
        return;
    pthread_mutex_lock(&c->context->lock);
    for (int use = 0; use < RS_NUM_USES; use++) {
        const struct rs_peer *peer = t->peers[use];

        if (peer != NULL && peer->ops->rails_connected != NULL)
            r->connected[use] = peer->ops->rails_connected(peer->connection);
    }
    pthread_mutex_unlock(&c->context->lock);
}

static void rails_messages(struct rs_talk *t, struct rs_talk_message *out,
                           struct rs_talk_message *in)
{
    if (!takes_part(t))
        return;
    *out = (struct rs_talk_message){&t->rails_out, sizeof(t->rails_out)};
    *in = (struct rs_talk_message){&t->rails_in, sizeof(t->rails_in)};
}

static int agree_with(struct rs_peer *peer, uint32_t theirs)
{
    int error = peer->ops->rails_agree(peer->connection, theirs);

    peer->rails_agreed = error == 0;
    if (error != 0 && peer->ops->reconnects)
        atomic_store(&peer->dead, true);
    return error;
}

static int agree(struct rs_creation *c, struct rs_talk *t)
{
    int error = 0;

    pthread_mutex_lock(&c->context->lock);
    for (int use = 0; use < RS_NUM_USES && error == 0; use++) {
        struct rs_peer *peer = t->peers[use];

        if (peer != NULL && peer->ops->rails_agree != NULL)
            error = agree_with(peer, t->rails_in.connected[use]);
    }
    pthread_mutex_unlock(&c->context->lock);
    return error;
}

static bool has(uint32_t rails, uint32_t rail)
{
    return (rails >> rail & 1) != 0;
}

/* What a put takes of a rail; one of no bytes, as far as is known yet, something, too. */
static uint64_t share_of(const struct rs_size *put)
{
    return put->bytes + 1;
}

/* Each put of a rail that is left out goes over the one with the least to carry by then.
 * Of several it is the first from `turn` on. */
static void deal_again(struct rs_size *puts, uint32_t num_puts, int use,
                       uint32_t num_rails, uint32_t used, uint32_t turn)
{
    uint64_t load[RSCHED_MAX_RAILS] = {0};

    for (uint32_t i = 0; i < num_puts; i++) {
        if (has(used, puts[i].rail[use]))
            load[puts[i].rail[use]] += share_of(&puts[i]);
    }
    for (uint32_t i = 0; i < num_puts; i++) {
        uint32_t least = RSCHED_MAX_RAILS;

        if (has(used, puts[i].rail[use]))
            continue;
        for (uint32_t k = 0; k < num_rails; k++) {
            uint32_t rail = (turn + k) % num_rails;

            if (has(used, rail) && (least == RSCHED_MAX_RAILS || load[rail] < load[least]))
                least = rail;
        }
        puts[i].rail[use] = (uint8_t)least;
        load[least] += share_of(&puts[i]);
    }
}

static void deal_both_ways(const struct rs_creation *c, struct rs_talk *t, int use)
{
    const struct rs_peer *peer = t->peers[use];
    uint32_t rails = rs_peer_rails(peer);
    uint32_t used = peer->ops->rails_used(peer->connection) & ((1u << rails) - 1);
    /* Those who have one put for each neighbor spread them, too. */
    uint32_t turn = (uint32_t)(t->process + c->context->params.process);

    if (used == (1u << rails) - 1)
        return;
    deal_again(t->sizes_out->of, t->num_puts, use, rails, used, turn);
    deal_again(t->sizes_in->of, t->num_receives, use, rails, used, turn);
}

static void deal_all(struct rs_creation *c)
{
    pthread_mutex_lock(&c->context->lock);
    for (uint32_t i = 0; c->status == 0 && i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];

        for (int use = 0; use < RS_NUM_USES; use++) {
            if (t->peers[use] != NULL && t->peers[use]->ops->rails_used != NULL)
                deal_both_ways(c, t, use);
        }
    }
    pthread_mutex_unlock(&c->context->lock);
}

void rs_creation_agree_on_rails(struct rs_creation *c)
{
    for (uint32_t i = 0; i < c->num_talks; i++)
        fill_rails(c, &c->talks[i]);
    RS_FAILPOINT("create:rails");
    rs_talk_round(c, "rails", rails_messages);
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];

        if (!takes_part(t))
            continue;
        if (t->rails_in.status != 0) {
            rs_talk_peer_failed(c, t, t->rails_in.status, t->rails_in.reason);
        } else if (t->status == 0) {
            int wrong = agree(c, t);

            if (wrong != 0)
                rs_talk_failed(c, t, wrong);
        }
    }
    deal_all(c);
}
