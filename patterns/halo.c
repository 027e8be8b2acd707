/* SPDX-License-Identifier: BSD-3-Clause */
/* Halos of a block of elements in two and three dimensions. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/base/units.h"
#include "patterns/builtin.h"

struct block {
    size_t dimensions;
    uint64_t size[3]; /* elements */
    uint64_t width;   /* of the halo, elements */
    uint64_t element; /* bytes */
};

/* "64x64x32" into its numbers. */
static bool parse_size(const char *text, size_t dimensions, uint64_t *size)
{
    char copy[128];
    char *rest = copy;

    if (strlen(text) >= sizeof(copy))
        return false;
    strcpy(copy, text);
    for (size_t i = 0; i < dimensions; i++) {
        char *part = strsep(&rest, "x");

        if (part == NULL || rs_parse_whole(part, &size[i]) != NULL ||
            size[i] == 0)
            return false;
    }
    return rest == NULL;
}

static int parse_block(const char *specification, char *const *arguments,
                       size_t num_arguments, struct block *block)
{
    const char *width = arguments[1];

    if (!parse_size(arguments[0], block->dimensions, block->size))
        return rs_fail(RSCHED_EINVAL, "pattern %s: '%s' is not a block of %zu "
                       "dimensions such as %s", specification, arguments[0],
                       block->dimensions,
                       block->dimensions == 2 ? "64x64" : "64x64x32");
    if (width[0] != 'h' || rs_parse_whole(width + 1, &block->width) != NULL ||
        block->width == 0)
        return rs_fail(RSCHED_EINVAL, "pattern %s: '%s' is not a halo width "
                       "such as h2", specification, width);
    block->element = 8;
    if (num_arguments > 3 &&
        (rs_parse_whole(arguments[3], &block->element) != NULL ||
         block->element == 0))
        return rs_fail(RSCHED_EINVAL, "pattern %s: '%s' is not a number of "
                       "bytes per element", specification, arguments[3]);
    for (size_t i = 0; i < block->dimensions; i++) {
        if (block->width > block->size[i])
            return rs_fail(RSCHED_EINVAL, "pattern %s: the halo is wider than "
                           "the block", specification);
    }
    return 0;
}

/* The put towards the neighbor at `step` carries `width` layers in the
 * dimensions in which the neighbor differs and the whole block in others. */
static int append(const char *specification, struct rsched_pattern *pattern,
                  const char *direction, const struct block *block,
                  const int *step)
{
    uint64_t bytes = block->element;

    for (size_t i = 0; i < block->dimensions; i++) {
        uint64_t length = step[i] != 0 ? block->width : block->size[i];

        if (__builtin_mul_overflow(bytes, length, &bytes))
            return rs_fail(RSCHED_EINVAL, "pattern %s: the bytes of a put do "
                           "not fit in 64 bits", specification);
    }
    return rs_pattern_append(pattern, direction, bytes);
}

static int parse_neighbors(const char *specification, const char *text,
                           const char *faces, const char *all, bool *corners)
{
    *corners = strcmp(text, all) == 0;
    if (!*corners && strcmp(text, faces) != 0)
        return rs_fail(RSCHED_EINVAL, "pattern %s: '%s' neighbors, expected "
                       "%s or %s", specification, text, faces, all);
    return 0;
}

int rs_pattern_fill_halo2d(const char *specification, char *const *arguments,
                           size_t num_arguments,
                           struct rsched_pattern *pattern)
{
    static const struct {
        const char *direction;
        int step[2];
    } neighbors[] = {{"W", {-1, 0}},  {"E", {1, 0}},   {"N", {0, 1}},
                     {"S", {0, -1}},  {"NW", {-1, 1}}, {"NE", {1, 1}},
                     {"SW", {-1, -1}}, {"SE", {1, -1}}};
    struct block block = {.dimensions = 2};
    bool corners;
    int error = parse_block(specification, arguments, num_arguments, &block);

    if (error == 0)
        error = parse_neighbors(specification, arguments[2], "4", "8",
                                &corners);
    for (size_t i = 0; error == 0 && i < (corners ? 8 : 4); i++)
        error = append(specification, pattern, neighbors[i].direction, &block,
                       neighbors[i].step);
    return error;
}

/* "-x+z" for the step (-1, 0, 1). */
static void name_step(const int *step, char *name)
{
    for (int i = 0; i < 3; i++) {
        if (step[i] == 0)
            continue;
        *name++ = step[i] < 0 ? '-' : '+';
        *name++ = (char)('x' + i);
    }
    *name = '\0';
}

int rs_pattern_fill_halo3d(const char *specification, char *const *arguments,
                           size_t num_arguments,
                           struct rsched_pattern *pattern)
{
    struct block block = {.dimensions = 3};
    bool corners;
    int error = parse_block(specification, arguments, num_arguments, &block);

    if (error == 0)
        error = parse_neighbors(specification, arguments[2], "6", "26",
                                &corners);
    for (int i = 0; error == 0 && i < 27; i++) {
        int step[3] = {i / 9 - 1, i / 3 % 3 - 1, i % 3 - 1};
        int away = abs(step[0]) + abs(step[1]) + abs(step[2]);
        char name[8];

        if (away == 0 || (away > 1 && !corners))
            continue;
        name_step(step, name);
        error = append(specification, pattern, name, &block, step);
    }
    return error;
}
