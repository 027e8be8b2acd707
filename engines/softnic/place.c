/* SPDX-License-Identifier: BSD-3-Clause */
/* Doing what WQEs say: the requester's side, and the end of a WQE. */
#include <string.h>
#include <xxhash.h>

#include "engines/softnic/nic.h"

static void fail_work(struct softnic_work *work, uint8_t syndrome)
{
    work->done = true;
    work->syndrome = syndrome;
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

/* One packet, or what follows the last one. @return whether it was done */
static bool ask(struct rs_softnic_qp *qp, struct softnic_work *work,
                struct softnic_request *request, const char *payload,
                struct softnic_answer *answer)
{
    request->opcode = (uint8_t)work->wqe.opcode;
    request->rkey = work->wqe.rkey;
    softnic_ask(qp, request, payload, answer);
    if (answer->syndrome != SOFTNIC_OK && answer->syndrome != SOFTNIC_NOT_READY)
        fail_work(work, answer->syndrome);
    return answer->syndrome == SOFTNIC_OK;
}

static void place_packet(struct rs_softnic_qp *qp, struct softnic_work *work)
{
    uint32_t mtu = qp->nic->options.mtu;
    uint64_t at = (uint64_t)((work->turn + work->placed) % work->packets) * mtu;
    uint64_t bytes = work->wqe.bytes - at < mtu ? work->wqe.bytes - at : mtu;
    struct softnic_request request = {.remote = work->wqe.remote + at,
                                      .payload_bytes = (uint32_t)bytes};
    struct softnic_answer answer;
    char packet[SOFTNIC_MAX_MTU];

    if (!softnic_gather(qp, work, at, bytes, packet)) {
        fail_work(work, SOFTNIC_LOCAL_PROTECTION);
        return;
    }
    if (ask(qp, work, &request, packet, &answer)) {
        qp->nic->stats.packets++;
        work->placed++;
    }
}

/* A write is done when all is placed and, if there is one, its immediate is on
 * the way. @return false: it has to wait */
static bool finish_write(struct rs_softnic_qp *qp, struct softnic_work *work)
{
    struct softnic_request request = {.imm = work->wqe.imm,
                                      .message_bytes = work->wqe.bytes};
    struct softnic_answer answer;

    work->done = work->wqe.opcode == SOFTNIC_WRITE ||
                 ask(qp, work, &request, NULL, &answer) || work->done;
    if (work->done)
        return true;
    if (qp->nic->options.rnr_steps == 0)
        return false;
    if (++work->waited == qp->nic->options.rnr_steps)
        fail_work(work, SOFTNIC_NOT_READY);
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
    struct softnic_request request = {.remote = work->wqe.remote,
                                      .add = work->wqe.add};
    struct softnic_answer answer;
    char *result = softnic_find(qp->nic, qp->domain, p->lkey, p->address, 8,
                                RS_SOFTNIC_LOCAL_WRITE);

    if (result == NULL) {
        fail_work(work, SOFTNIC_LOCAL_PROTECTION);
    } else if (ask(qp, work, &request, NULL, &answer)) {
        softnic_store(result, (const char *)&answer.was, sizeof(answer.was));
        work->done = true;
    }
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
