/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Puts of single words from registers, by any number of threads of one GPU:
 * rsched/device.h has the whole.
 *
 * A put takes blocks of the ring by one atomic addition, writes its WQE, and
 * publishes it behind those of the threads before it. Then it asks for a doorbell:
 * who is the first to ask rings, and again for those who have asked meanwhile, so
 * that a doorbell covers the words of many. What takes long is to order what lies
 * in host memory: only who rings waits for that, twice, and nobody for the turn of
 * another who does.
 */
#ifndef RSCHED_DEVICE_PUT_H
#define RSCHED_DEVICE_PUT_H

#include <rsched/device_queue.h>

/** Memory of a neighbor, and a queue pair to write it with words from
 * registers. Any number of threads of one GPU may use it at once. */
struct rsched_device_target {
    struct rsched_device_queue queue;
    uint64_t remote, bytes;
    uint32_t rkey;
    uint32_t max_inline; /* bytes of a WQE */
    /* Blocks: given to writers, written, back from the card. */
    uint64_t reserved;
    uint64_t published; /* blocks << 6 | segments of the last WQE */
    uint64_t retired;
    uint64_t rung;
    uint64_t asking;     /* for a doorbell; 0: nobody rings */
    uint64_t polling;    /* 1: a thread is at it */
    uint64_t puts, wqes; /**< so far */
    struct rsched_device_failure failure; /**< if there is a status */
    int32_t status; /**< 0 or the error that it has failed with */
    const struct rsched_device_proxy *proxy; /* NULL, or who writes WQEs */
    const void *host; /* the target that the proxy uses */
    /* Of the proxy: all of its requests below are through; its status. */
    const uint64_t *flushed;
    const int32_t *proxy_status;
};

enum { RSCHED_DEVICE_MAX_GROUP = 32 };

/* Blocks that are missing in `retired` once a target has failed. */
#define RSCHED_DEVICE_FAILED (UINT64_C(1) << 62)

/* Whether it is so for all threads of the group. */
RSCHED_DEVICE bool rsched_device_all(const struct rsched_device_group *g,
                                     bool is_so)
{
#if defined(__CUDA_ARCH__)
    return g->size == 1 ? is_so : __all_sync(g->mask, is_so) != 0;
#else
    bool all = is_so;

    if (g->size == 1)
        return is_so;
    g->words[g->rank] = is_so;
    g->sync(g->arg);
    for (uint32_t i = 0; i < g->size; i++)
        all = all && g->words[i] != 0;
    g->sync(g->arg);
    return all;
#endif
}

/* The value that thread 0 of the group has. */
RSCHED_DEVICE uint64_t rsched_device_first(const struct rsched_device_group *g,
                                           uint64_t value)
{
#if defined(__CUDA_ARCH__)
    return g->size == 1 ? value
                        : __shfl_sync(g->mask, (unsigned long long)value,
                                      __ffs((int)g->mask) - 1);
#else
    uint64_t first;

    if (g->size == 1)
        return value;
    if (g->rank == 0)
        g->words[0] = value;
    g->sync(g->arg);
    first = g->words[0];
    g->sync(g->arg);
    return first;
#endif
}

RSCHED_DEVICE int
rsched_device_target_status(const struct rsched_device_target *t)
{
    if (t->proxy == NULL)
        return (int)rsched_device_load32_near((const uint32_t *)&t->status);
    return (int)rsched_device_load32((const uint32_t *)t->proxy_status);
}

/* A completion frees the blocks up to the end of its WQE: those before it on
 * the queue pair are complete too. */
