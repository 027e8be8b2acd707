/* SPDX-License-Identifier: BSD-3-Clause */
/* The softnic itself: memory, queue pairs, the choice of what comes next. */
#include "engines/softnic/nic.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"

enum {
    MAX_RING = 32768,
    RECEIVE_STRIDE = 16,
    DOORBELL_BYTES = 256,
    IDLE_SPINS = 200,
    IDLE_NS = 50000,
};

/* Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
 * OOPSLA 2014. */
static uint64_t next_random(struct rs_softnic *nic)
{
    uint64_t z = nic->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t softnic_draw(struct rs_softnic *nic, uint64_t below)
{
    return next_random(nic) % below;
}

void softnic_violate(struct rs_softnic_qp *qp, const char *format, ...)
{
    struct rs_softnic *nic = qp->nic;
    size_t n;
    va_list args;

    if (nic->violation[0] == '\0') {
        n = (size_t)snprintf(nic->violation, sizeof(nic->violation),
                             "softnic qp 0x%x: ", qp->qpn);
        va_start(args, format);
        vsnprintf(nic->violation + n, sizeof(nic->violation) - n, format, args);
        va_end(args);
    }
    qp->stuck = true;
    softnic_qp_fail(qp);
}

void softnic_qp_fail(struct rs_softnic_qp *qp)
{
    if (qp->failed)
        return;
    qp->failed = true;
    for (uint64_t i = qp->first_work; i < qp->next_work; i++) {
        struct softnic_work *work = &qp->window[i % SOFTNIC_WINDOW];

        if (work->syndrome == SOFTNIC_OK) {
            work->done = true;
            work->syndrome = SOFTNIC_FLUSHED;
        }
    }
}

int rs_softnic_create(const struct rs_softnic_options *options,
                      struct rs_softnic **nic)
{
    struct rs_softnic *n;

    if (options->mtu > SOFTNIC_MAX_MTU)
        return rs_fail(RSCHED_EINVAL, "softnic: an mtu of %u, at most %d",
                       options->mtu, SOFTNIC_MAX_MTU);
    n = calloc(1, sizeof(*n));
    if (n == NULL)
        return rs_fail(RSCHED_ENOMEM, "softnic: no memory");
    n->options = *options;
    if (n->options.mtu == 0)
        n->options.mtu = SOFTNIC_MAX_MTU;
    n->random = options->seed;
    n->wire = -1;
    n->next_qpn = 1 + (uint32_t)softnic_draw(n, 1 << 20);
    pthread_mutex_init(&n->lock, NULL);
    *nic = n;
    return 0;
}

/* With the lock. */
static void qp_free(struct rs_softnic_qp *qp)
{
    softnic_slot_give_back(&qp->slot);
    softnic_pages_free(qp->rings, qp->ring_bytes);
    free(qp->send_cq.queue);
    free(qp->receive_cq.queue);
    free(qp->hashes);
    free(qp->window);
    free(qp);
}

void rs_softnic_destroy(struct rs_softnic *nic)
{
    rs_softnic_stop(nic);
    for (struct rs_softnic_qp *qp = nic->qps, *next; qp != NULL; qp = next) {
        next = qp->next;
        qp_free(qp);
    }
    softnic_shelves_fini(&nic->shelves);
    if (nic->wire >= 0)
        close(nic->wire);
    free(nic->regions);
    pthread_mutex_destroy(&nic->lock);
    free(nic);
}

/* ---- registered memory ---- */

/* Keys differ in more than one bit, so that a wrong bit is found. */
static uint32_t new_key(struct rs_softnic *nic)
{
    for (;;) {
        uint32_t key = (uint32_t)next_random(nic);
        bool fits = key != 0;

        for (size_t i = 0; i < nic->num_regions; i++)
            fits &= __builtin_popcount(nic->regions[i].key ^ key) > 1;
        if (fits)
            return key;
    }
}

int rs_softnic_register_at(struct rs_softnic *nic, uint32_t domain,
                           uint64_t base, void *memory, uint64_t bytes,
                           unsigned access, uint32_t *key)
{
    struct softnic_region *regions;
    int error = 0;

    pthread_mutex_lock(&nic->lock);
    regions = rs_array_grow(nic->regions, &nic->room_regions,
                            nic->num_regions + 1, sizeof(*regions));
    if (regions == NULL) {
        error = rs_fail(RSCHED_ENOMEM, "softnic: no memory for a region");
    } else {
        nic->regions = regions;
        *key = new_key(nic);
        regions[nic->num_regions++] = (struct softnic_region){
            .key = *key,
            .domain = domain,
            .access = access,
            .base = base,
            .memory = memory,
            .bytes = bytes,
        };
    }
    pthread_mutex_unlock(&nic->lock);
    return error;
}

int rs_softnic_register(struct rs_softnic *nic, uint32_t domain, void *base,
                        uint64_t bytes, unsigned access, uint32_t *key)
{
    return rs_softnic_register_at(nic, domain, (uintptr_t)base, base, bytes,
                                  access, key);
}

void rs_softnic_deregister(struct rs_softnic *nic, uint32_t key)
{
    pthread_mutex_lock(&nic->lock);
    for (size_t i = 0; i < nic->num_regions; i++) {
        if (nic->regions[i].key == key) {
            nic->regions[i] = nic->regions[--nic->num_regions];
            break;
        }
    }
    pthread_mutex_unlock(&nic->lock);
}

char *softnic_find(struct rs_softnic *nic, uint32_t domain, uint32_t key,
                   uint64_t address, uint64_t bytes, unsigned access)
{
    for (size_t i = 0; i < nic->num_regions; i++) {
        const struct softnic_region *r = &nic->regions[i];
        uint64_t offset = address - r->base;

        if (r->key != key || r->domain != domain)
            continue;
        return (r->access & access) == access && offset <= r->bytes &&
                       bytes <= r->bytes - offset
                   ? r->memory + offset
                   : NULL;
    }
    return NULL;
}

/* ---- queue pairs ---- */

static bool is_ring(uint32_t entries)
{
    return entries != 0 && entries <= MAX_RING && (entries & (entries - 1)) == 0;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + SOFTNIC_PAGE - 1) / SOFTNIC_PAGE * SOFTNIC_PAGE;
}

