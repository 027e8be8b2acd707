/* SPDX-License-Identifier: BSD-3-Clause */
/* The first rounds of an agreement (see agree.c): who the peers are, and which
 * engine joins this process with each. */
#include <unistd.h>

#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"
#include "librsched/base/log.h"
#include "librsched/run/talk.h"

/* ---- hello ---- */

static void fill_hello(struct rs_creation *c, struct rs_talk *t)
{
    struct rsched_context *context = c->context;
    struct rs_hello *h = &t->hello_out;

    *h = (struct rs_hello){
        .magic = RS_TALK_MAGIC,
        .byte_order = RS_TALK_BYTE_ORDER,
        .version = RS_TALK_VERSION,
        .page_bytes = (uint32_t)sysconf(_SC_PAGESIZE),
        .flags = c->x->flags,
        .settings = rs_config_agreement_hash(),
        .job = context->params.job,
        .allowance = context->own,
        .tag = c->x->tag,
        .process = context->params.process,
        .num_puts = t->num_puts,
        .num_receives = t->num_receives,
        .on_gpu = t->on_gpu,
    };
    pthread_mutex_lock(&context->lock);
    rs_context_addresses(context, &h->addresses);
    /* One that we know already can be seen to die from the beginning. */
    for (int use = 0; use < RS_NUM_USES; use++)
        t->peers[use] = rs_context_known_peer(
            context, t->process, (enum rs_use)use, &h->life[use]);
    pthread_mutex_unlock(&context->lock);
}

/* Nobody comes in its place: see rs_context_known_peer(). */
static void check_is_alive(struct rs_creation *c, struct rs_talk *t)
{
    const struct rs_peer *peer = t->peers[RS_USE_HOST];

    pthread_mutex_lock(&c->context->lock);
    if (peer != NULL && atomic_load(&peer->dead))
        rs_talk_failed(c, t, peer->ops->check(peer->connection));
    pthread_mutex_unlock(&c->context->lock);
}

static void hello_messages(struct rs_talk *t, struct rs_talk_message *out,
                           struct rs_talk_message *in)
{
    *out = (struct rs_talk_message){&t->hello_out, sizeof(t->hello_out)};
    *in = (struct rs_talk_message){&t->hello_in, sizeof(t->hello_in)};
}

static int check_hello(const struct rs_talk *t)
{
    const struct rs_hello *own = &t->hello_out, *peer = &t->hello_in;
    bool variable = (peer->flags ^ own->flags) & RSCHED_EXCHANGE_VARIABLE;
    uint32_t flag = variable ? RSCHED_EXCHANGE_VARIABLE : RSCHED_EXCHANGE_COMPARED;

    if (peer->magic != own->magic || peer->byte_order != own->byte_order)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d has another byte order or does not run "
                       "rsched",
                       t->process);
    if (peer->version != own->version)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d speaks protocol %u, this one %u", t->process,
                       peer->version, own->version);
    if (peer->page_bytes != own->page_bytes)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d has pages of %u bytes, this one of %u",
                       t->process, peer->page_bytes, own->page_bytes);
    if (peer->settings != own->settings)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d has other settings (RSCHED_CHUNK, RSCHED_RING, "
                       "RSCHED_MAPPED, RSCHED_CMA or RSCHED_NONTEMPORAL)",
                       t->process);
    if (peer->job != own->job || peer->process != t->process)
        return rs_fail(RSCHED_EMISMATCH, "process %d is of another job",
                       t->process);
    if (peer->tag != own->tag)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d makes another exchange: its tag is %llu, here "
                       "it is %llu",
                       t->process, (unsigned long long)peer->tag,
                       (unsigned long long)own->tag);
    if (peer->flags != own->flags)
        return rs_fail(RSCHED_EMISMATCH, "process %d has %s RSCHED_EXCHANGE_%s, this one has%s",
                       t->process, peer->flags & flag ? "the flag" : "no flag",
                       variable ? "VARIABLE" : "COMPARED", peer->flags & flag ? " not" : "");
    if (peer->num_receives != own->num_puts)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d expects %u puts, this one has %u for it",
                       t->process, peer->num_receives, own->num_puts);
    if (peer->num_puts != own->num_receives)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d has %u puts, this one expects %u",
                       t->process, peer->num_puts, own->num_receives);
    return 0;
}

