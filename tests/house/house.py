#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the rules of the house (docs/architecture.md) over the tracked files.

Usage: house.py [ROOT]. Prints one line "file:line: what is wrong" for each
violation; exits 1 if there are any.
"""
import os
import re
import subprocess
import sys

# Who may include whose headers: folder -> the folders it builds on. The longest
# matching folder counts; tests may look at everything.
BASE = ["librsched/base"]
PATTERNS = BASE + ["patterns"]
MODELS = PATTERNS + ["models"]
PLAN = MODELS + ["librsched/plan"]
WORLD = PLAN + ["librsched/world"]
RUN = WORLD + ["librsched/run"]
MAY_INCLUDE = {
    "librsched/base": BASE,
    "patterns": PATTERNS,
    "models": MODELS,
    "librsched/plan": PLAN,
    "librsched/world": WORLD,
    "librsched/run": RUN,
    "engines": BASE,  # and each its own folder and shared ones, see may_include()
    "heap": BASE + ["heap"],
    "mpi": RUN + ["mpi"],
    "tools": RUN + ["tools"],
    "bench": RUN + ["bench"],
    "bench/gpu": RUN + ["bench/gpu", "engines/mlx5", "engines/softnic"],  # a NIC in software
    "examples": ["examples"],
    "include": [],
}

# Which public header belongs to which folder. A header that is not listed
# belongs to librsched/run, the last of them.
HEADER_OF = {
    "rsched/config.h": "librsched/base",
    "rsched/device.h": "librsched/base",  # stands alone: kernels have nothing else
    "rsched/device_open.h": "librsched/run",
    "rsched/error.h": "librsched/base",
    "rsched/memory.h": "librsched/base",
    "rsched/piece.h": "librsched/base",
    "rsched/version.h": "librsched/base",
    "rsched/pattern.h": "patterns",
    "rsched/machine.h": "models",
    "rsched/schedule.h": "librsched/plan",
    "rsched/mpi.h": "mpi",
}

# Folders of engines that are none: engine -> those it builds on.
ENGINE_PARTS = {
    "engines/loopback": ["engines/common"],
    "engines/rdma": ["engines/common"],
    "engines/cuda": ["engines/common"],
    "engines/verbs": ["engines/common", "engines/rdma", "engines/mlx5"],
    "engines/mlx5": ["engines/common", "engines/rdma"],
    "engines/softnic": ["engines/common", "engines/rdma"],
}

# Headers of others: (what is included, the folders that may, what it is).
OUTSIDE = [
    (r"mpi(-ext)?\.h|rsched/mpi\.h",
     ["mpi", "bench", "examples", "tests/mpi", "include/rsched/mpi.h"], "MPI"),
    (r"infiniband/.*|rdma/.*", ["engines/verbs", "engines/mlx5", "bench/verbs", "heap", "tests"], "verbs"),
    (r"cuda.*\.h|cooperative_groups.*|nvml\.h|gdrapi\.h|cub/.*",
     ["engines/cuda", "tests/cuda", "bench/gpu", "examples/jacobi-device"], "CUDA"),
    (r"(simgrid|smpi|xbt)/.*", ["tests/world"], "SimGrid"),
    (r"glpk\.h", ["tools/glpk"], "GLPK (GPL), a program of its own,"),
]

LINKED_INTO_LIBRSCHED = ["librsched", "patterns", "models", "engines"]
C_SOURCE = re.compile(r"\.(c|h|cu|cuh)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(wor[k]|roo[t]|hom[e])/[\w.-]")
# What makes a descriptor that may be kept, and what it goes through at once.
DESCRIPTOR = re.compile(r"(?<![\w.>])(memfd_create|socket|accept4?|eventfd|epoll_create1?|timerfd_create|"
                        r"inotify_init1?|signalfd|dup)\s*\(|\bopen\s*\([^;]*O_(RDWR|WRONLY)|"
                        r"\bsyscall\s*\(\s*SYS_pidfd_|\bfcntl\s*\([^;]*F_DUPFD")
DESCRIPTORS_IN = ["librsched", "engines", "heap", "mpi"]
DESCRIPTOR_H = "librsched/base/descriptor.h"
UNFINISHED = re.compile(r"\b(TO[D]O|FIX[M]E)\b")


def tracked(root):
    try:
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        names = listed.stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):  # a release without git
        names = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if f != ".git" and not f.startswith("build")]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(n for n in names if n and os.path.isfile(os.path.join(root, n)))


def within(name, folder):
    return name == folder or name.startswith(folder + "/")


def layer_of(name):
    """The entry of MAY_INCLUDE in which a file lies, or None."""
    fitting = [f for f in MAY_INCLUDE if within(name, f)]
    return max(fitting, key=len) if fitting else None


def may_include(name, target):
    layer = layer_of(name)
    if layer is None:  # tests, and whatever has no layer
        return True
    if layer == "engines":
        own = "/".join(name.split("/")[:-1][:2])  # engines/ itself sees all of them
        if any(within(target, f) for f in [own] + ENGINE_PARTS.get(own, [])):
            return True
        if target in ("include/rsched/engine.h", "include/rsched/pull.h"):
            return True  # what engines, or parts of them, implement
    if target.startswith("include/"):
        header = target[len("include/"):]
        if layer in ("include", "examples") or header == "rsched/mpi.h":
            return True  # what may include mpi.h is in OUTSIDE
        owner = HEADER_OF.get(header, "librsched/run")
        return owner in MAY_INCLUDE[layer]
    return any(within(target, f) for f in MAY_INCLUDE[layer])


def resolve(root, name, quote, included):
    """The file of this tree that an include means, or None."""
    candidates = ["include/" + included, included]
    if quote == '"':
        candidates.insert(0, os.path.join(os.path.dirname(name), included))
    for candidate in map(os.path.normpath, candidates):
        if os.path.isfile(os.path.join(root, candidate)):
            return candidate
    return None


def check_include(root, name, quote, included):
    for what, folders, kind in OUTSIDE:
        if re.fullmatch(what, included) and not any(within(name, f) for f in folders):
            yield "%s: %s headers belong into %s" % (included, kind, ", ".join(folders))
    target = resolve(root, name, quote, included)
    if target is not None and not may_include(name, target):
        yield "%s: %s must not depend on it" % (included, layer_of(name))
    if target is None and quote == '"' and not re.fullmatch("|".join(o[0] for o in OUTSIDE), included):
        yield "%s: there is no such file" % included


def check_lines(root, name, text):
    is_c = C_SOURCE.search(name)
    links = name.endswith("CMakeLists.txt") and any(
        within(name, f) for f in LINKED_INTO_LIBRSCHED)
    for number, line in enumerate(text.split("\n"), 1):
        include = INCLUDE.match(line) if is_c else None
        if include:
            for wrong in check_include(root, name, *include.groups()):
                yield number, wrong
        if MACHINE_PATH.search(line):
            yield number, "a path of somebody's machine"
        if UNFINISHED.search(line):
            yield number, "a mark of unfinished work"
        if links and "glpk" in line.lower():
            yield number, "librsched must not link GLPK"


def check_descriptors(name, text):
    if not (C_SOURCE.search(name) and any(within(name, f) for f in DESCRIPTORS_IN)) or name == DESCRIPTOR_H:
        return
    for made in DESCRIPTOR.finditer(text):
        before = re.sub(r"\s+|\(int\)", "", text[:made.start()])
        if not before.endswith("rs_descriptor_keep("):
            yield text.count("\n", 0, made.start()) + 1, "a descriptor that does not go through " \
                "rs_descriptor_keep() may become the program's standard error"


def is_source(name, text):
    return bool(C_SOURCE.search(name)) or name.endswith(".py") or text.startswith("#!")


def check_folders(names):
    """Folders with a part of the product say what they hold."""
    folders = {}
    for name in names:
        parts = name.split("/")
        depth = 2 if parts[0] in ("librsched", "engines") else 1
        for d in range(1, depth + 1):
            if len(parts) > d and not parts[0].startswith("."):
                folders.setdefault("/".join(parts[:d]), []).append(name)
    for folder, files in sorted(folders.items()):
        if folder + "/README.md" not in files and any(
                not f.endswith("CMakeLists.txt") for f in files):
            yield "%s/README.md" % folder


def check(root):
    wrong = []
    names = tracked(root)
    for name in names:
        with open(os.path.join(root, name), "rb") as file:
            data = file.read()
        if b"\0" in data:
            continue
        text = data.decode("utf-8", "replace")
        if is_source(name, text) and "SPDX-License-Identifier: BSD-3-Clause" not in "\n".join(text.split("\n")[:5]):
            wrong.append("%s:1: no SPDX-License-Identifier: BSD-3-Clause" % name)
        wrong += ["%s:%d: %s" % (name, n, w) for n, w in check_lines(root, name, text)]
        wrong += ["%s:%d: %s" % (name, n, w) for n, w in check_descriptors(name, text)]
    wrong += ["%s:1: missing: what lives here, on what it may depend, how to add "
              "one more" % readme for readme in check_folders(names)]
    return len(names), wrong


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../..")
    count, wrong = check(os.path.abspath(root))
    for line in wrong:
        print(line)
    print("%d files, %d violations" % (count, len(wrong)))
    return 1 if wrong or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
