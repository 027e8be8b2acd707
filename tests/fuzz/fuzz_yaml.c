/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzing the readers of patterns, machines and schedules. Whatever comes in,
 * a reader either fails with a text of one line, or what it returns can be
 * planned, written and read again.
 *
 * Built with clang -fsanitize=fuzzer (RSCHED_FUZZ) it is a libFuzzer target.
 * Built otherwise it has a main of its own that replays the files of a folder
 * and a fixed number of mutations of each: the same ones on every machine.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "fuzz_yaml: %s: %s\n", what, rsched_last_error());
        abort();
    }
}

static void expect_error(int error)
{
    const char *text = rsched_last_error();

    require(error < 0, "a code that is no error");
    require(*text != '\0', "an error without a text");
    require(strchr(text, '\n') == NULL, "an error of several lines");
}

static void check_pattern(const char *text, size_t size,
                          struct rsched_machine *host)
{
    struct rsched_pattern *pattern, *again;
    struct rsched_schedule *schedule;
    char *written = NULL;
    size_t length;
    FILE *out;
    int error = rsched_pattern_parse("fuzz", text, size, &pattern);

    if (error != 0) {
        expect_error(error);
        return;
    }
    out = open_memstream(&written, &length);
    require(out != NULL && rsched_pattern_write(pattern, out) == 0, "write");
    fclose(out);
    require(rsched_pattern_parse("written", written, length, &again) == 0,
            "what was written cannot be read");
    require(rsched_pattern_num_puts(pattern) == rsched_pattern_num_puts(again),
            "puts are lost");
    rsched_pattern_destroy(again);
    free(written);
    error = rsched_schedule_create(pattern, host, "bl4", &schedule);
    if (error != 0)
        expect_error(error);
    else
        rsched_schedule_destroy(schedule);
    rsched_pattern_destroy(pattern);
}

static void check_machine(const char *text, size_t size)
{
    struct rsched_machine *machine, *again;
    struct rsched_pattern *pattern;
    struct rsched_schedule *schedule;
    char *written = NULL;
    size_t length;
    FILE *out;
    int error = rsched_machine_parse("fuzz", text, size, &machine);

    if (error != 0) {
        expect_error(error);
        return;
    }
    out = open_memstream(&written, &length);
    require(out != NULL && rsched_machine_write(machine, out) == 0, "write");
    fclose(out);
    require(rsched_machine_parse("written", written, length, &again) == 0,
            "what was written cannot be read");
    rsched_machine_destroy(again);
    free(written);
    require(rsched_pattern_builtin("scale-les3:60:all", &pattern) == 0,
            "pattern");
    error = rsched_schedule_create(pattern, machine, "bl4-seeded", &schedule);
    if (error != 0) {
        expect_error(error);
    } else {
        require(rsched_schedule_lower_bound(schedule) <=
                    rsched_schedule_makespan(schedule),
                "the makespan is below the bound");
        rsched_schedule_destroy(schedule);
    }
    rsched_pattern_destroy(pattern);
    rsched_machine_destroy(machine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rsched_machine *host, *tofu;
    struct rsched_schedule *schedule;
    int error;

    if (host == NULL)
        require(rsched_machine_builtin("host", &host) == 0 &&
                    rsched_machine_builtin("tofu-k", &tofu) == 0,
                "machines");
    check_pattern((const char *)data, size, host);
    check_machine((const char *)data, size);
    error = rsched_schedule_parse("fuzz", (const char *)data, size, tofu,
                                  &schedule);
    if (error == 0)
        rsched_schedule_destroy(schedule);
    else
        expect_error(error);
    return 0;
}

#ifndef RSCHED_LIBFUZZER

#include <dirent.h>

#include "librsched/base/file.h"
#include "tests/plan/random.h"

enum { MUTATIONS = 400 };

/* Words that matter to the formats, and bytes that matter to YAML. */
static const char *const words[] = {
    "rsched: ",   "puts:\n",  "  - {",   "}",        "[",     "]",
    "bytes: ",    "layout: ", "stride: ", "count: ",  " us",   " MB/s",
    "*",          "&a ",      "!!int ",  "---\n",    "\t",    "\"",
    "18446744073709551615",   "-1",      "0",        "0.1",   "\xff",
    "\xef\xbb\xbf", "unlimited", "routes: ", "? ",   ": ",    "#",
    "|\n",        "engines: ", "9223372036854775808", "\\x00", "\\u2028"};

static void mutate(char *text, size_t *length, size_t room, uint64_t *random)
{
    size_t at = random_below(random, *length + 1);
    const char *word;
    size_t cut, n;

    switch (random_below(random, 4)) {
    case 0:
        if (at < *length)
            text[at] = (char)random_below(random, 256);
        break;
    case 1: /* cut something out */
        cut = random_below(random, 12);
        cut = cut < *length - at ? cut : *length - at;
        memmove(text + at, text + at + cut, *length - at - cut);
        *length -= cut;
        break;
    case 2: /* copy a piece to somewhere else */
        n = random_below(random, 40);
        if (at + n <= *length)
            memmove(text + random_below(random, *length - n + 1), text + at,
                    n);
        break;
    default:
        word = words[random_below(random, sizeof(words) / sizeof(words[0]))];
        n = strlen(word);
        if (*length + n > room)
            break;
        memmove(text + at + n, text + at, *length - at);
        memcpy(text + at, word, n);
        *length += n;
    }
}

/* Exactly as long as the input, so that a sanitizer sees what is read behind
 * its end. */
static void try(const char *text, size_t length)
{
    uint8_t *copy = malloc(length > 0 ? length : 1);

    require(copy != NULL, "memory");
    memcpy(copy, text, length);
    LLVMFuzzerTestOneInput(copy, length);
    free(copy);
}

static void replay(const char *path)
{
    uint64_t random = 88172645463325252u;
    char *text, *work;
    size_t length;

    require(rs_file_read(path, &text, &length) == 0, "corpus");
    try(text, length);
    work = malloc(length + 256);
    require(work != NULL, "memory");
    for (int i = 0; i < MUTATIONS; i++) {
        size_t n = length;
        uint64_t changes = 1 + random_below(&random, 4);

        memcpy(work, text, length);
        while (changes-- > 0)
            mutate(work, &n, length + 256, &random);
        try(work, n);
    }
    free(work);
    free(text);
}

int main(int argc, char **argv)
{
    struct dirent **files;
    int count = argc == 2 ? scandir(argv[1], &files, NULL, alphasort) : -1;

    if (count < 0) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < count; i++) {
        char path[4096];

        snprintf(path, sizeof(path), "%s/%s", argv[1], files[i]->d_name);
        if (files[i]->d_name[0] != '.')
            replay(path);
        free(files[i]);
    }
    free(files);
    printf("%d files, %d mutations of each\n", count - 2, MUTATIONS);
    return count > 2 ? 0 : 1;
}

#endif
