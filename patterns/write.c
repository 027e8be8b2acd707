/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing pattern/1. */
#include <inttypes.h>

#include "librsched/base/error.h"
#include "librsched/base/yaml.h"
#include "patterns/pattern.h"

static void write_run(FILE *out, const struct rsched_run *run)
{
    fprintf(out, "{offset: %" PRId64 ", block: %" PRIu64, run->offset,
            run->bytes);
    if (run->count > 1)
        fprintf(out, ", count: %" PRIu64 ", stride: %" PRId64, run->count,
                run->stride);
    fputc('}', out);
}

static void write_layout(FILE *out, const struct rsched_layout *layout)
{
    if (layout->num_runs == 0)
        return;
    fputs(", layout: ", out);
    if (layout->num_runs > 1)
        fputc('[', out);
    for (size_t i = 0; i < layout->num_runs; i++) {
        if (i > 0)
            fputs(", ", out);
        write_run(out, &layout->runs[i]);
    }
    if (layout->num_runs > 1)
        fputc(']', out);
}

static void write_list(FILE *out, const char *key,
                       const struct rs_transfers *list)
{
    if (list->count == 0) {
        fprintf(out, "%s: []\n", key);
        return;
    }
    fprintf(out, "%s:\n", key);
    for (size_t i = 0; i < list->count; i++) {
        const struct rsched_put *put = &list->items[i].put;

        fprintf(out, "  - {bytes: %" PRIu64 ", direction: ", put->bytes);
        rs_yaml_write_text(out, put->direction);
        if (put->source != RSCHED_ANY_PROCESS)
            fprintf(out, ", from: %d", put->source);
        if (put->destination != RSCHED_ANY_PROCESS)
            fprintf(out, ", to: %d", put->destination);
        if (put->memory == RSCHED_MEMORY_DEVICE)
            fprintf(out, ", memory: device, device: %d", put->device);
        write_layout(out, &put->layout);
        fputs("}\n", out);
    }
}

int rsched_pattern_write(const struct rsched_pattern *pattern, FILE *out)
{
    fputs("rsched: pattern/1\nname: ", out);
    rs_yaml_write_text(out, pattern->name);
    fputc('\n', out);
    write_list(out, "puts", &pattern->puts);
    if (pattern->receives.count > 0)
        write_list(out, "receives", &pattern->receives);
    if (ferror(out))
        return rs_fail(RSCHED_ESYS, "writing pattern %s: %m", pattern->name);
    return 0;
}
