/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ways to move a message within a node cost, and which is cheapest:
 * of messages in host memory here, of puts in GPU memory in coordinator.h.
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
 *   S      of GPU memory: making written bytes visible to whoever reads them
 *          next, however many they are (Groves et al.: Performance Trade-offs
 *          in GPU Communication, PMBS 2020; not LogGOPSim's S)
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
    /* Of host memory. */
    RS_WAY_SELF,    /* within the process, one copy */
    RS_WAY_LANDING, /* through slots, two copies */
    RS_WAY_PULL,    /* the receiver copies out of the sender's mapped memory */
    RS_WAY_SHARED,  /* the same, and the sender helps */
    RS_WAY_CMA,     /* the receiver has the kernel copy */
    RS_WAY_CMA_HUGE, /* the same, out of huge pages (huge.h) */
    /* Of GPU memory. */
    RS_WAY_STAGED,   /* through host memory that both processes map, in pieces:
                        a copy engine fills one while another is emptied */
    RS_WAY_GDRCOPY,  /* the same, but processors copy, through a mapping of the
                        GPU's memory (GDRCopy) */
    RS_WAY_CUDA_IPC, /* a copy engine copies out of the peer's memory */
    RS_WAY_GDR_LOOPBACK, /* the NIC reads one GPU's memory and writes the
                            other's; its link is crossed twice */
    RS_NUM_WAYS,
    RS_NUM_HOST_WAYS = RS_WAY_STAGED
};

enum { RS_NUM_GPU_WAYS = RS_NUM_WAYS - RS_NUM_HOST_WAYS };

/* Over RDMA devices, between processes that share no memory. Costs choose between none
 * of these: RSCHED_CHUNK does (docs/architecture.md). */
enum rs_verbs_way {
    RS_VERBS_LANDING, /* through slots at the receiver */
    RS_VERBS_DIRECT,  /* written into the receive buffer */
    RS_NUM_VERBS_WAYS
};

/* How far the two ends of a put are apart. Those in host memory are on the NUMA
 * nodes on which their processes run, and never on one GPU (numa.h); where one
 * lies in GPU memory, what lies in host memory is near the GPU if it is on the
 * NUMA node to which the GPU is attached. */
enum rs_distance {
    RS_DISTANCE_SAME_GPU,   /* one GPU, by its identity, not by its number */
    RS_DISTANCE_SAME_NUMA,  /* two ends, attached to one NUMA node */
    RS_DISTANCE_OTHER_NUMA, /* to two, or not known */
    RS_NUM_DISTANCES,
    RS_FIRST_HOST_DISTANCE = RS_DISTANCE_SAME_NUMA
};

enum { RS_NUM_HOST_DISTANCES = RS_NUM_DISTANCES - RS_FIRST_HOST_DISTANCE };

struct rs_way_costs {
    bool given;       /* it may be used */
    uint64_t latency; /* L */
    struct rs_way_cost work;
    struct rs_way_cost gap;
    uint64_t block; /* work for each block of the message but the first; blocks
                       that share a line of 64 bytes are one; 0 for ways of GPU
                       memory, whose blocks kernels gather */
    uint64_t sync;  /* S; 0 for ways of host memory */
};

/* Of host memory, between processes at one distance. */
struct rs_host_ways {
    struct rs_way_costs of[RS_NUM_HOST_WAYS];
    uint64_t least_once;    /* shorter messages are not read by the kernel, whatever
                               that costs, and pulled once the receiver is prepared */
    uint64_t least_pull;    /* still shorter ones land */
    uint64_t shortest_once; /* rs_ways_shortest_once(), kept */
    uint64_t nontemporal;   /* bytes: an epoch that brings as many to a process
                               has what is copied once written by non-temporal
                               stores; 0: none has */
};

struct rs_ways {
    struct rs_host_ways host[RS_NUM_HOST_DISTANCES]; /* rs_ways_host() */
    bool host_guessed; /* they are built in: nobody measured them here */
    bool nontemporal_given; /* a file says it, be it beside ways of GPU memory only */
    struct rs_way_costs gpu[RS_NUM_GPU_WAYS][RS_NUM_DISTANCES];
    struct rs_way_costs verbs[RS_NUM_VERBS_WAYS];
};

/** The word for a way in files and tables: "self", "landing", ... */
const char *rs_way_name(enum rs_way way);

/** "verbs-landing", "verbs-direct". */
const char *rs_verbs_way_name(enum rs_verbs_way way);

/** "same-gpu", "same-numa", "other-numa". */
const char *rs_distance_name(enum rs_distance distance);

