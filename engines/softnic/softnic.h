/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SOFTNIC: reads the send queues that mlx5 producers write, refuses what is
 * not exactly right, and does what the WQEs say, in the least convenient of the
 * orders that a device is free to choose.
 *
 * It is a test device. It moves bytes with memcpy, and its times say nothing
 * about any NIC. What it cannot show: stores to device registers (write
 * combining), a device that reads memory of another kind, bandwidth.
 *
 * A softnic is a small network: queue pairs, connected in pairs, and domains
 * of registered memory, one for each process that takes part; softnics of
 * different processes can be connected too. It does one small
 * thing in a step (see a doorbell, read a WQE, place a packet, write a
 * completion), which one is drawn from the seed; the test calls step(), or a
 * thread does. With step() the same seed gives the same run.
 *
 * It tells two kinds of failure apart. An **error completion** is what a device
 * says of a correct WQE that cannot be done (no such key, peer not ready,
 * injected). A **violation** is something that no correct producer does: a
 * field that is wrong, a WQE changed while the device has it, a ring or a
 * completion queue that overflows. A violation fails the queue pair too; the
 * text of the first one is kept.
 *
 * Threads: all functions may be called by any thread, but destroy by the last
 * one only. Rings, doorbells and registered memory are used without a lock, as
 * by a device: stores of 8 aligned bytes, atomic operations, and the last byte
 * of a completion are atomic and ordered after what was placed before them.
 *
 * Errors: 0 or a negative RSCHED_E* with a text.
 */
#ifndef RS_SOFTNIC_H
#define RS_SOFTNIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rs_softnic;
struct rs_softnic_qp;

struct rs_softnic_options {
    uint64_t seed;
    /** Longest piece of a message placed in one step, 0: 4096. The pieces of
     * one message are placed in any order. */
    uint32_t mtu;
    /** Of 100 doorbells that many are lost. After a while the device looks at
     * the doorbell record by itself. */
    uint32_t drop_percent;
    /** A completion becomes visible up to so many steps late. */
    uint32_t late_steps;
    /** And one of a receive so many more: what is written later may be seen before. */
    uint32_t late_receives;
    /** Steps that a write with immediate waits for a receive of the peer before
     * it fails; 0: for ever. */
    uint32_t rnr_steps;
    /** Messages of one queue pair are placed in any order, except that none
     * passes an atomic operation or an immediate, as with relaxed ordering. */
    bool relaxed;
    /** Bytes that are to be sent must not change from the doorbell to the
     * completion. Not for sources that somebody else may write meanwhile. */
    bool check_sources;
    /** What stands behind the last segment of a WQE, up to the end of its block, may
     * be anything, as to a device. Otherwise it is 0, as engines/mlx5 writes it. */
    bool free_ends;
};

enum rs_softnic_access {
    RS_SOFTNIC_LOCAL_WRITE = 1,
    RS_SOFTNIC_REMOTE_WRITE = 2,
    RS_SOFTNIC_REMOTE_ATOMIC = 4,
};

/** Sizes of a queue pair; all powers of two. */
struct rs_softnic_qp_attr {
    uint32_t domain;
    uint32_t send_blocks;     /**< up to 32768 */
    uint32_t receive_entries; /**< up to 32768, 0: none */
    uint32_t cq_entries;      /**< of each of its two completion queues */
    uint32_t cqe_bytes;       /**< 64 or 128 */
    uint32_t max_segments;    /**< that a WQE may have; 0: 63 */
};

/** Bytes inline that libmlx5 grants of a WQE that is to have `pieces` pieces or
 * `bytes` bytes inline: it makes the WQE as long as either takes behind the longest
 * head that there is (192 bytes, of a memory window), in whole blocks, and counts what
 * is left. Source: mlx5_calc_send_wqe() and mlx5_calc_sq_size() of rdma-core's
 * providers/mlx5/verbs.c. */
