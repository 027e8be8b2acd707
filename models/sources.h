/* SPDX-License-Identifier: BSD-3-Clause */
/* The key `sources` of a machine: what strided memory costs an RDMA device. */
#ifndef RS_MODELS_SOURCES_H
#define RS_MODELS_SOURCES_H

#include <stdio.h>

#include <rsched/machine.h>

#include "librsched/base/sources.h"
#include "librsched/base/yaml.h"

/** Read the value of `sources`; what it leaves out is usual.
 * @return 0, RSCHED_EPARSE */
int rs_sources_read(const struct rs_yaml *yaml, const struct rs_yaml_node *node,
                    struct rs_sources *sources);

/** Write the key and the value that rs_sources_read() reads. */
void rs_sources_write(const struct rs_sources *sources, FILE *out);

/** The costs of a machine, or the usual ones if it says nothing of them; valid
 * as long as the machine. */
const struct rs_sources *
rs_machine_sources(const struct rsched_machine *machine);

#endif
