/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/verbs/interpreter.h"

#include <arpa/inet.h>
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/verbs/chain.h"
#include "librsched/base/error.h"
#include "tests/verbs/interpreter_gpu.h"
#include "tests/verbs/interpreter_memory.h"

enum { DEPTH = 64, PIECES = 5, INLINE = 100, RAILS = 2, MOST_RAILS = 4, MAX_QUEUES = 4096, RECEIVES = 256 };

struct queue {
    struct rs_rdma_queue queue; /* first */
    uint32_t number;
    unsigned rail;
    uint32_t depth, pieces; /* at most DEPTH, PIECES */
    struct queue *peer;
    bool gone; /* destroyed: what its peer sends is not answered */
    struct ibv_send_wr *head, *tail;
    uint32_t used;
    struct {
        uint64_t id;
        uint32_t requests;
    } posts[DEPTH];
    uint32_t first, posted; /* counts modulo 2^32 */
    bool failed;            /* as a completion has said */
    /* The device's side, guarded by `lock`. */
    uint32_t rung, executed; /* posts, modulo 2^32 */
    bool waits;              /* for a receive of its peer's, with what is held up */
    bool silent;             /* they are executed, but not counted as such */
    uint32_t good;           /* of those executed, in an error state */
    const char *cause;       /* of the error state; NULL: it works */
    struct held *first_held, *last_held;
    uint32_t imms[RECEIVES];
    uint32_t arrived, taken; /* of them, modulo 2^32 */
};

/* A request that is under way. */
struct held {
    struct held *next;
    struct ibv_send_wr wr;
    struct ibv_sge pieces[PIECES];
    char inlined[INLINE];
};

struct list {
    struct rs_rdma_list list; /* first */
    struct rs_verbs_chain chain;
};

/* One lock for all: a device executes one request after the other. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue *queues[MAX_QUEUES];
static uint32_t num_queues;
static struct interpreter_counts counts;
static unsigned cut, removed; /* rails, as bits */
static _Thread_local unsigned refused, down;
static uint64_t held_from;    /* bytes; 0: nothing is held up */
static unsigned held_rails;   /* on which */
static uint32_t receives = RECEIVES; /* of each queue */
static uint64_t silent_from;  /* bytes; 0: all is acknowledged */
static interpreter_watcher *watcher;

struct port {
    struct rs_rdma_port port; /* first */
    unsigned rail;
};

static unsigned rail_of(const struct rs_rdma_port *port)
{
    return ((const struct port *)port)->rail;
}

/* What execute_one() returns but 0 for a request that no device would take; the
 * other one is for those that the receiver's device refuses. */
enum { WRONG = -1, REFUSED = -2 };

static int wrong(const char *what)
{
    fprintf(stderr, "interpreter: %s\n", what);
    return WRONG;
}

void interpreter_register(void *address, uint64_t bytes,
                          enum rs_rdma_access access, struct rs_rdma_keys *keys)
{
    pthread_mutex_lock(&lock);
    memory_add(&(struct memory){address, bytes, access, address, false, false},
               keys);
    pthread_mutex_unlock(&lock);
}

static uint64_t total_bytes(const struct ibv_send_wr *wr)
{
    uint64_t bytes = 0;

    for (int i = 0; i < wr->num_sge; i++)
        bytes += wr->sg_list[i].length;
    return bytes;
}

/* What is polled is written at once. */
static void copy(char *to, const char *from, uint64_t bytes)
{
    if (bytes == 8 && (uintptr_t)to % 8 == 0) {
        uint64_t word;

        memcpy(&word, from, 8);
        atomic_store_explicit((_Atomic uint64_t *)(void *)to, word,
                              memory_order_release);
    } else {
        memcpy(to, from, bytes);
    }
}

