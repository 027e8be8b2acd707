/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/picture.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"
#include "librsched/base/names.h"
#include "librsched/base/units.h"
#include "tools/svg.h"
#include "tools/tool.h"

/* Okabe and Ito's palette, which color-blind people can tell apart. Further
 * directions get the same colors with stripes or dots, then all of them pale. */
static const struct {
    const char *fill, *ink;
} palette[] = {{"#0072b2", "#fff"}, {"#e69f00", "#000"}, {"#009e73", "#000"},
               {"#cc79a7", "#000"}, {"#56b4e9", "#000"}, {"#d55e00", "#000"},
               {"#f0e442", "#000"}, {"#8c8c8c", "#000"}};

enum {
    COLORS = sizeof(palette) / sizeof(palette[0]),
    TEXTURES = 4, /* plain, two kinds of stripes, dots */
    SHADES = 2,
    WIDTH = 1120,
    LEFT = 92,  /* labels of lanes */
    RIGHT = 96, /* peaks of links */
    PLOT = WIDTH - LEFT - RIGHT,
    HEAD = 112, /* titles and marks */
    LINK = 30,
    CHARACTER = 7, /* a wide guess at the width of one, pixels */
    HEADING = 11,  /* the same in the heading */
};

/* One stretch of constant load. */
struct stretch {
    uint64_t from, to;
    size_t loads; /* place in picture.loads */
};

struct picture {
    const struct rsched_schedule *schedule;
    const struct rsched_machine *machine;
    const struct rsched_pattern *pattern;
    FILE *out;
    uint64_t span; /* the time at the right edge, ps */
    uint64_t tick; /* ps */
    int64_t lane, gap;       /* height of an engine's lane and the next gap */
    int64_t engines_bottom;  /* y */
    int64_t links_bottom;    /* y */
    size_t num_links;        /* that are drawn: those with a capacity */
    struct stretch *stretches;
    size_t num_stretches, room_stretches;
    uint64_t *loads;
    size_t num_loads, room_loads;
    struct rs_names used; /* directions, in the pattern's order */
    int error; /* of collecting */
};

static int64_t x_of(const struct picture *p, uint64_t ps)
{
    return PX(LEFT) +
           (int64_t)((unsigned __int128)ps * PX(PLOT) / p->span);
}

/* ------------------------------------------------------------- measures */

/* 1, 2 or 5 times a power of ten, so that there are 6 to 15 ticks. */
static uint64_t choose_tick(uint64_t span)
{
    uint64_t tick = 1;

    for (;;) {
        if (span / tick <= 12)
            return tick;
        if (span / (tick * 2) <= 12)
            return tick * 2;
        if (span / (tick * 5) <= 12)
            return tick * 5;
        tick *= 10;
    }
}

static bool is_limited(const struct picture *p, size_t link)
{
    return rsched_machine_link(p->machine, link)->capacity !=
           RSCHED_UNLIMITED;
}

static void measure(struct picture *p)
{
    size_t engines = rsched_schedule_num_engines(p->schedule);
    uint64_t end = rsched_schedule_makespan(p->schedule);

    p->span = end + end / 50 + 1;
    p->tick = choose_tick(p->span);
    p->lane = PX(engines <= 8 ? 36 : engines <= 32 ? 20 : 10);
    p->gap = PX(engines <= 8 ? 7 : 3);
    p->engines_bottom = PX(HEAD) + (int64_t)engines * (p->lane + p->gap);
    for (size_t i = 0; i < rsched_machine_num_links(p->machine); i++)
        p->num_links += is_limited(p, i);
    p->links_bottom = p->engines_bottom;
    if (p->num_links > 0)
        p->links_bottom += PX(34) + (int64_t)p->num_links * PX(LINK + 8);
}

static void collect(void *arg, uint64_t from, uint64_t to,
                    const uint64_t *loads)
{
    struct picture *p = arg;
    size_t links = rsched_machine_num_links(p->machine);
    struct stretch *stretches;
    uint64_t *room;

    if (p->error != 0 || links == 0)
        return;
    stretches = rs_array_grow(p->stretches, &p->room_stretches,
                              p->num_stretches + 1, sizeof(*stretches));
    if (stretches != NULL)
        p->stretches = stretches;
    room = rs_array_grow(p->loads, &p->room_loads, p->num_loads + links,
                         sizeof(*room));
    if (room != NULL)
        p->loads = room;
    if (stretches == NULL || room == NULL) {
        p->error = rs_fail(RSCHED_ENOMEM, "no memory for the picture");
        return;
    }
    stretches[p->num_stretches++] = (struct stretch){from, to, p->num_loads};
    memcpy(room + p->num_loads, loads, links * sizeof(*loads));
    p->num_loads += links;
}

