#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# bench/gpu/words.c with threads in the place of kernels: every line of its table is
# there, with as many WQEs and doorbells as there have to be. Times are in none of
# it. Usage: words.sh PROGRAM
set -u
program=$1
failed=0

fail() {
    printf 'failed: %s: %s\n' "$1" "$out"
    failed=1
}

# row THREADS WAY DOORBELLS WQES: patterns of the last two, which are for each put
row() {
    printf '%s\n' "$out" |
        awk -v name="$1" -v way="$2" -v rings="^$3\$" -v wqes="^$4\$" '
            { threads = substr($0, 1, 20); sub(/ +$/, "", threads) }
            threads != "" { last = threads }
            last == name && index(substr($0, 21), way) {
                found = $(NF - 3) ~ rings && $(NF - 2) ~ wqes &&
                        $(NF - 5) ~ /^[0-9]+$/ && $(NF - 4) ~ /^[0-9.]+$/ &&
                        $(NF - 1) ~ /^[0-9]+$/ && $NF ~ /^[0-9]+$/
            }
            END { exit !found }' || fail "no line $1, $2"
}

out=$("$program" threads 64 2 2>&1)
[ $? = 0 ] || fail status
some='(0\.[0-9]+|1\.000)'
for threads in '1 thread' '2 threads' '1 warp, apart' '2 warps, apart'; do
    row "$threads" kernels "$some" '1\.000'
    row "$threads" 'the proxy' '1\.000' '1\.000'
done
for threads in '1 warp, together' '2 warps, together'; do
    row "$threads" kernels "$some" '0\.250'
    row "$threads" 'the proxy' '1\.000' '1\.000'
done
row '1 thread' kernels '1\.000' '1\.000'
row '1 warp, together' kernels '0\.250' '0\.250'
row '1 warp, apart' kernels '0\.250' '1\.000'
printf '%s\n' "$out" | tail -n 1 |
    grep -qE '^kernels put [0-9.]+ to [0-9.]+ times what the proxy puts$' || fail "last line"

for wrong in 'threads 0' 'threads 16385' 'threads 8 0' 'warps' 'threads 1 1 1'; do
    # shellcheck disable=SC2086 # several arguments
    out=$("$program" $wrong 2>&1)
    [ $? = 2 ] || fail "status of $wrong"
done
out=$("$program" gpu 64 1 2>&1)
[ $? = 77 ] || fail "status without a GPU"
printf '%s\n' "$out" | grep -q '^SKIP: ' || fail "no reason"
exit $failed