static int execute_write(const struct ibv_send_wr *wr)
{
    const struct memory *m = memory_remote(
        wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, total_bytes(wr));
    char *to;

    if (m == NULL)
        return REFUSED;
    to = memory_touch(m, wr->wr.rdma.remote_addr);
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *s = &wr->sg_list[i];
        const char *from = (const char *)(uintptr_t)s->addr;

        if ((wr->send_flags & IBV_SEND_INLINE) == 0) {
            const struct memory *l = memory_local(s->lkey, s->addr, s->length,
                                                  RS_RDMA_LOCAL);

            if (l == NULL)
                return wrong("a piece outside of registered memory");
            from = memory_touch(l, s->addr);
        }
        if (m->on_gpu)
            interpreter_gpu_write(to, from, s->length);
        else
            copy(to, from, s->length);
        to += s->length;
    }
    return 0;
}

static int execute_add(const struct ibv_send_wr *wr)
{
    uint64_t at = wr->wr.atomic.remote_addr;
    uint64_t before;

    if (at % 8 != 0 || wr->num_sge != 1 || wr->sg_list[0].length != 8 ||
        (wr->send_flags & IBV_SEND_INLINE) != 0 ||
        memory_remote(wr->wr.atomic.rkey, at, 8) == NULL ||
        memory_local(wr->sg_list[0].lkey, wr->sg_list[0].addr, 8,
                     RS_RDMA_REMOTE) == NULL)
        return wrong("a fetch-and-add that cannot be");
    before = atomic_fetch_add_explicit((_Atomic uint64_t *)(uintptr_t)at,
                                       wr->wr.atomic.compare_add,
                                       memory_order_release);
    memcpy((void *)(uintptr_t)wr->sg_list[0].addr, &before, 8);
    return 0;
}

/* Else the device tries it again and again, and what is behind it waits. */
static bool has_receive(const struct ibv_send_wr *wr, const struct queue *to)
{
    return wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM || to == NULL ||
           to->arrived - to->taken < receives;
}

static int execute_imm(const struct ibv_send_wr *wr, struct queue *to)
{
    int error;

    if (to == NULL)
        return wrong("an immediate without a receive");
    error = execute_write(wr);
    if (error != 0)
        return error;
    to->imms[to->arrived++ % RECEIVES] = ntohl(wr->imm_data);
    return 0;
}

static int execute_one(const struct ibv_send_wr *wr, struct queue *to,
                       uint32_t max_inline, uint32_t max_pieces)
{
    if (watcher != NULL && to != NULL && wr->opcode == IBV_WR_RDMA_WRITE)
        watcher(to->rail, wr->wr.rdma.remote_addr);
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max_pieces)
        return wrong("too many pieces");
    if ((wr->send_flags & IBV_SEND_INLINE) != 0 && total_bytes(wr) > max_inline)
        return wrong("too long to be inlined");
    switch (wr->opcode) {
    case IBV_WR_RDMA_WRITE:
        return execute_write(wr);
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return execute_imm(wr, to);
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return execute_add(wr);
    default:
        return wrong("an opcode that lanes do not use");
    }
}

int interpreter_execute(const struct ibv_send_wr *chain, uint32_t max_inline,
                        uint32_t max_pieces)
{
    int requests = 0;

    for (; chain != NULL; chain = chain->next, requests++) {
        int error = execute_one(chain, NULL, max_inline, max_pieces);

        if (error != 0)
            return error == REFUSED ? wrong("a write outside of registered memory")
                                    : error;
    }
    return requests;
}

/* ---- queues ---- */

static int list_create(struct rs_rdma_queue *queue,
                       const struct rs_rdma_op *ops, uint32_t num_ops,
                       struct rs_rdma_list **list)
{
    struct list *l = calloc(1, sizeof(*l));

    assert(l != NULL && num_ops <= ((struct queue *)queue)->depth);
    l->list.queue = queue;
    *list = &l->list;
    return rs_verbs_chain_init(&l->chain, ops, num_ops);
}

static void list_destroy(struct rs_rdma_list *list)
{
    struct list *l = (struct list *)list;

    rs_verbs_chain_fini(&l->chain);
    free(l);
}