RSCHED_DEVICE void
rsched_device_target_retire(struct rsched_device_target *t,
                            const struct rsched_device_completion *c)
{
    uint64_t first = t->retired + (uint16_t)(c->index - t->retired);
    uint32_t segments = *rsched_device_queue_at(&t->queue, first, 4) >> 24;

    if (c->kind != RSCHED_DEVICE_CQE_SENT ||
        first >= rsched_device_load_near(&t->rung)) {
        t->failure.syndrome = c->syndrome;
        t->failure.vendor_error = c->vendor_error;
        t->failure.index = c->index;
        rsched_device_store32((uint32_t *)&t->status,
                              (uint32_t)(c->kind == RSCHED_DEVICE_CQE_ERROR
                                             ? RSCHED_EPEER
                                             : RSCHED_ESYS));
        /* Release: who finds no room any more sees the status. */
        rsched_device_store_near(&t->retired, t->retired - RSCHED_DEVICE_FAILED);
        return;
    }
    /* Release: the completion came before the blocks are written again. */
    rsched_device_store_near(&t->retired, first + (segments + 3) / 4);
}

/* Take the completions that are there, if no other thread does. */
RSCHED_DEVICE void rsched_device_target_poll(struct rsched_device_target *t)
{
    struct rsched_device_completion c;

    if (!rsched_device_take_near(&t->polling))
        return;
    while (t->status == 0 && rsched_device_queue_poll(&t->queue, &c))
        rsched_device_target_retire(t, &c);
    rsched_device_store_near(&t->polling, 0);
}

/* Blocks to write, once there is room: where the target has failed there is none.
 * @return 0 or an error */
RSCHED_DEVICE int
rsched_device_target_reserve(struct rsched_device_target *t, uint32_t blocks,
                             uint64_t *first)
{
    uint64_t room = (uint64_t)t->queue.mask + 1;

    *first = rsched_device_fetch_add_near(&t->reserved, blocks);
    /* Acquire: the card has done with what was there before. */
    while (*first + blocks - rsched_device_load_near(&t->retired) > room) {
        int status = rsched_device_target_status(t);

        if (status != 0)
            return status;
        rsched_device_target_poll(t);
        rsched_device_pause();
    }
    return 0;
}

/* Ring for all that is published. */
RSCHED_DEVICE void rsched_device_target_ring(struct rsched_device_target *t,
                                             uint64_t published)
{
    const struct rsched_device_bell bell = rsched_device_queue_bell(&t->queue);
    uint64_t end = published >> 6;
    uint32_t segments = (uint32_t)published & 63, blocks = (segments + 3) / 4;
    uint32_t qpn = t->queue.qpn;

    if (end == t->rung)
        return;
    /* Before the doorbell, by the release of its record: completions are held
     * against it. */
    rsched_device_poke_near(&t->rung, end);
    rsched_device_queue_ring(
        &t->queue, &bell, end,
        rsched_device_first_word(end - blocks, RSCHED_DEVICE_WRITE),
        rsched_device_big32(qpn << 8 | segments));
}

/* The one that is at it: it is through only when nobody has asked since it has
 * looked. */
RSCHED_DEVICE void rsched_device_target_ring_all(struct rsched_device_target *t,
                                                 uint64_t published)
{
    uint64_t asking = 1;

    rsched_device_target_ring(t, published);
    /* Release: the next one rings behind this. */
    while (!rsched_device_replace_near(&t->asking, asking, 0)) {
        /* Acquire: they have published before. */
        asking = rsched_device_load_near(&t->asking);
        rsched_device_target_ring(t, rsched_device_load_near(&t->published));
    }
}

/* Blocks are published in their order, each thread behind the one before, and rung
 * by the first who has asked. */
RSCHED_DEVICE int
rsched_device_target_publish(struct rsched_device_target *t, uint64_t first,
                             uint32_t blocks, uint32_t segments, uint32_t wqes,
                             uint32_t puts)
{
    uint64_t published = (first + blocks) << 6 | segments;
    int status = 0;

    rsched_device_fetch_add_near(&t->wqes, wqes);
    rsched_device_fetch_add_near(&t->puts, puts);
    /* It is this thread's turn, and nobody rings: what it has written is ordered
     * by the doorbell. Acquire: so is what those before it have published, and not
     * asked for yet. */
    if (rsched_device_load_near(&t->published) >> 6 == first &&
        rsched_device_take_near(&t->asking)) {
        rsched_device_poke_near(&t->published, published);
        rsched_device_target_ring_all(t, published);
        return 0;
    }
    rsched_device_prepare_near();
    while (rsched_device_peek_near(&t->published) >> 6 != first) {
        status = rsched_device_target_status(t);
        if (status != 0)
            return status;
        rsched_device_pause();
    }
    /* Release: the WQEs of this thread, and of those before it. */
    rsched_device_exchange_near(&t->published, published);
    /* Acquire: who has published behind it has also asked. */
    if (rsched_device_add_near(&t->asking, 1) == 0)
        rsched_device_target_ring_all(t, rsched_device_load_near(&t->published));
    return 0;
}

