# SPDX-License-Identifier: BSD-3-Clause
"""The performance test of FEniCS's DOLFINx, a finite element program whose
meshes, functions and matrices use neighborhood collectives of all kinds,
blocking and nonblocking, and PETSc, as Debian has compiled it (Open MPI).

dolfinx.py openmpi BACKEND FOLDER
"""
import pathlib
import re
import sys

import compare
import debian

NEIGHBOR = ["neighbor_alltoall", "neighbor_alltoallv", "neighbor_allgather",
            "ineighbor_alltoall", "ineighbor_alltoallv",
            "ineighbor_allgather", "ineighbor_allgatherv"]
# By the vectors of PETSc.
PERSISTENT = ["send_init", "recv_init"]
SOLVER = ["-ksp_type", "cg", "-pc_type", "jacobi", "-ksp_rtol", "1e-8",
          "-ksp_max_it", "300"]
# (ranks, problem, unknowns)
RUNS = [(2, "poisson", 5000), (3, "poisson", 3000), (2, "elasticity", 3000),
        (2, "poisson", 20000)]


def clean(text):
    """The problem and the result."""
    return "\n".join(re.findall(
        r"(?:Num processes|Num cells|Total degrees[^:]*|"
        r"\*\*\* Number of Krylov iterations|\*\*\* Solution norm):[^\n]*",
        text))


def main():
    mpi, backend, folder = sys.argv[1:4]
    assert mpi == "openmpi"
    fetched = debian.Debian(pathlib.Path(folder))
    try:
        root = fetched.packages(["fenicsx-performance-tests"])
    except debian.Missing as reason:
        compare.skip(f"DOLFINx cannot be had: {reason}")
    finally:
        fetched.close()
    program = root / "usr/bin/dolfinx-scaling-test"
    libraries = next(root.glob("usr/lib/*/libdolfinx_real.so.*")).parent
    environment = {"LD_LIBRARY_PATH": libraries}
    launcher = compare.Launcher(mpi, backend, clean)
    summary = compare.Summary()
    for ranks, problem, unknowns in RUNS:
        compare.compare(summary, launcher, f"{problem} of {unknowns}", ranks,
                        [program, "--problem_type", problem,
                         "--scaling_type", "strong", "--ndofs", str(unknowns),
                         *SOLVER], NEIGHBOR, environment, PERSISTENT)
    return summary.finish("DOLFINx")


if __name__ == "__main__":
    sys.exit(main())
