/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports of mlx5 devices whose queue pairs are driven by the lists of
 * engines/mlx5. Making and connecting queue pairs, memory, and receives stay
 * with libibverbs.
 *
 * Run through a device in software (tests/mlx5/verbs_engine.c); not run on
 * hardware yet, so RSCHED_MLX5 has to be set.
 */
#ifndef RS_VERBS_MLX5_H
#define RS_VERBS_MLX5_H

#include "engines/verbs/verbs.h"

/** If RSCHED_MLX5 is set and the port's device can be driven so, let its queues
 * be. If not, it stays as it is; a device of another kind is no error. */
void rs_verbs_mlx5_adopt(struct rs_verbs_port *port);

#endif
