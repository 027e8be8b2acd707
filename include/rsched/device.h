/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * DEVICE: exchanges and puts that are started from inside a GPU kernel.
 *
 * What a network card has to be told is in memory before the kernel runs: for
 * each neighbor a queue pair of its own, whose ring is full of ready-made work
 * requests (WQEs). A start from the kernel stores the 16-bit index of each WQE
 * and the epoch, says in the doorbell record how far the ring is filled, and
 * rings one doorbell per neighbor. No processor takes part. The same calls can
 * hand over to a thread of the host instead (the **proxy**), for comparison
 * and where the GPU cannot reach the card's doorbell.
 *
 * This header is all that a kernel needs. It compiles as CUDA C++ (CUDA 12.2 and
 * later, for `st.mmio` of PTX 8.2; compute capability 7.0 and later), and for processors as C11 and C++11 (gcc, clang),
 * where a thread is a thread and a group of threads brings its own barrier.
 *
 * ## An exchange
 *
 * struct rsched_device_exchange is made by the host
 * (rsched_exchange_open_rings() and rsched_exchange_open_device() in
 * rsched/device_open.h), of two sets of buffers: epochs are counted from 0, and
 * epoch k sends from and receives into set k mod 2. A kernel calls start,
 * computes, calls wait, whichever way each neighbor is reached:
 *
 *     for (uint64_t k = 0; k < steps; k++) {
 *         ... write the send buffers of set k % 2 ...
 *         barrier with those of other groups who have written them
 *         rsched_device_start(x, &group);
 *         ... compute what needs no halo ...
 *         rsched_device_wait(x, &group);
 *         barrier with those of other groups who read them
 *         ... read the receive buffers of set k % 2 ...
 *     }
 *
 * start is never held up by a neighbor, and there is no message that only says
 * "my buffer is free": epoch k is written to where epoch k - 2 was, and where a
 * neighbor's epoch k - 1 has arrived it has started it, so it no longer reads
 * its receive buffers of epoch k - 2. That stands on two rules:
 *
 *   - **A start ends the reading of the receive buffers of the epoch before.**
 *     What comes two epochs later may be in their place from then on.
 *   - Every two neighbors send to each other in each epoch, if nothing else
 *     then the notification.
 *   - From start to wait the send buffers of the epoch must not be written.
 *
 * wait() == 0 says: the send buffers of the epoch are free, the receive
 * buffers hold its data, for all threads of the group.
 *
 * ## Words
 *
 * struct rsched_device_target is made by the host too
 * (rsched_exchange_open_targets()): a neighbor's memory, and a queue pair. Any
 * number of threads of one GPU put words of 8 bytes to it, from registers
 * (rsched/device_put.h):
 *
 *     rsched_device_put(t, &group, offset, value);  // thread or warp
 *     rsched_device_flush(t);                       // all have been taken
 *
 * The neighbor looks at them by rsched_device_load(). Words of one group come in
 * the order of its puts, so the last one may say that the others are there.
 *
 * ## Who may call
 *
 * An exchange belongs to one **group** of threads at a time: one thread, a
 * warp, or a block. All threads of the group call, with the same arguments.
 * The threads share the work: each stores every size-th WQE, then each rings
 * every size-th neighbor, so that as many threads as there are WQEs are of use
 * and more are not. It may go to another group, or to another kernel, between
 * wait and start, if these are ordered (a barrier of the grid, the stream).
 *
 * A kernel that waits for a neighbor needs that neighbor to run. Two processes
 * that share a GPU without MPS take turns, and may wait for each other for
 * ever.
 *
 * ## Memory, and who owns it
 *
 * All pointers in these structures are valid on the GPU. The structures belong
 * to the host, which makes and destroys them while no kernel uses them; their
 * members are no interface. Between kernels the host may read counters and
 * failure.
 *
 *   ring, records    host memory that the GPU has mapped, or GPU memory that
 *                    the card reads by peer access
 *   doorbell         a register of the card, mapped to the GPU, uncached or
 *                    write-combining; only ever stored to, 8 bytes at once
 *   CQ               written by the card, as the ring
 *   arrived          8 bytes that the neighbor's card writes, in the memory that
 *                    its data goes to
 *
 * ## Order
 *
 * Who must see what before what, and what makes it so:
 *
 *   1. Payload, then WQE, before the doorbell record: a release store at system
 *      scope (`st.release.sys`). It is cumulative over the barrier of the
 *      group, so one thread may publish what others have written.
 *   2. The record before the doorbell: `fence.acq_rel.sys`. Should a doorbell be
 *      lost, the card finds its work by the record.
 *   3. The doorbell is the first 8 bytes of the last WQE, in one store
 *      (`st.mmio.relaxed.sys`), alternately to the two halves of the register,
 *      which must not be combined; the next one's record and fence are between
 *      the two.
 *      BlueFlame, which would push a whole WQE of 64 bytes through the
 *      register, is not used: a GPU cannot promise one write of 64 bytes.
 *   4. A completion's last 8 bytes, with index and owner, in one load and before
 *      the rest of it, and `arrived` before the data that it announces: acquire
 *      loads at system scope (`ld.acquire.sys`).
 *
 * That the data of an earlier write is seen in GPU memory once the flag behind
 * it is seen holds where card and GPU keep the order of writes (no relaxed
 * ordering is registered). Kernels have run on a GPU, **with no card**: with the
 * proxy, and words with one in software.
 *
 * ## Wrap
 *
 * A WQE lies in blocks of 64 bytes. Blocks are counted by 64 bits; block n lies
 * in slot n mod (length of the ring), its WQE carries n mod 65536, the record
 * holds n mod 65536. Rings have at most 32768 blocks, so that 16 bits tell full
 * from empty. A WQE may go on at the beginning of the ring. An exchange's lists
 * are padded so that each finds itself in the ring again: two of them, one for
 * each set, divide its length.
 *
 * ## What is not allowed
 *
 *   - two groups in one exchange at once, threads of a group that do not call
 *   - start before the wait of the epoch before has returned 0
 *   - writing ring, records or doorbell by anybody else, or WQEs between start
 *     and wait
 *   - receive buffers, and words that neighbors put, read through the read-only
 *     data cache by a kernel that waits for them: no acquire makes it coherent.
 *     The compiler uses it (`ld.global.nc`) for what is `const` and
 *     `__restrict__`, and for `__ldg`
 *   - a peer other than those the host has connected; puts beyond a target's
 *     bytes (RSCHED_EINVAL)
 *
 * ## Errors
 *
 * Of an exchange that the host has opened: what it fails with, whose text
 * rsched_opening_check() has. Where the kernel writes the rings:
 *
 * A WQE that fails ends its queue pair. The group's wait, or the put or flush,
 * returns RSCHED_EPEER, and so do all calls from then on; `failure` of the lane
 * or target has the card's syndrome (0x15: the neighbor does not answer, 0x13:
 * it does not allow the access, 0x04: wrong local key, 0x05: flushed because
 * of an earlier one) and the index of the WQE. A completion that nobody has
 * asked for is RSCHED_ESYS. A neighbor that is gone is noticed by the host only:
 * it stores a negative RSCHED_E* code to the neighbor's word of `gone`, which
 * ends waits for what the neighbor has not announced, and no others: what had
 * come before that counts, other neighbors may be late, and writes of the
 * kernel's own complete, or fail, by themselves. `stop` ends all waits. A proxy
 * has such a word too, for those who wait for room in its ring and for flushes;
 * once it is set, nothing that is asked later is done.
 */