/* What never changes of a target and a WQE is made of, for registers: a thread has it
 * before the acquires, behind each of which all loads come from far. The rest of it is
 * not set. */
RSCHED_DEVICE struct rsched_device_target
rsched_device_target_fixed(const struct rsched_device_target *t)
{
    struct rsched_device_target fixed;

    fixed.queue.ring = t->queue.ring;
    fixed.queue.mask = t->queue.mask;
    fixed.queue.qpn = t->queue.qpn;
    fixed.remote = t->remote;
    fixed.rkey = t->rkey;
    return fixed;
}

/* Control and remote address of an inline write. */
RSCHED_DEVICE void
rsched_device_target_head(const struct rsched_device_target *t, uint64_t first,
                          uint64_t offset, uint32_t bytes, bool signalled)
{
    uint32_t segments = 2 + (bytes + 4 + 15) / 16;
    uint64_t remote = t->remote + offset;
    /* One block: it holds all of this. */
    uint32_t *w = rsched_device_queue_at(&t->queue, first, 0);

    rsched_device_store_segment(
        w, rsched_device_first_word(first, RSCHED_DEVICE_WRITE),
        rsched_device_big32(t->queue.qpn << 8 | segments),
        rsched_device_big32(signalled ? 8 : 0), 0);
    rsched_device_store_segment(w + 4,
                                rsched_device_big32((uint32_t)(remote >> 32)),
                                rsched_device_big32((uint32_t)remote),
                                rsched_device_big32(t->rkey), 0);
}

RSCHED_DEVICE uint32_t rsched_device_inline_header(uint32_t bytes)
{
    return rsched_device_big32(bytes | UINT32_C(0x80000000));
}

/* The only word behind it, in this machine's order. What follows in the block no
 * card reads. */
RSCHED_DEVICE void
rsched_device_target_only_word(const struct rsched_device_target *t,
                               uint64_t first, uint64_t value)
{
    rsched_device_store_segment(rsched_device_queue_at(&t->queue, first, 32),
                                rsched_device_inline_header(8), (uint32_t)value,
                                (uint32_t)(value >> 32), 0);
}

/* Of several words that at `number`. */
RSCHED_DEVICE void
rsched_device_target_word(const struct rsched_device_target *t, uint64_t first,
                          uint32_t number, uint64_t value)
{
    uint32_t at = 36 + 8 * number;

    *rsched_device_queue_at(&t->queue, first, at) = (uint32_t)value;
    *rsched_device_queue_at(&t->queue, first, at + 4) = (uint32_t)(value >> 32);
}

/* What is around several words: their length, and zeros from the last one to the
 * end of its segment. */
RSCHED_DEVICE void
rsched_device_target_ends(const struct rsched_device_target *t, uint64_t first,
                          uint32_t words)
{
    *rsched_device_queue_at(&t->queue, first, 32) =
        rsched_device_inline_header(8 * words);
    for (uint32_t at = 36 + 8 * words; at % 16 != 0; at += 4)
        *rsched_device_queue_at(&t->queue, first, at) = 0;
}

