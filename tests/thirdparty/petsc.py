# SPDX-License-Identifier: BSD-3-Clause
"""PETSc's own examples of star forests, which are what its vectors and
matrices communicate with, linked with Debian's PETSc (Open MPI).

petsc.py openmpi BACKEND FOLDER
"""
import itertools
import pathlib
import subprocess
import sys

import compare
import debian

# The library with what it needs, and its headers.
NEEDED = ["libpetsc-real3.18"]
ALONE = ["libpetsc-real3.18-dev", "libpetsc3.18-dev-common"]
MEMBERS = ["*/src/vec/is/sf/*", "*/src/ksp/ksp/tutorials/ex2.c",
           "*/src/snes/tutorials/ex19.c"]

SF = "src/vec/is/sf"
# What star forests of each type call; basic ones use persistent
# point-to-point requests, which are native while they are few.
TYPES = {"neighbor": ["ineighbor_alltoallv"], "basic": None}
# The solvers start theirs again and again.
PERSISTENT = ["send_init", "recv_init"]
SOLVERS = {"src/ksp/ksp/tutorials/ex2"}

# (example, ranks, arguments); each with all types.
EXAMPLES = [
    (f"{SF}/tutorials/ex1", ranks, ["-test_" + what])
    for ranks, what in itertools.product(
        (4,), ("bcast", "bcastop", "reduce", "degree", "gather", "scatter",
               "embed", "invert", "all"))
] + [
    (f"{SF}/tutorials/ex1", 4, ["-test_gather", "-stride", "2"]),
    (f"{SF}/tutorials/ex1", 3, ["-test_bcast", "-test_sf_distribute"]),
    (f"{SF}/tutorials/ex2", 2, []),
    (f"{SF}/tests/ex1", 2, []),
    (f"{SF}/tests/ex1", 3, []),
    (f"{SF}/tests/ex18", 3, ["-nsfs", "3", "-n_leaves_per_rank", "5",
                             "-leave_step", "3", "-share_roots", "true"]),
    ("src/ksp/ksp/tutorials/ex2", 3, ["-m", "40", "-n", "40", "-pc_type",
                                      "jacobi", "-ksp_monitor_short"]),
    ("src/snes/tutorials/ex19", 4, ["-da_refine", "2", "-pc_type", "jacobi",
                                    "-snes_monitor_short"]),
]
# The examples that use star forests of a type of their own, or that move
# nothing between processes: the same result is all that is asked for.
SELDOM = {f"{SF}/tests/ex1", f"{SF}/tests/ex18", "src/snes/tutorials/ex19"}


def build(source, root, folder, name):
    program = folder / name.replace("/", "-")
    if program.exists():
        return program, None
    arch = next(root.glob("usr/lib/petscdir/petsc3.18/*-real"))
    command = ["mpicc.openmpi", "-w", "-O1", f"-I{arch / 'include'}",
               f"-I{root / 'usr/share/petsc/3.18/include'}",
               str(source / f"{name}.c"), f"-L{libraries(root)}",
               "-l:libpetsc_real.so.3.18", "-Wl,--allow-shlib-undefined",
               "-lm", "-o", str(program)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=120)
    return program, None if done.returncode == 0 else done.stderr.strip()


def libraries(root):
    return next(root.glob("usr/lib/*/libpetsc_real.so.3.18")).parent


def main():
    mpi, backend, folder = sys.argv[1:4]
    assert mpi == "openmpi"
    fetched = debian.Debian(pathlib.Path(folder))
    try:
        source = fetched.source("petsc", *MEMBERS)
        root = fetched.packages(NEEDED, ALONE)
    except debian.Missing as reason:
        compare.skip(f"PETSc cannot be had: {reason}")
    finally:
        fetched.close()
    place = pathlib.Path(folder).resolve() / "petsc"
    place.mkdir(exist_ok=True)
    environment = {"LD_LIBRARY_PATH": libraries(root)}
    launcher = compare.Launcher(mpi, backend)
    summary = compare.Summary()
    for (name, ranks, arguments), kind in itertools.product(EXAMPLES, TYPES):
        program, failure = build(source, root, place, name)
        title = " ".join([name.removeprefix("src/"), kind, *arguments])
        if failure is not None:
            summary.add(title, f"does not build: {failure}")
            continue
        compare.compare(summary, launcher, title, ranks,
                        [program, *arguments, "-sf_type", kind],
                        TYPES[kind] if name not in SELDOM else None,
                        environment,
                        PERSISTENT if kind == "basic" and name in SOLVERS
                        else ())
    return summary.finish("PETSc's examples")


if __name__ == "__main__":
    sys.exit(main())