static size_t receive_bytes(const struct rs_softnic_qp_attr *a)
{
    size_t bytes = (size_t)a->receive_entries * RECEIVE_STRIDE;

    return (bytes + SOFTNIC_BLOCK - 1) / SOFTNIC_BLOCK * SOFTNIC_BLOCK;
}

static size_t cq_bytes(const struct rs_softnic_qp_attr *a)
{
    return whole_pages((size_t)a->cq_entries * a->cqe_bytes);
}

/* The completion queues, then receives and sends, which share pages. */
static size_t ring_bytes(const struct rs_softnic_qp_attr *a)
{
    return 2 * cq_bytes(a) +
           whole_pages((size_t)a->send_blocks * SOFTNIC_BLOCK +
                       receive_bytes(a));
}

static void lay_out(struct rs_softnic_qp *qp,
                    const struct rs_softnic_qp_attr *a)
{
    struct rs_softnic_qp_view *v = &qp->view;

    v->dbrec = (void *)qp->slot.records;
    v->send_cq.dbrec = (void *)(qp->slot.records + 64);
    v->receive_cq.dbrec = (void *)(qp->slot.records + 128);
    v->doorbell = (void *)qp->slot.registers;
    v->send_cq.ring = qp->rings;
    v->receive_cq.ring = (char *)v->send_cq.ring + cq_bytes(a);
    v->receive_ring = (char *)v->receive_cq.ring + cq_bytes(a);
    v->send_ring = (char *)v->receive_ring + receive_bytes(a);
}

static void set_sizes(struct rs_softnic_qp *qp,
                      const struct rs_softnic_qp_attr *a)
{
    struct rs_softnic_qp_view *v = &qp->view;

    qp->max_segments = a->max_segments != 0 ? a->max_segments : 63;
    v->qpn = qp->qpn;
    v->send_blocks = a->send_blocks;
    v->receive_entries = a->receive_entries;
    v->receive_stride = RECEIVE_STRIDE;
    v->doorbell_bytes = DOORBELL_BYTES;
    v->send_cq.entries = v->receive_cq.entries = a->cq_entries;
    v->send_cq.entry_bytes = v->receive_cq.entry_bytes = a->cqe_bytes;
    qp->send_cq.view = v->send_cq;
    qp->receive_cq.view = v->receive_cq;
}

