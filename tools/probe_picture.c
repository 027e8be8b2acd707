/* SPDX-License-Identifier: BSD-3-Clause */
/* The picture of what was probed: time by size, both by powers. */
#include <math.h>
#include <string.h>

#include "tools/probe.h"
#include "tools/svg.h"
#include "tools/tool.h"

enum {
    WIDTH = 1040,
    HEIGHT = 644,
    LEFT = 80,
    RIGHT = 40, /* half of the last size, too */
    TOP = 64,
    BOTTOM = 120,
    STEPS = 16, /* of a curve, between two sizes */
    CHARACTER = 7, /* a wide guess at the width of one, pixels */
};

/* Okabe and Ito's palette, by enum rs_way. */
static const char *const colors[RS_NUM_HOST_WAYS] = {"#8c8c8c", "#0072b2", "#009e73",
                                                "#e69f00", "#cc79a7", "#d55e00"};

struct frame {
    FILE *out;
    double x0, x1, y0, y1; /* log2 of bytes, log10 of ps */
};

static int64_t x_of(const struct frame *f, double bytes)
{
    return PX(LEFT) + llround((log2(bytes) - f->x0) / (f->x1 - f->x0) *
                              PX(WIDTH - LEFT - RIGHT));
}

static int64_t y_of(const struct frame *f, double ps)
{
    return PX(HEIGHT - BOTTOM) - llround((log10(ps) - f->y0) /
                                         (f->y1 - f->y0) *
                                         PX(HEIGHT - TOP - BOTTOM));
}

static void find_frame(const struct probe *probe, struct frame *f)
{
    double least = HUGE_VAL, most = 0;

    for (enum rs_way way = 0; way < RS_NUM_HOST_WAYS; way++) {
        for (size_t i = 0; i < probe->of[way].count; i++) {
            double ps = probe->of[way].work[i].ps;

            least = ps < least ? ps : least;
            most = ps > most ? ps : most;
        }
    }
    f->x0 = 3;
    f->x1 = log2((double)probe->longest);
    f->y0 = floor(log10(least));
    f->y1 = ceil(log10(most));
}

static void draw_axes(const struct frame *f)
{
    static const char *const units[] = {"ps", "ns", "us", "ms", "s"};
    char text[32];

    for (int e = (int)f->y0; e <= (int)f->y1; e++) {
        int64_t y = y_of(f, pow(10, e));

        svg_line(f->out, PX(LEFT), y, PX(WIDTH - RIGHT), y, "stroke=\"#ddd\"");
        snprintf(text, sizeof(text), "%d %s", (int)pow(10, e % 3),
                 units[e / 3]);
        svg_text(f->out, PX(LEFT - 8), y + PX(4), "text-anchor=\"end\"", text);
    }
    for (int e = 3; e <= (int)f->x1; e += 2) {
        int64_t x = x_of(f, pow(2, e));
        static const char *const sizes[] = {"B", "KiB", "MiB", "GiB"};

        svg_line(f->out, x, PX(TOP), x, PX(HEIGHT - BOTTOM),
                 "stroke=\"#eee\"");
        snprintf(text, sizeof(text), "%d %s", 1 << e % 10, sizes[e / 10]);
        svg_text(f->out, x, PX(HEIGHT - BOTTOM + 18), "text-anchor=\"middle\"",
                 text);
    }
}

static void draw_way(const struct frame *f, const struct probe *probe,
                     enum rs_way way)
{
    const struct probe_way *w = &probe->of[way];
    const struct rs_way_costs *c = &probe->ways.of[way];
    char style[96];

    for (size_t i = 0; i < w->count; i++) {
        fputs("<circle", f->out);
        svg_attribute(f->out, "cx", x_of(f, (double)w->work[i].bytes));
        svg_attribute(f->out, "cy", y_of(f, w->work[i].ps));
        fprintf(f->out, " r=\"3\" fill=\"%s\"/>\n", colors[way]);
    }
    snprintf(style, sizeof(style), "stroke=\"%s\" stroke-width=\"1.5\"",
             colors[way]);
    for (size_t i = 0; i + 1 < w->count; i++) {
        double low = (double)w->work[i].bytes;
        double ratio = (double)w->work[i + 1].bytes / low;

        for (int k = 0; k < STEPS; k++) {
            double a = low * pow(ratio, (double)k / STEPS);
            double b = low * pow(ratio, (double)(k + 1) / STEPS);

            svg_line(f->out, x_of(f, a),
                     y_of(f, (double)rs_way_time(c, (uint64_t)a)), x_of(f, b),
                     y_of(f, (double)rs_way_time(c, (uint64_t)b)), style);
        }
    }
}

