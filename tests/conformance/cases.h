/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files with cases share. */
#ifndef TESTS_CASES_H
#define TESTS_CASES_H

#include "tests/conformance/shape.h"

/* conformance.c */

enum { CASE_SIZES = 17 };
/** Of messages, in bytes. */
extern const uint64_t case_sizes[CASE_SIZES];

/** A message again and again; `unaligned` shifts both buffers. */
int repeat_message(struct node *node, uint64_t bytes, int epochs,
                   int unaligned);

/** The bytes of a lane that were copied once, by whomever. */
uint64_t bytes_once(const struct rsched_lane *lane);

/* ends.c */

int case_wrong(struct node *node);
int case_recreate(struct node *node);
int case_late_writer(struct node *node);
int case_abandon(struct node *node);
int case_garbage(struct node *node);
int case_death(struct node *node);

/* pull.c */

int case_pull(struct node *node);
int case_pull_abandon(struct node *node);
int case_share(struct node *node);
int case_share_untouched(struct node *node);
int case_pull_death(struct node *node);

#endif