#ifndef RSCHED_DEVICE_H
#define RSCHED_DEVICE_H

#include <rsched/device_queue.h>
#include <rsched/device_put.h>

/* What one set's list needs in each epoch. */
struct rsched_device_list {
    const uint32_t *wqes; /* of each its block << 8 | opcode */
    uint32_t num_wqes;
    uint32_t last_block;  /* of the last WQE, the write that notifies */
    uint32_t stamp;       /* where the epoch goes, in bytes */
    uint32_t second_word; /* of the last WQE, as in memory */
};

/** A neighbor. */
struct rsched_device_lane {
    struct rsched_device_queue queue;
    struct rsched_device_list lists[2];
    uint32_t blocks;         /* of each list */
    const uint64_t *arrived; /* epochs that the neighbor has notified */
    uint64_t posted;         /* epochs */
    uint64_t completed;      /* of them */
    struct rsched_device_failure failure; /**< if there is a status; 0: the
                                           * neighbor is gone */
    int32_t status;
};

/** An exchange. */
struct rsched_device_exchange {
    struct rsched_device_lane *lanes; /* whose rings the group writes */
    struct rsched_device_lane *proxied; /* in host memory: the proxy's, but for
                                         * reading */
    uint32_t num_lanes, num_proxied;
    uint32_t vain; /* tests */
    int32_t reserved;
    int32_t status;  /**< 0 or the error that it has failed with */
    int32_t verdict; /* of the thread that decides for its group */
    uint64_t epochs; /**< started */
    uint64_t complete;   /**< of them, as a group has seen */
    const int32_t *stop; /**< the host ends all waits by an RSCHED_E* code */
    /** NULL, or whether any of the neighbors of `lanes` is gone, and, behind that,
     * an RSCHED_E* code for each that is. */
    const int32_t *gone;
    int32_t *told;       /* NULL, or where the host learns of the status */
    /** NULL, or who starts the lanes that are its own. */
    const struct rsched_device_proxy *proxy;
    const void *host; /* the exchange that the proxy starts */
};

