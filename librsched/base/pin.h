/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which memory devices have the physical pages of, as far as it is told:
 * rsched_memory_pin(). Pages that a device has are not moved, and it gets none that are
 * being moved.
 */
#ifndef RS_BASE_PIN_H
#define RS_BASE_PIN_H

#include <stdbool.h>
#include <sys/stat.h>

/* Pages that are being moved. */
struct rs_pin_move {
    struct rs_pin_move *next;
    const char *low, *high;
};

/** Whether all that an open device has pinned is told. `status` is the descriptor's. */
bool rs_pin_knows(int fd, const struct stat *status);

/** Whether there is such a device. */
bool rs_pin_any_device(void);

/** Whether a device has a byte of [low, high). */
bool rs_pin_holds(const char *low, const char *high);

/** Begin to move [low, high): whoever wants to pin a byte of it waits until the end. He
 * may have locks: meanwhile call nothing that others have come before.
 * @return whether no device has a byte of it; else nothing has begun */
bool rs_pin_move_begin(struct rs_pin_move *m, const char *low, const char *high);
void rs_pin_move_end(struct rs_pin_move *m);

/** Around a fork, with nothing of this file in between. */
void rs_pin_before_fork(void);
void rs_pin_after_fork_parent(void);
void rs_pin_after_fork_child(void);

#endif
