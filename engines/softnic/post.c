/* SPDX-License-Identifier: BSD-3-Clause */
/* From the doorbell to a WQE that can be worked on. */
#include <endian.h>
#include <string.h>
#include <xxhash.h>

#include "engines/softnic/nic.h"

enum { SEGMENTS = 7, FLAGS = 11, FLAG_SIGNALLED = 8 }; /* of a WQE */

enum { RECOVERY_STEPS = 50 }; /* at most, until a lost doorbell is noticed */

static const unsigned char *block_at(const struct rs_softnic_qp *qp,
                                     uint64_t block)
{
    return (const unsigned char *)qp->view.send_ring +
           (block & (qp->view.send_blocks - 1)) * SOFTNIC_BLOCK;
}

static uint64_t *hash_at(const struct rs_softnic_qp *qp, uint64_t block)
{
    return &qp->hashes[block & (qp->view.send_blocks - 1)];
}

bool softnic_unchanged(const struct rs_softnic_qp *qp, uint64_t from,
                       uint64_t to)
{
    for (uint64_t b = from; b < to; b++) {
        if (XXH3_64bits(block_at(qp, b), SOFTNIC_BLOCK) != *hash_at(qp, b))
            return false;
    }
    return true;
}

/* Read the doorbell record and take a picture of what it adds. */
static void read_record(struct rs_softnic_qp *qp)
{
    /* Acquire: WQEs were written before the record. */
    uint32_t record = be32toh(
        atomic_load_explicit(&qp->view.dbrec[1], memory_order_acquire));
    uint16_t more = (uint16_t)(record - qp->posted);

    if (record > 0xffff) {
        softnic_violate(qp, "doorbell record 0x%x has more than 16 bits",
                        record);
        return;
    }
    if (qp->posted + more - qp->freed > qp->view.send_blocks) {
        softnic_violate(qp,
                        "send queue overflow: record %u while blocks from %u "
                        "on are in use, of %u",
                        record, (uint16_t)qp->freed, qp->view.send_blocks);
        return;
    }
    for (; more > 0; more--, qp->posted++)
        *hash_at(qp, qp->posted) =
            XXH3_64bits(block_at(qp, qp->posted), SOFTNIC_BLOCK);
}

/* What is rung must be the beginning of a WQE that the record covers, and make
 * a completion: who rings for something wants to know when it is over. */
static void check_doorbell(struct rs_softnic_qp *qp, uint64_t doorbell)
{
    unsigned char bytes[8];
    uint32_t blocks, behind;
    uint64_t block;

    memcpy(bytes, &doorbell, sizeof(bytes));
    if ((uint32_t)(bytes[4] << 16 | bytes[5] << 8 | bytes[6]) != qp->qpn) {
        softnic_violate(qp, "doorbell of another queue pair");
        return;
    }
    blocks = (bytes[7] + 3u) / 4;
    /* Blocks from the end of that WQE to the record. */
    behind = (uint16_t)(qp->posted - (bytes[1] << 8 | bytes[2]) - blocks);
    /* Of two doorbells one may be older than what the other one brought. */
    if (behind > 2 * qp->view.send_blocks) {
        softnic_violate(qp, "doorbell of block %u, but the record says %u",
                        bytes[1] << 8 | bytes[2], (uint16_t)qp->posted);
        return;
    }
    /* A late doorbell may be of a WQE that is long gone. */
    if (behind + blocks > qp->posted - qp->freed)
        return;
    block = qp->posted - behind - blocks;
    if (memcmp(bytes, block_at(qp, block), sizeof(bytes)) != 0)
        softnic_violate(qp, "doorbell differs from the WQE at block %u",
                        (uint16_t)block);
    else if ((block_at(qp, block)[FLAGS] & FLAG_SIGNALLED) == 0)
        softnic_violate(qp, "doorbell of block %u, whose WQE makes no completion",
                        (uint16_t)block);
}

static uint64_t take_doorbell(struct rs_softnic_qp *qp, unsigned which)
{
    _Atomic uint64_t *doorbell =
        qp->view.doorbell +
        which * qp->view.doorbell_bytes / sizeof(*doorbell);

    /* Acquire: the record was written before. */
    if (atomic_load_explicit(doorbell, memory_order_relaxed) == 0)
        return 0;
    return atomic_exchange_explicit(doorbell, 0, memory_order_acquire);
}

