/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>

static bool has_string(void)
{
    enum { LEAF = 7, FSRM = 1 << 4 };
    unsigned a, b, c, d;

    return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) != 0 && (d & FSRM) != 0;
}

void rs_processor_find(struct rs_processor *processor)
{
    struct rs_processor p = {.has_string = has_string()};

    __builtin_cpu_init();
    if (__builtin_cpu_is("amd")) {
        p.gains = __builtin_cpu_supports("avx2");
        p.prefetch = p.gains ? RS_PREFETCH_IN_TURN : RS_PREFETCH_NONE;
    } else if (p.has_string && __builtin_cpu_supports("avx512f")) {
        p.gains = __builtin_cpu_is("intel");
        p.prefetch = RS_PREFETCH_AHEAD;
    }
    *processor = p;
}
#else
void rs_processor_find(struct rs_processor *processor)
{
    *processor = (struct rs_processor){.prefetch = RS_PREFETCH_NONE};
}
#endif
