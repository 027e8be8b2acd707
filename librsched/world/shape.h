/* SPDX-License-Identifier: BSD-3-Clause */
/* Grids of nodes and of processes. The first coordinate (x, west to east) runs
 * fastest: in 8x6 nodes, node 9 is at (1, 1). */
#ifndef RS_WORLD_SHAPE_H
#define RS_WORLD_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "models/topology.h"

struct rs_shape {
    uint32_t dims[RS_DIMENSIONS_MOST];
    uint32_t num_dims;
    uint32_t count; /* the product */
};

/** Read "8x6". @return 0, RSCHED_EINVAL */
int rs_shape_parse(const char *text, struct rs_shape *shape);

/** Write what rs_shape_parse() reads. Returns `buffer`. */
const char *rs_shape_text(const struct rs_shape *shape, char *buffer,
                          size_t size);

/** The block of processes that each node of a grid gets: `processes` divided
 * over the dimensions as evenly as its prime factors allow. */
void rs_shape_block(const struct rs_shape *nodes, uint32_t processes,
                    struct rs_shape *block);

/** The grid of all processes: nodes times block. */
void rs_shape_grid(const struct rs_shape *nodes, const struct rs_shape *block,
                   struct rs_shape *grid);

/**
 * A direction as a step in a grid: compass letters (N is y - 1, W is x - 1) in
 * one or two dimensions; signs and axes ("-x+y", axes x y z a b c d e) in any.
 *
 * @return whether the name is one
 */
bool rs_shape_step(const struct rs_shape *shape, const char *direction,
                   int32_t *step);

/** The position that a step leads to; grids are closed. */
uint32_t rs_shape_neighbor(const struct rs_shape *shape, uint32_t from,
                           const int32_t *step);

/** The position in the grid of nodes of a process of the grid of processes. */
uint32_t rs_shape_node(const struct rs_shape *grid,
                       const struct rs_shape *block, uint32_t process);

/** The name of the step between two positions, in the style (compass or not)
 * of the direction `like`, without compass in more than two dimensions; "" when
 * it is longer than 1 in a dimension or none. Returns `buffer`. */
const char *rs_shape_direction(const struct rs_shape *shape, uint32_t from,
                               uint32_t to, const char *like, char *buffer);

/** Put 0 .. count - 1 into a random order (Fisher-Yates, xorshift64*). */
void rs_shape_shuffle(uint32_t *order, uint32_t count, uint64_t seed);

/** The next number of xorshift64*; the state is not 0. */
uint64_t rs_shape_random(uint64_t *state);

/** A state for a seed: any seed, also 0, and near seeds give far states. */
uint64_t rs_shape_seed(uint64_t seed);

#endif
