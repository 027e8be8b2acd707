/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading whole files. */
#ifndef RS_BASE_FILE_H
#define RS_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Read a file into memory.
 *
 * @param path   a file name; "-" is standard input
 * @param text   where the bytes are stored, followed by a zero; free() them
 * @param length their number
 * @return 0; RSCHED_ESYS with a text that names the path; RSCHED_ELIMIT when
 *         the file is longer than 1 GiB; RSCHED_ENOMEM
 */
int rs_file_read(const char *path, char **text, size_t *length);

/** Whether a name that may be a file or something built in means a file: it is
 * "-", has a '/', ends in .yaml, .yml or .json, or exists and is no
 * directory. */
bool rs_file_is_meant(const char *name);

#endif
