/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/run/rings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"

enum {
    RINGS_MAGIC = 0x676e6972, /* "ring" */
    WORDS_MAGIC = 0x64726f77, /* "word" */
};

/* What is said in either round; the end of the ring in the first one only. */
struct rs_ring_news {
    uint32_t magic;
    int32_t status; /* of the opening */
    uint32_t able;  /* 1: there is a ring, or it has been joined */
    char reason[RS_TALK_REASON_BYTES]; /* why not, or of the status */
    uint32_t reserved;
    unsigned char descriptor[RSCHED_RING_DESCRIPTOR_BYTES];
};
static_assert(sizeof(struct rs_ring_news) ==
                  16 + RS_TALK_REASON_BYTES + RSCHED_RING_DESCRIPTOR_BYTES,
              "wire layout");

/* ---- neighbors ---- */

const struct rs_neighbor *rs_neighbors_at(const struct rs_neighbors *n,
                                          int process)
{
    for (uint32_t i = 0; i < n->number; i++) {
        if (n->of[i].process == process)
            return &n->of[i];
    }
    return NULL;
}

static void add_neighbors(struct rs_neighbors *n, const struct rs_edge *edges,
                          uint32_t num_edges, int own, const char *reason)
{
    for (uint32_t i = 0; i < num_edges; i++) {
        struct rs_neighbor *to = &n->of[n->number];

        if (rs_neighbors_at(n, edges[i].peer->process) != NULL)
            continue;
        *to = (struct rs_neighbor){.process = edges[i].peer->process};
        snprintf(to->reason, sizeof(to->reason), "%s",
                 to->process == own ? "it is this process" : reason);
        n->number++;
    }
}