/* ---------------------------------------------------------------- colors */

/* Directions get colors in the pattern's order, so that they have the same ones
 * on all machines. */
static uint32_t rank_of(const struct picture *p, const char *direction)
{
    return (uint32_t)rs_names_find(&p->used, direction);
}

/* Note which directions occur. */
static int collect_directions(struct picture *p)
{
    for (size_t i = 0; i < rsched_schedule_num_puts(p->schedule); i++) {
        int64_t number = rs_names_add(
            &p->used, rsched_pattern_put(p->pattern, i)->direction);

        if (number < 0)
            return (int)number;
    }
    return 0;
}

/* The class that paints a box: its color and its texture. */
static void draw_fill(struct picture *p, uint32_t rank, int64_t x, int64_t y,
                      int64_t width, int64_t height, const char *title)
{
    uint32_t texture = rank / COLORS % TEXTURES;
    char more[64];

    snprintf(more, sizeof(more), "class=\"box\" fill=\"%s\"%s",
             palette[rank % COLORS].fill,
             rank / (COLORS * TEXTURES) % SHADES == 0
                 ? "" : " fill-opacity=\".45\"");
    svg_rect(p->out, x, y, width, height, more, title);
    if (texture == 0)
        return;
    snprintf(more, sizeof(more), "class=\"over\" fill=\"url(#t%" PRIu32 ")\"",
             texture);
    svg_rect(p->out, x, y, width, height, more, NULL);
}

static void draw_definitions(FILE *out)
{
    fputs("<defs>\n"
          "<pattern id=\"t1\" width=\"6\" height=\"6\" "
          "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
          "<rect width=\"2\" height=\"6\" fill=\"#fff\" "
          "fill-opacity=\".6\"/></pattern>\n"
          "<pattern id=\"t2\" width=\"6\" height=\"6\" "
          "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(-45)\">"
          "<rect width=\"2\" height=\"6\" fill=\"#000\" "
          "fill-opacity=\".4\"/></pattern>\n"
          "<pattern id=\"t3\" width=\"6\" height=\"6\" "
          "patternUnits=\"userSpaceOnUse\"><circle cx=\"3\" cy=\"3\" "
          "r=\"1.5\" fill=\"#fff\" fill-opacity=\".75\"/></pattern>\n"
          "<pattern id=\"open\" width=\"5\" height=\"5\" "
          "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
          "<rect width=\"5\" height=\"5\" fill=\"#fff\"/>"
          "<rect width=\"1.2\" height=\"5\" fill=\"#9a9a9a\"/></pattern>\n"
          "</defs>\n"
          "<style>\n"
          "text{font-family:\"DejaVu Sans\",Helvetica,Arial,sans-serif;"
          "font-size:12px;fill:#222}\n"
          ".h{font-size:17px;font-weight:bold}.s{fill:#555}"
          ".e{text-anchor:end}.m{text-anchor:middle}.b{font-weight:bold}\n"
          ".box{stroke:#fff;stroke-width:.8}.over{pointer-events:none}\n"
          ".lane{fill:#f3f4f6}.grid{stroke:#d9dce1;stroke-width:.7}\n"
          ".open{fill:url(#open);stroke:#b5b5b5;stroke-width:.6}"
          ".command{fill:#30343b}\n"
          ".in{pointer-events:none;stroke-linejoin:round}\n"
          "</style>\n", out);
}

/* ----------------------------------------------------------------- parts */

static void draw_titles(struct picture *p, const char *machine)
{
    const struct rsched_schedule *s = p->schedule;
    size_t puts = rsched_schedule_num_puts(s);
    char line[PATH_MAX + 512], text[2][TOOL_TEXT];

    svg_text_within(p->out, PX(LEFT), PX(30), "class=\"h\"",
                    rsched_pattern_name(p->pattern), (WIDTH - LEFT) / HEADING);
    /* The machine, which may be a long path, comes last. */
    snprintf(line, sizeof(line), "%s: %zu put%s, %" PRIu64
             " bytes; gap to the lower bound %s %%; whole exchange %s us; "
             "on %s", tool_label(rsched_schedule_planner(s)), puts,
             puts == 1 ? "" : "s", rsched_pattern_total_bytes(p->pattern),
             tool_gap(s, text[0]),
             tool_us(rsched_schedule_total(s), text[1]), machine);
    svg_text_within(p->out, PX(LEFT), PX(51), "class=\"s\"", line,
                    (WIDTH - LEFT) / CHARACTER);
}

