/* SPDX-License-Identifier: BSD-3-Clause */
/* The syntax of RSCHED_DEVICES: DEVICE[:PORT],... for each group of processes,
 * groups separated by slashes. */
#ifndef RS_VERBS_NAMES_H
#define RS_VERBS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rs_verbs_name {
    const char *text; /* of `length` bytes */
    size_t length;
    uint32_t port;    /* 0: all of the device */
};

/** The group of a process: number `process` modulo their number.
 * @return whether it has room in `group` */
bool rs_verbs_names_group(const char *groups, int process, char *group,
                          size_t size);

/** The next name of a group. @return false: there is none */
bool rs_verbs_name_next(const char **rest, struct rs_verbs_name *name);

bool rs_verbs_name_is(const struct rs_verbs_name *name, const char *device);

#endif
