/* SPDX-License-Identifier: BSD-3-Clause */
/* PROCESSOR: what copies make use of, and not all processors have. */
#ifndef RS_BASE_PROCESSOR_H
#define RS_BASE_PROCESSOR_H

#include <stdbool.h>

/** How a list of long blocks can have more lines under way at a time than one copy after the
 * other has: see engines/common/prefetch.h. */
enum rs_copy_prefetch { RS_PREFETCH_NONE, RS_PREFETCH_AHEAD, RS_PREFETCH_IN_TURN };

struct rs_processor {
    bool has_string; /* `rep movsb` is fast for all lengths (FSRM) */
    enum rs_copy_prefetch prefetch;
    bool gains; /* that has been seen to be faster on such a processor, between some cores */
};

/** Of this machine. */
void rs_processor_find(struct rs_processor *processor);

#endif