bool rs_way_costs_equal(const struct rs_way_costs *a,
                        const struct rs_way_costs *b);

/** The ways of host memory between processes at this distance, which is none of
 * GPUs. */
static inline const struct rs_host_ways *
rs_ways_host(const struct rs_ways *ways, enum rs_distance distance)
{
    return &ways->host[distance - RS_FIRST_HOST_DISTANCE];
}

/** The same ways at every distance, which are no guess: nothing is tried out. */
void rs_ways_set_host(struct rs_ways *ways, const struct rs_host_ways *host);

/** Those of one distance, which is none of GPUs. */
static inline void rs_ways_set_host_at(struct rs_ways *ways,
                                       enum rs_distance distance,
                                       const struct rs_host_ways *host)
{
    ways->host[distance - RS_FIRST_HOST_DISTANCE] = *host;
}

/** Whether the ways are the same at every distance. `nontemporal` is: caches are
 * the receiver's. */
bool rs_ways_host_is_even(const struct rs_ways *ways);

/** Whether anything is known of messages in host memory; and of puts in GPU
 * memory, at any distance. */
bool rs_ways_have_host(const struct rs_ways *ways);
bool rs_ways_have_gpu(const struct rs_ways *ways);

/** Whether it is known what RDMA devices cost. */
bool rs_ways_have_verbs(const struct rs_ways *ways);

/** message + O(bytes), in ps; UINT64_MAX at most. */
uint64_t rs_way_cost_at(const struct rs_way_cost *cost, uint64_t bytes);

/** L + S + o + O(bytes). */
uint64_t rs_way_time(const struct rs_way_costs *costs, uint64_t bytes);

/* Zero it, then rs_way_part_add(). */
struct rs_way_part {
    uint64_t bytes, blocks;
    uint64_t scattered; /* further blocks, in lines of their own */
};

/** Add `count` blocks of so many bytes, `stride` apart. Those that are shorter
 * than a line and lie in lines of their own (a face of an array across its
 * rows) are scattered: each costs what a block does, of the way that takes it
 * if that is by the receiver, who has these lines come from the sender's
 * cache, but of `self` if the sender packs them, in whose cache they are. */
void rs_way_part_add(struct rs_way_part *part, uint64_t bytes, uint64_t count,
                     int64_t stride);

/** Whether it is of blocks that are so short, on average, that the costs of
 * blocks decide: the least exact ones, and not the same for near cores and far
 * ones (docs/onecopy.md, Trials). Scattered ones do not count, if there are many:
 * what lies beside them in their lines is the halo that comes, so how long they
 * take depends on the way of the message that comes, too. */
bool rs_way_part_is_choppy(const struct rs_way_part *part);

/* A message by what can be done with its parts. */
struct rs_way_parts {
    struct rs_way_part mapped;   /* the receiver can map it */
    struct rs_way_part readable; /* the kernel can read it, beside that */
    struct rs_way_part huge;     /* the same, and it is in huge pages */
    struct rs_way_part rest;     /* it can only go through slots */
    struct rs_way_part self;     /* the process sends it to itself meanwhile */
};

/* What is done with them; what is neither pulled nor read lands. */
struct rs_way_choice {
    bool pull; /* the mapped bytes */
    bool cma;  /* the readable bytes */
    bool huge; /* the kernel reads those in huge pages */
};

/** Of what is readable, so many bytes are in huge pages, one behind the other. */
void rs_way_parts_set_huge(struct rs_way_parts *parts, uint64_t bytes);

/** The time of an epoch: parts that go different ways, one after the other.
 * What a process sends to itself it copies while it waits. */
uint64_t rs_ways_time(const struct rs_host_ways *ways,
                      const struct rs_way_parts *parts,
                      struct rs_way_choice choice);

/** `least_once` of what exchanges use. A receiver that may have to
 * copy out of the sender's memory is handed to the progress thread when the
 * application goes on to compute, which costs, and most senders of short messages
 * have no mapped memory. So those that have ask first (engines/loopback/pull.h). */
#define RS_WAY_ONCE_LEAST (UINT64_C(12) << 10)

/** `least_pull` likewise: an announcement is a line, too. */
#define RS_WAY_PULL_LEAST (UINT64_C(1) << 10)

/** The cheapest choice. Landing needs nobody to complete a sending side, so
 * others must gain a sixteenth, which is about how well costs are known. */
struct rs_way_choice rs_ways_choose(const struct rs_host_ways *ways,
                                    const struct rs_way_parts *parts);

