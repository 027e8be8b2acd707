/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/tool.h"

static int fail(const struct tool_output *output)
{
    tool_bad("%s: %s", output->path ? output->path : "standard output",
             strerror(errno));
    return TOOL_FAILED;
}

int tool_output_open(struct tool_output *output, const char *path)
{
    mode_t mask = umask(0);
    int fd;

    umask(mask);
    *output = (struct tool_output){.file = stdout};
    if (path == NULL || strcmp(path, "-") == 0)
        return TOOL_OK;
    output->path = path;
    if (asprintf(&output->temporary, "%s.XXXXXX", path) < 0)
        return fail(output);
    fd = mkstemp(output->temporary);
    if (fd < 0)
        goto err_free;
    /* mkstemp() makes private files; this one is like any other. */
    if (fchmod(fd, 0666 & ~mask) != 0)
        goto err_close;
    output->file = fdopen(fd, "w");
    if (output->file == NULL)
        goto err_close;
    return TOOL_OK;

err_close:
    close(fd);
    unlink(output->temporary);
err_free:
    free(output->temporary);
    return fail(output);
}

int tool_output_close(struct tool_output *output, int error)
{
    int status = error != 0 ? tool_library(error) : TOOL_OK;

    if (output->temporary == NULL) {
        if (fflush(stdout) != 0 && status == TOOL_OK)
            status = fail(output);
        return status;
    }
    if (fclose(output->file) != 0 && status == TOOL_OK)
        status = fail(output);
    if (status == TOOL_OK && rename(output->temporary, output->path) != 0)
        status = fail(output);
    if (status != TOOL_OK)
        unlink(output->temporary);
    free(output->temporary);
    return status;
}
