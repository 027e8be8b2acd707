#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The bracket of the shortest packing against bottom-left's packings.

Usage: box_optimal.py RSCHED REFERENCE. No packing of bottom-left may be shorter
than the bracket's lower end, the packing at its upper end must be a packing,
and not much longer than bottom-left's. The numbers of boxes are those of the
reference cases; their bottom-left packings were found by an independent study,
so that neither side of the comparison is ours alone.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

RATE, COMMAND, ENGINES, OPEN = 3850, 200000, 4, 1000000


def height(size):
    return -(-size * 1000000 // RATE) + COMMAND


def solve(solver, kinds, opening, limit=None):
    lines = ["boxes 1", "engines %d" % ENGINES, "open %d" % opening, "slots 70"]
    lines += [] if limit is None else ["limit %d" % limit]
    lines += ["box %d %d %d" % (color, tall, count)
              for (color, tall), count in kinds.items()]
    run = subprocess.run([solver], input="\n".join(lines + ["end"]) + "\n",
                         capture_output=True, text=True, check=True)
    words = [line.split() for line in run.stdout.splitlines()]
    lower, upper = int(words[0][1]), int(words[1][1])
    assert words[2] in [["limited", "1"]] + [["limited", "0"]] * (limit != 0), words[2]
    places = [tuple(map(int, w[1:])) for w in words[3:]]
    return lower, upper, places


def check_packing(kinds, opening, upper, places):
    """All boxes, none on another one of its engine or its color."""
    names = list(kinds)
    assert len(places) == sum(kinds.values())
    for k, name in enumerate(names):
        assert sum(p[0] == k for p in places) == kinds[name]
    by_engine, by_color = {}, {}
    for k, engine, start in places:
        color, tall = names[k]
        assert start >= engine * opening and start + tall <= upper
        by_engine.setdefault(engine, []).append((start, start + tall))
        by_color.setdefault(color, []).append((start, start + tall))
    for rows in list(by_engine.values()) + list(by_color.values()):
        rows.sort()
        assert all(a[1] <= b[0] for a, b in zip(rows, rows[1:])), rows
    assert max(start + names[k][1] for k, _, start in places) == upper


def check_limits(rsched):
    """Puts that take no time have no box; what is too much for the solver is said in one line."""
    machine = "rsched: machine/1\nname: m\nengines: {count: 2, rate: 1 GB/s}\nroutes: {N: [], S: []}\n"

    def plan(sizes):
        puts = "".join("  - {bytes: %d, direction: %s}\n" % (size, "NS"[i % 2]) for i, size in enumerate(sizes))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("rsched: pattern/1\nname: p\nputs:\n" + puts)
            file.flush()
            return subprocess.run([rsched, "plan", file.name, "-m", "-", "-s", "box-optimal", "-f", "json"],
                                  input=machine, capture_output=True, text=True)

    for sizes in ([0, 5000, 0, 7000, 0], [0, 0]):
        run = plan(sizes)
        assert run.returncode == 0, run.stderr
        made = json.loads(run.stdout)
        assert sorted(sum(made["engines"], [])) == list(range(len(sizes)))
        assert made["makespan_us"] == max(sizes) / 1000, made
    for sizes, cause in ((range(1, 67), "more than 64 kinds of puts, by direction and size"),
                         ([8] * 513, "more than 512 puts"),
                         ([10**13], "put 0 takes longer than 2 hours")):
        run = plan(sizes)
        assert run.returncode == 2 and run.stderr.count("\n") == 1, run.stderr
        assert run.stderr.startswith("rsched: box-optimal: " + cause), run.stderr


def check_ended(rsched):
    """A solver that its limit ends: what it has found is a plan all the same, which says so."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(rsched, folder)
        solver = os.path.join(folder, "rsched-box-optimal")
        with open(solver, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\ngrep -qx 'limit 7000' && printf 'lower 1000000\nupper 2000000\n"
                       "limited 1\nplace 0 0 0\n'\n")
        os.chmod(solver, 0o755)
        run = subprocess.run([copy, "plan", "-", "-s", "box-optimal", "--seconds", "7"], capture_output=True, text=True,
                             input="rsched: pattern/1\nname: p\nputs:\n  - {bytes: 5000, direction: N}\n")
    assert run.returncode == 0, run.stderr
    line = "boxes        2.000 us high; no packing is below 1.000 us (ended by the limit of time)\n"
    assert line in run.stdout, run.stdout
    assert run.stderr.startswith("rsched: warning: box-optimal was ended by its limit of 7 s"), run.stderr


def main():
    rsched, reference = sys.argv[1:]
    solver = os.path.join(os.path.dirname(rsched), "rsched-box-optimal")
    if not os.access(solver, os.X_OK):
        print("SKIP: no rsched-box-optimal (GLPK was not found)")
        return 77
    with open(reference, encoding="utf-8") as file:
        cases = json.load(file)
    for case in cases:
        kinds = {}
        colors = sorted(set(case["dirs"]))
        for size, direction in zip(case["bytes"], case["dirs"]):
            key = (colors.index(direction), height(size))
            kinds[key] = kinds.get(key, 0) + 1
        name = "%s %d" % (case["pattern"], case["grid"])
        for opening in (0, OPEN):
            lower, upper, places = solve(solver, kinds, opening)
            check_packing(kinds, opening, upper, places)
            assert lower <= upper, (name, opening, lower, upper)
            for planner, wanted in case["planners"].items():
                if "box_us" not in wanted:
                    continue
                box = wanted["box_us"] * 1e6
                seeded = planner.endswith("seeded")
                if seeded or opening == 0:
                    assert lower <= box + 1000, (name, planner, lower, box)
            if opening == 0:
                best = min(w["box_us"] for w in case["planners"].values()
                           if "box_us" in w) * 1e6
                assert upper <= best * 1.05, (name, upper, best)
            print("%s, opening %d: %d to %d" % (name, opening, lower, upper))
            # Without any time there is a packing, too, and the bound that needs no search.
            below, above, places = solve(solver, kinds, opening, 0)
            check_packing(kinds, opening, above, places)
            assert below <= lower and upper <= above, (name, opening, below, above)
    # The command calls the solver and simulates what it answers.
    run = subprocess.run([rsched, "plan", "scale-les3:872:all", "-s", "box-optimal",
                          "-f", "json"], capture_output=True, text=True, check=True)
    plan = json.loads(run.stdout)
    assert plan["scheduler"] == "box-optimal" and len(plan["puts"]) == 14
    assert plan["lower_bound_us"] <= plan["makespan_us"] <= 90
    # It tells the bracket, which a file keeps: the study has 67 to 70 us.
    assert 67 <= plan["box_lower_bound_us"] <= plan["box_makespan_us"] <= 71
    written = subprocess.run([rsched, "plan", "scale-les3:872:all", "-s", "box-optimal"],
                             capture_output=True, text=True, check=True).stdout
    line = "boxes        %.3f us high; no packing is below %.3f us\n" % (
        plan["box_makespan_us"], plan["box_lower_bound_us"])
    assert line in written, written
    for form in ("json", "yaml"):
        once = subprocess.run([rsched, "plan", "scale-les3:872:all", "-s", "box-optimal", "-f",
                               form], capture_output=True, text=True, check=True).stdout
        drawn = subprocess.run([rsched, "draw", "-", "-o", "-"], input=once, capture_output=True,
                               text=True, check=True).stdout
        assert "box-optimal" in drawn
    check_limits(rsched)
    check_ended(rsched)
    return 0


if __name__ == "__main__":
    sys.exit(main())