int rs_neighbors_find(struct rs_neighbors *n,
                      struct rsched_exchange *const sets[2],
                      const char *reason)
{
    size_t most = 0;

    for (int set = 0; set < 2; set++)
        most += (size_t)sets[set]->num_out + sets[set]->num_in;
    *n = (struct rs_neighbors){.of = calloc(most + 1, sizeof(*n->of))};
    if (n->of == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for an opening");
    for (int set = 0; set < 2; set++) {
        const struct rsched_exchange *x = sets[set];
        int own = x->context->params.process;

        add_neighbors(n, x->out, x->num_out, own, reason);
        add_neighbors(n, x->in, x->num_in, own, reason);
    }
    return 0;
}

void rs_neighbors_fini(struct rs_neighbors *n)
{
    for (uint32_t i = 0; i < n->number; i++)
        free(n->of[i].gone);
    free(n->of);
    *n = (struct rs_neighbors){0};
}

static struct rs_neighbor *neighbor_of(struct rs_ring_talks *talks,
                                       const struct rs_talk *t)
{
    struct rs_neighbor *n = talks->neighbors->of;

    while (n->process != t->process)
        n++;
    return n;
}

/* ---- talks ---- */

/* What moves between this process and another one, in either exchange. */
struct meeting {
    struct rs_peer *first;
    const struct rsched_engine_ops *without; /* rings; NULL: none of them is */
    bool apart; /* over several engines */
};

static void look_at(const struct rs_edge *edges, uint32_t num_edges, int process,
                    struct meeting *m)
{
    for (uint32_t i = 0; i < num_edges; i++) {
        struct rs_peer *peer = edges[i].peer;

        if (peer->process != process)
            continue;
        if (m->first == NULL)
            m->first = peer;
        if (peer->ops->ring_create == NULL)
            m->without = peer->ops;
        m->apart = m->apart || peer->ops != m->first->ops;
    }
}

static struct meeting meeting_with(struct rsched_exchange *const sets[2],
                                   int process)
{
    struct meeting m = {0};

    for (int set = 0; set < 2; set++) {
        look_at(sets[set]->out, sets[set]->num_out, process, &m);
        look_at(sets[set]->in, sets[set]->num_in, process, &m);
    }
    return m;
}

/* @return the connection for a ring, or NULL: the last error says why not */
static struct rs_peer *find_connection(const struct rs_ring_talks *talks,
                                       int process)
{
    struct meeting m = meeting_with(talks->sets, process);
    bool variable = false;

    for (int set = 0; set < 2 && talks->words == NULL; set++)
        variable = variable ||
                   (talks->sets[set]->flags & RSCHED_EXCHANGE_VARIABLE) != 0;
    if (variable)
        rs_fail(RSCHED_ENOTSUP, "an exchange is variable");
    else if (m.without != NULL)
        rs_fail(RSCHED_ENOTSUP, "the engine %s has no rings", m.without->name);
    else if (m.apart)
        rs_fail(RSCHED_ENOTSUP, "it is reached over several engines");
    else
        return m.first;
    return NULL;
}

int rs_ring_talks_init(struct rs_ring_talks *talks, struct rs_neighbors *n,
                       struct rsched_exchange *const sets[2],
                       const struct rsched_message *words)
{
    struct rs_creation *c = &talks->creation;
    struct rs_ring_news *news =
        calloc(2 * ((size_t)n->number + 1), sizeof(*news));

    *talks = (struct rs_ring_talks){
        .sets = sets, .neighbors = n, .words = words};
    c->context = sets[0]->context;
    c->x = sets[0];
    c->talks = calloc((size_t)n->number + 1, sizeof(*c->talks));
    if (c->talks == NULL || news == NULL) {
        free(news);
        free(c->talks);
        return rs_fail(RSCHED_ENOMEM, "no memory for an opening");
    }
    c->talks[0].news_out = news;
    for (uint32_t i = 0; i < n->number; i++) {
        struct rs_talk *t = &c->talks[c->num_talks];

        if (n->of[i].process == c->context->params.process)
            continue;
        t->process = n->of[i].process;
        t->peers[RS_USE_HOST] = meeting_with(sets, t->process).first;
        t->news_out = news++;
        t->news_in = news++;
        c->num_talks++;
    }
    return 0;
}

void rs_ring_talks_fini(struct rs_ring_talks *talks)
{
    free(talks->creation.talks[0].news_out);
    free(talks->creation.talks);
}

/* There will be no ring, for the reason of the last error. */
static void go_without(struct rs_ring_talks *talks, struct rs_neighbor *n,
                       enum rsched_ring_end end)
{
    struct rsched_context *context = talks->creation.context;

    snprintf(n->reason, sizeof(n->reason), "%s", rsched_last_error());
    if (n->ring == NULL)
        return;
    pthread_mutex_lock(&context->lock);
    n->ops->ring_destroy(n->ring, end);
    pthread_mutex_unlock(&context->lock);
    n->ring = NULL;
}

static int make_ring(struct rs_ring_talks *talks, struct rs_neighbor *n, int gpu,
                     unsigned char *descriptor)
{
    struct rsched_context *context = talks->creation.context;
    struct rsched_message messages[2];
    const struct rsched_ring_spec spec = {.gpu = gpu,
                                          .receive = {&messages[0],
                                                      &messages[1]},
                                          .words = talks->words};
    const struct rs_peer *peer = find_connection(talks, n->process);
    int error = peer == NULL ? RSCHED_ENOTSUP : 0;

    for (int set = 0; set < 2 && error == 0 && talks->words == NULL; set++)
        error = rs_exchange_message(talks->sets[set], n->process, false,
                                    &messages[set]);
    if (error != 0)
        return error;
    n->ops = peer->ops;
    pthread_mutex_lock(&context->lock);
    error = n->ops->ring_create(peer->connection, &spec, descriptor, &n->ring);
    pthread_mutex_unlock(&context->lock);
    return error;
}

static int join_ring(struct rs_ring_talks *talks, struct rs_neighbor *n,
                     const unsigned char *descriptor)
{
    struct rsched_context *context = talks->creation.context;
    struct rsched_message messages[2];
    const struct rsched_message *const send[2] = {&messages[0], &messages[1]};
    int error = 0;

    for (int set = 0; set < 2 && error == 0 && talks->words == NULL; set++)
        error = rs_exchange_message(talks->sets[set], n->process, true,
                                    &messages[set]);
    if (error != 0)
        return error;
    pthread_mutex_lock(&context->lock);
    error = n->ops->ring_join(n->ring, send, descriptor);
    pthread_mutex_unlock(&context->lock);
    return error;
}

/* ---- rounds ---- */

static void ring_messages(struct rs_talk *t, struct rs_talk_message *out,
                          struct rs_talk_message *in)
{
    *out = (struct rs_talk_message){t->news_out, sizeof(*t->news_out)};
    *in = (struct rs_talk_message){t->news_in, sizeof(*t->news_in)};
}

static void joined_messages(struct rs_talk *t, struct rs_talk_message *out,
                            struct rs_talk_message *in)
{
    size_t bytes = offsetof(struct rs_ring_news, descriptor);

    *out = (struct rs_talk_message){t->news_out, bytes};
    *in = (struct rs_talk_message){t->news_in, bytes};
}

/* A round: say whether there is a ring, and hear it. Where one of both has none
 * there is none after it. @param without what becomes of a ring whose other end
 * there is not */
static void tell(struct rs_ring_talks *talks, const char *name,
                 rs_talk_round_fn *messages, enum rsched_ring_end without)
{
    struct rs_creation *c = &talks->creation;
    uint32_t magic = talks->words == NULL ? RINGS_MAGIC : WORDS_MAGIC;

    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];
        const struct rs_neighbor *n = neighbor_of(talks, t);

        t->news_out->magic = magic;
        t->news_out->able = n->ring != NULL;
        t->news_out->status = rs_talk_status(c, t, t->news_out->reason);
        if (t->news_out->status == 0)
            memcpy(t->news_out->reason, n->reason, sizeof(n->reason));
    }
    rs_talk_round(c, name, messages);
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_talk *t = &c->talks[i];
        struct rs_neighbor *n = neighbor_of(talks, t);

        if (t->over)
            continue;
        t->news_in->reason[RS_TALK_REASON_BYTES - 1] = '\0';
        if (t->news_in->magic != magic) {
            rs_talk_end(c, t,
                        rs_fail(RSCHED_EMISMATCH, "process %d opens no %s",
                                t->process,
                                talks->words == NULL ? "exchange for kernels"
                                                     : "memory for words"));
        } else if (t->news_in->status != 0) {
            rs_talk_peer_failed(c, t, t->news_in->status, t->news_in->reason);
        } else if (t->news_in->able == 0 && n->ring != NULL) {
            rs_fail(RSCHED_ENOTSUP, "process %d: %s", t->process,
                    t->news_in->reason);
            go_without(talks, n, without);
        }
    }
}

