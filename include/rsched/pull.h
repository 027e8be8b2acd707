/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * PULL: a message that its receiver copies out of the sender's memory.
 *
 * For protocols of their own between processes of one node, which need nothing
 * of an exchange but how its bytes move: the MPI backend's persistent
 * point-to-point requests. The sender tells the receiver where a message lies;
 * how that travels, when the receiver may read and when the sender may write
 * again is the protocol's business.
 *
 * The sender makes a **source** of a layout, once; loading it gives a
 * **notice**, a few words that travel with each message. The receiver makes a
 * **target** of its layout, once, and copies. What the notice says is looked up
 * when it says something new, so the sender's layout travels once.
 *
 * A message is copied **once**, where it lies: out of the mapping, as far as its
 * memory can be mapped (rsched/memory.h), and the rest by the kernel
 * (process_vm_readv), layout to layout in one pass. Or it is copied **twice**:
 * through slots that the protocol has, or, where it has none of that length,
 * packed by the sender into memory that can be mapped, and unpacked out of it.
 * The sender decides, by what the ways cost (`ways` in machine files) and
 * by RSCHED_MAPPED and RSCHED_CMA, as exchanges do; the receiver copies what the
 * notice says.
 *
 * The receiver must be allowed to read the sender's memory (process_vm_readv):
 * layouts travel in that way.
 *
 * Of **GPU memory** the receiver's copy engine does the same, once the memory has
 * been opened (struct rsched_gpu_pull_ops): such copies are begun, and asked for
 * until they are over.
 *
 * Thread-safety: one thread at a time for each object, and for all sources of one
 * group; objects of one peer may be used by several. Errors: 0 or a negative RSCHED_E*, with
 * rsched_last_error().
 */
#ifndef RSCHED_PULL_H
#define RSCHED_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rsched/engine.h>
#include <rsched/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Where others find this process's memory. Travels once. */
struct rsched_pull_memory {
    int32_t pid;
    int32_t fd;
    uint64_t id;
    int32_t numa_node; /**< on which the process runs, or below 0 */
    uint32_t unused;
};

/** What a sender has to know of who copies out of its memory. Travels once, the
 * other way. */
struct rsched_pull_reader {
    uint32_t itself; /**< not 0: it is the sender */
    uint32_t maps;   /**< not 0: it can map the sender's memory */
    uint32_t near;   /**< not 0: both run on one NUMA node */
};

/** Where a message lies. Travels with it. */
struct rsched_pull_notice {
    uint64_t table;   /**< address in the sender */
    uint64_t bytes;   /**< of the table */
    uint64_t version; /**< no other table of the process has it, ever */
};

/* ---- sender ---- */

struct rsched_pull_source;

/**
 * Have this process's memory, until rsched_pull_memory_close(), as often.
 *
 * @return 0, RSCHED_ESYS, RSCHED_ENOMEM
 */
RSCHED_API int rsched_pull_memory_open(struct rsched_pull_memory *memory);
RSCHED_API void rsched_pull_memory_close(void);

/**
 * Sources whose messages one process sends to another one, step by step of the
 * program. Which way is faster depends on how the others go, so where it is
 * found out (rsched_pull_source_start()), that is done for those of about the same
 * length together, and they go one way.
 */
struct rsched_pull_group;

/** What one of two processes that send each other messages tells the other one of its
 * group, in memory that both map; all zero at first. What a message takes depends on how
 * those go that come meanwhile, so of the two groups one follows the other. */
struct rsched_pull_told {
    uint8_t way[96];
};

/** Puts a block of memory on a list. */
typedef void rsched_pull_block(void *list, const void *address, uint64_t bytes);

/**
 * Calls `add` for each block of this process's memory that nobody will write until the
 * rsched_pull_source_start() that asks has returned: those of other messages that are being sent,
 * to anybody, or are about to be. Not one of a message that the program may know to be over: it
 * may be written. Blocks may overlap, be empty, and come in any order; those of the source itself
 * need not be listed. It is asked a few times in a source's life, and may call no source.
 */
