/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"

enum { PIECE = 1 << 16, MOST = 1 << 30 };

static int read_all(FILE *in, const char *path, char **text, size_t *length)
{
    char *bytes = NULL;
    size_t room = 0, used = 0, got;

    do {
        char *more = used < MOST ? rs_array_grow(bytes, &room,
                                                 used + PIECE + 1, 1) : NULL;
        if (more == NULL) {
            free(bytes);
            if (used >= MOST)
                return rs_fail(RSCHED_ELIMIT, "%s: longer than 1 GiB", path);
            return rs_fail(RSCHED_ENOMEM, "%s: no memory", path);
        }
        bytes = more;
        got = fread(bytes + used, 1, PIECE, in);
        used += got;
    } while (got == PIECE);
    if (ferror(in)) {
        free(bytes);
        return rs_fail(RSCHED_ESYS, "%s: %m", path);
    }
    bytes[used] = '\0';
    *text = bytes;
    *length = used;
    return 0;
}

int rs_file_read(const char *path, char **text, size_t *length)
{
    FILE *in;
    int error;

    if (strcmp(path, "-") == 0)
        return read_all(stdin, "standard input", text, length);
    in = fopen(path, "re");
    if (in == NULL)
        return rs_fail(RSCHED_ESYS, "%s: %m", path);
    error = read_all(in, path, text, length);
    fclose(in);
    return error;
}

/* Whatever can be read: a pipe is, a directory is not. */
static bool exists(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && !S_ISDIR(status.st_mode);
}

bool rs_file_is_meant(const char *name)
{
    static const char *const endings[] = {".yaml", ".yml", ".json"};
    size_t length = strlen(name);

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t n = strlen(endings[i]);

        if (length > n && strcmp(name + length - n, endings[i]) == 0)
            return true;
    }
    return strcmp(name, "-") == 0 || strchr(name, '/') != NULL ||
           exists(name);
}
