/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GROUP: the lanes of one exchange at one side.
 *
 * Lanes that come from one peer and offer tables are a **bundle**: their epochs
 * are the same ones, since messages of a fixed length start in every epoch of
 * their exchange, and all receive buffers of an exchange may be written from its
 * start on. So one word in each epoch, `ready`, speaks for all of them. It is in
 * the credits of the bundle's *leader*, the first of these lanes that the receiver
 * has made, and travels over the leader's rail.
 *
 * The tables travel over the rails of their lanes, so `ready` may overtake them. The
 * version of the tables that it speaks of, which is one for all lanes, is in the word
 * `version` by then, and a sender takes a table only if the word `table` behind it
 * has that version. `version` is written before the first `ready` that it holds for,
 * and not before the epoch before is over: when all its senders have chosen their
 * way. Versions have 64 bits and only grow, so that none comes back.
 *
 * No lane has to take the leader's place. If its rail fails so does the exchange,
 * at both sides: the leader is not through with the epoch at either before `ready`
 * has arrived. If its queue has no room, the leader's progress posts the word later,
 * and none of the bundle's lanes can be through before.
 *
 * Threads: groups are made, and lanes join them, with the context's lock held. After
 * that what changes belongs to whoever the exchange's lanes belong to.
 */
#ifndef RS_RDMA_GROUP_H
#define RS_RDMA_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <rsched/engine.h>

struct rs_rdma_credits;

struct rs_rdma_bundle {
    struct rs_rdma_bundle *next;
    const struct rsched_connection *connection;
    uint32_t rail;    /* of the leader */
    /* Receiver. */
    uint64_t version; /* of the latest tables; 0: there are none yet */
    uint64_t told;    /* of them: `version` has been posted */
    bool ready_due;   /* the epoch's `ready` has not been posted */
    /* Sender. */
    const struct rs_rdma_credits *credits; /* NULL: the leader is not there yet */
};

struct rsched_group {
    struct rs_rdma_bundle *in, *out;
};

/** The bundle in a list of lanes from (to) this peer, whose leader is over this
 * rail, or over any; made if there is none.
 * @param rail of the leader @param any if there is a bundle, it need not be that
 * @return NULL: no memory */
struct rs_rdma_bundle *
rs_rdma_bundle_join(struct rs_rdma_bundle **list,
                    const struct rsched_connection *connection, uint32_t rail,
                    bool any);

/** The version of a lane's next table, of which it had `version`: that of the
 * lanes which have been loaded since, or a new one. Never 0. */
uint64_t rs_rdma_bundle_advance(struct rs_rdma_bundle *bundle, uint64_t version);

int rs_rdma_group_create(struct rsched_engine *, struct rsched_group **);
void rs_rdma_group_destroy(struct rsched_group *);

#endif
