/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <limits.h>
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

/* What a link says, as seen from where the link is. @return NULL with errno */
static char *follow(const char *link)
{
    char to[PATH_MAX], *path;
    ssize_t length = readlink(link, to, sizeof(to) - 1);
    const char *slash = strrchr(link, '/');
    int folder;

    if (length < 0)
        return NULL;
    to[length] = '\0';
    folder = to[0] == '/' || slash == NULL ? 0 : (int)(slash - link + 1);
    if (asprintf(&path, "%.*s%s", folder, link, to) >= 0)
        return path;
    errno = ENOMEM;
    return NULL;
}

/* Where a link points, so that the link stays, also when nothing is there yet.
 * @return NULL with errno */
static char *find_target(const char *path)
{
    char *target = realpath(path, NULL), *next;

    if (target != NULL || errno != ENOENT)
        return target;
    target = strdup(path);
    /* realpath() has found no loop, so this ends. */
    while (target != NULL && (next = follow(target)) != NULL) {
        free(target);
        target = next;
    }
    return target;
}

/* Of the file that is replaced, else that of any new one: mkstemp() makes
 * private files. */
static mode_t find_mode(const char *target)
{
    mode_t mask = umask(0);
    struct stat status;

    umask(mask);
    return stat(target, &status) == 0 ? status.st_mode & 0777 : 0666 & ~mask;
}

/* Whether it is a file that may be written, or nothing yet; else errno. That its folder may
 * be written is enough to replace it. */
static bool may_replace(const char *target)
{
    struct stat status;

    if (stat(target, &status) != 0)
        return errno == ENOENT;
    if (S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        return false;
    }
    return access(target, W_OK) == 0;
}

/* A short name in the folder of `target`, whose own may be as long as names can be.
 * @return NULL with errno */
static char *name_temporary(const char *target)
{
    const char *slash = strrchr(target, '/');
    int folder = slash == NULL ? 0 : (int)(slash - target + 1);
    char *name;

    if (asprintf(&name, "%.*s.rsched-XXXXXX", folder, target) >= 0)
        return name;
    errno = ENOMEM;
    return NULL;
}

int tool_output_open(struct tool_output *output, const char *path)
{
    int fd;

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
    output->target = find_target(path);
    if (output->target == NULL)
        return fail(output);
    if (!may_replace(output->target))
        goto err_free;
    output->temporary = name_temporary(output->target);
    if (output->temporary == NULL)
        goto err_free;
    fd = mkstemp(output->temporary);
    if (fd < 0)
        goto err_free;
    if (fchmod(fd, find_mode(output->target)) != 0)
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

int tool_output_check(const char *path)
{
    struct tool_output output;
    int status;

    if (path == NULL || is_special(path))
        return TOOL_OK;
    status = tool_output_open(&output, path);
    if (status != TOOL_OK || output.temporary == NULL)
        return status;
    fclose(output.file);
    unlink(output.temporary);
    free(output.temporary);
    free(output.target);
    return TOOL_OK;
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