RSCHED_DEVICE uint32_t
rsched_device_num_lanes(const struct rsched_device_exchange *x)
{
    return x->num_lanes + x->num_proxied;
}

RSCHED_DEVICE struct rsched_device_lane *
rsched_device_lane_at(const struct rsched_device_exchange *x, uint32_t i)
{
    return i < x->num_lanes ? &x->lanes[i] : &x->proxied[i - x->num_lanes];
}

/* The exchange has failed. */
RSCHED_DEVICE void rsched_device_give_up(struct rsched_device_exchange *x,
                                         int status)
{
    rsched_device_store32((uint32_t *)&x->status, (uint32_t)status);
    /* Release: whoever sees it finds the lane's failure. */
    if (x->told != NULL)
        rsched_device_store32((uint32_t *)x->told, (uint32_t)status);
}

/* One thread's share of a list: store indices, and the epoch. */
RSCHED_DEVICE void
rsched_device_lane_patch(const struct rsched_device_lane *lane, uint64_t epoch,
                         const struct rsched_device_group *g)
{
    const struct rsched_device_list *list = &lane->lists[epoch & 1];
    uint64_t first = epoch * lane->blocks;

    for (uint32_t i = g->rank; i < list->num_wqes; i += g->size) {
        uint32_t wqe = list->wqes[i];

        *rsched_device_queue_at(&lane->queue, first + (wqe >> 8), 0) =
            rsched_device_first_word(first + (wqe >> 8), wqe & 0xff);
    }
    if (g->rank == 0) {
        uint64_t notice = epoch + 1;

        *rsched_device_queue_at(&lane->queue, first, list->stamp) =
            (uint32_t)notice;
        *rsched_device_queue_at(&lane->queue, first, list->stamp + 4) =
            (uint32_t)(notice >> 32);
    }
}

RSCHED_DEVICE void rsched_device_lane_ring(struct rsched_device_lane *lane,
                                           uint64_t epoch)
{
    const struct rsched_device_list *list = &lane->lists[epoch & 1];
    const struct rsched_device_bell bell = rsched_device_queue_bell(&lane->queue);
    uint64_t first = epoch * lane->blocks;

    rsched_device_count(&lane->posted, epoch + 1);
    rsched_device_queue_ring(
        &lane->queue, &bell, first + lane->blocks,
        rsched_device_first_word(first + list->last_block, RSCHED_DEVICE_WRITE),
        list->second_word);
}

