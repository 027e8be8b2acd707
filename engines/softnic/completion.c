/* SPDX-License-Identifier: BSD-3-Clause */
/* Completions: made in order, shown in order, sometimes late. */
#include <endian.h>
#include <string.h>

#include "engines/softnic/nic.h"

/* Offsets in a CQE. */
enum {
    IMM = 36,
    BYTES = 44,
    VENDOR_ERROR = 54,
    SYNDROME = 55,
    QPN = 56, /* the opcode of the WQE, then the number */
    INDEX = 60,
    OWNER = 63,
};

enum { REQUEST = 0, RECEIVED_IMM = 1, REQUEST_ERROR = 13 };

static void put32(unsigned char *to, uint32_t value)
{
    value = htobe32(value);
    memcpy(to, &value, sizeof(value));
}

static void put16(unsigned char *to, uint16_t value)
{
    value = htobe16(value);
    memcpy(to, &value, sizeof(value));
}

/* Fields that mean nothing hold anything. */
static void fill(struct rs_softnic *nic, unsigned char *bytes)
{
    for (int i = 0; i < SOFTNIC_CQE; i++)
        bytes[i] = (unsigned char)softnic_draw(nic, 256);
}

/* The next entry, or NULL: the queue is full. */
static struct softnic_cqe *make(struct rs_softnic_qp *qp, struct softnic_cq *cq)
{
    /* Acquire: the producer has read what it counts here. */
    uint32_t taken = be32toh(
        atomic_load_explicit(cq->view.dbrec, memory_order_acquire));
    uint32_t in_use = (uint32_t)(cq->made - taken) & 0xffffff;
    struct softnic_cqe *cqe = &cq->queue[cq->made & (cq->view.entries - 1)];

    if (in_use >= cq->view.entries) {
        softnic_violate(qp, "completion queue overflow: %u entries, %u taken",
                        cq->view.entries, taken);
        return NULL;
    }
    fill(qp->nic, cqe->bytes);
    if (cq->made == cq->shown)
        cq->delay = (uint32_t)softnic_draw(qp->nic, cq->late + 1);
    cq->made++;
    return cqe;
}

void softnic_complete_send(struct rs_softnic_qp *qp,
                           const struct softnic_work *work)
{
    struct softnic_cqe *cqe = make(qp, &qp->send_cq);
    bool failed = work->syndrome != SOFTNIC_OK;

    if (cqe == NULL)
        return;
    cqe->frees = work->first + work->wqe.blocks;
    cqe->bytes[OWNER] = (failed ? REQUEST_ERROR : REQUEST) << 4;
    put16(cqe->bytes + INDEX, (uint16_t)work->first);
    put32(cqe->bytes + QPN, (uint32_t)work->wqe.opcode << 24 | qp->qpn);
    if (failed) {
        cqe->bytes[SYNDROME] = work->syndrome;
        cqe->bytes[VENDOR_ERROR] = work->vendor_error;
    }
}

void softnic_complete_receive(struct rs_softnic_qp *qp, uint32_t imm,
                              uint64_t bytes)
{
    struct softnic_cqe *cqe = make(qp, &qp->receive_cq);

    if (cqe == NULL)
        return;
    cqe->bytes[OWNER] = RECEIVED_IMM << 4;
    put16(cqe->bytes + INDEX, (uint16_t)qp->received);
    put32(cqe->bytes + QPN, qp->qpn);
    put32(cqe->bytes + BYTES, (uint32_t)bytes);
    memcpy(cqe->bytes + IMM, &imm, sizeof(imm));
    qp->received++;
}

/* Show the next completion. @return it, or NULL: there is none or it waits */
static const struct softnic_cqe *show(struct rs_softnic *nic,
                                      struct softnic_cq *cq)
{
    struct softnic_cqe *cqe = &cq->queue[cq->shown & (cq->view.entries - 1)];
    unsigned char *to =
        (unsigned char *)cq->view.ring +
        (cq->shown & (cq->view.entries - 1)) * cq->view.entry_bytes +
        cq->view.entry_bytes - SOFTNIC_CQE;
    uint64_t end; /* with the owner, which a device writes no earlier */

    if (cq->delay > 0) {
        cq->delay--;
        return NULL;
    }
    cqe->bytes[OWNER] |= (cq->shown & cq->view.entries) != 0;
    memcpy(to, cqe->bytes, QPN);
    memcpy(&end, cqe->bytes + QPN, sizeof(end));
    /* Release: the completion, and all that was placed, come before it. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)(to + QPN), end,
                          memory_order_release);
    cq->shown++;
    cq->delay = (uint32_t)softnic_draw(nic, cq->late + 1);
    nic->stats.completions++;
    return cqe;
}

bool softnic_show_sent(struct rs_softnic_qp *qp)
{
    const struct softnic_cqe *cqe;

    if (qp->send_cq.shown == qp->send_cq.made)
        return false;
    cqe = show(qp->nic, &qp->send_cq);
    if (cqe != NULL)
        qp->freed = cqe->frees;
    return true;
}

bool softnic_show_received(struct rs_softnic_qp *qp)
{
    if (qp->receive_cq.shown == qp->receive_cq.made)
        return false;
    show(qp->nic, &qp->receive_cq);
    return true;
}
