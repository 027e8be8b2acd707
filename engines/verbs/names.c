/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/verbs/names.h"

#include <stdlib.h>
#include <string.h>

static int count_groups(const char *groups)
{
    int count = 1;

    for (; *groups != '\0'; groups++)
        count += *groups == '/';
    return count;
}

bool rs_verbs_names_group(const char *groups, int process, char *group,
                          size_t size)
{
    size_t length;

    for (int skip = process % count_groups(groups); skip > 0; skip--)
        groups = strchr(groups, '/') + 1;
    length = strcspn(groups, "/");
    if (length >= size)
        return false;
    memcpy(group, groups, length);
    group[length] = '\0';
    return true;
}

bool rs_verbs_name_next(const char **rest, struct rs_verbs_name *name)
{
    const char *colon;
    size_t length;

    *rest += strspn(*rest, ",");
    length = strcspn(*rest, ",");
    if (length == 0)
        return false;
    *name = (struct rs_verbs_name){.text = *rest, .length = length};
    colon = memchr(*rest, ':', length);
    if (colon != NULL) {
        name->length = (size_t)(colon - *rest);
        name->port = (uint32_t)strtoul(colon + 1, NULL, 10);
    }
    *rest += length;
    return true;
}

bool rs_verbs_name_is(const struct rs_verbs_name *name, const char *device)
{
    return strlen(device) == name->length &&
           memcmp(device, name->text, name->length) == 0;
}