RSCHED_DEVICE void
rsched_device_lane_fail(struct rsched_device_lane *lane,
                        const struct rsched_device_completion *c)
{
    lane->failure.syndrome = c->syndrome;
    lane->failure.vendor_error = c->vendor_error;
    lane->failure.index = c->index;
    rsched_device_store32((uint32_t *)&lane->status,
                          (uint32_t)(c->kind == RSCHED_DEVICE_CQE_ERROR
                                         ? RSCHED_EPEER
                                         : RSCHED_ESYS));
}

/* Take the completions that are there. */
RSCHED_DEVICE void rsched_device_lane_poll(struct rsched_device_lane *lane)
{
    struct rsched_device_completion c;
    uint64_t completed = lane->completed;

    while (lane->status == 0 && rsched_device_queue_poll(&lane->queue, &c)) {
        uint32_t last = lane->lists[completed & 1].last_block;

        if (c.kind != RSCHED_DEVICE_CQE_SENT || completed == lane->posted ||
            c.index != (uint16_t)(completed * lane->blocks + last)) {
            rsched_device_lane_fail(lane, &c);
        } else {
            completed++;
            /* Release: for a group that the proxy works for. */
            rsched_device_store(&lane->completed, completed);
        }
    }
}

/* @return 1: lane i is through with all that was started; 0: not yet; or an
 * error */
RSCHED_DEVICE int rsched_device_lane_test(struct rsched_device_exchange *x,
                                          uint32_t i)
{
    struct rsched_device_lane *lane = rsched_device_lane_at(x, i);
    int status;

    if (i < x->num_lanes)
        rsched_device_lane_poll(lane);
    status = (int)rsched_device_load32((const uint32_t *)&lane->status);
    if (status != 0)
        return status;
    /* Acquire: what was announced is read after. */
    return rsched_device_load(&lane->completed) == x->epochs &&
           rsched_device_load(lane->arrived) >= x->epochs;
}

/* Whether another epoch can be started; if so it counts as started. */
RSCHED_DEVICE int rsched_device_admit(struct rsched_device_exchange *x)
{
    uint64_t epoch = x->epochs;
    int status = 0;

    if (x->status != 0)
        return x->status;
    for (uint32_t i = 0; i < rsched_device_num_lanes(x); i++) {
        const struct rsched_device_lane *lane = rsched_device_lane_at(x, i);

        if (rsched_device_load(&lane->completed) != epoch ||
            rsched_device_load(lane->arrived) < epoch)
            return RSCHED_ESTATE;
    }
    if (x->proxy != NULL)
        status = rsched_device_proxy_ask(x->proxy, RSCHED_DEVICE_START, x->host,
                                         0, epoch);
    if (status == 0)
        rsched_device_count(&x->epochs, epoch + 1);
    else
        rsched_device_give_up(x, status);
    return status;
}

/* The group's own start of an epoch that may be started. */
RSCHED_DEVICE void rsched_device_begin(struct rsched_device_exchange *x,
                                       const struct rsched_device_group *g,
                                       uint64_t epoch)
{
    for (uint32_t i = 0; i < x->num_lanes; i++)
        rsched_device_lane_patch(&x->lanes[i], epoch, g);
    /* A list is rung by one thread, when all have stored their shares. */
    rsched_device_sync(g);
    for (uint32_t i = g->rank; i < x->num_lanes; i += g->size)
        rsched_device_lane_ring(&x->lanes[i], epoch);
}

/**
 * Start the next epoch. All threads of the group call; what any of them has
 * written before is sent. Never waits for a neighbor; with a proxy, for room in
 * its ring.
 *
 * @return for all threads alike 0; RSCHED_ESTATE: the epoch before is not
 *         complete; or the error that the exchange has failed with
 */
RSCHED_DEVICE int rsched_device_start(struct rsched_device_exchange *x,
                                      const struct rsched_device_group *g)
{
    int status;

    rsched_device_sync(g);
    if (g->rank == 0)
        x->verdict = rsched_device_admit(x);
    rsched_device_sync(g);
    status = x->verdict;
    if (status == 0 && x->num_lanes > 0)
        rsched_device_begin(x, g, x->epochs - 1);
    return status;
}

