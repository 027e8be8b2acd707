# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program natively and with the backend preloaded, and compares."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

TIMEOUT = 120  # seconds for one run of a program, on busy cores too

# So that what was started is ended too.
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))


class Run:
    """How a program ended, what it printed, and the backend's report."""

    def __init__(self, status, output, errors, report):
        self.status = status  # None: it hung
        self.output = output
        self.errors = errors
        self.report = report

    def result(self):
        """What must not depend on the backend. Lines of several processes
        come in any order."""
        return self.status, sorted(self.output.splitlines())

    def calls(self, name):
        """How often a call was accelerated and how often it was native."""
        calls = self.report["total"]["calls"] if self.report else {}
        call = calls.get(name, {"accelerated": 0, "native": {}})
        return call["accelerated"], sum(call["native"].values())

    def accelerated(self):
        """All accelerated calls, and the starts of persistent requests."""
        if not self.report:
            return 0
        total = self.report["total"]
        return sum(x["accelerated"] for x in total["calls"].values())


def stop(process):
    """End a launcher so that it can end what it has started."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        return process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()


class Launcher:
    """Starts programs under one MPI."""

    def __init__(self, mpi, backend, clean=lambda text: text):
        """clean: takes what may differ out of what a program prints."""
        self.mpi = mpi
        self.backend = pathlib.Path(backend).resolve() # runs are elsewhere
        self.clean = clean

    def run(self, ranks, command, accelerate, environment=None):
        with tempfile.TemporaryDirectory() as folder:
            return self.run_in(folder, ranks, command, accelerate,
                               environment or {})

    def run_in(self, folder, ranks, command, accelerate, environment):
        report = pathlib.Path(folder) / "report"
        # A process's own variables, so that only the program is preloaded.
        words = [f"{key}={value}" for key, value in environment.items()]
        if accelerate:
            words += [f"LD_PRELOAD={self.backend}", "RSCHED_REPORT=json",
                      f"RSCHED_REPORT_FILE={report}"]
        line = [f"mpirun.{self.mpi}", "-np", str(ranks), "env", *words,
                *map(str, command)]
        process = subprocess.Popen(line, cwd=folder, text=True,
                                   errors="replace", stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE,
                                   start_new_session=True)
        try:
            output, errors = process.communicate(timeout=TIMEOUT)
            status = process.returncode
        except subprocess.TimeoutExpired:
            output, errors = stop(process)
            status = None
        except SystemExit: # this script is being stopped
            stop(process)
            raise
        read = json.loads(report.read_text()) if report.exists() else None
        return Run(status, self.clean(output), errors, read)


class Summary:
    """Results of programs, one line each."""

    def __init__(self):
        self.failed = 0
        self.passed = 0

    def add(self, name, failure, note=""):
        """failure: None, or why."""
        if failure is None:
            self.passed += 1
        else:
            self.failed += 1
        print(f"{name:44} {'ok' if failure is None else 'FAILED: ' + failure}"
              f"{'  ' + note if note else ''}", flush=True)

    def finish(self, title):
        """The exit status."""
        print(f"{title}: {self.passed} as natively, {self.failed} failed")
        return 1 if self.failed or not self.passed else 0


def tell(run):
    """Show what a failed run printed."""
    text = (run.output + run.errors).strip().splitlines()
    for line in text[-15:]:
        print(f"    {line}")


def compare(summary, launcher, name, ranks, command, expected,
            environment=None, some=()):
    """The same result twice, and `expected` of the report.

    expected: names of calls all of which must have been accelerated, or
    None: nothing is asked for. some: calls of which some must have been; a
    persistent request that is started a few times only stays native.
    """
    native = launcher.run(ranks, command, False, environment)
    if native.status != 0:
        # There is nothing to compare with.
        summary.add(f"{name} ({ranks})", "natively it "
                    + ("hangs" if native.status is None else "fails"))
        tell(native)
        return
    ours = launcher.run(ranks, command, True, environment)
    failure = None
    note = f"{ours.accelerated()} accelerated"
    if ours.report is None:
        failure = "no report: the backend was not there"
    elif native.result() != ours.result():
        failure = ("it hangs" if ours.status is None else
                   "another result than natively")
    for call in expected or ():
        accelerated, left = ours.calls(call)
        if failure is None and (accelerated == 0 or left > 0):
            failure = f"{call}: {accelerated} accelerated, {left} native"
    for call in some:
        if failure is None and ours.calls(call)[0] == 0:
            failure = f"{call}: none is accelerated"
    summary.add(f"{name} ({ranks})", failure, note)
    if failure is not None:
        tell(ours)


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)
