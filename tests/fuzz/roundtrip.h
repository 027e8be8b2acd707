/* SPDX-License-Identifier: BSD-3-Clause */
/* What every reader of a file format must do with any bytes: refuse them with
 * a text that begins with the file's name, or make an object that can be
 * written, read again, and then be written the same. */
#ifndef TESTS_FUZZ_ROUNDTRIP_H
#define TESTS_FUZZ_ROUNDTRIP_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/error.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "%s (%s)\n", what, rsched_last_error());
        abort();
    }
}

/* Defines LLVMFuzzerTestOneInput for `struct TYPE` with the functions
 * TYPE_parse, TYPE_write and TYPE_destroy. */
#define FUZZ_ROUNDTRIP(type)                                                 \
    static char *write_##type(const struct type *object, size_t *length)     \
    {                                                                        \
        char *text = NULL;                                                   \
        FILE *out = open_memstream(&text, length);                           \
                                                                             \
        require(out != NULL, "open_memstream");                              \
        require(type##_write(object, out) == 0, "cannot be written");        \
        fclose(out);                                                         \
        return text;                                                         \
    }                                                                        \
                                                                             \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)             \
    {                                                                        \
        struct type *first, *second;                                         \
        size_t length, again;                                                \
        char *text, *other;                                                  \
        int error = type##_parse("fuzz", (const char *)data, size, &first);  \
                                                                             \
        if (error != 0) {                                                    \
            require(error != RSCHED_EPARSE ||                                \
                        strncmp(rsched_last_error(), "fuzz:", 5) == 0,       \
                    "an error without its place");                           \
            return 0;                                                        \
        }                                                                    \
        text = write_##type(first, &length);                                 \
        require(type##_parse("written", text, length, &second) == 0,         \
                "what was written cannot be read");                          \
        other = write_##type(second, &again);                                \
        require(length == again && memcmp(text, other, length) == 0,         \
                "what was read again is not the same");                      \
        free(text);                                                          \
        free(other);                                                         \
        type##_destroy(first);                                               \
        type##_destroy(second);                                              \
        return 0;                                                            \
    }

#endif
