/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ways to move a message within a node cost, and which is cheapest.
 *
 * The parameters are those of LogGOPS (Hoefler, Schneider, Lumsdaine:
 * LogGOPSim, HPDC 2010), with rates that change with the size, as caches end:
 *
 *   L      what both sides wait for: the transfers of cache lines
 *   o, O   work: a process that sends a message of B bytes and receives one is
 *          done after L + o + O(B)
 *   g, G   gap: where one process sends and the other one receives, a message
 *          follows the one before after g + G(B)
 *
 * In a halo exchange each process sends and receives, so L + o + O(B) decides
 * which way a message takes; g + G(B), whether it pays that both processes
 * copy. Times are in picoseconds.
 */
#ifndef RS_BASE_WAYS_H
#define RS_BASE_WAYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RS_WAY_RANGES = 6 };

/* Bytes of a message from number `from` on, up to the next range. */
struct rs_way_range {
    uint64_t from;
    uint64_t rate; /* bytes/s */
};

/* o and O, or g and G. */
struct rs_way_cost {
    uint64_t message;    /* whatever it is long */
    uint32_t num_ranges; /* the first one begins at 0, they ascend */
    struct rs_way_range ranges[RS_WAY_RANGES];
};

enum rs_way {
    RS_WAY_SELF,    /* within the process, one copy */
    RS_WAY_LANDING, /* through slots, two copies */
    RS_WAY_PULL,    /* the receiver copies out of the sender's mapped memory */
    RS_WAY_SHARED,  /* the same, and the sender helps */
    RS_WAY_CMA,     /* the receiver has the kernel copy */
    RS_NUM_WAYS
};

struct rs_way_costs {
    bool given;       /* it may be used */
    uint64_t latency; /* L */
    struct rs_way_cost work;
    struct rs_way_cost gap;
    uint64_t block; /* work for each block of the message but the first; blocks
                       that share a line of 64 bytes are one */
};

struct rs_ways {
    struct rs_way_costs of[RS_NUM_WAYS];
    uint64_t least_once;    /* shorter messages land, whatever they cost */
    uint64_t shortest_once; /* rs_ways_shortest_once(), kept */
};

/** The word for a way in files and tables: "self", "landing", ... */
const char *rs_way_name(enum rs_way way);

/** message + O(bytes), in ps; UINT64_MAX at most. */
uint64_t rs_way_cost_at(const struct rs_way_cost *cost, uint64_t bytes);

/** L + o + O(bytes). */
uint64_t rs_way_time(const struct rs_way_costs *costs, uint64_t bytes);

struct rs_way_part {
    uint64_t bytes, blocks;
};

/* A message by what can be done with its parts. */
struct rs_way_parts {
    struct rs_way_part mapped;   /* the receiver can map it */
    struct rs_way_part readable; /* the kernel can read it, beside that */
    struct rs_way_part rest;     /* it can only go through slots */
    struct rs_way_part self;     /* the process sends it to itself meanwhile */
};

/* What is done with them; what is neither pulled nor read lands. */
struct rs_way_choice {
    bool pull; /* the mapped bytes */
    bool cma;  /* the readable bytes */
};

/** The time of an epoch: parts that go different ways, one after the other.
 * What a process sends to itself it copies while it waits. */
uint64_t rs_ways_time(const struct rs_ways *ways,
                      const struct rs_way_parts *parts,
                      struct rs_way_choice choice);

/** `least_once` of what exchanges use. A receiver that may have to
 * copy out of the sender's memory is handed to the progress thread when the
 * application goes on to compute, and that is no part of them. */
#define RS_WAY_ONCE_LEAST (UINT64_C(12) << 10)

/** The cheapest choice. Landing needs nobody to complete a sending side, so
 * others must gain a sixteenth, which is about how well costs are known. */
struct rs_way_choice rs_ways_choose(const struct rs_ways *ways,
                                    const struct rs_way_parts *parts);

/** The shortest message that is worth more than one piece. */
#define RS_WAY_SHARED_LEAST (UINT64_C(32) << 10)

/** Whether both processes should copy a message that is pulled. */
bool rs_ways_share(const struct rs_ways *ways, uint64_t bytes);

/** The pieces in which they do. With n pieces each process claims n/2, for
 * which lines travel as for a pull (L), and at the end one waits for half a
 * piece of the other on average: the sum is least for pieces of
 * sqrt(L * bytes * rate), of which this is the next power of two. */
uint64_t rs_ways_share_chunk(const struct rs_ways *ways, uint64_t bytes);

/* From which size on a way is the cheapest. */
struct rs_way_switch {
    uint64_t bytes;
    enum rs_way way;
};

enum { RS_WAY_SWITCHES = 16 };

/**
 * The way of messages by size, if all of a message is memory that can be
 * mapped (`mapped`), or all is memory that the kernel may read.
 *
 * @param list room for RS_WAY_SWITCHES; the first one begins at 1 byte
 * @return how many there are
 */
size_t rs_ways_switches(const struct rs_ways *ways, bool mapped,
                        struct rs_way_switch *list);

/** The shortest message that rs_ways_choose() does not put into slots as a
 * whole, or UINT64_MAX. */
uint64_t rs_ways_shortest_once(const struct rs_ways *ways);

#endif
