/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of librsched/run that make an exchange share: the talks with
 * the peers, their messages and how a round of them goes (what is said is in
 * agree.c and meet.c), and the edges. */
#ifndef RS_RUN_TALK_H
#define RS_RUN_TALK_H

#include <assert.h>

#include "librsched/run/order.h"
#include "librsched/run/run.h"

enum {
    RS_TALK_MAGIC = 0x72736368, /* "rsch" */
    RS_TALK_BYTE_ORDER = 0x0102,
    RS_TALK_VERSION = 11,
    RS_TALK_REASON_BYTES = 128,
    RS_TALK_LANES = 2 * RSCHED_MAX_RAILS, /* rails, also for GPU memory */
};

/* Who I am, what I can, how many puts and receives we share. */
struct rs_hello {
    uint32_t magic;
    uint16_t byte_order;
    uint16_t version;
    uint32_t page_bytes;
    uint32_t flags;
    uint64_t settings;
    uint64_t job;
    uint64_t tag;
    int32_t process;
    int32_t status;
    uint32_t num_puts;     /* from me to you */
    uint32_t num_receives; /* from you to me */
    uint32_t life[RS_NUM_USES]; /* of our connections, the least ones that I can
                                   use */
    uint32_t on_gpu; /* of these puts and receives lie in GPU memory */
    struct rs_allowance allowance;
    struct rs_addresses addresses;
    char reason[RS_TALK_REASON_BYTES];
};
static_assert(sizeof(struct rs_hello) ==
                  1288 + RSCHED_MAX_ENGINES * RSCHED_ENGINE_ADDRESS_BYTES,
              "wire layout");

/* The engines that I reach you by. */
struct rs_reach {
    int32_t status;
    int32_t engine[RS_NUM_USES]; /* the first one that works; -1: none, or there is
                                    no use for it */
    char reason[RS_TALK_REASON_BYTES];
};
static_assert(sizeof(struct rs_reach) == 144, "wire layout");

/* The halves of our connections, my puts to you in the order in which they will
 * travel, one rail after the other, and the bytes that I expect from you. */
struct rs_size {
    uint64_t bytes;
    uint32_t k; /* puts: it is the k-th of the sender's puts to the receiver */
    uint8_t rail[RS_NUM_USES]; /* puts: that it goes over, by the connection */
    uint8_t on_gpu; /* 1: the teller's end lies in GPU memory */
};
struct rs_sizes {
    int32_t status;
    char reason[RS_TALK_REASON_BYTES];
    uint32_t undecided; /* bit i: the rails of the connection for use i are still
                           to be agreed on, as far as I know */
    unsigned char offer[RS_NUM_USES][RSCHED_ENGINE_OFFER_BYTES];
    struct rs_size of[]; /* one for each put, then one for each receive */
};
static_assert(sizeof(struct rs_size) == 16 &&
                  sizeof(struct rs_sizes) ==
                      136 + RS_NUM_USES * RSCHED_ENGINE_OFFER_BYTES,
              "wire layout");

/* The rails of our connections that I could connect, as bits: said where either does
 * not know yet what both could. */
struct rs_rails {
    int32_t status;
    uint32_t connected[RS_NUM_USES];
    char reason[RS_TALK_REASON_BYTES];
};
static_assert(sizeof(struct rs_rails) == 144, "wire layout");

/* Receiver to sender: its lanes, with a hash over everything agreed. */
struct rs_table {
    uint32_t magic;
    int32_t status;
    uint64_t hash;
    uint32_t num_puts;
    uint32_t num_lanes; /* in the order of their first puts' sizes */
    unsigned char descriptors[RS_TALK_LANES][RSCHED_LANE_DESCRIPTOR_BYTES];
    char reason[RS_TALK_REASON_BYTES];
};
static_assert(sizeof(struct rs_table) ==
                  152 + RS_TALK_LANES * RSCHED_LANE_DESCRIPTOR_BYTES,
              "wire layout");

/* Sender to receiver: the hash again, or why not. */
struct rs_ack {
    uint64_t hash;
    int32_t status;
    uint32_t attached; /* so many of the lanes may the sender write to */
    unsigned char replies[RS_TALK_LANES][RSCHED_LANE_DESCRIPTOR_BYTES];
    char reason[RS_TALK_REASON_BYTES];
};
static_assert(sizeof(struct rs_ack) ==
                  144 + RS_TALK_LANES * RSCHED_LANE_DESCRIPTOR_BYTES,
              "wire layout");

/* The talk with one peer. */
struct rs_ring_news;
struct rs_talk {
    int process;
    struct rs_peer *peers[RS_NUM_USES]; /* NULL: there is no such use */
    uint32_t num_puts, num_receives;
    uint32_t on_gpu; /* of them: this end */
    uint32_t told;   /* puts in sizes_out so far */
    uint32_t dealt;  /* and in edges */
    uint32_t *receives; /* ids, num_receives of them */
    struct rs_hello hello_out, hello_in;
    struct rs_reach reach_out, reach_in;
    struct rs_sizes *sizes_out, *sizes_in;
    struct rs_rails rails_out, rails_in;
    struct rs_table table_out, table_in;
    struct rs_ack ack_out, ack_in;
    struct rs_ring_news *news_out, *news_in; /* rings.c */
    struct rsched_oob_request *requests[2];
    bool done[2];
    bool over;  /* the peer is gone or foreign: no more messages */
    int status; /* first thing that went wrong with this peer */
    char reason[RS_TALK_REASON_BYTES];
};

