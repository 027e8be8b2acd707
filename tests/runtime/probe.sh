#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rsched probe: what it writes can be read and is looked at. Usage:
# probe.sh RSCHED [PRELOAD that lets it bind to cores that there are not]
set -u
rsched=$1 more_cores=${2:-}
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

# It fails if its counters say that anything went another way than the one measured.
"$rsched" probe --rounds 1 --longest 1048576 --output "$folder/ways.yaml" \
    --svg "$folder/ways.svg" >"$folder/table" || fail probe
for way in self landing pull shared; do
    grep -q "^$way  *L  *[0-9.]*  o  *[0-9.]*  rms  *[0-9.]* %  O [-0-9]" "$folder/table" || fail "no $way in the table"
    grep -q "^  $way:" "$folder/ways.yaml" || fail "no $way in the file"
    grep -q ">$way, rms [0-9.]* %<" "$folder/ways.svg" ||
        fail "no $way in the picture"
done
grep -q "^non-temporal stores, pulled and read, 1048576 B: [0-9.]* of" "$folder/table" ||
    fail "no stores in the table"
[ "$(sed -n 's/^non-temporal stores: from \([0-9]*\) B .*/\1/p' "$folder/table")" = \
    "$(sed -n 's/^  nontemporal: //p' "$folder/ways.yaml")" ] || fail "other stores in the file"
grep -qE "^shared, one way, 1048576 B: [0-9.]+ of the time of one core; bare copies 0*[1-9.][0-9.]*$" "$folder/table" ||
    fail "no floor of shared work"
