#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tests/cuda/hardware over a driver in software that it takes for a real one.
# Usage: hardware.sh HARDWARE BUILD CLOSED
set -u
hardware=$1 build=$2 closed=$3
failed=0

fail() {
    printf 'failed: %s: %s\n' "$1" "$out"
    failed=1
}

# run STATUS LINE ARGUMENT...: it ends with the status, and its last line is this
run() {
    status=$1 line=$2
    shift 2
    out=$(LD_LIBRARY_PATH=$closed python3 -B "$hardware" "$build" --divisor 1000 --jobs 2 --limit 240 "$@" 2>&1)
    [ $? = "$status" ] || fail "$*: status"
    printf '%s\n' "$out" | tail -n 1 | grep -qE "$line" || fail "$*: last line"
}

# Others have what takes longest.
export FAKE_CUDA_GPUS=1
run 0 '^[0-9]+ passed, 0 failed, [0-9]+ skipped in ' --only '^(?!conformance.*threads|mpi_device_3)'
printf '%s\n' "$out" | grep -q '^SKIP .*wrong-gpu.* there are no two GPUs$' || fail "no reason"
export FAKE_CUDA_FAIL=cuMemcpyAsync:5:1
run 1 '^0 passed, 1 failed, 0 skipped in ' --only cuda_exchange_moves_staged_processes
printf '%s\n' "$out" | grep -q 'status 1$' || fail "no reason"
export FAKE_CUDA_GPUS=0
run 77 '^SKIP: all of it: cuInit: error 100$'
exit $failed
