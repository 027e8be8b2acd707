/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

/* The environment is read once per process, so every case is a child. */

/* Run `check` in a child whose only RSCHED_ variables are `settings`
 * ("NAME=value", NULL at the end). `check` says what is wrong, or NULL. */
static void in_child(char *const settings[], const char *(*check)(const void *),
                     const void *arg)
{
    int pipes[2], status;
    char complaint[1024];
    ssize_t length;
    pid_t child;

    cr_assert_eq(pipe(pipes), 0);
    child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        const char *wrong;

        clearenv();
        for (; *settings != NULL; settings++)
            putenv(*settings);
        wrong = check(arg);
        if (wrong != NULL && write(pipes[1], wrong, strlen(wrong)) < 0)
            _exit(2);
        _exit(wrong != NULL);
    }
    close(pipes[1]);
    length = read(pipes[0], complaint, sizeof(complaint) - 1);
    close(pipes[0]);
    complaint[length > 0 ? length : 0] = '\0';
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: %s",
              settings[0] != NULL ? settings[0] : "no settings", complaint);
}

#define SETTINGS(...) ((char *[]){__VA_ARGS__, NULL})

static const struct rsched_setting *find(const char *name)
{
    const struct rsched_setting *setting;

    for (size_t i = 0; (setting = rsched_config_setting(i)) != NULL; i++) {
        if (strcmp(setting->name, name) == 0)
            return setting;
    }
    return NULL;
}

/* The error text must begin with the first of the strings and hold the rest. */
static const char *refuses(const void *arg)
{
    const char *const *parts = arg;
    const char *text;

    if (rsched_config_check() != RSCHED_EINVAL)
        return "not refused";
    text = rsched_last_error();
    if (strncmp(text, parts[0], strlen(parts[0])) != 0)
        return text;
    for (parts++; *parts != NULL; parts++) {
        if (strstr(text, *parts) == NULL)
            return text;
    }
    if (rsched_config_check() != RSCHED_EINVAL)
        return "refused only once";
    return NULL;
}

#define REFUSED(setting, ...)                                                \
    in_child(SETTINGS(setting), refuses,                                     \
             (const char *[]){setting ": ", __VA_ARGS__, NULL})

Test(config, wrong_words_are_refused)
{
    REFUSED("RSCHED_LOG_LEVEL=loud", "error|warn|info|debug");
    REFUSED("RSCHED_LOG_LEVEL=", "error|warn|info|debug");
    REFUSED("RSCHED_LOG_LEVEL=war", "error|warn|info|debug");
    REFUSED("RSCHED_LOG_LEVEL=warn|info", "error|warn|info|debug");
    REFUSED("RSCHED_LOG_LEVEL=WARN", "error|warn|info|debug");
    REFUSED("RSCHED_REPORT=yes", "none|summary|full|json");
}

Test(config, wrong_switches_are_refused)
{
    REFUSED("RSCHED_DISABLE=maybe", "yes/no");
    REFUSED("RSCHED_DISABLE=", "yes/no");
    REFUSED("RSCHED_DISABLE=2", "yes/no");
}

Test(config, wrong_bytes_are_refused)
{
    REFUSED("RSCHED_CHUNK=", "from 64 to 64M)");
    REFUSED("RSCHED_CHUNK=k", "bytes");
    REFUSED("RSCHED_CHUNK=-1", "bytes");
    REFUSED("RSCHED_CHUNK=+64", "bytes");
    REFUSED("RSCHED_CHUNK= 64", "bytes");
    REFUSED("RSCHED_CHUNK=64 ", "bytes");
    REFUSED("RSCHED_CHUNK=64kB", "bytes");
    REFUSED("RSCHED_CHUNK=64K", "bytes");
    REFUSED("RSCHED_CHUNK=0x40", "bytes");
    REFUSED("RSCHED_CHUNK=1.5k", "bytes");
    REFUSED("RSCHED_CHUNK=0", "from 64 to 64M)");
    REFUSED("RSCHED_CHUNK=63", "from 64 to 64M)");
    REFUSED("RSCHED_CHUNK=67108865", "from 64 to 64M)");
    REFUSED("RSCHED_CHUNK=17179869184G", "bytes");
    REFUSED("RSCHED_CHUNK=99999999999999999999999", "bytes");
    REFUSED("RSCHED_CMA=1.5k", "auto, or whole bytes, with k, M or G for powers of 1024)");
}

Test(config, wrong_counts_are_refused)
{
    REFUSED("RSCHED_SPIN=many", "a whole number");
    REFUSED("RSCHED_SPIN=2k", "a whole number");
    REFUSED("RSCHED_SPIN=4294967296", "from 0 to 4294967295");
}

