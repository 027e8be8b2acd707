#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Usage: cli_info_ways.sh RSCHED. What `rsched info` says of ways within a node.
set -u
rsched=$1
status=0

# expect WHAT TEXT LINE
expect() {
    if ! printf '%s\n' "$2" | grep -qxF -e "$3"; then
        printf '%s: no line "%s" in\n%s\n' "$1" "$3" "$2"
        status=1
    fi
}

plain=$("$rsched" info) || status=1
expect "no costs" "$plain" "  GPU memory         costs are not known"

cgdr=$(RSCHED_MACHINE=cgdr-k80-edr "$rsched" info) || status=1
expect "latency" "$cgdr" \
    "  same-numa          gdrcopy, from 17 B gdr-loopback, from 16384 B cuda-ipc"
expect "bandwidth" "$cgdr" \
    "  same-numa          gdrcopy, from 17 B gdr-loopback, from 524289 B cuda-ipc"
expect "no costs there" "$cgdr" "  other-numa         costs are not known"

# How one copy goes, by this processor and the setting.
has() { grep -qm1 "^flags.*\<$1\>" /proc/cpuinfo; }
one="  one copy           one line after the other"
tried=$one
if grep -qm1 '^vendor_id.*AuthenticAMD' /proc/cpuinfo && has avx2; then
    when_yes="  one copy           lines of three parts in turn"
    tried="$when_yes, where that is faster, while messages are sent"
elif has fsrm && has avx512f; then
    when_yes="  one copy           lines are asked for in advance"
    ! grep -qm1 '^vendor_id.*GenuineIntel' /proc/cpuinfo ||
        tried="$when_yes, where that is faster, while messages are sent"
else
    one="$one, as this processor has no other way"
    tried=$one
    when_yes=$one
fi
expect "tried" "$plain" "$tried"
expect "not tried" "$(RSCHED_TRIALS=no "$rsched" info)" "$one"
expect "never" "$(RSCHED_PREFETCH=no "$rsched" info)" "$one"
expect "always" "$(RSCHED_PREFETCH=yes RSCHED_TRIALS=no "$rsched" info)" "$when_yes"

# A machine with costs of GPU memory alone leaves host memory as it was.
mapped=$(printf '%s\n' "$plain" | grep '^  mapped memory')
case $mapped in
*pull*) expect "host memory" "$cgdr" "$mapped" ;;
*) echo "no switch points of mapped memory" && status=1 ;;
esac
expect "whose costs" "$cgdr" "  GPU memory's costs cgdr-k80-edr, which is RSCHED_MACHINE"
case $cgdr in
*"built-in costs     host"*) ;;
*) echo "host memory's costs are not said to be built in" && status=1 ;;
esac
ways=$(RSCHED_MACHINE=tofu-k RSCHED_WAYS=cgdr-k80-edr "$rsched" info) || status=1
expect "by RSCHED_WAYS" "$ways" "$mapped"
expect "by RSCHED_WAYS" "$ways" \
    "  same-numa          gdrcopy, from 17 B gdr-loopback, from 16384 B cuda-ipc"

# The built-in costs are looked up among built-in machines, whatever lies around.
work=$(mktemp -d) || exit 1
mkdir "$work/host" && touch "$work/host-epyc"
expect "beside a directory 'host'" "$(cd "$work" && "$rsched" info)" "$mapped"
mkdir "$work/tofu-k" && (cd "$work" && "$rsched" plan scale-les3:60:ew -m tofu-k >/dev/null) ||
    { echo "a directory is taken for a machine" && status=1; }
rm -rf "$work"

# What it says of stores into host memory counts all the same.
file=$(mktemp) || exit 1
trap 'rm -f "$file"' EXIT
for stores in '5000000:epochs that bring 5000000 B or more to a process' 0:nothing; do
    printf '%s\n' 'rsched: machine/1' 'name: gpu' 'extends: host' 'ways:' "  nontemporal: ${stores%%:*}" \
        '  staged: {L: 1 us, o: 1 us, O: [{rate: 1 GB/s}], g: 1 us, G: [{rate: 1 GB/s}]}' >"$file"
    only=$(RSCHED_WAYS=$file "$rsched" info) || status=1
    expect "stores beside GPU memory" "$only" "  past the caches    ${stores#*:}"
    expect "stores beside GPU memory" "$only" "$mapped"
done