typedef void rsched_pull_frozen(void *context, rsched_pull_block *add, void *list);

/**
 * @param frozen  asked in rsched_pull_source_start() of one of the group, by its thread, so that
 *                pages are adopted of which a source has a part and others the rest
 *                (docs/adopted.md); NULL: nothing else is known to be frozen
 * @param context what it gets
 * @return 0, RSCHED_ENOMEM
 */
RSCHED_API int rsched_pull_group_create(rsched_pull_frozen *frozen, void *context,
                                        struct rsched_pull_group **group);

/** Its sources are gone; NULL is allowed. */
RSCHED_API void rsched_pull_group_destroy(struct rsched_pull_group *group);

/**
 * Make a source. The pieces are copied, the memory that they name is the
 * caller's.
 *
 * @param message of pieces, num_pieces and bytes; the rest is not looked at
 * @param ways    what they cost (rsched_context_ways()); stay as long as the
 *                source does
 * @param reader  is copied
 * @param group   stays as long as the source does
 * @return 0, RSCHED_ENOMEM
 */
RSCHED_API int
rsched_pull_source_create(const struct rsched_message *message,
                          const struct rs_ways *ways,
                          const struct rsched_pull_reader *reader,
                          struct rsched_pull_group *group,
                          struct rsched_pull_source **source);

/** No receiver may be copying; NULL is allowed. */
RSCHED_API void rsched_pull_source_destroy(struct rsched_pull_source *source);

/** How a message should go. */
enum rsched_pull_way {
    RSCHED_PULL_IN_PLACE, /**< it is copied once, out of where it lies */
    RSCHED_PULL_SLOTS,    /**< through slots of the protocol */
    RSCHED_PULL_PACKED,   /**< packed when it is loaded, for want of slots */
    RSCHED_PULL_NOT,      /**< not at all: settings leave no way, and slots are
                               too short; or there is no memory to find out */
};

/**
 * The way by what the ways cost, and where the message's memory lies now. A
 * message to the process itself is copied in place; else one of up to 3 KiB goes
 * through slots, since what is copied in place waits for its receiver. One of no bytes
 * is a message, too: without slots it is in place. Cheap while no memory comes or goes.
 *
 * @param room bytes of the longest message that the protocol's slots can hold;
 *             0: as rsched_pull_source_load() does it
 * @param slots how many it has for this message now, or 1: slots that are new, or have not
 *              been used for long, are used in turn before it is judged what they cost
 */
RSCHED_API enum rsched_pull_way
rsched_pull_source_way(struct rsched_pull_source *source, uint64_t room, uint32_t slots);

/** How a message goes, and whether it is to be said how long it is copied. */
struct rsched_pull_start {
    enum rsched_pull_way way;
    bool timed;
    bool nontemporal; /**< what is written for it, in the slot, too, is written past the
                           caches: rsched_pull_source_pack() */
};

/**
 * Decide how the next message goes, before it is loaded. That is the way of
 * rsched_pull_source_way(), but for a few messages that go another one to find out
 * whether that is faster, where the costs are built in (RSCHED_TRIALS), or that are
 * written by other stores (RSCHED_SLOT_STORES). One that is
 * timed is to be copied as all others, and rsched_pull_source_took() called before
 * the next start, if that is known by then; the group waits for it some starts long. The answer of rsched_pull_source_way() may be another
 * one after that.
 *
 * @param room, slots as there
 * @param own    what this process tells the receiver; NULL: nothing
 * @param others what the receiver tells this process, if that is to follow it: of two
 *               that send each other messages one is; else NULL
 */
RSCHED_API struct rsched_pull_start
rsched_pull_source_start(struct rsched_pull_source *source, uint64_t room, uint32_t slots,
                         struct rsched_pull_told *own,
                         const struct rsched_pull_told *others);

/**
 * Write the bytes of a message that goes through a slot, by non-temporal stores, where
 * the processor has such.
 *
 * @return 0; RSCHED_ENOMEM, RSCHED_ELIMIT: nothing is written
 */
