#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks what `rsched export` writes: GOAL by a parser of its own, which knows
LogGOPSim's grammar and nothing of rsched, and the trace as JSON.

Usage: export.py RSCHED
"""
import csv
import io
import json
import os
import re
import subprocess
import sys
import tempfile

RSCHED = sys.argv[1]
LABEL = r"[a-zA-Z][a-zA-Z0-9_]*"
SEND = re.compile(rf"(?:({LABEL}): )?(send|recv) ([1-9]\d*)b (to|from) (\d+)"
                  r"(?: tag (\d+))?(?: cpu (\d+))?(?: nic (\d+))?")
CALC = re.compile(rf"(?:({LABEL}): )?calc (\d+)(?: cpu (\d+))?")
REQUIRES = re.compile(rf"({LABEL}) i?requires ({LABEL})")
UNLIMITED = """rsched: machine/1
name: unlimited
engines: {count: 4, rate: 4000 MB/s, open: 1.0 us, command: 0.2 us}
topology: {type: torus, link: unlimited}
"""


def run(*args):
    return subprocess.run([RSCHED, *args], stdout=subprocess.PIPE, check=True).stdout.decode()


def parse_goal(text):
    """Per rank its operations {label: (kind, bytes, peer, tag, cpu, after)}."""
    lines = iter(enumerate(text.split("\n"), 1))
    ranks, rank, total = [], None, None
    for number, line in lines:
        where = "line %d: %r" % (number, line)
        if not line or line.startswith("//"):
            continue
        if total is None:
            total = int(re.fullmatch(r"num_ranks ([1-9]\d*)", line).group(1))
        elif rank is None:
            assert line == "rank %d {" % len(ranks), where
            rank = {}
        elif line == "}":
            ranks.append(rank)
            rank = None
        elif REQUIRES.fullmatch(line):
            label, before = REQUIRES.fullmatch(line).groups()
            assert label in rank and before in rank, where + ": not defined yet"
            rank[label]["after"].append(before)
        else:
            found = CALC.fullmatch(line) or SEND.fullmatch(line)
            assert found, where
            label = found.group(1) or "_%d" % number
            assert label not in rank, where + ": defined twice"
            if found.re is CALC:
                operation = dict(kind="calc", time=int(found.group(2)), cpu=int(found.group(3) or 0))
            else:
                _, kind, size, word, peer, tag, cpu, nic = found.groups()
                assert (kind, word) in (("send", "to"), ("recv", "from")), where
                assert cpu == nic and int(cpu) < 256, where
                operation = dict(kind=kind, size=int(size), peer=int(peer), tag=int(tag), cpu=int(cpu))
            operation["after"] = []
            rank[label] = operation
    assert rank is None and len(ranks) == total
    return ranks


def match(ranks):
    """Every send meets one receive of its size, tag, cpu."""
    sends, receives = [], []
    for number, rank in enumerate(ranks):
        for op in rank.values():
            if op["kind"] == "send":
                sends.append((number, op["peer"], op["tag"], op["size"], op["cpu"]))
            elif op["kind"] == "recv":
                receives.append((op["peer"], number, op["tag"], op["size"], op["cpu"]))
    assert sorted(sends) == sorted(receives)
    assert len(set(s[:3] for s in sends)) == len(sends), "an ambiguous message"
    return len(sends)


def replay(ranks, g, ps_per_byte):
    """The end of the last send when engines share nothing."""
    last = 0
    for rank in ranks:
        ends = {}
        for label, op in rank.items():  # labels stand before their use
            start = max([ends[a] for a in op["after"]] or [0])
            if op["kind"] == "calc":
                ends[label] = start + op["time"]
            elif op["kind"] == "send":
                ends[label] = start + g + op["size"] * ps_per_byte
                last = max(last, ends[label])
    return last


def main():
    with tempfile.TemporaryDirectory() as folder:
        machine = os.path.join(folder, "unlimited.yaml")
        with open(machine, "w") as file:
            file.write(UNLIMITED)
        for pattern in ("ns", "ewns", "all"):
            for scheduler in ("rr1", "rr4", "bl4"):
                common = ["scale-les3:872:" + pattern, "--machine", machine, "--nodes", "4x4",
                          "--scheduler", scheduler]
                ranks = parse_goal(run("export", "--format", "goal", *common))
                messages = match(ranks)
                result = json.loads(run("simulate", "--format", "json", *common))
                assert messages == result["puts"]
                wanted = result["schedulers"][0]["makespan_us"] * 1e6
                got = replay(ranks, 200000, 250)
                assert abs(got - wanted) < 1000, (pattern, scheduler, got, wanted)
    for extra in ([], ["--mapping", "random:3"], ["--processes", "4"], ["--jitter", "5"]):
        match(parse_goal(run("export", "-f", "goal", "scale-les3:60:all", "-n", "8x6", *extra)))
    with tempfile.TemporaryDirectory() as folder:
        pattern, machine = os.path.join(folder, "p.yaml"), os.path.join(folder, "a\nrank 0 {.yaml")
        with open(pattern, "w") as file:
            file.write('rsched: pattern/1\nname: "x\\nrank 0 {\\r}, \\"y\\""\nputs: [{bytes: 9, direction: N}]\n')
        with open(machine, "w") as file:
            file.write(UNLIMITED)
        match(parse_goal(run("export", "-f", "goal", pattern, "-m", machine, "-n", "2x2")))
        rows = list(csv.DictReader(io.StringIO(run("simulate", "-f", "csv", pattern, "-n", "2x2"), newline="")))
        assert [row["pattern"] for row in rows] == ['x\nrank 0 {\r}, "y"'], rows
        assert rows[0]["routes"] == "first", rows
    text = run("export", "-f", "trace", "scale-les3:872:all", "-n", "4x3")
    trace = json.loads(text)
    puts = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    result = json.loads(run("simulate", "-f", "json", "scale-les3:872:all", "-n", "4x3"))
    assert len(puts) == result["puts"] == 12 * 14
    assert abs(max(e["ts"] + e["dur"] for e in puts) - result["schedulers"][0]["makespan_us"]) < 1e-5
    for node in range(12):
        for engine in range(4):  # an engine does one thing at a time
            row = sorted((e["ts"], e["dur"]) for e in puts if (e["pid"], e["tid"]) == (node, engine))
            assert all(a + d <= b + 1e-5 for (a, d), (b, _) in zip(row, row[1:]))
    assert text == run("export", "-f", "trace", "scale-les3:872:all", "-n", "4x3")
    json.loads(run("export", "-f", "trace", "scale-les3:60:ew", "-n", "1x1"))
    print("export: ok")


main()
