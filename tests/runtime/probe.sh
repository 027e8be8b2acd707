#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rsched probe: what it writes can be read and is looked at. Usage: probe.sh RSCHED
set -u
rsched=$1
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

"$rsched" probe --rounds 1 --longest 65536 --output "$folder/ways.yaml" \
    --svg "$folder/ways.svg" >"$folder/table" || fail probe
for way in self landing pull shared; do
    grep -q "^$way  *[0-9.]* o " "$folder/table" || fail "no $way in the table"
    grep -q "^  $way:" "$folder/ways.yaml" || fail "no $way in the file"
    grep -q ">$way, fitted within [0-9.]* %<" "$folder/ways.svg" ||
        fail "no $way in the picture"
done
grep -q "^mapped memory: from 1 B " "$folder/table" || fail "no switch points"
grep -c "<circle" "$folder/ways.svg" | grep -qE "[0-9]{2}" || fail "no points"

# What was measured is what is used, and what `info` shows.
mapped=$(sed -n 's/^mapped memory: from 1 B //p' "$folder/table")
RSCHED_WAYS="$folder/ways.yaml" "$rsched" info >"$folder/info" 2>"$folder/log" ||
    fail info
[ ! -s "$folder/log" ] || fail "a warning: $(cat "$folder/log")"
grep -q "^  mapped memory *$mapped$" "$folder/info" ||
    fail "info has other switch points than '$mapped'"

"$rsched" probe --rounds 1 --compare "$folder/ways.yaml" >"$folder/compared" ||
    fail compare
[ "$(grep -cE "^(8 x|scale-les3).* [+-][0-9.]+ %$" "$folder/compared")" = 26 ] ||
    fail "not 26 exchanges"
grep -q "^mean error [0-9.]* %, worst" "$folder/compared" || fail "no mean error"

bad() {
    expected=$1
    shift
    "$rsched" "$@" >"$folder/out" 2>"$folder/log"
    [ $? = 2 ] || fail "$*: status"
    [ "$(wc -l <"$folder/log")" = 1 ] || fail "$*: not one line"
    grep -qF -- "$expected" "$folder/log" || fail "$*: $(cat "$folder/log")"
}

bad "--rounds is from 1 to 64" probe --rounds 0
bad "--longest x: " probe --longest x
bad "there is no key 'ways' in it" probe --compare tofu-k
bad "$folder/none.yaml" probe --compare "$folder/none.yaml"
bad "class" probe --class middling
exit $failed
