#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# bench/gpu/run over the driver in software, whose times mean nothing: every figure
# has its line, and what goes wrong is told. Usage: bench.sh RUN BUILD FAKE GDR
set -u
run=$1 build=$2 fake=$3 gdr=$4
here=$(dirname "$0")
failed=0

if [ "$(nproc)" -lt 2 ]; then
    echo "SKIP: needs two cores"
    exit 77
fi

fail() {
    printf 'failed: %s: %s\n' "$1" "$out"
    failed=1
}

# has LINE...: each is in the output
has() {
    for line in "$@"; do
        printf '%s\n' "$out" | grep -qE "$line" || fail "no line $line"
    done
}

bench() {
    python3 -B "$run" --build "$build" --rounds 1 --class any --longest 65536 --side 8 --words 64 \
        --sanitizer "$here/no-sanitizer" "$@" 2>&1
}

faces='PASS|FAIL' kernels=PASS clean=PASS words='PASS|FAIL' put=PASS
LD_LIBRARY_PATH=$fake "$build/examples/jacobi-device" gpu 1 1 >/dev/null
[ $? != 77 ] || kernels=SKIP words='SKIP built without nvcc' put=SKIP
[ -x "$build/bench/gpu/rsched-bench-faces" ] || faces='SKIP not built' clean=SKIP
[ -x "$build/bench/gpu/rsched-bench-words" ] || words='SKIP not built' put=SKIP
out=$(LD_LIBRARY_PATH=$fake:$gdr FAKE_CUDA_GPUS=1 bench)
[ $? = 0 ] || fail status
has '^choice beside the best way +[0-9.]+  at most 1.05 +(PASS|FAIL)$' \
    '^staging beside the choice +[0-9.]+  at least 1.6 +(PASS|FAIL)$' \
    '^costs beside what was measured +[0-9.]+  at most 15 % +(PASS|FAIL)$' \
    "^a copy per block beside faces of 8\^3 +[-0-9.]+  at least 10 +($faces)\$" \
    "^halos started by a kernel +[-a-z]+  equal bits +($kernels)" \
    "^memcheck: faces .*$clean" "^racecheck: faces .*$clean" \
    "^racecheck: halos .*$kernels" '^memcheck: ways between processes .*PASS$' \
    "^words by kernels beside the proxy +[-0-9.]+  above 1 +($words)\$" \
    "^memcheck: words by kernels .*$put" '^processes had the GPU in turns, without an MPS server$'

# What ends badly fails the run, and so does what a sanitizer finds.
out=$(LD_LIBRARY_PATH=$fake FAKE_CUDA_FAIL=cuMemcpyAsync:1:1 NO_SANITIZER_FINDS=racecheck bench)
[ $? = 1 ] || fail "status when copies fail"
[ $put = SKIP ] || has '^words by kernels beside the proxy +-  above 1 +FAIL status'
has '^choice beside .*FAIL status' '^memcheck: ways .*FAIL status' '^racecheck: halos .*FAIL status 9$'

out=$(LD_LIBRARY_PATH=$fake FAKE_CUDA_GPUS=0 bench)
[ $? = 77 ] || fail "status without a GPU"
has '^SKIP: all of it: .*CUDA_ERROR_NO_DEVICE'
exit $failed
