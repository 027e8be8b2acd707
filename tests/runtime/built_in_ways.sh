#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Usage: built_in_ways.sh RSCHED KERNEL_READS.so. Whose costs are taken where nobody
# names a machine, by how long the kernel takes to read memory.
set -u
rsched=$1 kernel=$2
status=0

# expect READS PATTERN...: each matches a line of `rsched info`
expect() {
    reads=$1
    shift
    text=$(LD_PRELOAD=$kernel KERNEL_READS=$reads "$rsched" info) || status=1
    for pattern; do
        if ! printf '%s\n' "$text" | grep -qx -e "$pattern"; then
            printf '%s: no line "%s" in\n%s\n' "$reads" "$pattern" "$text"
            status=1
        fi
    done
}

expect fast '  built-in costs     host, as the kernel takes [0-6]\.[0-9] times .*' \
    '  other memory       landing, from [0-9]* B cma'
expect slow '  built-in costs     host-epyc, as the kernel takes [0-9]*\.[0-9] times .*' \
    '  other memory       landing, from [0-9]\{7\} B cma' '  from other memory  landing, from 524289 B cma'
expect never '  built-in costs     host'
expect fast '  trials             of other memory, .*'

# trials WANTED SETTING...: whether `rsched info` says that they correct the costs
trials() {
    wanted=$1
    shift
    found=$(env "$@" "$rsched" info | grep -c '^  trials ')
    [ "$found" = "$wanted" ] || { echo "$*: $found lines about trials" && status=1; }
}

trials 0 RSCHED_TRIALS=no
trials 0 RSCHED_WAYS=host
trials 0 RSCHED_MACHINE=host
trials 1 RSCHED_WAYS=host RSCHED_TRIALS=yes

# Who names one is not asked what the kernel does.
named=$(RSCHED_WAYS=host LD_PRELOAD=$kernel KERNEL_READS=slow "$rsched" info) || status=1
case $named in
*"built-in costs"*) echo "built-in costs beside RSCHED_WAYS" && status=1 ;;
*"from other memory  landing, from 524289 B cma"*) echo "not those of host" && status=1 ;;
esac
exit $status
