/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The send queue: a ring of blocks, the lists posted to it that are not yet
 * complete, and the doorbell.
 *
 * Blocks are counted from the reset of the queue pair; block n lies in slot
 * n mod (length of the ring). A slot remembers which block of which list it
 * holds. Posting a list copies only blocks that are not there yet, so a list
 * that meets its slots again changes its indices and patches and nothing else.
 */
#ifndef RS_MLX5_SQ_H
#define RS_MLX5_SQ_H

#include "engines/mlx5/list.h"
#include "engines/mlx5/memory.h"

/* A post under way. */
struct rs_sq_post {
    const struct rs_wqe_list *list;
    uint64_t first; /* block */
    uint64_t id;
};

struct rs_sq_stats {
    uint64_t posts, blocks, copied_blocks, rings;
};

struct rs_sq {
    unsigned char *ring;
    uint32_t mask;       /* slots - 1 */
    uint32_t last;       /* slot of the last posted WQE, for the doorbell */
    uint64_t posted;     /* blocks */
    uint64_t rung;       /* blocks that the device knows of */
    uint64_t retired;    /* blocks that the device has done with */
    _Atomic uint32_t *dbrec;
    _Atomic uint64_t *doorbell, *other_doorbell;
    uint64_t *owners;    /* slot -> list number << 16 | block of its image */
    struct rs_sq_post *posts; /* a ring of as many as there are slots */
    uint64_t first_post, next_post;
    uint64_t lists;      /* numbers given out; 48 bits never run out */
    struct rs_sq_stats stats;
};

/** @return 0 or RSCHED_ENOMEM */
int rs_sq_init(struct rs_sq *sq, const struct rs_mlx5_memory *memory);
void rs_sq_fini(struct rs_sq *sq);

/** Let the ring know a list. */
void rs_sq_adopt(struct rs_sq *sq, struct rs_wqe_list *list);

/** Write a list's next epoch behind what was posted.
 * @return whether there was room */
bool rs_sq_post(struct rs_sq *sq, const struct rs_wqe_list *list,
                uint64_t epoch, uint64_t id);

/** Tell the device of what was posted since the last time, if anything was. */
void rs_sq_ring(struct rs_sq *sq);

/** The oldest post, or NULL. */
const struct rs_sq_post *rs_sq_oldest(const struct rs_sq *sq);

/** The index that its completion carries. */
uint16_t rs_sq_post_index(const struct rs_sq_post *post);

/** The oldest post is complete: its blocks may be written again. */
void rs_sq_retire(struct rs_sq *sq);

/** The queue pair has been reset: blocks count from 0 again. What is in the
 * ring stays good. */
void rs_sq_reset(struct rs_sq *sq);

#endif