static void draw_grid(struct picture *p)
{
    int64_t bottom = p->links_bottom;

    for (uint64_t t = 0; t <= p->span; t += p->tick) {
        char label[RS_UNITS_TEXT];
        int64_t x = x_of(p, t);

        svg_line(p->out, x, PX(HEAD - 4), x, bottom + PX(4),
                 "class=\"grid\"");
        svg_text(p->out, x, bottom + PX(19), "class=\"m\"",
                 rs_format_us(t, label));
    }
    svg_text(p->out, PX(WIDTH - RIGHT + 30), bottom + PX(19), "class=\"s\"",
             "us");
}

/* A mark's label stands left of its line when there is room for it. */
static void draw_mark(struct picture *p, uint64_t ps, int64_t y,
                      const char *name, const char *stroke)
{
    char label[96], text[TOOL_TEXT];
    int64_t x = x_of(p, ps);
    bool left;

    snprintf(label, sizeof(label), "%s %s us", name, tool_us(ps, text));
    left = x - PX(LEFT) > PX(CHARACTER) * (int64_t)strlen(label);
    svg_line(p->out, x, y - PX(10), x, p->links_bottom + PX(4), stroke);
    svg_text(p->out, left ? x - PX(6) : x + PX(6), y,
             left ? "class=\"e b\"" : "class=\"b\"", label);
}

static void draw_marks(struct picture *p)
{
    draw_mark(p, rsched_schedule_makespan(p->schedule), PX(HEAD - 32),
              "makespan", "stroke=\"#222\" stroke-width=\"1.6\"");
    draw_mark(p, rsched_schedule_lower_bound(p->schedule), PX(HEAD - 13),
              "lower bound",
              "stroke=\"#222\" stroke-width=\"1.4\" "
              "stroke-dasharray=\"5 4\"");
}

static const char *direction_of(const struct picture *p, uint32_t part)
{
    uint32_t put = rsched_schedule_part(p->schedule, part)->put;

    return rsched_pattern_put(p->pattern, put)->direction;
}

static void describe(const struct picture *p, uint32_t id, char *title,
                     size_t size)
{
    const struct rsched_part *part = rsched_schedule_part(p->schedule, id);
    const struct rsched_placement *at =
        rsched_schedule_placement(p->schedule, id);
    char text[3][RS_UNITS_TEXT];

    snprintf(title, size,
             "put %" PRIu32 " %s: %" PRIu64 " bytes, engine %" PRIu32
             ", starts at %s us, moves bytes from %s us, ends at %s us",
             part->put, direction_of(p, id), part->bytes, at->engine,
             rs_format_us(at->start, text[0]), rs_format_us(at->data, text[1]),
             rs_format_us(at->finish, text[2]));
}

/* Whether a mark's line may run through the label; then, and on textures, the
 * label gets a halo to be readable. */
static bool is_marked(const struct picture *p,
                      const struct rsched_placement *at)
{
    uint64_t bound = rsched_schedule_lower_bound(p->schedule);

    return at->data <= bound && bound <= at->finish;
}

/* "8 NW", or "8", or nothing: what fits. */
static void draw_put_label(struct picture *p, uint32_t id, int64_t y)
{
    const char *direction = direction_of(p, id);
    uint32_t put = rsched_schedule_part(p->schedule, id)->put;
    const struct rsched_placement *at =
        rsched_schedule_placement(p->schedule, id);
    int64_t x = x_of(p, at->data), width = x_of(p, at->finish) - x;
    uint32_t rank = rank_of(p, direction);
    char label[64], more[96];

    snprintf(label, sizeof(label), "%" PRIu32 " %s", put, direction);
    if ((int64_t)strlen(label) * PX(CHARACTER) + PX(6) > width)
        snprintf(label, sizeof(label), "%" PRIu32, put);
    if ((int64_t)strlen(label) * PX(CHARACTER) + PX(4) > width ||
        p->lane < PX(18))
        return;
    x += width / 2;
    y += p->lane / 2 + PX(4);
    if (rank >= COLORS || is_marked(p, at)) {
        snprintf(more, sizeof(more),
                 "class=\"m in\" stroke=\"%s\" stroke-width=\"5\"",
                 palette[rank % COLORS].fill);
        svg_text(p->out, x, y, more, label);
    }
    snprintf(more, sizeof(more), "class=\"m in\" style=\"fill:%s\"",
             palette[rank % COLORS].ink);
    svg_text(p->out, x, y, more, label);
}

