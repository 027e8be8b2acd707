/* SPDX-License-Identifier: BSD-3-Clause */
/* Exchanges over the interpreter. */
#ifndef TESTS_ONLY_H
#define TESTS_ONLY_H

#include "librsched/base/sources.h"
#include "librsched/run/run.h"
#include "tests/runtime/halo.h"
#include "tests/runtime/ranks.h"

/** Replace all engines of a rank's context by the one of engine.c.
 * @param sources its costs of strided memory, which stay as long as the
 *                context; NULL: the usual ones
 * @return 0 or an error */
int only_interpreter(struct rank *self, const struct rs_sources *sources);

/** Where an engine of the library is, or would be, in a rank's context; NULL: the
 * library was built without it. */
struct rs_engine *only_engine(struct rank *self, const char *name);
/** Have that of engine.c in the place of verbs, the others as they are.
 * @return 0 or an error */
int only_for_verbs(struct rank *self);

/* For RANK_CHECK(). */

enum { ONLY_EPOCHS = 4 };

/** Run so many epochs, the first of which has this number. @return 0: they went
 * well */
int only_epochs(struct rank *self, struct halo *h, int first);
/** @return 0: all lanes of an exchange are over the connection that was made after
 * so many had failed */
int only_life(struct rank *self, const struct halo *h, uint32_t life);
/** Which rails an exchange has edges on, as bits. */
unsigned only_rails(const struct halo *h);
/** Over which rail's queue pair a lane goes, and over which ones the lanes of an
 * exchange do, as bits. */
uint32_t only_link(const struct rsched_lane *lane);
unsigned only_links(const struct halo *h);
/** How many connections a rank has. */
int only_connections(const struct rank *self);

#endif
