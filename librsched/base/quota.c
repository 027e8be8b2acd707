/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/quota.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

/* Of control groups, which a process is in one of each. In version 2 there is one for all
 * that is controlled; in version 1 one for processor time, maybe among others. */
enum version { NONE, V1, V2 };

/* ---- the quota of one group ---- */

static FILE *open_in(const char *folder, const char *name)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/%s", folder, name);

    return length > 0 && length < (int)sizeof(path) ? fopen(path, "re") : NULL;
}

/* "max 100000", or two numbers. */
static bool read_max(const char *folder, uint64_t *quota, uint64_t *period)
{
    FILE *file = open_in(folder, "cpu.max");
    bool read = file != NULL && fscanf(file, "%" SCNu64 " %" SCNu64, quota, period) == 2;

    if (file != NULL)
        fclose(file);
    return read;
}

/* -1 where there is none. */
static bool read_number(const char *folder, const char *name, uint64_t *number)
{
    FILE *file = open_in(folder, name);
    int64_t read = -1;

    if (file == NULL)
        return false;
    if (fscanf(file, "%" SCNd64, &read) != 1)
        read = -1;
    fclose(file);
    *number = (uint64_t)read;
    return read >= 0;
}

static bool read_quota(enum version version, const char *folder, uint64_t *cores)
{
    uint64_t quota, period;

    if (version == V2 ? !read_max(folder, &quota, &period)
                      : !read_number(folder, "cpu.cfs_quota_us", &quota) ||
                            !read_number(folder, "cpu.cfs_period_us", &period))
        return false;
    if (period == 0)
        return false;
    *cores = quota / period;
    return true;
}

/* The folder's identity: two containers may see it at different places. */
static uint64_t identify(const char *folder)
{
    struct stat s;
    uint64_t number[2];

    if (stat(folder, &s) != 0)
        return 0;
    number[0] = s.st_dev;
    number[1] = s.st_ino;
    return XXH64(number, sizeof(number), 0) | 1;
}

static void add(struct rs_quotas *quotas, enum version version, const char *folder)
{
    struct rs_quota q = {0};

    if (!read_quota(version, folder, &q.cores))
        return;
    q.group = identify(folder);
    if (rs_quotas_include(quotas, q.group))
        return; /* mounted twice, or nothing */
    for (int i = 0; i < RS_QUOTAS; i++) {
        if (quotas->of[i].group == 0) {
            quotas->of[i] = q;
            return;
        }
    }
}

/* Of a group, and of those that it lies in, as far as they are below `top`.
 * @param folder of it; is shortened */
static void add_all(struct rs_quotas *quotas, enum version version, char *folder, size_t top)
{
    char *end;

    for (;;) {
        add(quotas, version, folder);
        end = strrchr(folder, '/');
        if (end == NULL || (size_t)(end - folder) < top)
            return;
        *end = '\0';
    }
}

/* ---- where a process is ---- */

/* Whether "cpu" is one of a list with commas. */
static bool names_cpu(const char *list)
{
    for (const char *at = list; (at = strstr(at, "cpu")) != NULL; at += 3) {
        if ((at == list || at[-1] == ',') && strchr(",\n", at[3]) != NULL)
            return true;
    }
    return false;
}

/* The process's group, as /proc/self/cgroup has it: "4:cpu,cpuacct:/a/b", or "0::/a/b".
 * @return free() it; NULL: there is none */
static char *find_group(enum version version)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char *line = NULL, *group = NULL;
    size_t size = 0;

    while (file != NULL && group == NULL && getline(&line, &size, file) > 0) {
        char *list = strchr(line, ':'), *path = list == NULL ? NULL : strchr(list + 1, ':');

        if (path == NULL)
            continue;
        *path++ = '\0';
        list++;
        path[strcspn(path, "\n")] = '\0';
        if (version == V2 ? *list == '\0' && strtol(line, NULL, 10) == 0 : names_cpu(list))
            group = strdup(path);
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return group;
}

/* The kernel writes blanks and the like as \040. In place. */
static void unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; to++) {
        unsigned code;

        if (*from == '\\' && sscanf(from + 1, "%3o", &code) == 1 && strlen(from) >= 4) {
            *to = (char)code;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

static enum version version_of(const char *type, const char *options)
{
    return strcmp(type, "cgroup2") == 0                          ? V2
           : strcmp(type, "cgroup") == 0 && names_cpu(options) ? V1
                                                                 : NONE;
}

/* What of a group's path lies below the folder that is mounted; NULL: it is elsewhere, as
 * that of a process that has come into a namespace, or a group, later. */
static const char *below(const char *group, const char *root)
{
    size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);

    if (strncmp(group, root, length) != 0 || strchr("/", group[length]) == NULL ||
        strstr(group, "/..") != NULL)
        return NULL;
    return strcmp(group + length, "/") == 0 ? "" : group + length;
}

/* Of one mount: "36 35 0:30 ROOT POINT OPTIONS ... - TYPE SOURCE OPTIONS". */
static void look_at(struct rs_quotas *quotas, const char *line)
{
    const char *rest = strstr(line, " - ");
    char *root = NULL, *point = NULL, *type = NULL, *options = NULL, *group = NULL;
    const char *path = NULL;
    char folder[PATH_MAX];
    enum version version = NONE;
    int length;

    if (rest != NULL && sscanf(rest, " - %ms %*s %ms", &type, &options) == 2)
        version = version_of(type, options);
    if (version != NONE && sscanf(line, "%*s %*s %*s %ms %ms", &root, &point) == 2)
        group = find_group(version);
    if (group != NULL) {
        unescape(root);
        unescape(point);
        path = below(group, root);
    }
    if (path != NULL) {
        length = snprintf(folder, sizeof(folder), "%s%s", point, path);
        if (length > 0 && length < (int)sizeof(folder))
            add_all(quotas, version, folder, strlen(point));
    }
    free(root);
    free(point);
    free(type);
    free(options);
    free(group);
}

void rs_quotas_find(struct rs_quotas *quotas)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char *line = NULL;
    size_t size = 0;

    *quotas = (struct rs_quotas){0};
    while (file != NULL && getline(&line, &size, file) > 0)
        look_at(quotas, line);
    free(line);
    if (file != NULL)
        fclose(file);
}

void rs_allowance_find(struct rs_allowance *a)
{
    rs_cpus_allowed(&a->cpus);
    rs_quotas_find(&a->quotas);
}
