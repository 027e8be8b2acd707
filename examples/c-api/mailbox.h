/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * MAILBOX: an out-of-band way between forked processes, as struct rsched_oob
 * wants it. It is used only while an exchange is made, so it may be as simple
 * as this: for each ordered pair a list of messages in shared memory, which
 * are never removed.
 */
#ifndef C_API_MAILBOX_H
#define C_API_MAILBOX_H

#include <rsched/context.h>

struct mailbox;

/** Before the processes are forked. NULL when memory is short. */
struct mailbox *mailbox_create(int processes);
void mailbox_destroy(struct mailbox *box);

/** In each process, after the fork: say which one it is. */
void mailbox_become(struct mailbox *box, int process);

/** The callbacks; the mailbox must outlive the context. */
struct rsched_oob mailbox_oob(struct mailbox *box);

#endif
