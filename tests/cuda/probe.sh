#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rsched probe of GPU memory, over the driver in software, whose times mean nothing, so
# that none is measured again: all of it runs, and what it writes can be read. Usage: probe.sh RSCHED FAKE GDR
set -u
rsched=$1 fake=$2 gdr=$3
failed=0
folder=$(mktemp -d) || exit 1
trap 'rm -r "$folder"' EXIT

if [ "$(nproc)" -lt 2 ]; then
    echo "SKIP: needs two cores"
    exit 77
fi

fail() {
    echo "failed: $*"
    failed=1
}

probe() {
    env LD_LIBRARY_PATH="$fake:$gdr" "$rsched" probe --memory gpu --class any --rounds "${rounds:-1}" --longest 65536 "$@"
}

probe --output "$folder/ways.yaml" >"$folder/table" || fail probe
[ "$(sed -n 's/^GPUs \(.*\), cores.*/\1/p' "$folder/table")" = "0 and 0, same-gpu
0 and 1, same-numa" ] || fail "not both distances: $(cat "$folder/table")"
for way in staged gdrcopy cuda-ipc; do
    [ "$(grep -cE "^$way +L +[0-9.]+  o +[0-9.]+  rms +[0-9.]+ %  O [-0-9]" "$folder/table")" = 2 ] ||
        fail "no $way in the table"
    sed -n "/^  $way:/,/^  [a-z]/p" "$folder/ways.yaml" >"$folder/way"
    for distance in same-gpu same-numa; do
        grep -q "^    $distance: {L: " "$folder/way" || fail "no $way, $distance in the file"
    done
done
[ "$(grep -c '^gdr-loopback *not here$' "$folder/table")" = 2 ] || fail "a loopback"

RSCHED_WAYS="$folder/ways.yaml" "$rsched" info >"$folder/info" 2>"$folder/log" || fail info
[ ! -s "$folder/log" ] || fail "a warning: $(cat "$folder/log")"
grep -q "^  same-gpu  *[a-z]" "$folder/info" || fail "no switch points in info"
grep -q "^  other-numa  *costs are not known" "$folder/info" || fail "costs of what was not measured"

# Six lengths, alone, with others in flight, and of eight puts, between two pairs
# of GPUs.
probe --compare "$folder/ways.yaml" >"$folder/compared" || fail compare
[ "$(grep -cE '^ +[0-9]+ +[18] +[0-9]+ .* (staged|gdrcopy|cuda-ipc) +[0-9.]+ +[0-9.]+ +[-+][0-9.]+ %$' \
    "$folder/compared")" = 36 ] || fail "not 36 rows: $(cat "$folder/compared")"
[ "$(grep -cE '^ +[0-9]+ +8 +1 ' "$folder/compared")" = 12 ] || fail "messages of eight puts"
for line in "the choice takes at most" "staged takes up to" "mean error"; do
    [ "$(grep -c "^$line" "$folder/compared")" = 2 ] || fail "no line '$line'"
done

# What is not there has no costs, and hinders nothing else.
rounds=2 FAKE_GDR_OPEN=0 FAKE_CUDA_GPUS=1 probe --output "$folder/few.yaml" >"$folder/table" \
    2>"$folder/log" || fail "a few ways"
# Each side says once why, not in each exchange.
[ "$(grep -c "not copied by processors" "$folder/log")" = 2 ] || fail "warnings: $(cat "$folder/log")"
grep -q "^gdrcopy *not here$" "$folder/table" || fail "GDRCopy without its module"
! grep -q "gdrcopy" "$folder/few.yaml" || fail "costs of GDRCopy"

none() {
    reason=$1
    shift
    env "$@" "$rsched" probe --memory gpu >"$folder/out" 2>"$folder/log"
    [ $? = 1 ] || fail "$reason: status"
    grep -q "^rsched: GPU memory: not here: .*$reason" "$folder/log" || fail "$reason: $(cat "$folder/log")"
}
none "CUDA_ERROR_NO_DEVICE" LD_LIBRARY_PATH="$fake" FAKE_CUDA_GPUS=0
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    none "no driver" LD_LIBRARY_PATH=/nonexistent
fi

bad() {
    expected=$1
    shift
    probe "$@" >"$folder/out" 2>"$folder/log"
    [ $? = 2 ] || fail "$*: status"
    grep -qF -- "$expected" "$folder/log" || fail "$*: $(cat "$folder/log")"
}
bad "--svg draws host memory only" --svg "$folder/ways.svg"
bad "its ways say nothing of GPU memory" --compare host
RSCHED_GPU_WAY=staged bad "RSCHED_GPU_WAY=staged says how" --output "$folder/forced.yaml"
RSCHED_GPU_WAY=staged bad "RSCHED_GPU_WAY=staged says how" --compare "$folder/ways.yaml"
RSCHED_GDRCOPY=off bad "RSCHED_GDRCOPY=off says how" --output "$folder/forced.yaml"
[ ! -e "$folder/forced.yaml" ] || fail "a file about a setting"
exit $failed