! grep -q 70368 "$folder/table" || fail "a rate that stands for no cost"
# Half of the last size, 7 pixels a character, is in the picture, as is the legend.
width=$(sed -n 's/^<svg .* width="\([0-9]*\)".*/\1/p' "$folder/ways.svg")
sed -n 's/^<text x="\([0-9]*\)[^>]*>\([0-9]* MiB\|.*, rms .*\)<.*/\1 \2/p' "$folder/ways.svg" |
    while read -r x text; do
        case $text in *MiB) half=2 ;; *) half=1 ;; esac
        [ $((x + 7 * ${#text} / half)) -le "$width" ] || echo "$text"
    done >"$folder/cut"
[ ! -s "$folder/cut" ] || fail "cut: $(cat "$folder/cut")"
# What cannot be written is told before anything is measured.
for option in --output --svg; do
    "$rsched" probe $option "$folder/none/a.svg" >"$folder/out" 2>"$folder/log"
    [ $? = 1 ] && [ ! -s "$folder/out" ] &&
        grep -q "^rsched: $folder/none/a.svg: No such file" "$folder/log" || fail "$option in no folder"
done

# A terminal is told how far it is, and nobody else.
tell() { "$rsched" probe --rounds 1 --longest 65536 --memory host "$@"; }
[ -z "$(tell 2>&1 >/dev/null)" ] || fail "progress in a file"
script -qec "'$rsched' probe --rounds 1 --longest 65536 --memory host" "$folder/terminal" \
    </dev/null >/dev/null
grep -q 'ways, round 1 of 1' "$folder/terminal" || fail "no progress on a terminal"
grep -q "^mapped memory: from 1 B " "$folder/table" || fail "no switch points"
grep -c "<circle" "$folder/ways.svg" | grep -qE "[0-9]{2}" || fail "no points"

# Over RDMA devices: if there is none that is not hidden, it says so, beside all others,
# or fails before anything is measured.
grep -qE '^RDMA devices: not here: .|^RDMA device .* and back, ' "$folder/table" ||
    fail "no word of RDMA devices"
RSCHED_DEVICES=none0 "$rsched" probe --memory verbs --output "$folder/none.yaml" \
    >"$folder/out" 2>"$folder/log"
[ $? = 1 ] && [ ! -s "$folder/out" ] && [ ! -e "$folder/none.yaml" ] &&
    [ "$(wc -l <"$folder/log")" = 1 ] && grep -q '^rsched: RDMA devices: not here: .' "$folder/log" ||
    fail "no device: $(cat "$folder/log")"

# What was measured is what is used, and what `info` shows.
mapped=$(sed -n 's/^mapped memory: from 1 B //p' "$folder/table")
RSCHED_WAYS="$folder/ways.yaml" "$rsched" info >"$folder/info" 2>"$folder/log" ||
    fail info
[ ! -s "$folder/log" ] || fail "a warning: $(cat "$folder/log")"
grep -q "^  mapped memory *$mapped$" "$folder/info" ||
    fail "info has other switch points than '$mapped'"

"$rsched" probe --rounds 1 --compare "$folder/ways.yaml" >"$folder/compared" ||
    fail compare
# In mapped and in other memory; three long ones in huge pages too, if there are any.
rows=26
pages=/sys/kernel/mm/transparent_hugepage
if grep -q '^  cma:' "$folder/ways.yaml" && [ -e $pages/hpage_pmd_size ] &&
    ! grep -qF '[never]' $pages/enabled &&
    [ "$(printf '%s\n' 6.1 "$(uname -r)" | sort -V | head -n 1)" = 6.1 ]; then
    rows=29
    grep -q '^huge memory: from 1 B ' "$folder/table" || fail "no switch points of huge pages"
    grep -q '^  huge pages  *[a-z]' "$folder/info" || fail "no huge pages in info"
    [ "$(grep -c ' huge  *[a-z-]*  *[0-9.]* ' "$folder/compared")" = 3 ] || fail "no exchanges in huge pages"
fi
[ "$(grep -cE "^(8 x|scale-les3).* [+-][0-9.]+ %$" "$folder/compared")" = "$rows" ] ||
    fail "not $rows exchanges"
grep -q "^mean error [0-9.]* %, worst" "$folder/compared" || fail "no mean error"

sed -i '/^  nontemporal:/d; s/^ways:$/&\n  nontemporal: 5000000/' "$folder/ways.yaml"
RSCHED_WAYS="$folder/ways.yaml" "$rsched" info | grep -qxF \
    '  past the caches    epochs that bring 5000000 B or more to a process' ||
    fail "stores in info"

# Two NUMA nodes of two cores: both distances, one after the other.
if [ -n "$more_cores" ]; then
    two_nodes() {
        HWLOC_SYNTHETIC='numa:2 core:2 pu:1' LD_PRELOAD=$more_cores "$rsched" probe --rounds 1 "$@"
    }
    two_nodes --longest 65536 --output "$folder/two.yaml" --svg "$folder/two.svg" \
        >"$folder/table" || fail "probe on two nodes"
    [ "$(grep '^cores' "$folder/table")" = "cores 0 and 1, same-numa
cores 0 and 3, other-numa" ] || fail "not both distances: $(grep '^cores' "$folder/table")"
    for distance in same-numa other-numa; do
        grep -q "^    $distance: {L: " "$folder/two.yaml" || fail "no $distance in the file"
        grep -q "($distance): a line takes" "$folder/two.svg" || fail "no $distance in the picture"
    done
    RSCHED_WAYS="$folder/two.yaml" "$rsched" info >"$folder/info" 2>"$folder/log" || fail info
    [ ! -s "$folder/log" ] || fail "a warning: $(cat "$folder/log")"
    sed -n 's/^mapped memory: from 1 B //p' "$folder/table" >"$folder/printed"
    sed -n 's/^  mapped memory, *[a-z]*-numa *//p' "$folder/info" | cmp -s - "$folder/printed" ||
        fail "info has other switch points for two nodes"
    two_nodes --compare "$folder/two.yaml" >"$folder/compared" || fail "compare on two nodes"
    [ "$(grep -c '^mean error' "$folder/compared")" = 2 ] || fail "not both distances compared"

    # More cores than a cpu_set_t has room for, and more than Linux may have.
    many_cores() {
        POSSIBLE_CORES=$1 HWLOC_SYNTHETIC='numa:1 core:2048 pu:1' LD_PRELOAD=$more_cores \
            timeout 60 "$rsched" probe --rounds 1 --longest 65536 >"$folder/out" 2>"$folder/log"
    }
    many_cores 4096 || fail "core 2047: $(cat "$folder/log")"
    grep -q '^cores 0 and 2047, same-numa' "$folder/out" || fail "core 2047: not measured"
    many_cores 16384
    [ $? = 1 ] || fail "cores that nobody tells: status"
    grep -q '^rsched: the cores of this process: ' "$folder/log" ||
        fail "cores that nobody tells: $(cat "$folder/log")"

    # A core that there is not: nobody waits for it.
    HWLOC_SYNTHETIC='numa:1 core:1024 pu:1' timeout 60 "$rsched" probe --rounds 1 \
        >"$folder/out" 2>"$folder/log"
    [ $? = 1 ] || fail "a core that there is not: status"
    grep -q "^rsched: core 1023: " "$folder/log" ||
        fail "a core that there is not: $(cat "$folder/log")"
fi

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
bad "memory" probe --memory rdma
bad "--compare is about ways within a node" probe --memory verbs --compare host
bad "--svg draws host memory only" probe --memory verbs --svg "$folder/verbs.svg"

# A machine file is about the machine, not about settings.
for setting in RSCHED_MAPPED=0 RSCHED_CMA=4k RSCHED_NONTEMPORAL=1M RSCHED_TRIALS=yes \
    RSCHED_SLOT_STORES=ordinary RSCHED_PREFETCH=no RSCHED_GPU_WAY=staged RSCHED_GDRCOPY=no RSCHED_DIRECT=no; do
    export "${setting?}"
    bad "rsched: probe: $setting says how" probe --output "$folder/forced.yaml"
    bad "rsched: probe: $setting says how" probe --compare "$folder/ways.yaml"
    unset "${setting%=*}"
done
[ ! -e "$folder/forced.yaml" ] || fail "a file about a setting"
RSCHED_CMA=auto RSCHED_TRIALS=no RSCHED_GPU_WAY=staged RSCHED_DIRECT=no "$rsched" probe --memory host --rounds 1 \
    --longest 65536 >/dev/null || fail "settings that say nothing of host memory"
exit $failed
