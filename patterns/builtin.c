/* SPDX-License-Identifier: BSD-3-Clause */
#include "patterns/builtin.h"

#include <string.h>

#include "librsched/base/error.h"
#include "patterns/pattern.h"

enum { ARGUMENTS_MOST = 6 };

/* One line per built-in pattern. */
static const struct rs_pattern_builtin table[] = {
    {"scale-les3", 2, 2,
     "scale-les3:K:ew|ns|ewns|diag|all\tthe paper's SCALE-LES3 halos; K, the "
     "vertical grid, is 60, 70, 80, 109, 218, 327, 436, 545, 654, 763 or 872",
     rs_pattern_fill_scale_les3},
    {"halo2d", 3, 4,
     "halo2d:NXxNY:hWIDTH:4|8[:ELEMENT_BYTES]\thalo of a 2-D block with 4 or "
     "8 neighbors; an element has 8 bytes unless told",
     rs_pattern_fill_halo2d},
    {"halo3d", 3, 4,
     "halo3d:NXxNYxNZ:hWIDTH:6|26[:ELEMENT_BYTES]\thalo of a 3-D block with "
     "6 or 26 neighbors",
     rs_pattern_fill_halo3d},
};

enum { NUM_BUILTINS = sizeof(table) / sizeof(table[0]) };

const char *rsched_pattern_builtin_help(size_t index)
{
    return index < NUM_BUILTINS ? table[index].help : NULL;
}

int rs_pattern_append(struct rsched_pattern *pattern, const char *direction,
                      uint64_t bytes)
{
    struct rsched_put put = {.bytes = bytes,
                             .source = RSCHED_ANY_PROCESS,
                             .destination = RSCHED_ANY_PROCESS,
                             .direction = direction};
    int64_t id = rsched_pattern_add_put(pattern, &put);

    return id < 0 ? (int)id : 0;
}

static int fail_name(const char *specification)
{
    char names[128] = "";
    size_t length = 0;

    for (size_t i = 0; i < NUM_BUILTINS; i++)
        length += (size_t)snprintf(names + length, sizeof(names) - length,
                                   "%s%s", i ? ", " : "", table[i].name);
    return rs_fail(RSCHED_ENAME, "no file and no built-in pattern '%.200s' "
                   "(built in: %s)", specification, names);
}

/* Cut `text` at its colons. Returns the number of parts, at most
 * ARGUMENTS_MOST. */
static size_t cut(char *text, char **parts)
{
    size_t count = 0;

    while (count < ARGUMENTS_MOST) {
        parts[count++] = strsep(&text, ":");
        if (text == NULL)
            break;
    }
    return count;
}

int rsched_pattern_builtin(const char *specification,
                           struct rsched_pattern **pattern)
{
    char text[256];
    char *parts[ARGUMENTS_MOST];
    const struct rs_pattern_builtin *builtin = NULL;
    struct rsched_pattern *made;
    size_t count;
    int error;

    if (strlen(specification) >= sizeof(text))
        return fail_name(specification);
    strcpy(text, specification);
    count = cut(text, parts);
    for (size_t i = 0; i < NUM_BUILTINS && builtin == NULL; i++) {
        if (strcmp(table[i].name, parts[0]) == 0)
            builtin = &table[i];
    }
    if (builtin == NULL)
        return fail_name(specification);
    if (count - 1 < builtin->least || count - 1 > builtin->most)
        return rs_fail(RSCHED_EINVAL, "pattern %s: expected %.*s",
                       specification, (int)strcspn(builtin->help, "\t"),
                       builtin->help);
    error = rsched_pattern_create(specification, &made);
    if (error != 0)
        return error;
    error = builtin->fill(specification, parts + 1, count - 1, made);
    if (error != 0) {
        rsched_pattern_destroy(made);
        return error;
    }
    *pattern = made;
    return 0;
}
