/* SPDX-License-Identifier: BSD-3-Clause */
/* The key `ways` of a machine: what moving within the node costs. */
#ifndef RS_MODELS_WAYS_H
#define RS_MODELS_WAYS_H

#include <stdio.h>

#include <rsched/machine.h>

#include "librsched/base/ways.h"
#include "librsched/base/yaml.h"

/** Read the value of `ways`. @return 0, RSCHED_EPARSE */
int rs_ways_read(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                 struct rs_ways *ways);

/** Write the key and the value that rs_ways_read() reads. */
void rs_ways_write(const struct rs_ways *ways, FILE *out);

/** The ways of a machine, or NULL if it says nothing of them; valid as long as
 * the machine. */
const struct rs_ways *rs_machine_ways(const struct rsched_machine *machine);

/** One measurement. */
struct rs_way_sample {
    uint64_t bytes;
    double ps;
};

/**
 * Find the cost that meets samples best: the sum of
 * ((latency + cost(bytes) - ps) / ps)^2 is least among all costs of as many
 * ranges that begin at sizes of samples, none of which costs less than
 * nothing; and there are as few ranges as do not make it much worse. For given
 * ranges the cost is linear in its parameters, so this is a linear least
 * squares problem. Ranges are added one by one, each time the best one, and
 * then moved as long as that makes it better.
 *
 * @param samples ascending by bytes, at most RS_WAY_SAMPLES
 * @param latency ps that the cost does not cover
 * @param error   the root of the mean square, 0.05 for 5 %
 * @return 0, RSCHED_EINVAL (less than two samples, too many, or not
 *         ascending)
 */
int rs_way_fit(const struct rs_way_sample *samples, size_t count,
               uint64_t latency, struct rs_way_cost *cost, double *error);

enum { RS_WAY_SAMPLES = 64 };

#endif