Test(config, wrong_times_are_refused)
{
    REFUSED("RSCHED_SLEEP=1", "unit", "ms");
    REFUSED("RSCHED_SLEEP=1m", "unit");
    REFUSED("RSCHED_SLEEP=1 ms", "unit");
    REFUSED("RSCHED_SLEEP=999ns", "from 1us to 1s)");
    REFUSED("RSCHED_SLEEP=2s", "from 1us to 1s)");
    REFUSED("RSCHED_SLEEP=0.5s", "a whole number with a unit");
    REFUSED("RSCHED_SETUP_TIMEOUT=18446745s", "(ps, ns, us, ms, s))");
}

Test(config, a_long_value_does_not_hide_what_is_allowed)
{
    static char setting[2000] = "RSCHED_LOG_LEVEL=";

    memset(setting + strlen(setting), 'x', sizeof(setting) - 1 - strlen(setting));
    in_child(SETTINGS(setting), refuses,
             (const char *[]){"RSCHED_LOG_LEVEL=xxx", "error|warn|info|debug",
                              NULL});
}

static const char *accepts(const void *arg)
{
    (void)arg;
    return rsched_config_check() == 0 ? NULL : rsched_last_error();
}

static bool no_memory; /* for rsched and this test */

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t number, size_t bytes);
void *__wrap_calloc(size_t number, size_t bytes);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t bytes)
{
    return no_memory ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t number, size_t bytes)
{
    return no_memory ? NULL : __real_calloc(number, bytes);
}

char *__wrap_strdup(const char *text)
{
    return no_memory ? NULL : __real_strdup(text);
}

static const char *needs_memory_for_a_machine(const void *arg)
{
    (void)arg;
    no_memory = true;
    if (rs_config_check() != 0)
        return rsched_last_error();
    if (rs_config()->spin_polls != 7)
        return "a value is wrong";
    if (rsched_config_check() != RSCHED_ENOMEM)
        return "a machine takes no memory";
    no_memory = false;
    return accepts(NULL);
}

/* What is read only once must not fail for what may be there later. */
Test(config, lack_of_memory_passes)
{
    in_child(SETTINGS("RSCHED_SPIN=7", "RSCHED_MACHINE=tofu-k"),
             needs_memory_for_a_machine, NULL);
}

Test(config, what_is_too_long_for_its_place_is_refused)
{
    static char setting[70000] = "RSCHED_REPORT_FILE=";

    memset(setting + strlen(setting), 'x', sizeof(setting) - 1 - strlen(setting));
    in_child(SETTINGS(setting), refuses,
             (const char *[]){"RSCHED_REPORT_FILE=xxx", "too long", NULL});
}

Test(config, wrong_devices_are_refused)
{
    REFUSED("RSCHED_DEVICES=,", "DEVICE[:PORT]");
    REFUSED("RSCHED_DEVICES=,,:", "DEVICE[:PORT]");
    REFUSED("RSCHED_DEVICES=a,", "DEVICE[:PORT]");
    REFUSED("RSCHED_DEVICES=a,,b", "DEVICE[:PORT]");
    REFUSED("RSCHED_DEVICES=a/,b", "DEVICE[:PORT]");
    REFUSED("RSCHED_DEVICES=:1", "DEVICE[:PORT]");
    REFUSED("RSCHED_DEVICES=a:", "DEVICE[:PORT]");
    REFUSED("RSCHED_DEVICES=a:b", "DEVICE[:PORT]");
    REFUSED("RSCHED_DEVICES=a:1/b:1x", "DEVICE[:PORT]");
    in_child(SETTINGS("RSCHED_DEVICES="), accepts, NULL);
    in_child(SETTINGS("RSCHED_DEVICES=a:1,b/c:12//d"), accepts, NULL);
}

Test(config, wrong_failpoints_are_refused)
{
    REFUSED("RSCHED_FAILPOINTS=bogus", "POINT[@PROCESS]");
    REFUSED("RSCHED_FAILPOINTS=,", "POINT[@PROCESS]");
    REFUSED("RSCHED_FAILPOINTS=a=kill,", "POINT[@PROCESS]");
    REFUSED("RSCHED_FAILPOINTS=a=die", "POINT[@PROCESS]");
    REFUSED("RSCHED_FAILPOINTS=a=delay:5", "POINT[@PROCESS]");
    REFUSED("RSCHED_FAILPOINTS=a@x=kill", "POINT[@PROCESS]");
    REFUSED("RSCHED_FAILPOINTS=a#0=kill", "POINT[@PROCESS]");
    REFUSED("RSCHED_FAILPOINTS=a#x=kill", "POINT[@PROCESS]");
    in_child(SETTINGS("RSCHED_FAILPOINTS=a@1#2=kill,b#each=delay:5ms"), accepts,
             NULL);
}