static void draw_put(struct picture *p, uint32_t id, int64_t y)
{
    const struct rsched_placement *at =
        rsched_schedule_placement(p->schedule, id);
    uint32_t rank = rank_of(p, direction_of(p, id));
    int64_t start = x_of(p, at->start), data = x_of(p, at->data);
    int64_t width = x_of(p, at->finish) - data;
    char title[256];

    describe(p, id, title, sizeof(title));
    if (data > start)
        svg_rect(p->out, start, y, data - start, p->lane, "class=\"command\"",
                 title);
    width = width < 60 ? 60 : width; /* even the shortest put can be seen */
    draw_fill(p, rank, data, y, width, p->lane, title);
}

static void draw_lanes(struct picture *p)
{
    for (size_t e = 0; e < rsched_schedule_num_engines(p->schedule); e++) {
        int64_t y = PX(HEAD) + (int64_t)e * (p->lane + p->gap);
        char label[32];

        svg_rect(p->out, PX(LEFT), y, PX(PLOT), p->lane, "class=\"lane\"",
                 NULL);
        snprintf(label, sizeof(label), "engine %zu", e);
        if (p->lane >= PX(18))
            svg_text(p->out, PX(LEFT - 10), y + p->lane / 2 + PX(4),
                     "class=\"e\"", label);
    }
}

static void draw_queues(struct picture *p)
{
    for (size_t e = 0; e < rsched_schedule_num_engines(p->schedule); e++) {
        int64_t y = PX(HEAD) + (int64_t)e * (p->lane + p->gap);
        const uint32_t *puts;
        size_t count = rsched_schedule_queue(p->schedule, e, &puts);
        int64_t opened = count == 0 ? PX(LEFT)
                                    : x_of(p, rsched_schedule_placement(
                                                  p->schedule, puts[0])
                                                  ->start);

        if (opened > PX(LEFT))
            svg_rect(p->out, PX(LEFT), y, opened - PX(LEFT), p->lane,
                     "class=\"open\"", "the engine opens");
        for (size_t i = 0; i < count; i++)
            draw_put(p, puts[i], y);
    }
}

/* Above everything else. */
static void draw_put_labels(struct picture *p)
{
    for (uint32_t i = 0; i < rsched_schedule_num_parts(p->schedule); i++) {
        uint32_t engine = rsched_schedule_placement(p->schedule, i)->engine;

        draw_put_label(p, i, PX(HEAD) + engine * (p->lane + p->gap));
    }
}

/* The load of one link as a staircase. Returns its peak, bytes/s. */
static uint64_t draw_load(struct picture *p, size_t link, int64_t bottom)
{
    uint64_t capacity = rsched_machine_link(p->machine, link)->capacity;
    uint64_t peak = 0, before = 0, until = 0;

    fputs("<path class=\"load\" fill=\"#7f93ad\" d=\"M", p->out);
    svg_length(p->out, PX(LEFT));
    fputc(' ', p->out);
    svg_length(p->out, bottom);
    for (size_t i = 0; i <= p->num_stretches; i++) {
        bool end = i == p->num_stretches;
        const struct stretch *s = end ? NULL : &p->stretches[i];
        bool hole = !end && s->from != until;
        uint64_t load = end ? 0 : p->loads[s->loads + link];

        /* First down to zero where nothing moves, then up to the load. */
        for (int k = hole ? 0 : 1; k < 2; k++) {
            uint64_t level = k == 0 ? 0 : load;
            uint64_t at = k == 0 || end ? until : s->from;

            if (level == before)
                continue;
            fputc('H', p->out);
            svg_length(p->out, x_of(p, at));
            fputc('V', p->out);
            svg_length(p->out, bottom - (int64_t)((unsigned __int128)level *
                                                  PX(LINK) / capacity));
            before = level;
        }
        until = end ? until : s->to;
        peak = load > peak ? load : peak;
    }
    fputs("Z\"/>\n", p->out);
    return peak;
}

