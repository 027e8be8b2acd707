/* SPDX-License-Identifier: BSD-3-Clause */
/* Doing what WQEs say: packets, atomic operations, and the end of a WQE. */
#include <endian.h>
#include <string.h>
#include <xxhash.h>

#include "engines/softnic/nic.h"

static void fail_work(struct softnic_work *work, enum softnic_syndrome syndrome)
{
    work->done = true;
    work->syndrome = (uint8_t)syndrome;
}

/* The peer has refused a request, which fails its side too. */
static void refuse(struct rs_softnic_qp *qp, struct softnic_work *work,
                   enum softnic_syndrome syndrome)
{
    fail_work(work, syndrome);
    softnic_qp_fail(qp->peer);
}

bool softnic_gather(struct rs_softnic_qp *qp, const struct softnic_work *work,
                    uint64_t from, uint64_t bytes, char *to)
{
    if (work->wqe.inline_at != 0) {
        memcpy(to, work->copy + work->wqe.inline_at + from, bytes);
        return true;
    }
    for (uint32_t i = 0; bytes > 0; i++) {
        const struct softnic_piece *p = &work->wqe.pieces[i];
        uint64_t now;
        const char *source;

        if (from >= p->bytes) {
            from -= p->bytes;
            continue;
        }
        now = p->bytes - from < bytes ? p->bytes - from : bytes;
        source = softnic_find(qp->nic, qp->domain, p->lkey, p->address + from,
                              now, 0);
        if (source == NULL)
            return false;
        memcpy(to, source, now);
        to += now;
        bytes -= now;
        from = 0;
    }
    return true;
}

bool softnic_source_hash(struct rs_softnic_qp *qp,
                         const struct softnic_work *work, uint64_t *hash)
{
    uint64_t sum = work->wqe.bytes;

    for (uint32_t i = 0; i < work->wqe.num_pieces; i++) {
        const struct softnic_piece *p = &work->wqe.pieces[i];
        const char *source = softnic_find(qp->nic, qp->domain, p->lkey,
                                          p->address, p->bytes, 0);

        if (source == NULL)
            return false;
        sum = XXH3_64bits_withSeed(source, p->bytes, sum);
    }
    *hash = sum;
    return true;
}

/* Stores of 8 aligned bytes are seen whole, and after what came before them, as
 * over PCIe. */
static void store(char *to, const char *from, uint64_t bytes)
{
    uint64_t word;

    if (bytes != sizeof(word) || (uintptr_t)to % sizeof(word) != 0) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(&word, from, sizeof(word));
    atomic_store_explicit((_Atomic uint64_t *)to, word, memory_order_release);
}

static void place_packet(struct rs_softnic_qp *qp, struct softnic_work *work)
{
    uint32_t mtu = qp->nic->options.mtu;
    uint64_t at = (uint64_t)((work->turn + work->placed) % work->packets) * mtu;
    uint64_t bytes = work->wqe.bytes - at < mtu ? work->wqe.bytes - at : mtu;
    char packet[SOFTNIC_MAX_MTU];
    char *to;

    if (!softnic_gather(qp, work, at, bytes, packet)) {
        fail_work(work, SOFTNIC_LOCAL_PROTECTION);
        return;
    }
    to = softnic_find(qp->nic, qp->peer->domain, work->wqe.rkey,
                      work->wqe.remote + at, bytes, RS_SOFTNIC_REMOTE_WRITE);
    if (to == NULL) {
        refuse(qp, work, SOFTNIC_REMOTE_ACCESS);
        return;
    }
    store(to, packet, bytes);
    qp->nic->stats.packets++;
    work->placed++;
}

/* Whether the peer has a receive for an immediate. */
static bool has_receive(const struct rs_softnic_qp *qp)
{
    uint32_t record = be32toh(
        atomic_load_explicit(&qp->view.dbrec[0], memory_order_acquire));

    return (uint16_t)(record - qp->received) != 0;
}

/* A write is done when all is placed and, if there is one, its immediate is on
 * the way. @return false: it has to wait */
static bool finish_write(struct rs_softnic_qp *qp, struct softnic_work *work)
{
    if (work->wqe.opcode == SOFTNIC_WRITE_IMM) {
        if (!has_receive(qp->peer)) {
            if (qp->nic->options.rnr_steps == 0)
                return false;
            if (++work->waited == qp->nic->options.rnr_steps)
                fail_work(work, SOFTNIC_NOT_READY);
            return true;
        }
        softnic_complete_receive(qp->peer, work->wqe.imm, work->wqe.bytes);
    }
    work->done = true;
    return true;
}

