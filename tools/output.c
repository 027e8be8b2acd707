/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/tool.h"

static const char *name_of(const struct tool_output *output)
{
    return output->path ? output->path : "standard output";
}

static int fail(const struct tool_output *output)
{
    tool_bad("%s: %s", name_of(output), strerror(errno));
    return TOOL_FAILED;
}

/* A device or a pipe is written to; only files are replaced. */
static bool is_special(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && !S_ISREG(status.st_mode) &&
           !S_ISDIR(status.st_mode);
}

int tool_output_open(struct tool_output *output, const char *path)
{
    mode_t mask = umask(0);
    int fd;

    umask(mask);
    /* A file that may not be so long is an error of write(), and leaves nothing. */
    signal(SIGXFSZ, SIG_IGN);
    *output = (struct tool_output){.file = stdout};
    if (path == NULL || strcmp(path, "-") == 0)
        return TOOL_OK;
    output->path = path;
    if (is_special(path)) {
        output->file = fopen(path, "we");
        return output->file != NULL ? TOOL_OK : fail(output);
    }
    /* Where a link points, so that the link stays. */
    output->target = realpath(path, NULL);
    if (output->target == NULL)
        output->target = strdup(path);
    if (output->target == NULL ||
        asprintf(&output->temporary, "%s.XXXXXX", output->target) < 0) {
        free(output->target);
        errno = ENOMEM;
        return fail(output);
    }
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
    free(output->target);
    return fail(output);
}

/* Of what writes, an error of the system is a full disk and the like, and no
 * bad input. */
static int close_status(int error)
{
    int status = error != 0 ? tool_library(error) : TOOL_OK;

    return error == RSCHED_ESYS ? TOOL_FAILED : status;
}

int tool_flush(FILE *file, const char *name)
{
    /* fflush() tells of its own write only, not of one before that failed. */
    bool lost = ferror(file);

    if (fflush(file) != 0)
        tool_bad("%s: %s", name, strerror(errno));
    else if (lost)
        tool_bad("%s: a part could not be written", name);
    else
        return TOOL_OK;
    return TOOL_FAILED;
}

int tool_output_close(struct tool_output *output, int error)
{
    int status = close_status(error);

    if (status == TOOL_OK)
        status = tool_flush(output->file, name_of(output));
    if (output->file != stdout && fclose(output->file) != 0 &&
        status == TOOL_OK)
        status = fail(output);
    if (output->temporary == NULL)
        return status;
    if (status == TOOL_OK && rename(output->temporary, output->target) != 0)
        status = fail(output);
    if (status != TOOL_OK)
        unlink(output->temporary);
    free(output->temporary);
    free(output->target);
    return status;
}