RSCHED_API int rsched_pull_source_pack(struct rsched_pull_source *source, void *slot);

/** A timed message has been copied: how long that took, its sender's copy and its
 * receiver's together, without what they waited, in ps; UINT64_MAX: nobody knows. */
RSCHED_API void rsched_pull_source_took(struct rsched_pull_source *source,
                                        uint64_t ps);

/** How often it was tried out, and after how many of these another way was taken, of
 * a group's trials those that have ended with this source: sum them up. */
RSCHED_API void rsched_pull_source_trials(const struct rsched_pull_source *source,
                                          uint64_t *trials, uint64_t *changes);

/**
 * Tell where the message lies, or what rsched_pull_source_start() has said. From now on, until every receiver of it has
 * copied, neither the message's memory nor the source may change. Call it for
 * each message: memory may have come or gone since, and what is not copied in
 * place is packed here.
 *
 * @return 0; RSCHED_ENOMEM or RSCHED_EUNREACH (RSCHED_PULL_NOT), *notice is as
 *         it was
 */
RSCHED_API int rsched_pull_source_load(struct rsched_pull_source *source,
                                       struct rsched_pull_notice *notice);

/* ---- receiver ---- */

struct rsched_pull_peer;
struct rsched_pull_target;

/**
 * Open a sender's memory. If it cannot be mapped the kernel reads all of it.
 *
 * @return 0, RSCHED_ENOMEM
 */
RSCHED_API int rsched_pull_peer_create(const struct rsched_pull_memory *memory,
                                       struct rsched_pull_peer **peer);

/** Whether the kernel lets this process read the sender's memory, which it may cease
 * to do, if the sender becomes another user's, say. What is announced afterwards
 * cannot be copied either. One call of the kernel, for after a failure.
 *
 * @param peer NULL: it is the sender, who may */
RSCHED_API bool
rsched_pull_peer_is_readable(const struct rsched_pull_peer *peer);

/** What the sender has to know of this process.
 *
 * @param peer NULL: it is the sender */
RSCHED_API void rsched_pull_peer_describe(const struct rsched_pull_peer *peer,
                                          struct rsched_pull_reader *reader);

/** Its targets are gone; NULL is allowed. */
RSCHED_API void rsched_pull_peer_destroy(struct rsched_pull_peer *peer);

/**
 * Make a target, for messages of one sender.
 *
 * @param peer    the sender; NULL: this process
 * @param message as for rsched_pull_source_create(); what may come at most
 * @param ways    as there: from how many bytes on the caches are passed by
 * @return 0, RSCHED_ENOMEM
 */
RSCHED_API int
rsched_pull_target_create(struct rsched_pull_peer *peer,
                          const struct rsched_message *message,
                          const struct rs_ways *ways,
                          struct rsched_pull_target **target);

/** NULL is allowed. */
RSCHED_API void rsched_pull_target_destroy(struct rsched_pull_target *target);

/** A message to be copied. */
struct rsched_pull {
    struct rsched_pull_target *target;
    struct rsched_pull_notice notice;
    uint64_t bytes;  /**< that the sender sends; what the target has no room for
                          is not copied */
    uint64_t incoming; /**< bytes that come to the process in the same step of the
                            program, if that is known; else 0. Where these are more than
                            the caches keep, by `nontemporal` of the ways or
                            RSCHED_NONTEMPORAL, what is mapped is copied past them */
    bool timed;      /**< the sender has it timed (rsched_pull_source_start()): nothing
                          else is tried out then */
    int error;       /**< out: 0; RSCHED_ENOMEM; RSCHED_EMISMATCH: the table is
                          not one of `bytes` bytes; RSCHED_EUNREACH: the memory
                          cannot be read */
    uint64_t mapped; /**< out: bytes copied out of mapped memory */
    uint64_t nontemporal; /**< out: of them, past the caches */
    uint64_t prefetched;  /**< out: of them, with more lines under way at a time
                               (RSCHED_PREFETCH) */
};

/**
 * Copy messages of one sender; what the kernel reads in as few calls as
 * possible. When it returns the sender may write again.
 *
 * @param pulls of different targets, all of one peer
 */
