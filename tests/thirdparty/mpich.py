# SPDX-License-Identifier: BSD-3-Clause
"""MPICH's own tests of what the backend takes over, under any MPI.

mpich.py MPI BACKEND FOLDER
"""
import pathlib
import subprocess
import sys

import compare
import debian

# What MPICH's configure would find.
CONFIG = """\
#define HAVE_STDARG_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_RESOURCE_H 1
#define HAVE_GETRUSAGE 1
#define HAVE_STRING_H 1
#define HAVE_UNISTD_H 1
#define HAVE_PTHREAD_H 1
#define HAVE_MPI_WIN_CREATE 1
#define THREAD_PACKAGE_NAME THREAD_PACKAGE_POSIX
"""

# The tests of neighborhood collectives are empty unless this is defined.
GUARDS = ["-DTEST_NEIGHB_COLL=1"]

# pt2pt/rqstatus reads MPI_ERROR of a status that it has not set. No MPI has to
# set it there, and Open MPI does not.
ZEROED = ["-ftrivial-auto-var-init=zero"]

# Open MPI 4 has persistent collectives as an extension.
PERSISTENT = [
    "Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall",
    "Neighbor_alltoallv", "Neighbor_alltoallw", "Barrier", "Bcast", "Gather",
    "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall",
    "Alltoallv", "Alltoallw", "Reduce", "Allreduce", "Reduce_scatter",
    "Reduce_scatter_block", "Scan", "Exscan",
]
MPIX = ["-include", "mpi.h", "-include", "mpi-ext.h"] + [
    f"-DMPI_{name}_init=MPIX_{name}_init" for name in PERSISTENT]

KINDS = ["allgather", "allgatherv", "alltoall", "alltoallv", "alltoallw"]

# (program, ranks, calls that must have been accelerated)
NEIGHBOR = [(f"coll/neighb_{k}", 4, [f"neighbor_{k}"]) for k in KINDS] + [
    ("coll/ring_neighbor_alltoall", n, ["neighbor_alltoall"])
    for n in (1, 2)]
PERSISTENT_NEIGHBOR = [
    (f"coll/p_neighb_{k}", 4, [f"neighbor_{k}_init"]) for k in KINDS]

# What uses the same functions, or communicators, in other ways.
OTHERS = [(name, ranks, None) for ranks, names in {
    1: "pt2pt/inactivereq pt2pt/waitany_null pt2pt/waittestnull pt2pt/greq1 "
       "topo/dims1 topo/dims2 topo/dims3 topo/dims4",
    2: "coll/p_barrier coll/p_order pt2pt/rqstatus pt2pt/rcancel "
       "pt2pt/cancelanysrc "
       "pt2pt/precv_anysrc pt2pt/precv_anysrc_exp pt2pt/multi_psend_derived "
       "pt2pt/anyall pt2pt/eagerdt pt2pt/isendrecv pt2pt/isendrecv_replace "
       "pt2pt/mprobe pt2pt/bsend3 pt2pt/many_isend pt2pt/manylmt "
       "coll/nonblocking3 pt2pt/sendrecv3 comm/cmfree " # long where ranks outnumber cores
       "threads/pt2pt/greq_wait "
       "threads/pt2pt/greq_test threads/pt2pt/ibsend",
    4: "coll/p_bcast coll/p_allred coll/p_gather coll/p_scatter coll/p_scan "
       "pt2pt/rqfreeb topo/cartmap1 "
       "topo/cartzero topo/cartshift1 topo/cartsuball topo/cartcreates "
       "topo/graphmap1 topo/topotest topo/topodup topo/graphcr topo/graphcr2 "
       "topo/distgraph1 topo/dgraph_unwgt comm/dup comm/dupic comm/commcreate1 "
       "comm/ic1 comm/cmsplit comm/comm_idup comm/comm_idup_mul "
       "comm/comm_idup_overlap comm/comm_info attr/attrend "
       "attr/attrordercomm attr/fkeyvalcomm",
}.items() for name in names.split()]

# What these MPIs fail without us. (Both hang in pt2pt/pscancel and cancelrecv.)
FAIL_NATIVELY = {
    "openmpi": {"coll/nonblocking3", "topo/cartmap1", "topo/cartsuball",
                "topo/graphmap1"},
    "mpich": set(),
}

# What needs functions that they do not have.
LACKING = {
    "openmpi": {"pt2pt/isendrecv", "pt2pt/isendrecv_replace",
                "pt2pt/sendrecv3"},
    "mpich": set(),
}


def build(tests, mpi, folder, name):
    """Compile one program; the reason, or None."""
    util = [tests / "util" / x
            for x in ("mtest.c", "mtest_common.c", "mtest_thread.c")]
    program = folder / name.replace("/", "-")
    if program.exists():
        return program, None
    command = [f"mpicc.{mpi}", "-w", "-O1", *GUARDS, *ZEROED,
               *(MPIX if mpi == "openmpi" else []), f"-I{folder}",
               f"-I{tests / 'include'}", f"-I{tests / 'util'}",
               str(tests / f"{name}.c"), *map(str, util), "-lm", "-lpthread",
               "-o", str(program)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=60)
    lines = [x for x in done.stderr.splitlines()
             if "error" in x or "undefined" in x]
    return program, None if done.returncode == 0 else (lines or ["?"])[0]


def main():
    mpi, backend, folder = sys.argv[1:4]
    sources = debian.Debian(pathlib.Path(folder))
    try:
        tests = sources.source("mpich") / "test" / "mpi"
    except debian.Missing as reason:
        compare.skip(f"MPICH's sources cannot be had: {reason}")
    finally:
        sources.close()
    place = pathlib.Path(folder).resolve() / f"mpich-{mpi}"
    place.mkdir(exist_ok=True)
    (place / "mpitestconf.h").write_text(CONFIG)
    launcher = compare.Launcher(mpi, backend)
    summary = compare.Summary()
    for name, ranks, expected in NEIGHBOR + PERSISTENT_NEIGHBOR + OTHERS:
        if name in FAIL_NATIVELY[mpi]:
            print(f"{name:44} fails natively: not compared")
            continue
        program, failure = build(tests, mpi, place, name)
        if failure is None:
            compare.compare(summary, launcher, name, ranks, [program],
                            expected)
        elif name in LACKING[mpi]:
            print(f"{name:44} does not build with this MPI: {failure}")
        else:
            summary.add(name, f"does not build: {failure}")
    return summary.finish(f"MPICH's tests with {mpi}")


if __name__ == "__main__":
    sys.exit(main())