/* @return what has gone wrong by now, with its text */
static int failed(const struct rs_ring_talks *talks)
{
    const struct rs_creation *c = &talks->creation;

    return c->status == 0 ? 0 : rs_fail(c->status, "opening exchange %llu: %s",
                                        (unsigned long long)c->x->tag,
                                        c->reason);
}

int rs_ring_talks_begin(struct rs_ring_talks *talks, int gpu, int status)
{
    struct rs_creation *c = &talks->creation;

    if (status != 0)
        rs_creation_failed(c, status);
    for (uint32_t i = 0; i < c->num_talks && c->status == 0; i++) {
        struct rs_neighbor *n = neighbor_of(talks, &c->talks[i]);

        if (make_ring(talks, n, gpu, c->talks[i].news_out->descriptor) != 0)
            go_without(talks, n, RSCHED_RING_ALONE);
    }
    RS_FAILPOINT("open:rings");
    tell(talks, "rings", ring_messages, RSCHED_RING_ALONE);
    /* Also after a failure: who has joined waits to hear that nothing follows. */
    for (uint32_t i = 0; i < c->num_talks; i++) {
        struct rs_neighbor *n = neighbor_of(talks, &c->talks[i]);

        if (n->ring != NULL && !c->talks[i].over &&
            c->talks[i].news_in->able != 0 &&
            join_ring(talks, n, c->talks[i].news_in->descriptor) != 0)
            go_without(talks, n, RSCHED_RING_IDLE);
    }
    return failed(talks);
}

int rs_ring_talks_end(struct rs_ring_talks *talks, int status)
{
    struct rs_creation *c = &talks->creation;

    if (status != 0)
        rs_creation_failed(c, status);
    RS_FAILPOINT("open:joined");
    tell(talks, "joined", joined_messages, RSCHED_RING_IDLE);
    RS_FAILPOINT("open:end");
    return failed(talks);
}
