/* SPDX-License-Identifier: BSD-3-Clause */
/* A program of somebody else, in the C that is also C++. An argument is the
 * version that it must run with. */
#include <stdio.h>
#include <string.h>

#include <rsched/rsched.h>

int main(int argc, char **argv)
{
    const char *expected = argc > 1 ? argv[1] : RSCHED_VERSION_STRING;

    if (strcmp(rsched_version(), expected) != 0) {
        fprintf(stderr, "version %s, expected %s\n", rsched_version(), expected);
        return 1;
    }
    if (rsched_config_check() != 0 || rsched_config_setting(0) == NULL) {
        fprintf(stderr, "settings: %s\n", rsched_last_error());
        return 1;
    }
    printf("rsched %s, %s\n", rsched_version(), rsched_strerror(RSCHED_EPEER));
    return 0;
}