static bool post(struct rs_rdma_list *list, uint64_t epoch, uint64_t id)
{
    struct list *l = (struct list *)list;
    struct queue *q = (struct queue *)list->queue;
    struct rs_verbs_chain *c = &l->chain;

    if (q->failed || q->used + c->num_requests > q->depth)
        return false;
    rs_verbs_chain_stamp(c, epoch);
    c->requests[c->num_requests - 1].next = NULL;
    if (q->head == NULL)
        q->head = c->requests;
    else
        q->tail->next = c->requests;
    q->tail = &c->requests[c->num_requests - 1];
    q->posts[q->posted % DEPTH].id = id;
    q->posts[q->posted++ % DEPTH].requests = c->num_requests;
    q->used += c->num_requests;
    return true;
}

static void drop_held(struct queue *q)
{
    for (struct held *h = q->first_held, *next; h != NULL; h = next) {
        next = h->next;
        free(h);
    }
    q->first_held = q->last_held = NULL;
}

/* What is posted, now and later, fails. */
static void break_queue(struct queue *q, const char *cause)
{
    if (q->cause != NULL)
        return;
    q->cause = cause;
    q->good = q->executed;
    q->executed = q->rung;
    drop_held(q);
}

static void hold(struct queue *q, const struct ibv_send_wr *wr)
{
    struct held *h = calloc(1, sizeof(*h));
    char *to;

    assert(h != NULL && wr->num_sge <= PIECES);
    to = h->inlined;
    h->wr = *wr;
    h->wr.next = NULL;
    h->wr.sg_list = h->pieces;
    for (int i = 0; i < wr->num_sge; i++) {
        h->pieces[i] = wr->sg_list[i];
        if ((wr->send_flags & IBV_SEND_INLINE) == 0)
            continue;
        assert(total_bytes(wr) <= INLINE);
        h->pieces[i].addr = (uintptr_t)to;
        memcpy(to, (const char *)(uintptr_t)wr->sg_list[i].addr,
               wr->sg_list[i].length);
        to += wr->sg_list[i].length;
    }
    if (q->first_held == NULL)
        q->first_held = h;
    else
        q->last_held->next = h;
    q->last_held = h;
}

/* Whether any request that is being posted has at least so many bytes; 0: none. */
static bool has_long(const struct queue *q, uint64_t bytes)
{
    const struct ibv_send_wr *w = q->head;

    while (w != NULL && total_bytes(w) < bytes)
        w = w->next;
    return bytes != 0 && w != NULL;
}

static bool is_held_up(const struct queue *q)
{
    return q->first_held != NULL ||
           ((held_rails >> q->rail & 1) != 0 && has_long(q, held_from));
}

/* Nor does a queue pair answer that is in an error state. */
static bool is_answered(const struct queue *q)
{
    return q->peer != NULL && !q->peer->gone && q->peer->cause == NULL &&
           (cut >> q->rail & 1) == 0;
}

/* A write that is not allowed any more is an error of both queue pairs, of which
 * only the sender's tells. */
static void refuse(struct queue *q)
{
    break_queue(q->peer, "flushed");
    break_queue(q, "remote access error");
}

/* @return false: the receiver's device has refused it */
static bool execute_for(struct queue *q, const struct ibv_send_wr *wr)
{
    int error = execute_one(wr, q->peer, INLINE, q->pieces);

    if (error == REFUSED) {
        refuse(q);
        return false;
    }
    assert(error == 0);
    counts.requests++;
    /* The last one of a post. */
    q->executed += !q->silent && (wr->send_flags & IBV_SEND_SIGNALED) != 0;
    return true;
}

