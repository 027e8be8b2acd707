# SPDX-License-Identifier: BSD-3-Clause
"""hypre's own driver of its linear solvers, from Debian's sources, built with
its option for persistent point-to-point requests, under every MPI. Beside
these requests hypre uses nonblocking receives of the same tag on the same
communicator.

hypre.py MPI BACKEND FOLDER
"""
import os
import pathlib
import shutil
import subprocess
import sys

import compare
import debian

# (ranks, arguments): multigrid with several smoothers, by itself and within
# Krylov methods, and these with a diagonal preconditioner.
GRID = ["-n", "24", "24", "24"]
RUNS = [
    (ranks, ["-P", str(ranks), "1", "1", *GRID, *arguments.split()])
    for ranks, arguments in (
        (1, "-solver 1"), (2, "-solver 0"), (2, "-solver 1"),
        (2, "-solver 1 -rlx 3"), (2, "-solver 1 -rlx 6"),
        (2, "-solver 1 -rlx 18"), (2, "-solver 2"), (2, "-solver 3"),
        (2, "-solver 4"), (2, "-solver 9"), (2, "-solver 1 -27pt"),
        (3, "-solver 1"), (3, "-solver 2"), (3, "-solver 61"))]
PERSISTENT = ["send_init", "recv_init"]


def build(source, place, mpi):
    """hypre's driver; hypre is configured and made in a copy of its sources."""
    program = place / "src/test/ij"
    if program.exists():
        return program
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, place)
    with open(place / "log", "w") as log:
        for folder, command in (
                ("src", ["./configure", "--enable-persistent",
                         "--disable-fortran", f"CC=mpicc.{mpi}",
                         f"CXX=mpicxx.{mpi}", "CFLAGS=-O1 -w"]),
                ("src", ["make", f"-j{os.cpu_count()}"]),
                ("src/test", ["make", "ij"])):
            subprocess.run(command, cwd=place / folder, check=True,
                           stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return program


def clean(text):
    """Without how long it took."""
    return "\n".join(line for line in text.splitlines()
                     if "time" not in line and "MFLOPS" not in line)


def main():
    mpi, backend, folder = sys.argv[1:4]
    fetched = debian.Debian(pathlib.Path(folder))
    try:
        source = fetched.source("hypre")
    except debian.Missing as reason:
        compare.skip(f"hypre's sources cannot be had: {reason}")
    finally:
        fetched.close()
    program = build(source, pathlib.Path(folder).resolve() / f"hypre-{mpi}",
                    mpi)
    launcher = compare.Launcher(mpi, backend, clean)
    summary = compare.Summary()
    for ranks, arguments in RUNS:
        compare.compare(summary, launcher, " ".join(arguments), ranks,
                        [program, *arguments], None,
                        some=PERSISTENT if ranks > 1 else ())
    return summary.finish(f"hypre with {mpi}")


if __name__ == "__main__":
    sys.exit(main())