Test(config, names_that_do_not_exist_are_refused)
{
    REFUSED("RSCHED_PLANNER=bogus", "no scheduler", "bl4");
    REFUSED("RSCHED_MACHINE=bogus", "tofu-k");
    REFUSED("RSCHED_MACHINE=./bogus", "No such file");
    in_child(SETTINGS("RSCHED_PLANNER=fllf", "RSCHED_MACHINE=tofu-k"), accepts,
             NULL);
}

Test(config, unknown_variables_are_refused)
{
    in_child(SETTINGS("RSCHED_CHUNKS=64k"), refuses,
             (const char *[]){"RSCHED_CHUNKS: there is no such setting",
                              "rsched info --config", NULL});
    in_child(SETTINGS("RSCHED_="), refuses,
             (const char *[]){"RSCHED_: there is no such setting", NULL});
    in_child(SETTINGS("RSCHED_CHUN=64k"), refuses,
             (const char *[]){"RSCHED_CHUN: ", NULL});
}

Test(config, what_module_files_set_does_not_matter)
{
    in_child(SETTINGS("RSCHED_ROOT=/opt/rsched", "RSCHED_VERSION=1",
                      "RSCHED_INCLUDE=/opt/rsched/include"),
             accepts, NULL);
    in_child(SETTINGS("RSCHED_ROOTS=/opt"), refuses,
             (const char *[]){"RSCHED_ROOTS: there is no such setting", NULL});
    in_child(SETTINGS("RSCHED_INC2=/opt"), refuses,
             (const char *[]){"RSCHED_INC2: ", NULL});
}

Test(config, the_first_wrong_value_is_told)
{
    in_child(SETTINGS("RSCHED_SPIN=x", "RSCHED_DISABLE=x", "RSCHED_NONE=1"),
             refuses, (const char *[]){"RSCHED_DISABLE=x: ", NULL});
}

Test(config, names_of_others_do_not_matter)
{
    in_child(SETTINGS("RSCHED=1", "XRSCHED_CHUNK=1", "rsched_chunk=1"), accepts,
             NULL);
}

static const char *has_defaults(const void *arg)
{
    const struct rs_config *c = rs_config();
    size_t count = 0;

    (void)arg;
    if (rsched_config_check() != 0)
        return rsched_last_error();
    if (c->disable || c->log_level != RS_LOG_WARN || c->chunk_bytes == 0 ||
        c->ring_bytes < c->chunk_bytes || c->sleep_ps != 4000000000 ||
        c->setup_timeout_ps != 60000000000000 ||
        c->destroy_timeout_ps != 60000000000000 || c->failpoints[0] != '\0')
        return "a default is wrong";
    for (const struct rsched_setting *s; (s = rsched_config_setting(count)) != NULL;
         count++) {
        if (strncmp(s->name, "RSCHED_", 7) != 0 || s->value != s->initial ||
            strcmp(s->origin, "default") != 0 || s->type[0] == '\0' ||
            s->help[0] == '\0')
            return s->name;
    }
    return count > 0 ? NULL : "no settings";
}

Test(config, defaults)
{
    in_child(SETTINGS("HOME=/"), has_defaults, NULL);
}

static const char *has_values(const void *arg)
{
    const struct rs_config *c = rs_config();
    const struct rsched_setting *chunk = find("RSCHED_CHUNK");

    (void)arg;
    if (rsched_config_check() != 0)
        return rsched_last_error();
    if (!c->disable || c->log_level != RS_LOG_DEBUG || c->chunk_bytes != 3 << 10 ||
        c->ring_bytes != 2 << 20 || c->spin_polls != 0 || c->yield_polls != 7 ||
        c->sleep_ps != 250000000 || c->progress_ps != 0 ||
        c->setup_timeout_ps != 500000 || c->persistent || c->report != 3 ||
        strcmp(c->report_file, "r.txt") != 0 ||
        strcmp(c->failpoints, "start@1=kill") != 0)
        return "a value is wrong";
    if (strcmp(chunk->value, "3k") != 0 || strcmp(chunk->origin, "environment") != 0)
        return "the origin is wrong";
    return NULL;
}

