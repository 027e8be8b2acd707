# SPDX-License-Identifier: BSD-3-Clause
"""Draws plans beside their execution: for each scheduler and rail, the planned
boxes above the measured ones, on one axis of time."""
from xml.sax.saxutils import escape

# The palette of `rsched draw` (Okabe and Ito), in its order of directions.
COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c8c8c"]
WIDTH, LEFT, RIGHT, HEAD, BOX, GAP, TITLE = 1120, 92, 40, 64, 13, 5, 24
FONT = 'font-family="sans-serif" font-size="12"'


def tick_of(span):
    """1, 2 or 5 times a power of ten, so that there are at most 12 ticks."""
    tick = 1
    while True:
        for factor in (1, 2, 5):
            if span / (tick * factor) <= 12:
                return tick * factor
        tick *= 10


def box(x, y, width, color, more, title):
    return (f'<rect x="{x:.2f}" y="{y}" width="{max(width, 0.5):.2f}" height="{BOX}" '
            f'fill="{color}" stroke="#333" stroke-width="0.6"{more}>'
            f"<title>{escape(title)}</title></rect>")


def text(x, y, what, more=""):
    return f'<text x="{x:.2f}" y="{y}" {FONT}{more}>{escape(what)}</text>'


class Drawing:
    def __init__(self, plans):
        self.plans = plans
        span = max(max(p.predicted, p.measured) for p in plans)
        self.scale = (WIDTH - LEFT - RIGHT) / span
        self.span = span
        self.colors = {}
        self.lines = []
        self.y = HEAD

    def x(self, us):
        return LEFT + us * self.scale

    def color(self, direction):
        return self.colors.setdefault(direction, COLORS[len(self.colors) % len(COLORS)])

    def rail(self, plan, rail, queue):
        self.lines.append(text(LEFT - 52, self.y + BOX + 4, f"rail {rail}"))
        before_planned, before_measured = plan.base, 0.0
        for put in queue:
            info = plan.puts[put]
            color = self.color(info["direction"])
            name = f"put {put}, {info['direction']}, {info['bytes']} bytes: "
            end = plan.planned(put)
            self.lines.append(box(self.x(before_planned), self.y,
                                  (end - before_planned) * self.scale, color, "",
                                  name + f"planned to arrive at {end / 1e3:.2f} ms"))
            before_planned = end
            end = plan.arrived(put)
            self.lines.append(box(self.x(before_measured), self.y + BOX,
                                  (end - before_measured) * self.scale, color,
                                  ' fill-opacity="0.45"',
                                  name + f"arrived at {end / 1e3:.2f} ms"))
            before_measured = end
        self.y += 2 * BOX + GAP

    def plan(self, plan):
        self.lines.append(text(8, self.y + 14, f"{plan.scheduler}: predicted "
                               f"{plan.predicted / 1e3:.1f} ms, measured {plan.measured / 1e3:.1f} ms "
                               f"({100 * plan.error:+.1f} %)", ' font-weight="bold"'))
        self.y += TITLE
        top = self.y
        for rail, queue in enumerate(plan.queues):
            if queue:
                self.rail(plan, rail, queue)
        for us, dash in ((plan.predicted, ""), (plan.measured, ' stroke-dasharray="4 3"')):
            self.lines.append(f'<line x1="{self.x(us):.2f}" x2="{self.x(us):.2f}" y1="{top - 3}" '
                              f'y2="{self.y}" stroke="#000"{dash}/>')
        self.y += GAP

    def axis(self):
        tick, at = tick_of(self.span / 1e3), 0
        while at <= self.span / 1e3:
            x = self.x(at * 1e3)
            self.lines.insert(0, f'<line x1="{x:.2f}" x2="{x:.2f}" y1="{HEAD}" y2="{self.y}" '
                                 'stroke="#ddd"/>')
            self.lines.append(text(x, self.y + 16, f"{at} ms", ' text-anchor="middle"'))
            at += tick

    def legend(self):
        x = LEFT
        for direction, color in self.colors.items():
            self.lines.append(box(x, 40, 14, color, "", direction))
            self.lines.append(text(x + 18, 51, direction or "none"))
            x += 60


def draw(plans):
    """An SVG of plans of one pattern."""
    drawing = Drawing(plans)
    for plan in plans:
        drawing.plan(plan)
    drawing.axis()
    drawing.legend()
    height = drawing.y + 28
    title = f"{plans[0].pattern}: planned (upper) and measured (lower) arrivals"
    return "\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
         f'viewBox="0 0 {WIDTH} {height}">', f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
         text(8, 24, title, ' font-weight="bold"')] + drawing.lines + ["</svg>", ""])
