/* SPDX-License-Identifier: BSD-3-Clause */
/* Output of which a part is lost: one write fails, and all after it go well. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/tool.h"

static char said[256];

int tool_bad(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(said, sizeof(said), format, args);
    va_end(args);
    return TOOL_BAD_INPUT;
}

int tool_library(int error)
{
    cr_assert_fail("%d", error);
    return TOOL_BAD_INPUT;
}

/* The disk is full for the write of this number. */
struct disk {
    int writes, full;
};

static ssize_t write_disk(void *cookie, const char *bytes, size_t size)
{
    struct disk *disk = cookie;

    (void)bytes;
    if (disk->writes++ != disk->full)
        return (ssize_t)size;
    errno = ENOSPC;
    return 0;
}

static FILE *open_disk(struct disk *disk)
{
    static const cookie_io_functions_t functions = {.write = write_disk};
    FILE *file = fopencookie(disk, "w", functions);

    cr_assert_not_null(file);
    return file;
}

static void fill(FILE *out)
{
    for (int i = 0; i < 10 * BUFSIZ; i++)
        fputc('x', out);
}

static int flush_after(int full)
{
    struct disk disk = {.full = full};
    FILE *file = open_disk(&disk);
    int status;

    fill(file);
    status = tool_flush(file, "a");
    fclose(file);
    return status;
}

Test(output, a_write_that_failed_is_remembered)
{
    cr_assert_eq(flush_after(-1), TOOL_OK);
    cr_assert_eq(flush_after(1), TOOL_FAILED);
    cr_assert_str_eq(said, "a: a part could not be written");
}

Test(output, what_lost_a_part_replaces_nothing)
{
    char path[] = "/tmp/rsched-output-XXXXXX", kept[8] = "";
    int fd = mkstemp(path);
    struct disk disk = {.full = 1};
    struct tool_output output;
    FILE *file;

    cr_assert_eq(write(fd, "good", 4), 4);
    close(fd);
    cr_assert_eq(tool_output_open(&output, path), TOOL_OK);
    fclose(output.file);
    output.file = open_disk(&disk);
    fill(output.file);
    cr_assert_eq(tool_output_close(&output, 0), TOOL_FAILED);
    file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_eq(fread(kept, 1, sizeof(kept), file), 4);
    cr_assert_str_eq(kept, "good");
    fclose(file);
    unlink(path);
}