/* An exchange that is being made. */
struct rs_creation {
    struct rsched_context *context;
    struct rsched_exchange *x;
    const struct rsched_exchange_params *params;
    const struct rsched_pattern *pattern; /* of params */
    struct rs_plan plan;
    uint32_t *k;           /* of each put: it is the k-th to its process */
    struct rsched_place *puts, *receives; /* where this end of each lies */
    struct rs_talk self;   /* the puts of the process to itself; says nothing */
    struct rs_talk *talks; /* with all peers but the process itself */
    uint32_t num_talks, room_talks;
    uint32_t num_rounds;   /* of messages, so far */
    int status; /* first thing that went wrong at all: told to every peer */
    char reason[RS_TALK_REASON_BYTES];
};

/** The talk with a process, also with this one; NULL if there is none. */
struct rs_talk *rs_creation_talk(struct rs_creation *c, int process);

struct rs_talk_message {
    void *buffer;
    size_t bytes; /* 0: none */
};

/** What is said in a round: by this process, and by the peer. */
typedef void rs_talk_round_fn(struct rs_talk *t, struct rs_talk_message *out,
                              struct rs_talk_message *in);

/** Say and hear the messages of a round with all peers. A peer that is gone or
 * late has its talk ended. */
void rs_talk_round(struct rs_creation *c, const char *name,
                   rs_talk_round_fn *messages);

/** Something has gone wrong that concerns all peers (creation) or one of them;
 * the text is the last error's. The first one counts. */
void rs_creation_failed(struct rs_creation *c, int error);
void rs_talk_failed(struct rs_creation *c, struct rs_talk *t, int error);

/** The peer has said that it failed, and why. */
void rs_talk_peer_failed(struct rs_creation *c, struct rs_talk *t,
                         int32_t status, char *reason);

/** Nothing more can be said to this peer; the talks with others go on, so that
 * they learn of it. */
void rs_talk_end(struct rs_creation *c, struct rs_talk *t, int error);

/** What a peer is told: what went wrong with it, or else with anybody. A
 * process that fails has no exchange, so none of its peers may have one. */
int32_t rs_talk_status(const struct rs_creation *c, const struct rs_talk *t,
                       char *reason);

/* meet.c */

/** The rounds hello and reach: after them each talk that goes on has its peer,
 * connected by an engine. */
void rs_creation_meet(struct rs_creation *c);

/** Let go of a talk's peers; the context's lock is held. */
void rs_talk_release_peers(struct rs_creation *c, struct rs_talk *t);

/** The peer of the talk of the process with itself. */
int rs_creation_meet_self(struct rs_creation *c);

/* rails.c */

/** The uses of which it is not agreed yet which rails they have, as bits. The
 * context's lock is held. */
uint32_t rs_talk_undecided(const struct rs_talk *t);

/** The round rails: after it each talk that goes on has agreed on them, and no put of a
 * creation that goes on is on another one. */
void rs_creation_agree_on_rails(struct rs_creation *c);

/* forecast.c */

/** Of each put whether it will probably go through the node's NIC (GDR loopback)
 * and so cross its engine and its links twice: by the costs of the ways at any
 * distance, as the receiver's GPU is not known yet. To be freed;
 * NULL: no process is reached through it.
 * @return 0 or RSCHED_ENOMEM */
int rs_creation_forecast(const struct rs_creation *c, bool **twice);

/* edges.c */

/** The edges on which this process sends, without lanes, in the order of their
 * first puts in the plan. */
int rs_edges_make_out(struct rs_creation *c);

/** The edges on which a peer's puts arrive, in the order in which these
 * travel. */
int rs_edges_add_in(struct rs_creation *c, const struct rs_talk *t,
                    const struct rs_size *puts);

/** Both edges of the process with itself and their lanes: the sender's order
 * is the receiver's, and needs no messages. */
int rs_edges_make_self(struct rs_creation *c);

/** The rails that a put of a process goes over, by the use of the connection: an
 * engine of the plan is a rail, modulo their number. 0 where there is none. */
void rs_talk_find_rails(const struct rs_talk *t, uint32_t engine,
                        uint8_t rail[RS_NUM_USES]);

/** Whether an edge is with the peer of a talk, over either connection. */
static inline bool rs_edge_is_with(const struct rs_edge *edge,
                                   const struct rs_talk *t)
{
    return edge->peer != NULL && (edge->peer == t->peers[RS_USE_HOST] ||
                                  edge->peer == t->peers[RS_USE_GPUS]);
}

/** The lanes of an edge: its own, and one beside that. */
static inline uint32_t rs_edge_num_lanes(const struct rs_edge *edge)
{
    return edge->beside_peer != NULL ? 2 : 1;
}

/** An edge's lane number `which` (1: the one beside): the receiver makes one and
 * describes it, the sender makes the other end and replies, the receiver attaches
 * it. */
int rs_edge_create_rx(struct rs_creation *c, struct rs_edge *edge,
                      uint32_t which, unsigned char *descriptor);
int rs_edge_create_tx(struct rs_creation *c, struct rs_edge *edge,
                      uint32_t which, const unsigned char *descriptor,
                      unsigned char *reply);
int rs_edge_attach_rx(struct rs_creation *c, struct rs_edge *edge,
                      uint32_t which, const unsigned char *reply);

#endif