/* The device begins with what was posted. */
static void begin(struct queue *q)
{
    bool held = is_held_up(q);

    q->rung = q->posted;
    if (q->cause != NULL) {
        q->executed = q->rung;
        return;
    }
    if (!is_answered(q)) {
        break_queue(q, "nobody answers");
        return;
    }
    if ((removed >> q->rail & 1) != 0)
        return;
    q->silent = q->silent || (!held && has_long(q, silent_from));
    for (const struct ibv_send_wr *w = q->head; w != NULL; w = w->next) {
        q->waits = q->waits || (!held && !has_receive(w, q->peer));
        held = held || q->waits;
        if (held)
            hold(q, w);
        else if (!execute_for(q, w))
            return;
    }
}

static int ring(struct rs_rdma_queue *queue)
{
    struct queue *q = (struct queue *)queue;

    if (q->head == NULL)
        return 0;
    pthread_mutex_lock(&lock);
    for (const struct ibv_send_wr *w = q->head; w != NULL; w = w->next)
        counts.signals += (w->send_flags & IBV_SEND_SIGNALED) != 0;
    counts.rings++;
    begin(q);
    pthread_mutex_unlock(&lock);
    q->head = q->tail = NULL;
    return 0;
}

/* What it held up arrives, as far as there are receives for it. */
static void deliver(struct queue *q)
{
    if (q->silent)
        q->executed = q->rung;
    q->silent = q->waits = false;
    if (q->first_held == NULL)
        return;
    if (!is_answered(q))
        break_queue(q, "nobody answers");
    while (q->first_held != NULL) {
        struct held *h = q->first_held;

        q->waits = !has_receive(&h->wr, q->peer);
        if (q->waits || !execute_for(q, &h->wr))
            return;
        q->first_held = h->next;
        free(h);
    }
}

static int poll(struct rs_rdma_queue *queue, struct rs_rdma_done *done)
{
    struct queue *q = (struct queue *)queue;
    bool any;

    pthread_mutex_lock(&lock);
    any = q->first != q->executed;
    if (any)
        *done = (struct rs_rdma_done){
            .id = q->posts[q->first % DEPTH].id,
            .failed = q->cause != NULL && (int32_t)(q->first - q->good) >= 0,
            .flushed = q->cause != NULL && strcmp(q->cause, "flushed") == 0,
            .cause = q->cause};
    pthread_mutex_unlock(&lock);
    if (!any)
        return 0;
    q->failed = q->failed || done->failed;
    q->used -= q->posts[q->first++ % DEPTH].requests;
    return 1;
}

static int take(struct rs_rdma_queue *queue, uint32_t *imm)
{
    struct queue *q = (struct queue *)queue;
    bool any;

    pthread_mutex_lock(&lock);
    any = q->taken != q->arrived;
    if (any)
        *imm = q->imms[q->taken++ % RECEIVES];
    else if (q->peer != NULL && q->peer->waits)
        deliver(q->peer); /* it comes a little later */
    pthread_mutex_unlock(&lock);
    return any;
}

static void stop(struct rs_rdma_queue *queue)
{
    pthread_mutex_lock(&lock);
    break_queue((struct queue *)queue, "flushed");
    pthread_mutex_unlock(&lock);
}

static void reset(struct rs_rdma_queue *queue)
{
    struct queue *q = (struct queue *)queue;

    q->head = q->tail = NULL;
    pthread_mutex_lock(&lock);
    drop_held(q);
    q->used = q->first = q->posted = q->rung = q->executed = 0;
    q->waits = false;
    q->cause = NULL;
    pthread_mutex_unlock(&lock);
    q->failed = false;
}

static const struct rs_rdma_queue_ops queue_ops = {
    .name = "interpreter",
    .list_create = list_create,
    .list_destroy = list_destroy,
    .poll = poll,
    .post = post,
    .reset = reset,
    .ring = ring,
    .stop = stop,
    .take = take,
};

static int queue_create(struct rs_rdma_port *port,
                        struct rs_rdma_endpoint *endpoint,
                        struct rs_rdma_queue **queue)
{
    struct queue *q = calloc(1, sizeof(*q));

