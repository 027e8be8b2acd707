# SPDX-License-Identifier: BSD-3-Clause
"""Runs a command in the guest of tests/rdma-vm, whose processors are this
machine's cores: what else runs here is measured with it."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RATE = 5      # of a rail, Mbit/s, that the machine files soft-roce-* are for
QUIET = 0.10  # of the machine's processors may be busy with other things


class Failure(Exception):
    pass


def busy_seconds():
    """Processor time that anybody has used since the machine started."""
    with open("/proc/stat") as file:
        fields = [int(f) for f in file.readline().split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


# What was sent again on all rails: more than nothing spoils the times after it.
COUNT = ("status=$?; awk '{n += $1} END {print n + 0, \"retransmissions\"}' "
         "/sys/class/infiniband/*/ports/1/hw_counters/completer_retry_err >&2; exit $status")


def run(options, command):
    """What the command prints; ends the program if the guest is to be skipped."""
    harness = os.path.join(ROOT, "tests", "rdma-vm", "rdma-vm")
    before, own, began = busy_seconds(), os.times(), os.times().elapsed
    done = subprocess.run([harness, "run", *options, "--",
                           "bash", "-c", '"$@"; ' + COUNT, "bash", *command],
                          stdout=subprocess.PIPE, check=False)
    after = os.times()
    output = done.stdout.decode()
    if done.returncode == 77:
        print(output, end="")
        sys.exit(77)
    if done.returncode != 0:
        raise Failure("the execution failed")
    used = (after.children_user + after.children_system -
            own.children_user - own.children_system)
    others = (busy_seconds() - before - used) / (after.elapsed - began) / os.cpu_count()
    print(f"while this ran, other work took {100 * max(others, 0):.0f} % of the processors" +
          (": repeat it on an idle machine" if others > QUIET else ""))
    return output
