/* SPDX-License-Identifier: BSD-3-Clause */
/* Units, and the files of patterns and machines: what is read, what is
 * written, and what is refused with which words. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

#include "librsched/base/units.h"

Test(files, times_are_exact)
{
    static const struct {
        const char *text;
        uint64_t ps;
    } good[] = {{"0.2 us", 200000},
                {"10.751688 us", 10751688},
                {"1 ps", 1},
                {"0 us", 0},
                {"1.0 us", 1000000},
                {"0.001 ns", 1},
                {"2.50 ms", 2500000000},
                {"1.000000000000 s", 1000000000000},
                {"7.0 ps", 7}};
    static const char *const bad[] = {
        "1",        "1us",  "1  us", "us",        "-1 us", "0.0000001 us",
        "1. us",    ".5 us", "1e3 us", "01 us",    "1 US",  "1 min",
        "0.1 ps", "1.2.3 us", "",   "99999999999999999999 ps", " 1 us",
        "1 us ", "nan us", "0x10 us"};
    uint64_t ps;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        const char *cause = rs_parse_time(good[i].text, &ps);

        cr_assert_null(cause, "%s: %s", good[i].text, cause);
        cr_assert_eq(ps, good[i].ps, "%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_not_null(rs_parse_time(bad[i], &ps), "%s", bad[i]);
}

Test(files, microseconds_as_json_writes_them)
{
    static const char *const bad[] = {"", "1 us", "-1", "1e5", "1e-07", "e-05",
                                      "1e-05x", "1.e-05", "1.25e-06", "1.2.3",
                                      "1e-", "1e-7", "1e-005", "1e-55"};
    uint64_t ps = 0;

    cr_assert_null(rs_parse_us("59.448312", &ps));
    cr_assert_eq(ps, 59448312);
    cr_assert_null(rs_parse_us("18.0", &ps));
    cr_assert_eq(ps, 18000000);
    cr_assert_null(rs_parse_us("5e-05", &ps));
    cr_assert_eq(ps, 50);
    cr_assert_null(rs_parse_us("1.5e-05", &ps));
    cr_assert_eq(ps, 15);
    cr_assert_null(rs_parse_us("1e-6", &ps));
    cr_assert_eq(ps, 1);
    cr_assert_null(rs_parse_us("2e-0", &ps));
    cr_assert_eq(ps, 2000000);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_not_null(rs_parse_us(bad[i], &ps), "%s", bad[i]);
}

Test(files, rates_are_exact)
{
    uint64_t rate;
    char text[RS_UNITS_TEXT];

    cr_assert_null(rs_parse_rate("3850 MB/s", &rate));
    cr_assert_eq(rate, 3850000000u);
    cr_assert_null(rs_parse_rate("4.83 GB/s", &rate));
    cr_assert_eq(rate, 4830000000u);
    cr_assert_null(rs_parse_rate("1 B/s", &rate));
    cr_assert_eq(rate, 1);
    cr_assert_not_null(rs_parse_rate("1.5 B/s", &rate));
    cr_assert_not_null(rs_parse_rate("0 MB/s", &rate));
    cr_assert_not_null(rs_parse_rate("1 MiB/s", &rate));
    cr_assert_not_null(rs_parse_rate("1 mb/s", &rate));
    cr_assert_not_null(rs_parse_rate("1000 TB/s", &rate));
    cr_assert_null(rs_parse_rate(rs_format_rate(1234567, text), &rate));
    cr_assert_eq(rate, 1234567);
}

static char *write_pattern(const struct rsched_pattern *pattern)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);

    cr_assert_eq(rsched_pattern_write(pattern, out), 0);
    fclose(out);
    return text;
}

static void expect_pattern_returns(const struct rsched_pattern *pattern)
{
    struct rsched_pattern *again;
    char *first = write_pattern(pattern), *second;
    int error = rsched_pattern_parse("written", first, strlen(first), &again);

    cr_assert_eq(error, 0, "%s in\n%s", rsched_last_error(), first);
    second = write_pattern(again);
    cr_assert_str_eq(first, second);
    cr_assert_str_eq(rsched_pattern_name(pattern), rsched_pattern_name(again));
    rsched_pattern_destroy(again);
    free(first);
    free(second);
}

Test(files, patterns_round_trip)
{
    static const char *const builtin[] = {
        "scale-les3:60:all",  "scale-les3:545:diag", "halo2d:64x48:h2:8",
        "halo2d:9x9:h1:4:16", "halo3d:8x9x10:h2:26", "halo3d:4x4x4:h1:6:4"};
    static const char *const names[] = {
        "plain", "", "no", "\"quoted\"", "tab\there", "line\nbreak", "-x",
        "\xe4\xba\xac", "\xc2\x85next", "\xe2\x80\xa8", "a: b", "# c", "1.5",
        "\x7f", "\xf0\x9f\x9a\x80", "back\\slash", "~", "null"};
    struct rsched_pattern *pattern;

    for (size_t i = 0; i < sizeof(builtin) / sizeof(builtin[0]); i++) {
        cr_assert_eq(rsched_pattern_builtin(builtin[i], &pattern), 0);
        expect_pattern_returns(pattern);
        rsched_pattern_destroy(pattern);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct rsched_run runs[] = {{-8, 16, 4, 64}, {100, 36, 1, 0}};
        struct rsched_put put = {.bytes = 100,
                                 .source = 3,
                                 .destination = RSCHED_ANY_PROCESS,
                                 .direction = names[i],
                                 .layout = {runs, 2},
                                 .memory = RSCHED_MEMORY_DEVICE,
                                 .device = 2};

        cr_assert_eq(rsched_pattern_create(names[i], &pattern), 0);
        cr_assert_eq(rsched_pattern_add_put(pattern, &put), 0);
        put.layout.num_runs = 0;
        put.memory = RSCHED_MEMORY_HOST;
        put.device = 0;
        put.destination = 0;
        cr_assert_eq(rsched_pattern_add_receive(pattern, &put), 0);
        expect_pattern_returns(pattern);
        rsched_pattern_destroy(pattern);
    }
}

Test(files, pattern_is_kept_as_read)
{
    static const char text[] =
        "rsched: pattern/1\n"
        "name: two\n"
        "puts:\n"
        "  - {bytes: 32, direction: N, from: 0, to: 5,\n"
        "     layout: {offset: -16, block: 8, count: 4, stride: -24}}\n"
        "  - bytes: 0\n"
        "    direction: \"\"\n"
        "receives:\n"
        "  - {bytes: 7, direction: S, layout: [{offset: 0, block: 3},\n"
        "                                      {offset: 9, block: 4}]}\n";
    struct rsched_pattern *p;
    const struct rsched_put *put;

    cr_assert_eq(rsched_pattern_parse("x", text, strlen(text), &p), 0, "%s",
                 rsched_last_error());
    cr_assert_eq(rsched_pattern_num_puts(p), 2);
    cr_assert_eq(rsched_pattern_num_receives(p), 1);
    put = rsched_pattern_put(p, 0);
    cr_assert_eq(put->destination, 5);
    cr_assert_eq(put->layout.runs[0].offset, -16);
    cr_assert_eq(put->layout.runs[0].stride, -24);
    cr_assert_str_eq(rsched_pattern_put(p, 1)->direction, "");
    cr_assert_eq(rsched_pattern_put(p, 1)->source, RSCHED_ANY_PROCESS);
    cr_assert_eq(rsched_pattern_receive(p, 0)->layout.num_runs, 2);
    cr_assert_eq(rsched_pattern_total_bytes(p), 32);
    rsched_pattern_destroy(p);
}

Test(files, bad_puts_leave_the_pattern_alone)
{
    struct rsched_run run = {0, 5, 2, 8};
    struct rsched_run far = {INT64_MAX, 5, 2, 8};
    struct rsched_put good = {.bytes = 10, .direction = "N",
                              .layout = {&run, 1}};
    struct rsched_put bad[9];
    struct rsched_pattern *p;

    for (size_t i = 0; i < 9; i++)
        bad[i] = good;
    bad[0].bytes = 11;
    bad[1].source = -2;
    bad[2].direction = "a direction of more than 31 bytes";
    bad[3].layout.runs = &far;
    bad[4].device = 1;
    bad[5].direction = "\xff";
    bad[6].memory = (enum rsched_memory)9;
    bad[7].bytes = UINT64_MAX;
    bad[7].layout.num_runs = 0;
    bad[8].layout.runs = NULL;
    cr_assert_eq(rsched_pattern_create("bad", &p), 0);
    cr_assert_eq(rsched_pattern_add_put(p, &good), 0);
    for (size_t i = 0; i < 9; i++)
        cr_assert_eq(rsched_pattern_add_put(p, &bad[i]), RSCHED_EINVAL,
                     "case %zu", i);
    cr_assert_eq(rsched_pattern_num_puts(p), 1);
    cr_assert_eq(rsched_pattern_total_bytes(p), 10);
    rsched_pattern_destroy(p);
}

Test(files, machines_round_trip)
{
    const char *name;

    for (size_t i = 0; (name = rsched_machine_builtin_name(i)); i++) {
        struct rsched_machine *machine, *again;
        char *text[2];
        size_t length;
        FILE *out = open_memstream(&text[0], &length);

        cr_assert_eq(rsched_machine_builtin(name, &machine), 0, "%s",
                     rsched_last_error());
        cr_assert_str_eq(rsched_machine_name(machine), name);
        cr_assert_eq(rsched_machine_write(machine, out), 0);
        fclose(out);
        cr_assert_eq(rsched_machine_parse("w", text[0], length, &again), 0,
                     "%s", rsched_last_error());
        out = open_memstream(&text[1], &length);
        cr_assert_eq(rsched_machine_write(again, out), 0);
        fclose(out);
        cr_assert_str_eq(text[0], text[1]);
        cr_assert_arr_eq(rsched_machine_get_costs(machine),
                         rsched_machine_get_costs(again),
                         sizeof(struct rsched_machine_costs));
        free(text[0]);
        free(text[1]);
        rsched_machine_destroy(machine);
        rsched_machine_destroy(again);
    }
}

Test(files, tofu_k_is_the_design_s)
{
    struct rsched_machine *m;
    const struct rsched_machine_costs *c;
    static const char *const order[] = {"W",  "E",  "N",  "S",
                                        "NW", "SE", "NE", "SW"};

    cr_assert_eq(rsched_machine_builtin("tofu-k", &m), 0);
    c = rsched_machine_get_costs(m);
    cr_assert_eq(c->num_engines, 4);
    cr_assert_eq(c->engine_rate, 3850000000u);
    cr_assert_eq(c->engine_open, 1000000);
    cr_assert_eq(c->command, 200000);
    cr_assert_eq(c->node_inject, 13500000000u);
    cr_assert_eq(c->exchange_base, 10751688);
    cr_assert_eq(c->exchange_per_put, 900000);
    for (uint32_t i = 0; i < 8; i++)
        cr_assert_eq(rsched_machine_find_route(m, order[i])->rank, i);
    cr_assert_null(rsched_machine_find_route(m, "up"));
    rsched_machine_destroy(m);
}

static void expect_text(const char *text, const char *error)
{
    struct rsched_machine *machine = NULL;
    int code = rsched_machine_parse("m", text, strlen(text), &machine);

    cr_assert_eq(code, RSCHED_EPARSE, "%s", text);
    cr_assert_null(machine);
    cr_assert_str_eq(rsched_last_error(), error);
}

Test(files, errors_name_line_and_column)
{
    expect_text("rsched: machine/1\nname: x\nengines: {count: 1, rate: 1 MB/s}"
                "\nlinks: {N: 1 MB/s}\nroutes: {N: [N, S]}\n",
                "m:5:17: route 'N' uses the unknown link 'S'");
    expect_text("rsched: machine/1\nname: x\nengines: {count: 1, rate: 1 MB}"
                "\nroutes: {N: []}\n",
                "m:3:27: rate '1 MB': unknown unit (B/s, kB/s, MB/s, GB/s, TB/s)");
    expect_text("rsched: machine/1\nname: x\nengines: {count: 1, rate: 1 MB/s}"
                "\nroutes: {N: []}\ndirection_order: [N, S]\n",
                "m:5:22: direction 'S' has no route");
    expect_text("rsched: machine/1\nname: x\nspeed: 3\n",
                "m:3:1: unknown key 'speed' in a machine (known: rsched, name, "
                "description, path, engines, node, exchange, links, routes, "
                "direction_order, extends, topology, rails, ways, sources, "
                "twice)");
    expect_text("", "m:1:1: the document is empty");
    expect_text("rsched: machine/1\n---\nrsched: machine/1\n",
                "m:2:1: a second document");
    expect_text("a: &x 1\n", "m:1:4: anchors are not allowed");
    expect_text("rsched: machine/1\nname: \xff\n",
                "m:2:7: invalid leading UTF-8 octet");
    expect_text("[[[[[[[[[[[[[[[[", "m:1:13: nested too deeply");
}

/* Rails come back as they were written, those of a topology too. */
Test(files, rails)
{
    static const char text[] =
        "rsched: machine/1\nname: r\n"
        "engines: {count: 5, rate: 4 GB/s}\n"
        "links: {a: 1 GB/s, b: 2 GB/s, c: unlimited}\n"
        "routes: {N: [c], S: []}\n"
        "rails: [{links: [a]}, {rate: 3 GB/s, links: [b], routes: {N: []}}, "
        "{routes: {S: [a, b]}}]\n";
    struct rsched_machine *machine, *again;
    char *written = NULL;
    size_t length;

    cr_assert_eq(rsched_machine_parse("r", text, strlen(text), &machine), 0,
                 "%s", rsched_last_error());
    for (int i = 0; i < 2; i++) {
        FILE *out = open_memstream(&written, &length);

        cr_assert_eq(rsched_machine_num_rails(machine), 3);
        cr_assert_eq(rsched_machine_rail(machine, 0)->rate, 4000000000u);
        cr_assert_eq(rsched_machine_rail(machine, 1)->rate, 3000000000u);
        for (uint32_t e = 0; e < 5; e++) {
            static const size_t north[] = {2, 1, 1, 2, 1};
            static const size_t south[] = {1, 1, 2, 1, 1};
            const struct rsched_route *n =
                rsched_machine_find_engine_route(machine, "N", e);

            cr_assert_eq(n->num_links, north[e]);
            cr_assert_eq(n->links[n->num_links - 1],
                         e % 3 == 2 ? 2 : e % 3);
            cr_assert_eq(rsched_machine_find_engine_route(machine, "S", e)
                             ->num_links, south[e]);
        }
        cr_assert_eq(rsched_machine_write(machine, out), 0);
        fclose(out);
        cr_assert_eq(rsched_machine_parse("again", written, length, &again), 0,
                     "%s", rsched_last_error());
        rsched_machine_destroy(machine);
        free(written);
        machine = again;
    }
    rsched_machine_destroy(machine);
}