/* Nothing is known of memory that a driver gives away, but that no completion
 * is there. */
static void set_contents(struct rs_softnic_qp *qp,
                         const struct rs_softnic_qp_attr *a)
{
    memset(qp->rings, 0xa5, ring_bytes(a));
    memset(qp->rings, 0xf1, 2 * cq_bytes(a)); /* invalid */
}

/* With the lock. */
static struct rs_softnic_qp *qp_allocate(struct rs_softnic *nic,
                                         const struct rs_softnic_qp_attr *a)
{
    struct rs_softnic_qp *qp = calloc(1, sizeof(*qp));

    if (qp == NULL)
        return NULL;
    qp->ring_bytes = ring_bytes(a);
    qp->rings = softnic_pages_allocate(qp->ring_bytes);
    qp->send_cq.queue = calloc(a->cq_entries, sizeof(struct softnic_cqe));
    qp->receive_cq.queue = calloc(a->cq_entries, sizeof(struct softnic_cqe));
    qp->send_cq.late = nic->options.late_steps;
    qp->receive_cq.late = nic->options.late_steps + nic->options.late_receives;
    qp->hashes = calloc(a->send_blocks, sizeof(*qp->hashes));
    qp->window = calloc(SOFTNIC_WINDOW, sizeof(*qp->window));
    if (qp->rings == NULL || qp->send_cq.queue == NULL ||
        qp->receive_cq.queue == NULL || qp->hashes == NULL ||
        qp->window == NULL ||
        softnic_slot_take(&nic->shelves, &qp->slot) != 0) {
        qp_free(qp);
        return NULL;
    }
    lay_out(qp, a);
    set_sizes(qp, a);
    set_contents(qp, a);
    return qp;
}

int rs_softnic_qp_create(struct rs_softnic *nic,
                         const struct rs_softnic_qp_attr *attr,
                         struct rs_softnic_qp **qp)
{
    struct rs_softnic_qp *q;

    if (!is_ring(attr->send_blocks) || !is_ring(attr->cq_entries) ||
        (attr->receive_entries != 0 && !is_ring(attr->receive_entries)) ||
        (attr->cqe_bytes != 64 && attr->cqe_bytes != 128))
        return rs_fail(RSCHED_EINVAL, "softnic: sizes of a queue pair");
    pthread_mutex_lock(&nic->lock);
    q = qp_allocate(nic, attr);
    if (q == NULL) {
        pthread_mutex_unlock(&nic->lock);
        return rs_fail(RSCHED_ENOMEM, "softnic: no memory for a queue pair");
    }
    q->nic = nic;
    q->domain = attr->domain;
    q->qpn = q->view.qpn = nic->next_qpn;
    nic->next_qpn += 1 + (uint32_t)softnic_draw(nic, 16);
    q->next = nic->qps;
    nic->qps = q;
    nic->num_qps++;
    pthread_mutex_unlock(&nic->lock);
    *qp = q;
    return 0;
}

struct rs_softnic_qp_view rs_softnic_qp_view(const struct rs_softnic_qp *qp)
{
    return qp->view;
}

void rs_softnic_connect(struct rs_softnic_qp *one, struct rs_softnic_qp *other)
{
    pthread_mutex_lock(&one->nic->lock);
    one->peer = other;
    other->peer = one;
    pthread_mutex_unlock(&one->nic->lock);
}

void rs_softnic_qp_destroy(struct rs_softnic_qp *qp)
{
    struct rs_softnic *nic = qp->nic;
    struct rs_softnic_qp **link = &nic->qps;

    pthread_mutex_lock(&nic->lock);
    while (*link != qp)
        link = &(*link)->next;
    *link = qp->next;
    nic->num_qps--;
    if (qp->peer != NULL)
        qp->peer->peer = NULL;
    qp_free(qp);
    pthread_mutex_unlock(&nic->lock);
}

void rs_softnic_qp_stop(struct rs_softnic_qp *qp)
{
    pthread_mutex_lock(&qp->nic->lock);
    softnic_qp_fail(qp);
    pthread_mutex_unlock(&qp->nic->lock);
}