/* With a foreign hello, lengths mean nothing: this is the end. */
static bool is_foreign(const struct rs_hello *hello)
{
    return hello->magic != RS_TALK_MAGIC ||
           hello->byte_order != RS_TALK_BYTE_ORDER ||
           hello->version != RS_TALK_VERSION;
}

static void greet(struct rs_creation *c)
{
    for (uint32_t i = 0; i < c->num_talks; i++) {
        fill_hello(c, &c->talks[i]);
        check_is_alive(c, &c->talks[i]);
    }
    RS_FAILPOINT("create:hello");
    rs_talk_round(c, "hello", hello_messages);
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];
        int wrong;

        if (t->over)
            continue;
        wrong = check_hello(t);
        if (wrong != 0 && is_foreign(&t->hello_in))
            rs_talk_end(c, t, wrong);
        else if (wrong != 0)
            rs_talk_failed(c, t, wrong);
    }
}

/* ---- reach ---- */

/* Whoever knows that a connection has failed tells it to the other one. */
static uint32_t later_life(const struct rs_talk *t, enum rs_use use)
{
    return t->hello_in.life[use] > t->hello_out.life[use]
               ? t->hello_in.life[use]
               : t->hello_out.life[use];
}

static bool is_loopback_forced(void)
{
    return rs_config()->gpu_way == RS_CONFIG_GPU_WAY_LOOPBACK;
}

/* Whether messages to this process might go through a NIC though it is on this
 * node. They have a fixed length, or would have to land in host memory. */
static bool wants_loopback(const struct rs_creation *c, const struct rs_talk *t)
{
    const struct rs_peer *gpus = t->peers[RS_USE_GPUS];
    bool costs = false;

    for (int d = 0; d < RS_NUM_DISTANCES; d++)
        costs = costs || rs_gpu_way_costs(&c->context->ways, RS_WAY_GDR_LOOPBACK,
                                          (enum rs_distance)d)
                             ->given;
    return gpus != NULL && gpus->ops->within_node &&
           (c->x->flags & RSCHED_EXCHANGE_VARIABLE) == 0 &&
           (is_loopback_forced() ||
            (costs && rs_config()->gpu_way == RS_CONFIG_GPU_WAY_AUTO));
}

static int connect_use(struct rs_creation *c, struct rs_talk *t,
                       enum rs_use use)
{
    return rs_context_peer(c->context, t->process, &t->hello_in.addresses, use,
                           later_life(t, use), &t->hello_in.allowance,
                           &t->peers[use]);
}

/* Without it there are other ways. */
static int connect_loopback(struct rs_creation *c, struct rs_talk *t)
{
    int error = connect_use(c, t, RS_USE_LOOPBACK);

    if (error != RSCHED_EUNREACH)
        return error;
    if (is_loopback_forced())
        return rs_fail_within(error, "RSCHED_GPU_WAY=gdr-loopback");
    rs_log(RS_LOG_INFO, "no GDR loopback with process %d: %s", t->process,
           rsched_last_error());
    return 0;
}

static int connect_peer(struct rs_creation *c, struct rs_talk *t)
{
    struct rsched_context *context = c->context;
    int error;

    pthread_mutex_lock(&context->lock);
    rs_talk_release_peers(c, t);
    error = connect_use(c, t, RS_USE_HOST);
    if (error == 0 && (t->hello_in.on_gpu != 0 || t->hello_out.on_gpu != 0))
        error = connect_use(c, t, RS_USE_GPUS);
    if (error == 0 && wants_loopback(c, t))
        error = connect_loopback(c, t);
    pthread_mutex_unlock(&context->lock);
    return error;
}

static void reach_messages(struct rs_talk *t, struct rs_talk_message *out,
                           struct rs_talk_message *in)
{
    *out = (struct rs_talk_message){&t->reach_out, sizeof(t->reach_out)};
    *in = (struct rs_talk_message){&t->reach_in, sizeof(t->reach_in)};
}

/* Both must reach each other by the same engine. An engine that is tried
 * earlier and works in one direction only is of no use. */
static int settle_engine(struct rs_creation *c, const struct rs_talk *t,
                         struct rs_peer *peer, int theirs)
{
    int error = 0;