static bool place_write(struct rs_softnic_qp *qp, struct softnic_work *work)
{
    if (work->placed == work->packets)
        return finish_write(qp, work);
    place_packet(qp, work);
    return true;
}

static bool do_fetch_add(struct rs_softnic_qp *qp, struct softnic_work *work)
{
    const struct softnic_piece *p = &work->wqe.pieces[0];
    char *result = softnic_find(qp->nic, qp->domain, p->lkey, p->address, 8,
                                RS_SOFTNIC_LOCAL_WRITE);
    char *word;
    uint64_t was;

    if (result == NULL) {
        fail_work(work, SOFTNIC_LOCAL_PROTECTION);
        return true;
    }
    if (work->wqe.remote % 8 != 0) {
        refuse(qp, work, SOFTNIC_BAD_REQUEST);
        return true;
    }
    word = softnic_find(qp->nic, qp->peer->domain, work->wqe.rkey,
                        work->wqe.remote, 8, RS_SOFTNIC_REMOTE_ATOMIC);
    if (word == NULL) {
        refuse(qp, work, SOFTNIC_REMOTE_ACCESS);
        return true;
    }
    was = atomic_fetch_add_explicit((_Atomic uint64_t *)word, work->wqe.add,
                                    memory_order_acq_rel);
    store(result, (const char *)&was, sizeof(was));
    work->done = true;
    return true;
}

/* Nothing passes these, nor do they pass anything. */
static bool is_fence(const struct softnic_work *work)
{
    return work->wqe.opcode == SOFTNIC_FETCH_ADD ||
           work->wqe.opcode == SOFTNIC_WRITE_IMM;
}

/* A WQE whose turn it can be, or NULL. */
static struct softnic_work *choose_work(struct rs_softnic_qp *qp)
{
    struct softnic_work *ready[SOFTNIC_WINDOW];
    uint64_t n = 0;

    for (uint64_t i = qp->first_work; i < qp->next_work; i++) {
        struct softnic_work *work = &qp->window[i % SOFTNIC_WINDOW];

        if (work->syndrome != SOFTNIC_OK)
            break; /* what comes after it will be flushed */
        if (work->done)
            continue;
        if (is_fence(work) && n > 0)
            break;
        ready[n++] = work;
        if (is_fence(work) || !qp->nic->options.relaxed)
            break;
    }
    return n == 0 ? NULL : ready[softnic_draw(qp->nic, n)];
}

bool softnic_place(struct rs_softnic_qp *qp)
{
    struct softnic_work *work;

    if (qp->failed)
        return false;
    work = choose_work(qp);
    if (work == NULL)
        return false;
    if (qp->peer == NULL || qp->peer->failed) {
        fail_work(work, SOFTNIC_NO_ANSWER);
        return true;
    }
    if (work->wqe.opcode == SOFTNIC_FETCH_ADD)
        return do_fetch_add(qp, work);
    return place_write(qp, work);
}

static bool source_changed(struct rs_softnic_qp *qp,
                           const struct softnic_work *work)
{
    uint64_t hash;

    return work->has_source_hash && work->syndrome == SOFTNIC_OK &&
           (!softnic_source_hash(qp, work, &hash) ||
            hash != work->source_hash);
}

/* What the producer must not have touched up to the end of this WQE. */
static void check_untouched(struct rs_softnic_qp *qp, struct softnic_work *work,
                            uint64_t end)
{
    if (!softnic_unchanged(qp, qp->checked, end)) {
        softnic_violate(qp,
                        "a WQE of blocks %u to %u was changed before its "
                        "completion",
                        (uint16_t)qp->checked, (uint16_t)(end - 1));
        work->syndrome = SOFTNIC_BAD_WQE;
    }
    qp->checked = end;
}

bool softnic_retire(struct rs_softnic_qp *qp)
{
    struct softnic_work *work = &qp->window[qp->first_work % SOFTNIC_WINDOW];
    uint64_t end;

    if (qp->first_work == qp->next_work || !work->done)
        return false;
    end = work->first + work->wqe.blocks;
    if (source_changed(qp, work)) {
        softnic_violate(qp,
                        "bytes that the WQE at block %u sends were changed "
                        "before its completion",
                        (uint16_t)work->first);
        work->syndrome = SOFTNIC_BAD_WQE;
    }
    if (work->wqe.signalled || work->syndrome != SOFTNIC_OK) {
        check_untouched(qp, work, end);
        softnic_complete_send(qp, work);
    }
    qp->first_work++;
    if (work->syndrome != SOFTNIC_OK)
        softnic_qp_fail(qp);
    return true;
}
