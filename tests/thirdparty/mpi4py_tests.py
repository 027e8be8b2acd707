# SPDX-License-Identifier: BSD-3-Clause
"""mpi4py's own tests of neighborhood collectives, topologies, requests and
communicators, with Debian's mpi4py (Open MPI).

mpi4py_tests.py openmpi BACKEND FOLDER [TESTS]

TESTS is the folder test/ of an mpi4py 3.1.4 that is there already.
"""
import pathlib
import re
import sys

import compare
import debian

# (test, ranks, calls that must have been accelerated)
NEIGHBOR = [f"neighbor_{k}" for k in
            ("allgather", "allgatherv", "alltoall", "alltoallv", "alltoallw")]
TESTS = [("cco_ngh_buf", n, NEIGHBOR) for n in (1, 2, 3, 4)] + [
    ("cco_ngh_obj", n, None) for n in (1, 2, 4)] + [
    (name, n, None) for name in ("topology", "p2p_buf", "request", "comm",
                                 "comm_topo", "cco_nb_buf", "status", "attributes")
    for n in (1, 3)]


def clean(text):
    """What became of the tests, without the time that they took; lines of
    several processes may run together."""
    return "\n".join(re.findall(
        r"Ran \d+|OK(?: \(.*?\))?|(?:FAIL|ERROR)[^\n]*", text))


def main():
    mpi, backend, folder = sys.argv[1:4]
    assert mpi == "openmpi"
    fetched = debian.Debian(pathlib.Path(folder))
    try:
        if len(sys.argv) > 4:
            tests = pathlib.Path(sys.argv[4]).resolve()
        else:
            tests = fetched.source("mpi4py") / "test"
        root = fetched.packages(["python3-mpi4py"])
    except debian.Missing as reason:
        compare.skip(f"mpi4py cannot be had: {reason}")
    finally:
        fetched.close()
    packages = root / "usr/lib/python3/dist-packages"
    environment = {"PYTHONPATH": f"{packages}:{tests}"}
    launcher = compare.Launcher(mpi, backend, clean)
    summary = compare.Summary()
    for name, ranks, expected in TESTS:
        test = tests / f"test_{name}.py"
        if test.exists():
            compare.compare(summary, launcher, name, ranks,
                            ["sh", "-c", 'exec "$0" "$@" 2>&1',
                             "/usr/bin/python3", test, "-q"], expected,
                            environment)
    return summary.finish("mpi4py's tests")


if __name__ == "__main__":
    sys.exit(main())