/* A bar below the axis in the colors of the ways that are cheapest. */
static void draw_switches(const struct frame *f, const struct probe *probe,
                          enum rs_way_memory memory, int64_t y)
{
    struct rs_way_switch list[RS_WAY_SWITCHES];
    size_t count = rs_ways_switches(&probe->ways, memory, list);
    char text[48], title[64];

    svg_text(f->out, PX(8), y + PX(11), "", rs_way_memory_name(memory));
    for (size_t i = 0; i < count; i++) {
        double from = (double)list[i].bytes, to = (double)probe->longest;
        int64_t x, width;

        if (from < 8)
            from = 8;
        if (i + 1 < count && (double)list[i + 1].bytes < to)
            to = (double)list[i + 1].bytes;
        if (from >= to)
            continue;
        x = x_of(f, from);
        snprintf(text, sizeof(text), "fill=\"%s\"", colors[list[i].way]);
        width = x_of(f, to) - x;
        snprintf(title, sizeof(title), "%s from %llu B", rs_way_name(list[i].way),
                 (unsigned long long)list[i].bytes);
        svg_rect(f->out, x, y, width, PX(14), text, title);
        if (i == 0)
            continue;
        svg_line(f->out, x, PX(TOP), x, y + PX(14),
                 "stroke=\"#555\" stroke-dasharray=\"4 3\"");
        snprintf(text, sizeof(text), "%llu B",
                 (unsigned long long)list[i].bytes);
        if (width > PX(CHARACTER) * (int64_t)strlen(text) + PX(4))
            svg_text(f->out, x + PX(4), y + PX(11), "fill=\"#fff\"", text);
    }
}

static void draw_legend(const struct frame *f, const struct probe *probe)
{
    int64_t x = PX(LEFT);
    char text[128];

    snprintf(text, sizeof(text),
             "Ways within a node, cores %d and %d (%s): a line takes %.0f ns "
             "there and back (%s)",
             probe->where->cores[0], probe->where->cores[1],
             rs_distance_name(probe->where->distance),
             2 * (double)probe->line / 1000, probe->class);
    svg_text(f->out, PX(LEFT), PX(22), "font-size=\"16\"", text);
    for (enum rs_way way = 0; way < RS_NUM_HOST_WAYS; way++) {
        if (!probe->ways.of[way].given)
            continue;
        snprintf(text, sizeof(text), "fill=\"%s\"", colors[way]);
        svg_rect(f->out, x, PX(36), PX(12), PX(12), text, NULL);
        snprintf(text, sizeof(text), "%s, rms %.1f %%",
                 rs_way_name(way), 100 * probe->of[way].work_error);
        svg_text(f->out, x + PX(18), PX(46), "", text);
        x += PX(34) + PX(CHARACTER) * (int64_t)strlen(text);
    }
}

static void draw_one(const struct probe *probe, FILE *out)
{
    struct frame f = {.out = out};

    find_frame(probe, &f);
    draw_legend(&f, probe);
    draw_axes(&f);
    for (enum rs_way way = 0; way < RS_NUM_HOST_WAYS; way++) {
        if (probe->ways.of[way].given)
            draw_way(&f, probe, way);
    }
    for (enum rs_way_memory memory = 0; memory < RS_NUM_WAY_MEMORIES; memory++) {
        if (rs_ways_tell(&probe->ways, memory))
            draw_switches(&f, probe, memory,
                          PX(HEIGHT - BOTTOM + 32 + 24 * (int)memory));
    }
}

void probe_draw(const struct probe *probes, size_t count, FILE *out)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n",
            WIDTH, HEIGHT * (int)count);
    svg_rect(out, 0, 0, PX(WIDTH), PX(HEIGHT * (int)count), "fill=\"#fff\"",
             NULL);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "<g transform=\"translate(0 %d)\">\n", HEIGHT * (int)i);
        draw_one(&probes[i], out);
        fputs("</g>\n", out);
    }
    fputs("</svg>\n", out);
}