static inline uint32_t rs_softnic_granted_inline(uint32_t pieces, uint32_t bytes)
{
    uint32_t gathered = 192 + 16 * pieces;
    uint32_t inlined = 192 + (4 + bytes + 15) / 16 * 16;
    uint32_t most = gathered > inlined ? gathered : inlined;

    return (most + 63) / 64 * 64 - 192 - 4;
}

/** Where its parts are, for the producer. */
struct rs_softnic_cq_view {
    void *ring;
    uint32_t entries, entry_bytes;
    _Atomic uint32_t *dbrec;
};

struct rs_softnic_qp_view {
    uint32_t qpn;
    void *send_ring;
    uint32_t send_blocks;
    void *receive_ring;
    uint32_t receive_entries, receive_stride;
    _Atomic uint32_t *dbrec;    /**< [0] receives, [1] send blocks */
    _Atomic uint64_t *doorbell; /**< reads as 0 once it was seen */
    uint32_t doorbell_bytes;    /**< to the second one */
    struct rs_softnic_cq_view send_cq, receive_cq;
};

struct rs_softnic_stats {
    uint64_t steps, doorbells, dropped, wqes, nops, packets, completions;
};

int rs_softnic_create(const struct rs_softnic_options *options,
                      struct rs_softnic **nic);
/** Stops its thread first. */
void rs_softnic_destroy(struct rs_softnic *nic);

/** Register memory of a domain. @param[out] key for both uses */
int rs_softnic_register(struct rs_softnic *nic, uint32_t domain, void *base,
                        uint64_t bytes, unsigned access, uint32_t *key);
/** The same of memory that is asked for by other addresses, from `base` on, than
 * those that processors have it at. */
int rs_softnic_register_at(struct rs_softnic *nic, uint32_t domain,
                           uint64_t base, void *memory, uint64_t bytes,
                           unsigned access, uint32_t *key);
void rs_softnic_deregister(struct rs_softnic *nic, uint32_t key);

int rs_softnic_qp_create(struct rs_softnic *nic,
                         const struct rs_softnic_qp_attr *attr,
                         struct rs_softnic_qp **qp);
struct rs_softnic_qp_view rs_softnic_qp_view(const struct rs_softnic_qp *qp);
/** Each becomes the other's peer. */
void rs_softnic_connect(struct rs_softnic_qp *one, struct rs_softnic_qp *other);

/** Where a softnic can be found by those of other processes. */
struct rs_softnic_address {
    uint8_t bytes;
    char name[15];
};
/** Let other processes' softnics connect; called once, before start. */
int rs_softnic_listen(struct rs_softnic *nic,
                      struct rs_softnic_address *address);
/** The peer is queue pair `qpn` of the softnic at this address. That one's
 * process connects its own end. */
void rs_softnic_connect_far(struct rs_softnic_qp *qp,
                            const struct rs_softnic_address *address,
                            uint32_t qpn);
/** From now on nothing is read or written through it. */
void rs_softnic_qp_destroy(struct rs_softnic_qp *qp);
/** As a modification to ERR: what is under way is flushed, and what the peer sends is not
 * answered. */
void rs_softnic_qp_stop(struct rs_softnic_qp *qp);
/** As a modification to RESET and back to RTS: indices begin at 0, doorbell
 * records are 0, no more completions of before come; those that are there stay
 * for the producer to throw away. */
void rs_softnic_qp_reset(struct rs_softnic_qp *qp);

/** The n-th WQE that is read from now on, counted from 0, fails. */
void rs_softnic_qp_inject(struct rs_softnic_qp *qp, uint64_t n,
                          uint8_t syndrome, uint8_t vendor_error);

/** Do one thing. @return false: there was nothing to do */
bool rs_softnic_step(struct rs_softnic *nic);
/** Step until there is nothing to do. */
void rs_softnic_settle(struct rs_softnic *nic);

/** Step in a thread of its own. */
int rs_softnic_start(struct rs_softnic *nic);
void rs_softnic_stop(struct rs_softnic *nic);

/** The first violation, "" while there was none; valid as long as the softnic. */
const char *rs_softnic_violation(struct rs_softnic *nic);
struct rs_softnic_stats rs_softnic_stats(struct rs_softnic *nic);

#endif