# By distance, where costs differ, and where this machine's cores are.
at() { printf '    %s: {L: 1 us, o: %s, O: [{rate: %s}], g: 1 us, G: [{rate: %s}]}\n' "$1" "$2" "$3" "$3"; }
{
    printf 'rsched: machine/1\nname: far\nextends: host\nways:\n  landing:\n'
    at same-numa '1 us' '1000 MB/s'
    at other-numa '1 us' '1000 MB/s'
    printf '  pull:\n'
    at same-numa '20 us' '2000 MB/s'
    at other-numa '50 us' '2000 MB/s'
} >"$file"
far=$(RSCHED_WAYS=$file "$rsched" info) || status=1
# 1/16 is to be gained: 15/16 (2 us + B/1000) = 21 us + B/2000, B in bytes per us.
expect "near" "$far" "  mapped memory, same-numa   landing, from 43715 B pull"
expect "far" "$far" "  mapped memory, other-numa  landing, from 112286 B pull"
# Persistent messages need no progress thread, and may be shorter.
expect "near" "$far" "  from mapped memory, same-numa   landing, from 43715 B pull"
expect "far" "$far" "  from mapped memory, other-numa  landing, from 112286 B pull"
expect "no cma" "$far" "  from other memory, other-numa  landing"
host=$(RSCHED_WAYS=host "$rsched" info) || status=1
expect "whose costs" "$host" "  costs              host, which is RSCHED_WAYS"
expect "short" "$host" "  from mapped memory landing, from 3073 B pull"
if "$rsched" info | grep -q 'built without hwloc'; then
    echo "built without hwloc: NUMA nodes are not looked at"
else
    numa() { HWLOC_THISSYSTEM=1 HWLOC_SYNTHETIC=$1 "$rsched" info; }
    case $(numa 'node:1 pu:64') in
    *"  1; the cores here belong to number 0"*) ;;
    *) echo "one NUMA node is not found" && status=1 ;;
    esac
    far=$(HWLOC_SYNTHETIC='node:4 pu:2' "$rsched" info) || status=1
    expect "all cores" "$far" \
        "  4; the cores here belong to several, which counts as other-numa"
    caches='node:1 l3:2(size=3MB) l2:2(size=1MB) pu:1'
    expect "guessed from the cache" "$(numa "$caches")" \
        "  past the caches    epochs that bring 3000000 B or more to a process"
    expect "not guessed" "$(RSCHED_WAYS=host numa "$caches")" "  past the caches    nothing"
    if command -v taskset >/dev/null && taskset -c 1 true 2>/dev/null; then
        far=$(HWLOC_THISSYSTEM=1 HWLOC_SYNTHETIC='node:2 pu:1' taskset -c 1 "$rsched" info) || status=1
        expect "one core" "$far" "  2; the cores here belong to number 1"
        # Two kinds of memory beside the same cores: the first of both.
        far=$(HWLOC_THISSYSTEM=1 HWLOC_SYNTHETIC='[numa] [numa] pu:2' taskset -c 1 "$rsched" info) ||
            status=1
        expect "two kinds of memory" "$far" "  2; the cores here belong to number 0"
    fi
fi

# Over RDMA devices, where there are none, too. One block: 0.83 us = 0.005 us + B/10000,
# B in bytes per us. Four blocks into blocks: 0.4 us = 0.02 us + B/10000, below a chunk.
expect "usual" "$plain" "  costs              the usual ones"
expect "gathered" "$plain" "  of 1 block         packed, from 8251 B gathered"
expect "gathered" "$plain" "  of 64 blocks       packed, from 24001 B gathered"
expect "scattered" "$plain" "  into 4 blocks      through slots, from 65537 B written directly"
small=$(RSCHED_CHUNK=64 "$rsched" info) || status=1
expect "short chunks" "$small" "  into 4 blocks      through slots, from 3801 B written directly"
never=$(RSCHED_DIRECT=no "$rsched" info) || status=1
expect "never directly" "$never" "  into 1 block       through slots"
printf '%s\n' 'rsched: machine/1' 'name: rails' 'extends: host' 'sources:' \
    '  gather: {o: 0 us, block: 0 us}' '  scatter: {block: 8 us}' \
    '  pack: {block: 0 us, rate: 1000 MB/s}' 'ways:' \
    '  verbs-landing: {L: 1 us, o: 1 us, O: [{rate: 1 GB/s}], g: 1 us, G: [{rate: 1 GB/s}]}' \
    '  verbs-direct: {L: 2 us, o: 1 us, O: [{rate: 2 GB/s}], g: 1 us, G: [{rate: 2 GB/s}]}' >"$file"
rails=$(RSCHED_MACHINE=$file "$rsched" info) || status=1
expect "whose costs" "$rails" "  costs              $file, which is RSCHED_MACHINE"
expect "all gathered" "$rails" "  of 4 blocks        gathered"
expect "dear writes" "$rails" "  into 16 blocks     through slots, from 128001 B written directly"
expect "costs" "$rails" "  verbs-landing      L 1.000 us, o 1.000 us, g 1.000 us; 64 KiB in 67.536 us"
expect "the cheaper one" "$rails" \
    "  the cheaper one    verbs-landing, from 2001 B verbs-direct; RSCHED_CHUNK, 65536 B, decides"
expect "host memory" "$rails" "$mapped"

refused=$("$rsched" probe --compare cgdr-k80-edr 2>&1) && status=1
case $refused in
*"its ways say nothing of host memory"*) ;;
*) printf 'probe --compare: %s\n' "$refused" && status=1 ;;
esac
exit $status
