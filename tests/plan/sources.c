/* SPDX-License-Identifier: BSD-3-Clause */
/* What strided memory costs a device: read, written, and what follows. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

#include "models/sources.h"

#define HEAD "rsched: machine/1\nname: x\nextends: rails\n"

static struct rsched_machine *parse(const char *text)
{
    struct rsched_machine *machine;

    cr_assert_eq(rsched_machine_parse("x", text, strlen(text), &machine), 0,
                 "%s", rsched_last_error());
    return machine;
}

Test(sources, a_machine_that_says_nothing_has_the_usual_costs)
{
    struct rsched_machine *machine = parse(HEAD);

    cr_assert_eq(rs_machine_sources(machine), &rs_sources_usual);
    rsched_machine_destroy(machine);
}

/* Of what is left out the usual costs hold; what is written is read again. */
Test(sources, are_read_and_written)
{
    struct rsched_machine *first = parse(
        HEAD "sources:\n  gather: {o: 1.5 us, block: 0.07 us}\n"
             "  pack: {block: 0.002 us, rate: 7000 MB/s}\n");
    struct rsched_machine *second;
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);

    cr_assert_eq(rsched_machine_write(first, out), 0);
    fclose(out);
    second = parse(text);
    for (int i = 0; i < 2; i++) {
        const struct rs_sources *s = rs_machine_sources(i ? second : first);

        cr_assert_eq(s->gather_message, 1500000);
        cr_assert_eq(s->gather_block, 70000);
        cr_assert_eq(s->scatter_block, rs_sources_usual.scatter_block);
        cr_assert_eq(s->pack_block, 2000);
        cr_assert_eq(s->pack_rate, UINT64_C(7000000000));
    }
    rsched_machine_destroy(first);
    rsched_machine_destroy(second);
    free(text);
}

/* A machine that extends one takes what it does not say itself. */
Test(sources, are_extended_key_by_key)
{
    struct rsched_machine *machine;
    char base[] = "/tmp/rsched-sources-XXXXXX.yaml", text[256];
    FILE *file = fdopen(mkstemps(base, 5), "w");

    cr_assert_not_null(file);
    fputs(HEAD "sources: {scatter: {block: 3 us}, gather: {o: 2 us, block: 1 us}}\n",
          file);
    fclose(file);
    snprintf(text, sizeof(text),
             "rsched: machine/1\nname: y\nextends: %s\n"
             "sources: {scatter: {block: 4 us}}\n", base);
    machine = parse(text);
    cr_assert_eq(rs_machine_sources(machine)->scatter_block, 4000000);
    cr_assert_eq(rs_machine_sources(machine)->gather_message, 2000000);
    rsched_machine_destroy(machine);
    remove(base);
}

Test(sources, mistakes_are_named)
{
    static const char *const wrong[][2] = {
        {"sources: {gather: {o: 1 us}}", "block"},
        {"sources: {gather: {o: 1 us, block: 2 s}}", "gather.block"},
        {"sources: {scatter: {block: 2000001 us}}", "scatter.block is above"},
        {"sources: {scatter: {blocks: 1 us}}", "blocks"},
        {"sources: {pack: {block: 1 us, rate: 0 MB/s}}", "pack.rate"},
        {"sources: {pack: {block: 1 us, rate: 5}}", "pack.rate"},
        {"sources: {copy: {block: 1 us}}", "copy"},
        {"sources: [1]", "sources"},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct rsched_machine *machine;
        char text[256];
        int length = snprintf(text, sizeof(text), HEAD "%s\n", wrong[i][0]);

        cr_assert_eq(rsched_machine_parse("x", text, (size_t)length, &machine),
                     RSCHED_EPARSE, "%s", wrong[i][0]);
        cr_assert_eq(strncmp(rsched_last_error(), "x:4:", 4), 0, "%s",
                     rsched_last_error());
        cr_assert_not_null(strstr(rsched_last_error(), wrong[i][1]), "%s",
                           rsched_last_error());
    }
}

Test(sources, the_cheaper_one_is_taken)
{
    const struct rs_sources *s = &rs_sources_usual;
    struct rs_sources never = {.gather_message = UINT64_MAX,
                               .gather_block = UINT64_MAX,
                               .scatter_block = UINT64_MAX,
                               .pack_rate = UINT64_MAX};

    cr_assert(!rs_sources_gather(s, 8192, 1));
    cr_assert(rs_sources_gather(s, 8300, 1));
    cr_assert_eq(rs_sources_gather_from(s, 1), 8251);
    cr_assert_eq(rs_sources_scatter_from(s, 4), 3801);
    cr_assert(!rs_sources_gather(s, 1 << 20, (1 << 20) / 128));
    cr_assert(rs_sources_gather(s, 1 << 20, (1 << 20) / 512));
    cr_assert(rs_sources_scatter(s, 65536, 64));
    cr_assert(!rs_sources_scatter(s, 65536, 128));
    /* No cost is too large to be compared. */
    cr_assert(!rs_sources_gather(&never, UINT64_MAX, UINT64_MAX));
    cr_assert(!rs_sources_scatter(&never, UINT64_MAX, UINT64_MAX));
    cr_assert_eq(rs_sources_gather_from(&never, 1), UINT64_MAX);
    never.pack_block = UINT64_MAX;
    never.pack_rate = 1;
    cr_assert(rs_sources_scatter(&never, UINT64_MAX, UINT64_MAX));
    cr_assert_eq(rs_sources_scatter_from(&never, 1), 1);
}