bool softnic_see_doorbell(struct rs_softnic_qp *qp)
{
    struct rs_softnic *nic = qp->nic;
    unsigned first = (unsigned)softnic_draw(nic, 2);
    uint64_t doorbell = take_doorbell(qp, first);

    if (doorbell == 0)
        doorbell = take_doorbell(qp, !first);
    if (doorbell == 0 || qp->stuck)
        return false;
    nic->stats.doorbells++;
    if (softnic_draw(nic, 100) < nic->options.drop_percent) {
        nic->stats.dropped++;
        qp->lost = 1 + (uint32_t)softnic_draw(nic, RECOVERY_STEPS);
        return true;
    }
    read_record(qp);
    if (!qp->stuck)
        check_doorbell(qp, doorbell);
    return true;
}

bool softnic_recover(struct rs_softnic_qp *qp)
{
    if (qp->lost == 0 || qp->stuck)
        return false;
    if (--qp->lost == 0)
        read_record(qp);
    return true;
}

static uint32_t copy_wqe(const struct rs_softnic_qp *qp,
                         struct softnic_work *work)
{
    uint64_t blocks = qp->posted - qp->read;

    if (blocks > SOFTNIC_MAX_BLOCKS)
        blocks = SOFTNIC_MAX_BLOCKS;
    for (uint64_t i = 0; i < blocks; i++)
        memcpy(work->copy + i * SOFTNIC_BLOCK, block_at(qp, qp->read + i),
               SOFTNIC_BLOCK);
    return (uint32_t)blocks;
}

static void apply_fault(struct rs_softnic_qp *qp, struct softnic_work *work)
{
    if (!qp->has_fault || qp->until_fault-- > 0)
        return;
    qp->has_fault = false;
    work->done = true;
    work->syndrome = qp->fault_syndrome;
    work->vendor_error = qp->fault_vendor;
}

static void begin_work(struct rs_softnic_qp *qp, struct softnic_work *work)
{
    struct rs_softnic *nic = qp->nic;
    uint32_t mtu = nic->options.mtu;

    work->packets = (uint32_t)((work->wqe.bytes + mtu - 1) / mtu);
    work->turn = (uint32_t)softnic_draw(nic, work->packets + 1);
    work->done = work->wqe.opcode == SOFTNIC_NOP;
    nic->stats.nops += work->done;
    nic->stats.wqes++;
    work->has_source_hash = nic->options.check_sources &&
                            work->wqe.inline_at == 0 &&
                            work->wqe.opcode != SOFTNIC_FETCH_ADD &&
                            softnic_source_hash(qp, work, &work->source_hash);
    apply_fault(qp, work);
    if (qp->failed) {
        work->done = true;
        work->syndrome = SOFTNIC_FLUSHED;
    }
}

/* Where a bad WQE ends is not known, so it is the last one. */
static void give_up(struct rs_softnic_qp *qp, struct softnic_work *work,
                    const char *wrong)
{
    softnic_violate(qp, "WQE at block %u: %s", (uint16_t)qp->read, wrong);
    work->wqe = (struct softnic_wqe){.blocks = 1};
    work->has_source_hash = false;
    work->done = true;
    work->syndrome = SOFTNIC_BAD_WQE;
}

/* @return NULL, or what is wrong with the WQE of which so many blocks are there */
static const char *read_wqe(const struct rs_softnic_qp *qp,
                            struct softnic_work *work, uint32_t blocks)
{
    const char *wrong;

    if (!softnic_unchanged(qp, qp->read, qp->read + blocks))
        return "it, or what comes behind it, was changed after its doorbell";
    if (work->copy[SEGMENTS] > qp->max_segments)
        return "longer than the queue pair was made for";
    wrong = softnic_decode(work->copy, blocks, (uint16_t)qp->read, qp->qpn,
                           &work->wqe);
    if (wrong == NULL && !qp->nic->options.free_ends &&
        !softnic_has_zero_end(work->copy, &work->wqe))
        wrong = "bytes behind the last segment are not 0";
    return wrong;
}

bool softnic_read_wqe(struct rs_softnic_qp *qp)
{
    struct softnic_work *work = &qp->window[qp->next_work % SOFTNIC_WINDOW];
    const char *wrong;
    uint32_t blocks;

    if (qp->stuck || qp->read == qp->posted ||
        qp->next_work - qp->first_work == SOFTNIC_WINDOW)
        return false;
    work->first = qp->read;
    work->placed = work->waited = 0;
    work->syndrome = work->vendor_error = 0;
    blocks = copy_wqe(qp, work);
    wrong = read_wqe(qp, work, blocks);
    if (wrong != NULL) {
        give_up(qp, work, wrong);
    } else {
        qp->read += work->wqe.blocks;
        begin_work(qp, work);
    }
    qp->next_work++;
    return true;
}
