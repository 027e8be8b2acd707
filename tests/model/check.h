/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs that test parts of the protocol without any MPI process. */
#ifndef TESTS_MODEL_CHECK_H
#define TESTS_MODEL_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

#endif
