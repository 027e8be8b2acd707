/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that cmake/embed.cmake built into the library. */
#ifndef RS_BASE_EMBED_H
#define RS_BASE_EMBED_H

#include <stddef.h>

struct rs_embedded {
    const char *name; /* the file's name without its ending; NULL ends */
    const char *text; /* followed by a zero that `length` does not count;
                         aligned to 64 bytes */
    size_t length;
};

/** The built-in machines, models/machines/NAME.yaml. */
extern const struct rs_embedded rs_machine_files[];

#endif