RSCHED_DEVICE int
rsched_device_target_write(struct rsched_device_target *t,
                           const struct rsched_device_group *g,
                           uint64_t offset, uint64_t value, bool together)
{
    uint32_t bytes = together ? 8 * g->size : 8;
    uint32_t segments = 2 + (bytes + 4 + 15) / 16;
    uint32_t wqe_blocks = (segments + 3) / 4;
    uint32_t blocks = together ? wqe_blocks : g->size;
    const struct rsched_device_target fixed = rsched_device_target_fixed(t);
    uint64_t first = 0, mine;
    int status = 0;

    if (g->rank == 0)
        status = rsched_device_target_reserve(t, blocks, &first);
    status = (int)rsched_device_first(g, (uint64_t)(int64_t)status);
    if (status != 0)
        return status;
    first = rsched_device_first(g, first);
    mine = together ? first : first + g->rank;
    if (!together || g->rank == 0)
        rsched_device_target_head(&fixed, mine, offset, bytes,
                                  together || g->rank == g->size - 1);
    if (!together)
        rsched_device_target_only_word(&fixed, mine, value);
    else
        rsched_device_target_word(&fixed, mine, g->rank, value);
    if (together && g->rank == 0)
        rsched_device_target_ends(&fixed, mine, g->size);
    /* One thread publishes what all have written. */
    rsched_device_sync(g);
    if (g->rank == 0)
        status = rsched_device_target_publish(t, first, blocks, segments,
                                              together ? 1 : g->size, g->size);
    return (int)rsched_device_first(g, (uint64_t)(int64_t)status);
}

/**
 * Put 8 bytes from a register to a neighbor's memory. Each thread of the group
 * (a thread, or threads of a warp) has an offset and a value of its own; if the
 * offsets follow one another in the order of the threads, one WQE carries them
 * all (coalescing), else each has its own; one doorbell in either case, and
 * none where another thread is about to ring. What a thread or group has put
 * arrives in the order of its puts, and the words of one call are complete with
 * the last of them. They have been read from the registers when it returns.
 *
 * Waits while the ring is full.
 *
 * @param offset in the target's memory, a multiple of 8
 * @return for all threads alike 0; RSCHED_EINVAL: a thread's offset is wrong,
 *         or the group is no warp or thread; nothing is put; or the error that
 *         the target has failed with. Where the ring is a proxy's that the host
 *         has stopped: for each thread the host's code, or 0 (it still had room)
 */
RSCHED_DEVICE int rsched_device_put(struct rsched_device_target *t,
                                    const struct rsched_device_group *g,
                                    uint64_t offset, uint64_t value)
{
    bool fits = offset % 8 == 0 && offset < t->bytes && t->bytes - offset >= 8;
    bool together;
    int status;

    if (g->kind == RSCHED_DEVICE_BLOCK || g->size > RSCHED_DEVICE_MAX_GROUP ||
        !rsched_device_all(g, fits))
        return RSCHED_EINVAL;
    if (t->proxy != NULL) {
        status = (int)rsched_device_first(
            g, (uint64_t)(int64_t)rsched_device_target_status(t));
        if (status != 0)
            return status;
        return rsched_device_proxy_ask(t->proxy, RSCHED_DEVICE_PUT, t->host,
                                       offset, value);
    }
    together = rsched_device_all(
        g, offset == rsched_device_first(g, offset) + 8 * (uint64_t)g->rank);
    together = together && g->size > 1 && 8 * g->size <= t->max_inline;
    return rsched_device_target_write(t, g, offset, value, together);
}

/**
 * Wait until all puts that have returned, of any thread, have been taken by
 * the neighbor's card. Each thread may call it by itself.
 *
 * @return 0, the error that the target has failed with, or the code that the
 *         host has stopped its proxy with
 */
RSCHED_DEVICE int rsched_device_flush(struct rsched_device_target *t)
{
    uint64_t end = t->proxy != NULL
                       ? rsched_device_load(t->proxy->asked)
                       : rsched_device_load_near(&t->published) >> 6;
    const uint64_t *done = t->proxy != NULL ? t->flushed : &t->retired;

    while ((int64_t)(rsched_device_load(done) - end) < 0) {
        int status = rsched_device_target_status(t);

        if (status == 0 && t->proxy != NULL)
            status = rsched_device_proxy_status(t->proxy);
        if (status != 0)
            return status;
        if (t->proxy == NULL)
            rsched_device_target_poll(t);
        rsched_device_pause();
    }
    return 0;
}

#endif