    assert(q != NULL);
    q->rail = rail_of(port);
    q->depth = port->max_ops;
    q->pieces = port->max_pieces;
    pthread_mutex_lock(&lock);
    assert(num_queues < MAX_QUEUES);
    q->queue.ops = &queue_ops;
    queues[num_queues++] = q;
    counts.queues++;
    q->number = num_queues; /* 0 is none */
    pthread_mutex_unlock(&lock);
    endpoint->number = q->number;
    *queue = &q->queue;
    return 0;
}

static int queue_connect(struct rs_rdma_queue *queue,
                         const unsigned char *address,
                         const struct rs_rdma_endpoint *endpoint)
{
    struct queue *q = (struct queue *)queue;

    (void)address;
    if (((refused | down) >> q->rail & 1) != 0)
        return rs_fail(RSCHED_ESYS, "interpreter: no route");
    pthread_mutex_lock(&lock);
    assert(endpoint->number > 0 && endpoint->number <= num_queues);
    q->peer = queues[endpoint->number - 1];
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Kept, since the peer may still send to it; but no list of it may be left. */
static void queue_destroy(struct rs_rdma_queue *queue)
{
    struct queue *q = (struct queue *)queue;

    pthread_mutex_lock(&lock);
    q->gone = true;
    drop_held(q);
    if (q->peer != NULL && q->peer->waits)
        break_queue(q->peer, "nobody answers");
    queue->ops = NULL;
    pthread_mutex_unlock(&lock);
}

/* ---- ports ---- */

void interpreter_port_close(struct rs_rdma_port *port)
{
    free(port);
}

int interpreter_port_check(struct rs_rdma_port *port)
{
    bool is_removed;

    pthread_mutex_lock(&lock);
    is_removed = (removed >> rail_of(port) & 1) != 0;
    pthread_mutex_unlock(&lock);
    return is_removed ? rs_fail(RSCHED_EPEER, "the device has been removed")
                      : 0;
}

static bool port_is_active(struct rs_rdma_port *port)
{
    return (down >> rail_of(port) & 1) == 0;
}

void interpreter_port_address(const struct rs_rdma_port *port,
                         unsigned char *address)
{
    (void)port;
    memset(address, 1, RS_PORT_ADDRESS_BYTES);
}

int interpreter_memory_register(struct rs_rdma_port *port, void *address,
                           uint64_t bytes, enum rs_rdma_access access,
                           struct rs_rdma_keys *keys)
{
    const char *peer = getenv("INTERPRETER_PEER");
    char *touch = interpreter_gpu_peer(address);

    (void)port;
    if (touch != NULL && peer != NULL && strcmp(peer, "0") == 0)
        return rs_fail(RSCHED_ESYS, "interpreter: registering %llu bytes: Bad "
                                    "address",
                       (unsigned long long)bytes);
    pthread_mutex_lock(&lock);
    counts.peers += touch != NULL;
    memory_add(&(struct memory){address, bytes, access,
                                touch != NULL ? touch : address, touch != NULL,
                                false},
               keys);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int dmabuf_register(struct rs_rdma_port *port, int fd, uintptr_t address,
                           uint64_t bytes, enum rs_rdma_access access,
                           struct rs_rdma_keys *keys)
{
    const char *taken = getenv("INTERPRETER_DMABUF");
    char *touch;

    if (taken != NULL && strcmp(taken, "0") == 0)
        return rs_fail(RSCHED_ENOTSUP, "%s: registering a dma-buf: Operation "
                                       "not supported",
                       port->name);
    touch = interpreter_gpu_map(fd, bytes);
    if (touch == NULL)
        return rs_fail(RSCHED_ENOTSUP, "%s: registering a dma-buf: Bad file "
                                       "descriptor",
                       port->name);
    pthread_mutex_lock(&lock);
    counts.dmabufs++;
    memory_add(&(struct memory){(char *)address, bytes, access, touch, true,
                                true},
               keys);
    pthread_mutex_unlock(&lock);
    return 0;
}

void interpreter_memory_release(struct rs_rdma_port *port,
                                struct rs_rdma_keys *keys)
{
    (void)port;
    pthread_mutex_lock(&lock);
    memory_release(keys);
    pthread_mutex_unlock(&lock);
}

bool interpreter_reaches(const void *address, uint64_t bytes)
{
    bool reaches;

    pthread_mutex_lock(&lock);
    reaches = memory_is_registered(address, bytes);
    pthread_mutex_unlock(&lock);
    return reaches;
}

static const struct rs_rdma_port_ops port_ops = {
    .address = interpreter_port_address,
    .check = interpreter_port_check,
    .close = interpreter_port_close,
    .dmabuf_register = dmabuf_register,
    .is_active = port_is_active,
    .memory_register = interpreter_memory_register,
    .memory_release = interpreter_memory_release,
    .queue_connect = queue_connect,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
};

static uint64_t setting(const char *name, uint64_t usual)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : usual;
}

int interpreter_ports(const struct rsched_engine_env *env,
                      struct rs_rdma_port **ports)
{
    uint64_t depth = setting("INTERPRETER_DEPTH", DEPTH);
    uint64_t pieces = setting("INTERPRETER_PIECES", PIECES);
    unsigned rails = (unsigned)setting("INTERPRETER_RAILS", RAILS);

    assert(depth <= DEPTH && pieces <= PIECES && rails <= MOST_RAILS);
    (void)env;
    for (unsigned i = 0; i < rails; i++) {
        struct port *p = calloc(1, sizeof(*p));

        assert(p != NULL);
        p->rail = i;
        p->port = (struct rs_rdma_port){.ops = &port_ops,
                                        .name = "interpreter",
                                        .max_pieces = (uint32_t)pieces,
                                        .max_inline = INLINE,
                                        .max_ops = (uint32_t)depth,
                                        .in_order = true,
                                        .fetch_add = true,
                                        .immediates = true,
                                        .head_bytes = setting("INTERPRETER_HEAD", 0)};
        ports[i] = &p->port;
    }
    return (int)rails;
}

void interpreter_cut(unsigned rails)
{
    pthread_mutex_lock(&lock);
    cut = rails;
    pthread_mutex_unlock(&lock);
}

void interpreter_refuse(unsigned rails)
{
    refused = rails;
}

void interpreter_put_down(unsigned rails)
{
    down = rails;
}

void interpreter_remove(unsigned rails)
{
    pthread_mutex_lock(&lock);
    removed = rails;
    pthread_mutex_unlock(&lock);
}

void interpreter_hold(uint64_t bytes)
{
    interpreter_hold_on(INTERPRETER_ALL_RAILS, bytes);
}

void interpreter_hold_on(unsigned rails, uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    held_from = bytes;
    held_rails = rails;
    pthread_mutex_unlock(&lock);
}

void interpreter_lose_acknowledgments(uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    silent_from = bytes;
    pthread_mutex_unlock(&lock);
}

void interpreter_receives(uint32_t count)
{
    pthread_mutex_lock(&lock);
    receives = count == 0 ? RECEIVES : count;
    pthread_mutex_unlock(&lock);
}

void interpreter_deliver(void)
{
    pthread_mutex_lock(&lock);
    held_from = silent_from = 0;
    for (uint32_t i = 0; i < num_queues; i++) {
        if (!queues[i]->gone)
            deliver(queues[i]);
    }
    pthread_mutex_unlock(&lock);
}

struct interpreter_counts interpreter_counts(void)
{
    struct interpreter_counts c;

    pthread_mutex_lock(&lock);
    c = counts;
    pthread_mutex_unlock(&lock);
    return c;
}

void interpreter_watch(interpreter_watcher *new_watcher)
{
    pthread_mutex_lock(&lock);
    watcher = new_watcher;
    pthread_mutex_unlock(&lock);
}
