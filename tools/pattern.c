/* SPDX-License-Identifier: BSD-3-Clause */
/* rsched pattern: print a pattern as YAML. */
#include <limits.h>
#include <string.h>

#include "tools/tool.h"

struct choice {
    const char *grid, *directions; /* scale-les3 */
    const char *size, *width, *neighbors, *element; /* halo2d, halo3d */
    const char *output;
};

static bool is_halo(const char *name)
{
    return strcmp(name, "halo2d") == 0 || strcmp(name, "halo3d") == 0;
}

static int check_absent(const char *name, const char *option,
                        const char *value)
{
    if (value == NULL)
        return TOOL_OK;
    return tool_bad("pattern: %s has no option --%s", name, option);
}

/* Options that the pattern does not have are errors, not noise. */
static int check_options(const char *name, const struct choice *c)
{
    bool scale = strcmp(name, "scale-les3") == 0, halo = is_halo(name);
    int status = TOOL_OK;

    if (!scale)
        status = check_absent(name, "grid", c->grid);
    if (!scale && status == TOOL_OK)
        status = check_absent(name, "directions", c->directions);
    if (!halo && status == TOOL_OK)
        status = check_absent(name, "size", c->size);
    if (!halo && status == TOOL_OK)
        status = check_absent(name, "width", c->width);
    if (!halo && status == TOOL_OK)
        status = check_absent(name, "neighbors", c->neighbors);
    if (!halo && status == TOOL_OK)
        status = check_absent(name, "element", c->element);
    if (scale && status == TOOL_OK && c->grid == NULL)
        status = tool_bad("pattern: scale-les3 needs --grid");
    if (halo && status == TOOL_OK && c->size == NULL)
        status = tool_bad("pattern: %s needs --size", name);
    return status;
}

/* The specification that the options spell. */
static void specify(const char *name, const struct choice *c, char *text,
                    size_t size)
{
    const char *most = strcmp(name, "halo2d") == 0 ? "8" : "26";

    if (strcmp(name, "scale-les3") == 0)
        snprintf(text, size, "%s:%s:%s", name, c->grid,
                 c->directions ? c->directions : "all");
    else
        snprintf(text, size, "%s:%s:h%s:%s%s%s", name, c->size,
                 c->width ? c->width : "1", c->neighbors ? c->neighbors : most,
                 c->element ? ":" : "", c->element ? c->element : "");
}

/* A pattern whose parameters are options. */
static int open_family(const char *name, const struct choice *c,
                       struct rsched_pattern **pattern)
{
    char specification[PATH_MAX];
    int status = check_options(name, c), error;

    if (status != TOOL_OK)
        return status;
    specify(name, c, specification, sizeof(specification));
    error = rsched_pattern_open(specification, pattern);
    return error != 0 ? tool_library(error) : TOOL_OK;
}

int tool_pattern(const struct tool_command *command, int argc, char **argv)
{
    struct choice c = {0};
    const struct tool_option options[] = {
        {"grid", 0, "K", "scale-les3: the vertical grid", &c.grid, NULL},
        {"directions", 0, "SET", "scale-les3: all|ew|ns|ewns|diag (all)",
         &c.directions, NULL},
        {"size", 0, "NXxNY[xNZ]", "halo2d, halo3d: elements of the block",
         &c.size, NULL},
        {"width", 0, "W", "halo2d, halo3d: layers of the halo (1)", &c.width,
         NULL},
        {"neighbors", 0, "N", "halo2d: 4|8 (8); halo3d: 6|26 (26)",
         &c.neighbors, NULL},
        {"element", 0, "BYTES", "halo2d, halo3d: size of an element (8)",
         &c.element, NULL},
        {"output", 'o', "FILE", "where to write (standard output)", &c.output,
         NULL},
        {0}};
    struct rsched_pattern *pattern;
    struct tool_output output;
    int first;
    int status = tool_parse(command, argc, argv, options, &first, 1, 1);
    int error;

    if (status != TOOL_GO_ON)
        return status;
    /* No such pattern is worse than options that it does not have. */
    if (strcmp(argv[first], "scale-les3") != 0 && !is_halo(argv[first])) {
        error = rsched_pattern_open(argv[first], &pattern);
        status = error != 0 ? tool_library(error)
                            : check_options(argv[first], &c);
        if (error == 0 && status != TOOL_OK)
            rsched_pattern_destroy(pattern);
    } else {
        status = open_family(argv[first], &c, &pattern);
    }
    if (status != TOOL_OK)
        return status;
    status = tool_output_open(&output, c.output);
    if (status == TOOL_OK) {
        error = rsched_pattern_write(pattern, output.file);
        status = tool_output_close(&output, error);
    }
    rsched_pattern_destroy(pattern);
    return status;
}
