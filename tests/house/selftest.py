#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""house.py must find each violation that is planted here, and nothing else."""
import os
import subprocess
import sys
import tempfile

import house

SPDX = "/* SPDX-License-Identifier: BSD-3-Clause */\n"

# A small tree that keeps the rules.
GOOD = {
    "README.md": "",
    "include/README.md": "",
    "include/rsched/error.h": SPDX,
    "include/rsched/pattern.h": SPDX + "#include <rsched/error.h>\n",
    "include/rsched/machine.h": SPDX + "#include <rsched/pattern.h>\n",
    "include/rsched/schedule.h": SPDX + "#include <rsched/machine.h>\n",
    "include/rsched/engine.h": SPDX,
    "include/rsched/exchange.h": SPDX,
    "include/rsched/mpi.h": SPDX + "#include <mpi.h>\n",
    "librsched/README.md": "",
    "librsched/CMakeLists.txt": "add_subdirectory(base)\n",
    "librsched/base/README.md": "",
    "librsched/base/error.h": SPDX + "#include <rsched/error.h>\n",
    "librsched/plan/CMakeLists.txt": "",
    "librsched/run/README.md": "",
    "librsched/run/run.h": SPDX + "#include <rsched/engine.h>\n",
    "patterns/README.md": "",
    "patterns/p.c": SPDX + '#include <rsched/pattern.h>\n#include "librsched/base/error.h"\n',
    "models/README.md": "",
    "models/m.h": SPDX + '#include <rsched/machine.h>\n#include "patterns/p.c"\n',
    "engines/README.md": "",
    "engines/rdma/README.md": "",
    "engines/rdma/q.h": SPDX,
    "engines/verbs/README.md": "",
    "engines/verbs/v.h": SPDX + "#include <infiniband/verbs.h>\n",
    "engines/verbs/v.c": SPDX + '#include "v.h"\n#include "engines/verbs/v.h"\n'
                         '#include <rsched/engine.h>\n#include "librsched/base/error.h"\n'
                         '#include "engines/rdma/q.h"\n',
    "engines/list.c": SPDX + '#include "engines/verbs/v.h"\nfd = rs_descriptor_keep(\n    (int)syscall('
                      'SYS_pidfd_open, pid, 0));\nfile = open(path, O_RDONLY);\n',
    "mpi/README.md": "",
    "mpi/backend.c": SPDX + '#include <mpi.h>\n#include <rsched/mpi.h>\n'
                     '#include "librsched/run/run.h"\n',
    "tools/README.md": "",
    "tools/main.c": SPDX + '#include <rsched/schedule.h>\n#include "models/m.h"\n',
    "tools/glpk/g.c": SPDX + "#include <glpk.h>\n",
    "bench/README.md": "",
    "bench/gpu/w.c": SPDX + '#include "engines/mlx5/q.h"\n',
    "engines/mlx5/README.md": "",
    "engines/mlx5/q.h": SPDX,
    "tests/README.md": "",
    "tests/t.c": SPDX + '#include "librsched/run/run.h"\n#include "engines/verbs/v.h"\n',
    "cmake/README.md": "",
    "cmake/setup": "#!/bin/sh\n# SPDX-License-Identifier: BSD-3-Clause\n",
    "docs/README.md": "see https://example.org/home/page, ../wo" "rk/of/others, build/wo" "rk/x\n",
}

# (file, what is added to it or None to delete it, part of the complaint)
PLANTED = [
    ("librsched/base/error.h", "#include <rsched/pattern.h>", "librsched/base must not"),
    ("librsched/base/error.h", '#include "patterns/p.c"', "librsched/base must not"),
    ("patterns/p.c", "#include <rsched/machine.h>", "patterns must not"),
    ("patterns/p.c", '#include "../models/m.h"', "patterns must not"),
    ("models/m.h", "#include <rsched/schedule.h>", "models must not"),
    ("models/m.h", "#  include <rsched/exchange.h>", "models must not"),
    ("librsched/run/run.h", '#include "engines/verbs/v.h"', "librsched/run must not"),
    ("librsched/run/run.h", '#include "mpi/backend.c"', "librsched/run must not"),
    ("librsched/run/run.h", "#include <mpi.h>", "MPI headers"),
    ("include/rsched/exchange.h", "#include <rsched/mpi.h>", "MPI headers"),
    ("include/rsched/exchange.h", '#include "librsched/run/run.h"', "include must not"),
    ("tests/t.c", "#include <mpi.h>", "MPI headers"),
    ("mpi/backend.c", '#include "tools/main.c"', "mpi must not"),
    ("mpi/backend.c", '#include "engines/verbs/v.h"', "mpi must not"),
    ("tools/main.c", '#include "tests/t.c"', "tools must not"),
    ("tools/main.c", "#include <glpk.h>", "GLPK"),
    ("tools/main.c", '#include "nowhere.h"', "no such file"),
    ("engines/verbs/v.c", "#include <rsched/exchange.h>", "engines must not"),
    ("engines/verbs/v.c", '#include "librsched/run/run.h"', "engines must not"),
    ("engines/rdma/q.h", '#include "engines/verbs/v.h"', "engines must not"),
    ("engines/list.c", '#include "librsched/run/run.h"', "engines must not"),
    ("engines/verbs/v.c", "#include <cuda.h>", "CUDA headers"),
    ("bench/gpu/w.c", '#include "engines/verbs/v.h"', "bench/gpu must not"),
    ("librsched/run/run.h", "#include <infiniband/verbs.h>", "verbs headers"),
    ("librsched/CMakeLists.txt", "pkg_check_modules(GLPK glpk)", "GLPK"),
    ("docs/README.md", "see /wor" + "k/main", "somebody's machine"),
    ("cmake/setup", "cd /hom" + "e/me", "somebody's machine"),
    ("tools/main.c", "/* TO" + "DO */", "unfinished"),
    ("docs/README.md", "FIX" + "ME: later", "unfinished"),
    ("librsched/run/run.h", 'int x = memfd_create("x", 0);', "rs_descriptor_keep"),
    ("mpi/backend.c", "file = open(path,\n            O_RDWR);", "rs_descriptor_keep"),
    ("engines/verbs/v.c", "fd = (int)syscall(SYS_pidfd_open, pid, 0);", "rs_descriptor_keep"),
    ("patterns/README.md", None, "missing"),
    ("engines/verbs/README.md", None, "missing"),
    ("librsched/run/README.md", None, "missing"),
    ("models/new.c", "int x;", "no SPDX"),
    ("cmake/new", "#!/bin/sh", "no SPDX"),
]


def build(root, files):
    for name, text in files.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def violations(files, git=False):
    with tempfile.TemporaryDirectory() as root:
        build(root, files)
        if git:
            for command in (["init", "-q"], ["add", "."]):
                subprocess.run(["git", "-C", root] + command, check=True)
            build(root, {"scratch.c": "not tracked"})
        return house.check(root)[1]


def main():
    failed = 0
    for git in (False, True):
        wrong = violations(GOOD, git)
        if wrong:
            failed += 1
            print("FAIL: the good tree (git: %s): %s" % (git, wrong))
    for name, text, expected in PLANTED:
        files = dict(GOOD)
        if text is None:
            del files[name]
        else:
            files[name] = files.get(name, "") + text + "\n"
        wrong = violations(files)
        if len(wrong) != 1 or name not in wrong[0] or expected not in wrong[0]:
            failed += 1
            print("FAIL: %s + %r: expected one '%s', got %s" % (name, text, expected, wrong))
    print("%d planted, %d failed" % (len(PLANTED), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