RSCHED_API void rsched_pull_copy(struct rsched_pull *pulls, size_t num);

/* ---- GPU memory ---- */

struct rsched_gpu_peer;
struct rsched_gpu_source;
struct rsched_gpu_target;

/**
 * Messages of which an end lies in GPU memory (rsched_gpus()->pull). A source
 * lies in memory of one GPU, a target in memory of one GPU or of the host. No
 * function waits for a copy, but where that is said; opening memory and closing
 * it may take the driver long.
 *
 * What writes a source, or reads a target, is over when it is told of: the
 * program's streams are not waited for. Threads and errors as above; of the
 * driver RSCHED_ENOTSUP, RSCHED_ENOMEM or RSCHED_ESYS, with what it said.
 */
struct rsched_gpu_pull_ops {
    /** What the two ends of a pair of processes need, at each of them.
     * @param pid    of the sender, at the receiver; else not looked at
     * @param itself the other process is this one
     * @return 0, RSCHED_ENOMEM, RSCHED_ESYS */
    int (*peer_create)(pid_t pid, bool itself, struct rsched_gpu_peer **peer);
    /** Its sources and targets are gone; NULL is allowed. */
    void (*peer_destroy)(struct rsched_gpu_peer *peer);

    /** As rsched_pull_source_create(). */
    int (*source_create)(struct rsched_gpu_peer *peer,
                         const struct rsched_message *message,
                         struct rsched_gpu_source **source);
    /** Tell where the message lies, as rsched_pull_source_load(): its allocations
     * may be others than at the last time.
     * @param needs what the receiver has to be able to open, which kinds of
     *              memory of which GPUs: a set of bits
     * @return 0; RSCHED_ENOTSUP: it lies elsewhere than in one GPU's memory, or
     *         can be opened by no other process, or RSCHED_GPU_WAY wants
     *         another way. The notice is as it was then. */
    int (*source_load)(struct rsched_gpu_source *source,
                       struct rsched_pull_notice *notice, uint64_t *needs);
    /** No receiver may be copying; NULL is allowed. */
    void (*source_destroy)(struct rsched_gpu_source *source);

    /** As rsched_pull_target_create().
     * @param gpu that copies, if the message lies in host memory; below 0: the
     *            sender's, if this process sees it
     * @return 0; RSCHED_ENOTSUP: it does not lie in memory of one kind */
    int (*target_create)(struct rsched_gpu_peer *peer,
                         const struct rsched_message *message, int gpu,
                         struct rsched_gpu_target **target);
    /** Open what a notice names, and keep it open, until the end or until others
     * have been.
     * @return 0, or why it cannot be opened */
    int (*target_open)(struct rsched_gpu_target *target,
                       const struct rsched_pull_notice *notice);
    /** Begin to copy the message of a notice. Nothing of the target is under way.
     * @param bytes that the sender sends; not more than the target has room for
     * @return 0: the sender may not write until target_poll() says so; or as
     *         rsched_pull_copy(), or as target_open(): nothing is under way */
    int (*target_pull)(struct rsched_gpu_target *target,
                       const struct rsched_pull_notice *notice, uint64_t bytes);
    /** Host memory of the target's own, for all of its bytes, pinned if the driver
     * does that. @return 0, RSCHED_ENOMEM */
    int (*target_memory)(struct rsched_gpu_target *target, void **memory);
    /** Begin to copy the first `bytes` from there to where the target lies.
     * @return 0, or what the driver said: nothing is under way */
    int (*target_spread)(struct rsched_gpu_target *target, uint64_t bytes);
    /** @return RSCHED_LANE_DONE: what was begun is over, its bytes are there for
     * whoever looks next; RSCHED_LANE_PENDING; or what the driver said: it is
     * over */
    int (*target_poll)(struct rsched_gpu_target *target);
    /** Waits for what is under way; NULL is allowed. */
    void (*target_destroy)(struct rsched_gpu_target *target);
};

#ifdef __cplusplus
}
#endif

#endif
