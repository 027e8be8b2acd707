/* SPDX-License-Identifier: BSD-3-Clause */
/* Quotas of processor time, of systems that files made up describe. check-quota makes one of the
 * kernel. */
#include <criterion/criterion.h>

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "librsched/base/quota.h"

enum { FILES = 12, MOST = RS_QUOTAS + 1 };

/* `@` is the folder that stands for the system's. */
struct file {
    const char *path, *text;
};

struct example {
    const char *name;
    const char *group, *mounts; /* /proc/self/cgroup and mountinfo; NULL: none */
    struct file files[FILES];
    uint64_t cores[MOST]; /* that are found, in any order; ends with UINT64_MAX */
};

#define END UINT64_MAX
#define MOUNT_V2 "29 22 0:26 / @/cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_CPU "31 22 0:28 / @/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
#define MOUNT_SET "32 22 0:29 / @/set rw,relatime - cgroup cgroup rw,cpuset\n"
#define OTHERS "22 1 8:1 / / rw,relatime - ext4 /dev/root rw\n"

static const struct example examples[] = {
    {"version 2, as a container with a namespace sees it", "0::/\n", OTHERS MOUNT_V2,
     {{"cg/cpu.max", "250000 100000\n"}}, {2, END}},
    {"no quota", "0::/a\n", MOUNT_V2, {{"cg/a/cpu.max", "max 100000\n"}}, {END}},
    {"of the groups that it lies in", "0::/a/b/c\n", MOUNT_V2,
     {{"cg/a/cpu.max", "800000 100000\n"},
      {"cg/a/b/cpu.max", "max 100000\n"},
      {"cg/a/b/c/cpu.max", "100000 100000\n"},
      {"cg/a/b/d/cpu.max", "500000 100000\n"}},
     {1, 8, END}},
    {"less than a core", "0::/a\n", MOUNT_V2, {{"cg/a/cpu.max", "50000 100000\n"}}, {0, END}},
    {"another period", "0::/a\n", MOUNT_V2, {{"cg/a/cpu.max", "30000 10000\n"}}, {3, END}},
    {"version 1", "9:name=systemd:/\n3:cpuset:/\n2:cpuacct,cpu:/a\n0::/\n",
     OTHERS MOUNT_SET MOUNT_CPU,
     {{"cpu/cpu.cfs_quota_us", "-1\n"},
      {"cpu/cpu.cfs_period_us", "100000\n"},
      {"cpu/a/cpu.cfs_quota_us", "200000\n"},
      {"cpu/a/cpu.cfs_period_us", "100000\n"}},
     {2, END}},
    {"version 1, where a container's mount begins with its own group",
     "2:cpu:/docker/1\n", "31 22 0:28 /docker/1 @/cpu rw - cgroup cgroup rw,cpu\n",
     {{"cpu/cpu.cfs_quota_us", "300000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
     {3, END}},
    {"a group whose name begins as that of the mount", "2:cpu:/docker/10/x\n",
     "31 22 0:28 /docker/1 @/cpu rw - cgroup cgroup rw,cpu\n",
     {{"cpu/cpu.cfs_quota_us", "300000\n"},
      {"cpu/cpu.cfs_period_us", "100000\n"},
      {"cpu/0/x/cpu.cfs_quota_us", "400000\n"},
      {"cpu/0/x/cpu.cfs_period_us", "100000\n"}},
     {END}},
    {"a group outside of the namespace", "0::/../../x\n", MOUNT_V2,
     {{"cg/cpu.max", "200000 100000\n"}, {"cg/x/cpu.max", "400000 100000\n"}}, {END}},
    {"both versions", "2:cpu:/a\n0::/b\n", MOUNT_CPU MOUNT_V2,
     {{"cpu/a/cpu.cfs_quota_us", "100000\n"},
      {"cpu/a/cpu.cfs_period_us", "100000\n"},
      {"cg/b/cpu.max", "300000 100000\n"}},
     {1, 3, END}},
    {"mounted twice", "0::/a\n", MOUNT_V2 MOUNT_V2, {{"cg/a/cpu.max", "100000 100000\n"}},
     {1, END}},
    {"a blank in the name", "0::/a b\n", "29 22 0:26 / @/c\\040g rw - cgroup2 x rw\n",
     {{"c g/a b/cpu.max", "100000 100000\n"}}, {1, END}},
    {"more than there is room for", "0::/a/b/c/d/e\n", MOUNT_V2,
     {{"cg/a/cpu.max", "900000 100000\n"},
      {"cg/a/b/cpu.max", "800000 100000\n"},
      {"cg/a/b/c/cpu.max", "700000 100000\n"},
      {"cg/a/b/c/d/cpu.max", "600000 100000\n"},
      {"cg/a/b/c/d/e/cpu.max", "500000 100000\n"}},
     {5, 6, 7, 8, END}},
    {"what makes no sense", "0::/a\n2:cpu:/a\n", MOUNT_V2 MOUNT_CPU,
     {{"cg/a/cpu.max", "many\n"},
      {"cg/cpu.max", "100000 0\n"},
      {"cpu/a/cpu.cfs_quota_us", "x\n"},
      {"cpu/a/cpu.cfs_period_us", "100000\n"},
      {"cpu/cpu.cfs_quota_us", "100000\n"}},
     {END}},
    {"no group", NULL, MOUNT_V2, {{"cg/cpu.max", "200000 100000\n"}}, {END}},
    {"no mounts", "0::/\n", NULL, {{"cg/cpu.max", "200000 100000\n"}}, {END}},
    {"lines that are cut off", "0\n0:\n0::/a\n", "\n29 22\n29 22 0:26 / - cgroup2\n" MOUNT_V2,
     {{"cg/a/cpu.max", "100000 100000\n"}}, {1, END}},
};

static char root[PATH_MAX];
static const struct example *now;

/* What a made-up file has. */
static FILE *open_text(const char *text)
{
    FILE *file = text == NULL ? NULL : tmpfile();

    for (; file != NULL && *text != '\0'; text++) {
        if (*text == '@')
            fputs(root, file);
        else
            fputc(*text, file);
    }
    if (file != NULL)
        rewind(file);
    return file;
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode)
{
    if (strcmp(path, "/proc/self/cgroup") == 0)
        return open_text(now->group);
    if (strcmp(path, "/proc/self/mountinfo") == 0)
        return open_text(now->mounts);
    return __real_fopen(path, mode);
}

static void write_file(const struct file *f)
{
    char path[2 * PATH_MAX];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", root, f->path);
    for (char *end = path + strlen(root) + 1; (end = strchr(end, '/')) != NULL; end++) {
        *end = '\0';
        mkdir(path, 0700);
        *end = '/';
    }
    file = __real_fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fputs(f->text, file);
    fclose(file);
}

static void make(const struct example *e)
{
    snprintf(root, sizeof(root), "/tmp/rsched-quota-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    for (const struct file *f = e->files; f->path != NULL; f++)
        write_file(f);
    now = e;
}

static void drop(void)
{
    char command[PATH_MAX + 16];

    snprintf(command, sizeof(command), "rm -r %s", root);
    cr_assert_eq(system(command), 0);
}

static bool has(const struct rs_quotas *quotas, uint64_t cores)
{
    for (int i = 0; i < RS_QUOTAS; i++) {
        if (quotas->of[i].group != 0 && quotas->of[i].cores == cores)
            return true;
    }
    return false;
}

static int count(const struct rs_quotas *quotas)
{
    int number = 0;

    for (int i = 0; i < RS_QUOTAS; i++)
        number += quotas->of[i].group != 0;
    return number;
}

Test(quota, are_found)
{
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        const struct example *e = &examples[i];
        struct rs_quotas quotas;
        int expected = 0;

        make(e);
        rs_quotas_find(&quotas);
        for (; e->cores[expected] != END; expected++)
            cr_expect(has(&quotas, e->cores[expected]), "%s: not of %" PRIu64, e->name,
                      e->cores[expected]);
        cr_expect_eq(count(&quotas), expected, "%s: %d", e->name, count(&quotas));
        drop();
    }
}

/* Two processes in groups beside each other share what is of both. */
Test(quota, groups_are_known_by_their_numbers)
{
    struct example e = {
        "", "0::/a/b\n", MOUNT_V2,
        {{"cg/a/cpu.max", "400000 100000\n"},
         {"cg/a/b/cpu.max", "100000 100000\n"},
         {"cg/a/c/cpu.max", "100000 100000\n"}},
        {END}};
    struct rs_quotas own, beside;

    make(&e);
    rs_quotas_find(&own);
    e.group = "0::/a/c\n";
    rs_quotas_find(&beside);
    cr_assert_eq(count(&own), 2);
    cr_assert_eq(count(&beside), 2);
    for (int i = 0; i < 2; i++)
        cr_expect_eq(rs_quotas_include(&beside, own.of[i].group), own.of[i].cores == 4);
    drop();
}