    if (theirs < 0 || theirs >= RSCHED_MAX_ENGINES)
        return rs_fail(RSCHED_EMISMATCH,
                       "process %d reaches this one by an engine that is none",
                       t->process);
    pthread_mutex_lock(&c->context->lock);
    if (theirs > peer->engine && peer->accepted)
        error = rs_fail(RSCHED_EMISMATCH,
                        "process %d does not know its connection any more",
                        t->process);
    else if (theirs > peer->engine)
        error = rs_context_change_engine(c->context, peer, theirs);
    pthread_mutex_unlock(&c->context->lock);
    return error;
}

/* There is one if both want it, by the same engine, and messages in GPU memory do
 * not go through NICs anyway. */
static void settle_loopback(struct rs_creation *c, struct rs_talk *t)
{
    struct rs_peer **peer = &t->peers[RS_USE_LOOPBACK];
    bool within_node;

    if (*peer == NULL)
        return;
    pthread_mutex_lock(&c->context->lock);
    within_node = t->peers[RS_USE_GPUS] != NULL &&
                  t->peers[RS_USE_GPUS]->ops->within_node;
    if (!within_node || (*peer)->engine != t->reach_in.engine[RS_USE_LOOPBACK]) {
        rs_context_release_peer(c->context, *peer);
        *peer = NULL;
    }
    pthread_mutex_unlock(&c->context->lock);
}

static int settle_engines(struct rs_creation *c, struct rs_talk *t)
{
    const int32_t *theirs = t->reach_in.engine;
    int error = settle_engine(c, t, t->peers[RS_USE_HOST], theirs[RS_USE_HOST]);

    if (error == 0 && t->peers[RS_USE_GPUS] != NULL)
        error =
            settle_engine(c, t, t->peers[RS_USE_GPUS], theirs[RS_USE_GPUS]);
    if (error == 0)
        settle_loopback(c, t);
    return error;
}

/* Another thread may just be settling on an engine with the same peer. */
static void fill_reach(struct rs_creation *c, struct rs_talk *t)
{
    t->reach_out.status = rs_talk_status(c, t, t->reach_out.reason);
    pthread_mutex_lock(&c->context->lock);
    for (int use = 0; use < RS_NUM_USES; use++)
        t->reach_out.engine[use] =
            t->peers[use] == NULL ? -1 : t->peers[use]->engine;
    pthread_mutex_unlock(&c->context->lock);
}

static void reach(struct rs_creation *c)
{
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];

        if (!t->over && t->status == 0) {
            int wrong = connect_peer(c, t);

            if (wrong != 0)
                rs_talk_failed(c, t, wrong);
        }
        fill_reach(c, t);
    }
    RS_FAILPOINT("create:reach");
    rs_talk_round(c, "reach", reach_messages);
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];

        if (t->over)
            continue;
        if (t->reach_in.status != 0) {
            rs_talk_peer_failed(c, t, t->reach_in.status, t->reach_in.reason);
        } else if (t->status == 0) {
            int wrong = settle_engines(c, t);

            if (wrong != 0)
                rs_talk_failed(c, t, wrong);
        }
    }
}

void rs_creation_meet(struct rs_creation *c)
{
    greet(c);
    reach(c);
}

void rs_talk_release_peers(struct rs_creation *c, struct rs_talk *t)
{
    for (int use = 0; use < RS_NUM_USES; use++) {
        rs_context_release_peer(c->context, t->peers[use]);
        t->peers[use] = NULL;
    }
}

int rs_creation_meet_self(struct rs_creation *c)
{
    struct rsched_context *context = c->context;
    struct rs_peer **peers = c->self.peers;
    struct rs_addresses addresses;
    int error;

    pthread_mutex_lock(&context->lock);
    rs_context_addresses(context, &addresses);
    error = rs_context_peer(context, context->params.process, &addresses,
                            RS_USE_HOST, 0, &context->own,
                            &peers[RS_USE_HOST]);
    if (error == 0 && rs_peer_rails(peers[RS_USE_HOST]) != 1)
        error = rs_fail(RSCHED_EUNREACH, "no engine moves bytes within the "
                                         "process itself");
    if (error == 0 && c->self.on_gpu > 0)
        error = rs_context_peer(context, context->params.process, &addresses,
                                RS_USE_GPUS, 0, &context->own,
                                &peers[RS_USE_GPUS]);
    pthread_mutex_unlock(&context->lock);
    return error;
}