/** Messages of up to so many bytes that go one way as a whole are never copied
 * once, whatever that costs: MPI libraries buffer them (Open MPI up to 4 KiB,
 * headers included), programs lean on it, and what its receiver copies out of the
 * sender's memory cannot be buffered. */
#define RS_WAY_WHOLE_LEAST UINT64_C(3072)

/** A longer one that no slot holds is packed as a whole, and what is packed has left
 * the caches when the receiver copies it, for which the costs of landing, measured
 * with slots that stay there, say nothing: 8 neighbors with 1 MiB each took 1.3
 * times as long as by the kernel, where that is slow, and with 512 KiB 0.6 times. So
 * these are read by the kernel, if it can. */
#define RS_WAY_PACKED_MOST (UINT64_C(512) << 10)

/** Whether a message that goes one way as a whole is copied once where it lies (in
 * small pages: `huge` is not looked at),
 * mapped bytes out of the mapping and all others by the kernel; else it is
 * copied twice. `least_once` is about progress threads, and not looked at.
 *
 * @param parts the kernel can read `rest` too, a block as dear as any
 * @param twice how it is copied twice: RS_WAY_LANDING, which must not cost a
 *              sixteenth more than once; or RS_WAY_CMA: the sender packs it,
 *              which is worth it for blocks, and the kernel reads that. What the
 *              kernel would read and is longer than RS_WAY_PACKED_MOST is
 *              compared with that, too */
bool rs_ways_choose_whole(const struct rs_host_ways *ways,
                          const struct rs_way_parts *parts, enum rs_way twice);

/** The shortest message that is worth more than one piece. */
#define RS_WAY_SHARED_LEAST (UINT64_C(32) << 10)

/** Whether both processes should copy a message that is pulled. */
bool rs_ways_share(const struct rs_host_ways *ways, uint64_t bytes);

/** The pieces in which they do: powers of two, from 16 KiB to 1 MiB. At the end one
 * waits for half a piece of the other on average. But what one copies in one epoch and
 * the other in the next is in the wrong cache, and with short pieces the two never meet
 * at the same place; so there are 8, as far as that is possible. A piece takes as long to
 * copy as two claims (2 * L of a pull) at least. For messages of gigabytes they are
 * longer, so that there are no more than 2049. */
uint64_t rs_ways_share_chunk(const struct rs_host_ways *ways, uint64_t bytes);

/* From which size on a way is the cheapest. */
struct rs_way_switch {
    uint64_t bytes;
    enum rs_way way;
};

enum { RS_WAY_SWITCHES = 16 };

/* Whose all of a message is. */
enum rs_way_memory {
    RS_WAY_MEMORY_MAPPED, /* can be mapped */
    RS_WAY_MEMORY_OTHER,  /* the kernel may read it */
    RS_WAY_MEMORY_HUGE,   /* likewise, in huge pages */
    RS_NUM_WAY_MEMORIES
};

/** "mapped", "other", "huge". */
const char *rs_way_memory_name(enum rs_way_memory memory);

/** Whether there is anything to say of such memory: of huge pages there is if the
 * costs of `cma-huge` are known. */
bool rs_ways_tell(const struct rs_host_ways *ways, enum rs_way_memory memory);

/**
 * The sizes up to 1 GiB at which a way changes: sizes that grow by a factor of
 * two in eight steps are looked at, and between two that go different ways the
 * exact one is searched.
 *
 * @param way_at the way of a message of so many bytes
 * @param list   room for RS_WAY_SWITCHES; the first one begins at 1 byte
 * @return how many there are
 */
size_t rs_way_switches(enum rs_way (*way_at)(const void *arg, uint64_t bytes),
                       const void *arg, struct rs_way_switch *list);

/**
 * The way of messages by size, if all of a message is such memory.
 *
 * @param list room for RS_WAY_SWITCHES; the first one begins at 1 byte
 * @return how many there are
 */
size_t rs_ways_switches(const struct rs_host_ways *ways,
                        enum rs_way_memory memory, struct rs_way_switch *list);

/** The same for messages that go one way as a whole, none of them in huge pages:
 * RS_WAY_LANDING is twice. */
size_t rs_ways_switches_whole(const struct rs_host_ways *ways,
                              enum rs_way_memory memory,
                              struct rs_way_switch *list);

/** The shortest message of `least_once` bytes or more that rs_ways_choose() does
 * not put into slots as a whole, or UINT64_MAX. */
uint64_t rs_ways_shortest_once(const struct rs_host_ways *ways);

#endif
