/* SPDX-License-Identifier: BSD-3-Clause */
#include <rsched/version.h>

const char *rsched_version(void)
{
    return RSCHED_VERSION_STRING;
}
