/* SPDX-License-Identifier: BSD-3-Clause */
/** @file The version of the headers and of the library. */
#ifndef RSCHED_VERSION_H
#define RSCHED_VERSION_H

#include <rsched/error.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RSCHED_VERSION_MAJOR 0
#define RSCHED_VERSION_MINOR 1
#define RSCHED_VERSION_PATCH 0
#define RSCHED_VERSION_STRING "0.1.0"

/**
 * The version of the library that runs, which may be newer than the headers
 * that a program was compiled with.
 *
 * @return a static string "MAJOR.MINOR.PATCH". Thread-safe.
 */
RSCHED_API const char *rsched_version(void);

#ifdef __cplusplus
}
#endif

#endif