/* One look of a thread at its share of the lanes.
 * @return 1: they are through; 0: not yet; or an error */
RSCHED_DEVICE int rsched_device_look(struct rsched_device_exchange *x,
                                     const struct rsched_device_group *g)
{
    int all = 1;

    for (uint32_t i = g->rank; i < rsched_device_num_lanes(x); i += g->size) {
        int status = rsched_device_lane_test(x, i);

        if (status < 0) {
            /* The other threads need not go on. */
            rsched_device_give_up(x, status);
            return status;
        }
        all = all && status;
    }
    return all;
}

/* How often a group that waits looks at the host's words, which may be far. */
enum { RSCHED_DEVICE_STOP_LOOKS = 256 };

/* Fail the thread's share of the lanes where more is waited for than the neighbor,
 * which is gone, has announced. */
RSCHED_DEVICE void rsched_device_miss(const struct rsched_device_exchange *x,
                                      const struct rsched_device_group *g)
{
    const uint32_t *gone = (const uint32_t *)x->gone;

    if (gone == NULL || rsched_device_load32(gone) == 0)
        return;
    for (uint32_t i = g->rank; i < x->num_lanes; i += g->size) {
        struct rsched_device_lane *lane = &x->lanes[i];
        /* Acquire: it has announced by now what it ever will. */
        uint32_t status = rsched_device_load32(&gone[1 + i]);

        if (status != 0 && lane->status == 0 &&
            rsched_device_load(lane->arrived) < x->epochs)
            rsched_device_store32((uint32_t *)&lane->status, status);
    }
}

/* @return whether the host has ended the waits. What had come before that is
 * not lost; else the exchange has failed now. */
RSCHED_DEVICE bool rsched_device_heed(struct rsched_device_exchange *x,
                                      const struct rsched_device_group *g)
{
    int status = (int)rsched_device_load32((const uint32_t *)x->stop);

    rsched_device_miss(x, g);
    if (status == 0)
        return false;
    if (rsched_device_look(x, g) == 0)
        rsched_device_give_up(x, status);
    return true;
}

/* All threads have looked: one says for all what has come of it. */
RSCHED_DEVICE int rsched_device_settle(struct rsched_device_exchange *x,
                                       const struct rsched_device_group *g)
{
    rsched_device_sync(g);
    if (g->rank == 0) {
        const struct rsched_device_group alone = rsched_device_thread();

        x->verdict = x->status != 0 ? x->status : rsched_device_look(x, &alone);
        if (x->verdict == 0 && ++x->vain % RSCHED_DEVICE_STOP_LOOKS == 0 &&
            rsched_device_heed(x, &alone))
            x->verdict = x->status != 0 ? x->status : 1;
        if (x->verdict == 1)
            rsched_device_count(&x->complete, x->epochs);
    }
    rsched_device_sync(g);
    return x->verdict;
}

/**
 * See whether the epoch is complete; true also where none was started. All
 * threads of the group call.
 *
 * @param done for all threads alike
 * @return 0, or the error that the exchange has failed with
 */
RSCHED_DEVICE int rsched_device_test(struct rsched_device_exchange *x,
                                     const struct rsched_device_group *g,
                                     bool *done)
{
    int status;

    rsched_device_look(x, g);
    status = rsched_device_settle(x, g);
    if (status < 0)
        return status;
    *done = status == 1;
    return 0;
}

/** Wait until the epoch is complete. All threads of the group call.
 * @return as rsched_device_test(), or the code that the host has stopped it
 *         with */
RSCHED_DEVICE int rsched_device_wait(struct rsched_device_exchange *x,
                                     const struct rsched_device_group *g)
{
    uint32_t looks = 0;
    int status = 0;

    for (;;) {
        if (rsched_device_look(x, g) != 0 ||
            rsched_device_load32((const uint32_t *)&x->status) != 0)
            break;
        rsched_device_pause();
        if (++looks % RSCHED_DEVICE_STOP_LOOKS == 0 && rsched_device_heed(x, g))
            break;
    }
    status = rsched_device_settle(x, g);
    return status < 0 ? status : 0;
}

#endif
