/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PROGRAM: the lists that a tx lane posts in an epoch.
 *
 * How the bytes get to the device is chosen by what it costs. A short message
 * is **inlined**: the processor hands it over with the request. A longer one is
 * **gathered** from the user's memory, or **packed** into memory of the engine's
 * own, whichever the machine says is cheaper (librsched/base/sources.h). Packed it is
 * too where a device's queues are too short for its blocks.
 */
#ifndef RS_RDMA_PROGRAM_H
#define RS_RDMA_PROGRAM_H

#include "engines/rdma/lane.h"
#include "engines/rdma/writes.h"
#include "librsched/base/sources.h"

enum rs_rdma_source {
    RS_SOURCE_INLINE,
    RS_SOURCE_GATHER,
    RS_SOURCE_PACK,
    RS_SOURCE_STAGE, /* packed by copy engines (tx_staged.c) */
};

struct rs_rdma_program {
    struct rs_rdma_list **lists;
    uint32_t num_lists, room_lists;
};

/** What a message of so many bytes in so many blocks is sent from. */
enum rs_rdma_source rs_rdma_source_choose(const struct rs_rdma_port *port,
                                          const struct rs_sources *costs,
                                          uint64_t bytes, uint64_t blocks);

/** Whether each chunk of a message in a slot, gathered, and its notification fit
 * into a list that a queue of the port takes. */
bool rs_rdma_chunks_fit(const struct rs_rdma_port *port,
                        const struct rs_copies *copies);

/** Blocks of all copies of a list. */
uint64_t rs_rdma_count_blocks(const struct rs_copies *copies);

/** Add the user's bytes of one chunk, to one place. `regions` is NULL for
 * inlined ones. @return 0 or RSCHED_ENOMEM */
int rs_rdma_writes_add_chunk(struct rs_rdma_writes *writes,
                             const struct rs_copies *copies,
                             const struct rs_chunk *chunk,
                             const struct rs_rdma_regions *regions,
                             uint64_t remote, uint32_t rkey);

/** Add all copies of a list made by rs_copies_compile_pair(): from the user's
 * memory (or, with `keys`, from memory of these) to the targets of a table.
 * @return 0 or RSCHED_ENOMEM */
int rs_rdma_writes_add_pair(struct rs_rdma_writes *writes,
                            const struct rs_copies *copies,
                            const struct rs_rdma_regions *regions,
                            const struct rs_rdma_keys *keys,
                            const struct rs_rdma_table *table);

/** Make the table of a message that is to be written where it belongs: its pieces,
 * contiguous ones joined, and their registrations.
 * @param costs of writing pieces; NULL: whatever they are
 * @param gpu   as rs_rdma_regions_acquire()
 * @return 0; 1: unpacking is cheaper, or there are too many pieces (no table);
 *         or as rs_rdma_regions_acquire(): no table either */
int rs_rdma_table_make(struct rs_rdma_table *table,
                       struct rs_rdma_memory *memory,
                       const struct rs_sources *costs,
                       const struct rsched_message *message, uint64_t meta,
                       struct rsched_gpu_hold *gpu,
                       struct rs_rdma_regions *regions);

/** Whether a table is of a message with this `meta`. */
bool rs_rdma_table_is_sound(const struct rs_rdma_table *table, uint64_t meta);

/** Compile the copies of a message to the targets of a table, from its pieces or,
 * if `packed` is not NULL, from there, where it lies in one. @return 0 or
 * RSCHED_ENOMEM */
int rs_rdma_table_pair(const struct rs_rdma_table *table,
                       const struct rsched_message *message, char *packed,
                       struct rs_copies *copies);

/** Append lists of at most `max_ops` operations; a head has one of its own, as far
 * as it fits into one. */
int rs_rdma_program_append(struct rs_rdma_program *program,
                           struct rs_rdma_queue *queue,
                           struct rs_rdma_writes *writes, uint32_t max_ops);
void rs_rdma_program_clear(struct rs_rdma_program *program);
void rs_rdma_program_fini(struct rs_rdma_program *program);

#endif
