/* SPDX-License-Identifier: BSD-3-Clause */
#include <rsched/version.h>

#include <stdio.h>

#include <criterion/criterion.h>

Test(version, headers_library_and_build_agree)
{
    char numbers[32];

    snprintf(numbers, sizeof(numbers), "%d.%d.%d", RSCHED_VERSION_MAJOR,
             RSCHED_VERSION_MINOR, RSCHED_VERSION_PATCH);
    cr_assert_str_eq(RSCHED_VERSION_STRING, numbers);
    cr_assert_str_eq(rsched_version(), RSCHED_VERSION_STRING);
    cr_assert_str_eq(PROJECT_VERSION, RSCHED_VERSION_STRING);
}