static void draw_links(struct picture *p)
{
    int64_t y = p->engines_bottom + PX(34);

    if (p->num_links == 0)
        return;
    svg_text(p->out, PX(LEFT), y - PX(12), "class=\"s\"",
             "load of the links (the upper edge of a row is the link's "
             "capacity)");
    for (size_t i = 0; i < rsched_machine_num_links(p->machine); i++) {
        const struct rsched_link *link = rsched_machine_link(p->machine, i);
        uint64_t peak;
        char text[64];

        if (!is_limited(p, i))
            continue;
        peak = draw_load(p, i, y + PX(LINK));
        svg_line(p->out, PX(LEFT), y + PX(LINK), PX(LEFT + PLOT), y + PX(LINK),
                 "stroke=\"#555\" stroke-width=\".8\"");
        svg_line(p->out, PX(LEFT), y, PX(LEFT + PLOT), y,
                 "stroke=\"#d55e00\" stroke-width=\".9\" "
                 "stroke-dasharray=\"2 3\"");
        svg_text_within(p->out, PX(LEFT - 10), y + PX(LINK / 2 + 4),
                        "class=\"e\"", link->name, (LEFT - 10) / CHARACTER);
        snprintf(text, sizeof(text), "peak %" PRIu64 " %%",
                 (uint64_t)(((unsigned __int128)peak * 100 +
                             link->capacity / 2) / link->capacity));
        svg_text(p->out, PX(WIDTH - RIGHT + 10), y + PX(LINK / 2 + 4),
                 "class=\"s\"", text);
        y += PX(LINK + 8);
    }
}

/* Where the next entry of the legend goes; draws nothing when out is NULL. */
static void place_entry(const char *label, int64_t *x, int64_t *y)
{
    int64_t width = PX(30) + PX(CHARACTER) * (int64_t)strlen(label);

    if (*x + width > PX(WIDTH - 20)) {
        *x = PX(LEFT);
        *y += PX(22);
    }
}

static int64_t draw_legend(struct picture *p, bool draw)
{
    int64_t x = PX(LEFT), y = p->links_bottom + PX(38);
    const struct rsched_machine_costs *costs =
        rsched_machine_get_costs(p->machine);
    const struct {
        const char *label, *more;
        bool shown;
    } others[] = {{"command", "class=\"command\"", costs->command > 0},
                  {"engine opening", "class=\"open\"",
                   costs->engine_open > 0 && costs->num_engines > 1}};

    for (uint32_t r = 0; r < p->used.count; r++) {
        const char *label =
            *p->used.text[r] ? p->used.text[r] : "no direction";

        place_entry(label, &x, &y);
        if (draw) {
            draw_fill(p, r, x, y, PX(16), PX(14), NULL);
            svg_text(p->out, x + PX(21), y + PX(11), "", label);
        }
        x += PX(38) + PX(CHARACTER) * (int64_t)strlen(label);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (!others[i].shown)
            continue;
        place_entry(others[i].label, &x, &y);
        if (draw) {
            svg_rect(p->out, x, y, PX(16), PX(14), others[i].more, NULL);
            svg_text(p->out, x + PX(21), y + PX(11), "", others[i].label);
        }
        x += PX(38) + PX(CHARACTER) * (int64_t)strlen(others[i].label);
    }
    return y + PX(14);
}

int picture_draw(const struct rsched_schedule *schedule, const char *machine,
                 FILE *out)
{
    struct picture p = {
        .schedule = schedule,
        .machine = rsched_schedule_machine(schedule),
        .pattern = rsched_schedule_pattern(schedule),
        .out = out,
    };
    int64_t height;
    int error;

    measure(&p);
    error = collect_directions(&p);
    if (error == 0)
        error = rsched_schedule_occupancy(schedule, collect, &p);
    if (error == 0)
        error = p.error;
    if (error != 0)
        goto out;
    height = draw_legend(&p, false) + PX(16);
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%" PRId64 "\" viewBox=\"0 0 %d %" PRId64 "\">\n",
            WIDTH, height / 100, WIDTH, height / 100);
    draw_definitions(out);
    svg_rect(out, 0, 0, PX(WIDTH), height, "fill=\"#fff\"", NULL);
    draw_titles(&p, machine);
    draw_lanes(&p);
    draw_grid(&p);
    draw_queues(&p);
    draw_links(&p);
    draw_marks(&p);
    draw_put_labels(&p);
    draw_legend(&p, true);
    fputs("</svg>\n", out);
out:
    free(p.stretches);
    free(p.loads);
    rs_names_fini(&p.used);
    return error;
}