void rs_softnic_qp_reset(struct rs_softnic_qp *qp)
{
    pthread_mutex_lock(&qp->nic->lock);
    qp->failed = qp->stuck = qp->has_fault = false;
    qp->posted = qp->read = qp->checked = qp->freed = 0;
    qp->first_work = qp->next_work = 0;
    qp->lost = 0;
    qp->received = 0;
    qp->send_cq.made = qp->send_cq.shown;
    qp->receive_cq.made = qp->receive_cq.shown;
    atomic_store(&qp->view.dbrec[0], 0);
    atomic_store(&qp->view.dbrec[1], 0);
    atomic_store(&qp->view.doorbell[0], 0);
    atomic_store(&qp->view.doorbell[DOORBELL_BYTES / 8], 0);
    pthread_mutex_unlock(&qp->nic->lock);
}

void rs_softnic_qp_inject(struct rs_softnic_qp *qp, uint64_t n,
                          uint8_t syndrome, uint8_t vendor_error)
{
    pthread_mutex_lock(&qp->nic->lock);
    qp->has_fault = true;
    qp->until_fault = n;
    qp->fault_syndrome = syndrome;
    qp->fault_vendor = vendor_error;
    pthread_mutex_unlock(&qp->nic->lock);
}

/* ---- steps ---- */

static bool step_qp(struct rs_softnic_qp *qp)
{
    static bool (*const actions[])(struct rs_softnic_qp *) = {
        softnic_see_doorbell, softnic_recover,   softnic_read_wqe,
        softnic_place,        softnic_retire,    softnic_show_sent,
        softnic_show_received,
    };
    enum { NUM_ACTIONS = sizeof(actions) / sizeof(actions[0]) };
    uint64_t first = softnic_draw(qp->nic, NUM_ACTIONS);

    for (uint64_t i = 0; i < NUM_ACTIONS; i++) {
        if (actions[(first + i) % NUM_ACTIONS](qp))
            return true;
    }
    return false;
}

static bool step(struct rs_softnic *nic)
{
    struct rs_softnic_qp *first = nic->qps, *qp;

    if (first == NULL)
        return false;
    for (uint64_t skip = softnic_draw(nic, nic->num_qps); skip > 0; skip--)
        first = first->next;
    qp = first;
    do {
        if (step_qp(qp)) {
            nic->stats.steps++;
            return true;
        }
        qp = qp->next != NULL ? qp->next : nic->qps;
    } while (qp != first);
    return false;
}

bool rs_softnic_step(struct rs_softnic *nic)
{
    bool worked;

    pthread_mutex_lock(&nic->lock);
    worked = softnic_serve(nic) || step(nic);
    pthread_mutex_unlock(&nic->lock);
    return worked;
}

void rs_softnic_settle(struct rs_softnic *nic)
{
    while (rs_softnic_step(nic))
        ;
}

static void *run(void *arg)
{
    static const struct timespec pause = {.tv_nsec = IDLE_NS};
    struct rs_softnic *nic = arg;
    struct pollfd wire = {.fd = nic->wire, .events = POLLIN};
    int idle = 0;

    while (!atomic_load(&nic->stop)) {
        if (rs_softnic_step(nic))
            idle = 0;
        else if (++idle > IDLE_SPINS)
            ppoll(&wire, 1, &pause, NULL); /* others may ask at any time */
    }
    return NULL;
}

int rs_softnic_start(struct rs_softnic *nic)
{
    int error;

    atomic_store(&nic->stop, false);
    error = pthread_create(&nic->thread, NULL, run, nic);
    if (error != 0)
        return rs_fail(RSCHED_ESYS, "softnic: starting its thread: %s",
                       strerror(error));
    nic->has_thread = true;
    return 0;
}

void rs_softnic_stop(struct rs_softnic *nic)
{
    if (!nic->has_thread)
        return;
    atomic_store(&nic->stop, true);
    pthread_join(nic->thread, NULL);
    nic->has_thread = false;
}

const char *rs_softnic_violation(struct rs_softnic *nic)
{
    const char *text;

    pthread_mutex_lock(&nic->lock);
    text = nic->violation[0] != '\0' ? nic->violation : ""; /* written once */
    pthread_mutex_unlock(&nic->lock);
    return text;
}

struct rs_softnic_stats rs_softnic_stats(struct rs_softnic *nic)
{
    struct rs_softnic_stats stats;

    pthread_mutex_lock(&nic->lock);
    stats = nic->stats;
    pthread_mutex_unlock(&nic->lock);
    return stats;
}