Test(config, values_of_every_kind)
{
    in_child(SETTINGS("RSCHED_DISABLE=yes", "RSCHED_LOG_LEVEL=debug",
                      "RSCHED_CHUNK=3k", "RSCHED_RING=2M", "RSCHED_SPIN=0",
                      "RSCHED_YIELD=7", "RSCHED_SLEEP=250us", "RSCHED_PROGRESS=0",
                      "RSCHED_SETUP_TIMEOUT=500ns",
                      "RSCHED_PERSISTENT=no", "RSCHED_REPORT=json",
                      "RSCHED_REPORT_FILE=r.txt",
                      "RSCHED_FAILPOINTS=start@1=kill"),
             has_values, NULL);
}

static const char *disables(const void *arg)
{
    if (rsched_config_check() != 0)
        return rsched_last_error();
    return rs_config()->disable == *(const bool *)arg ? NULL : "wrong value";
}

Test(config, switches)
{
    const bool yes = true, no = false;

    in_child(SETTINGS("RSCHED_DISABLE=1"), disables, &yes);
    in_child(SETTINGS("RSCHED_DISABLE=on"), disables, &yes);
    in_child(SETTINGS("RSCHED_DISABLE=0"), disables, &no);
    in_child(SETTINGS("RSCHED_DISABLE=off"), disables, &no);
    in_child(SETTINGS("RSCHED_DISABLE=no"), disables, &no);
}

static const char *keeps_default(const void *arg)
{
    (void)arg;
    if (rsched_config_check() != RSCHED_EINVAL)
        return "not refused";
    if (rs_config()->spin_polls != 2000)
        return "the refused value is in force";
    if (strcmp(find("RSCHED_SPIN")->value, "2000") != 0 ||
        strcmp(find("RSCHED_SPIN")->origin, "default") != 0)
        return "the refused value is shown";
    return NULL;
}

Test(config, a_refused_value_leaves_the_default)
{
    in_child(SETTINGS("RSCHED_SPIN=12x"), keeps_default, NULL);
}

static const char *survives_a_changed_environment(const void *arg)
{
    char *name = (char *)(uintptr_t)arg;

    if (rsched_config_check() != 0)
        return rsched_last_error();
    memset(name, 'x', strlen(name)); /* putenv() shares the caller's bytes */
    clearenv();
    if (strcmp(rs_config()->report_file, "a.txt") != 0 ||
        strcmp(find("RSCHED_REPORT_FILE")->value, "a.txt") != 0)
        return "the value changed";
    return NULL;
}

Test(config, values_outlive_the_environment)
{
    char setting[] = "RSCHED_REPORT_FILE=a.txt";

    in_child(SETTINGS(setting), survives_a_changed_environment, setting);
}

static const char *hashes(const void *arg)
{
    int fd = *(const int *)arg;
    uint64_t hash = rs_config_agreement_hash();

    if (rsched_config_check() != 0)
        return rsched_last_error();
    return write(fd, &hash, sizeof(hash)) == sizeof(hash) ? NULL : "write";
}

static uint64_t hash_with(char *setting)
{
    int pipes[2];
    uint64_t hash = 0;

    cr_assert_eq(pipe(pipes), 0);
    in_child(SETTINGS(setting), hashes, &pipes[1]);
    cr_assert_eq(read(pipes[0], &hash, sizeof(hash)), sizeof(hash));
    close(pipes[0]);
    close(pipes[1]);
    return hash;
}

Test(config, the_hash_compares_values_that_both_ends_need)
{
    uint64_t usual = hash_with("HOME=/");

    cr_assert_eq(hash_with("RSCHED_SPIN=1"), usual);
    cr_assert_neq(hash_with("RSCHED_CHUNK=4k"), usual);
    cr_assert_neq(hash_with("RSCHED_RING=4k"), usual);
    cr_assert_neq(hash_with("RSCHED_RING=4k"), hash_with("RSCHED_CHUNK=4k"));
    cr_assert_eq(hash_with("RSCHED_CHUNK=4k"), hash_with("RSCHED_CHUNK=4096"));
}

static const char *sets(const void *arg)
{
    (void)arg;
    if (!rs_config_set("RSCHED_CHUNK", "1k") || rs_config()->chunk_bytes != 1024)
        return "a chunk is not set";
    if (rs_config_set("RSCHED_CHUNK", "1") || rs_config()->chunk_bytes != 1024)
        return "a chunk of a byte";
    if (rs_config_set("RSCHED_CHUNKS", "1k"))
        return "a setting that there is not";
    if (!rs_config_set("RSCHED_NODE", "one") || strcmp(rs_config()->node, "one") != 0)
        return "a text is not set";
    return NULL;
}

Test(config, a_process_may_have_other_values_than_its_environment)
{
    in_child(SETTINGS("RSCHED_CHUNK=4k"), sets, NULL);
}
