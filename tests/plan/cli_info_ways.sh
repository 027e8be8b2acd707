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

# A machine with costs of GPU memory alone leaves host memory as it was.
mapped=$(printf '%s\n' "$plain" | grep '^  mapped memory')
case $mapped in
*pull*) expect "host memory" "$cgdr" "$mapped" ;;
*) echo "no switch points of mapped memory" && status=1 ;;
esac
ways=$(RSCHED_MACHINE=tofu-k RSCHED_WAYS=cgdr-k80-edr "$rsched" info) || status=1
expect "by RSCHED_WAYS" "$ways" "$mapped"
expect "by RSCHED_WAYS" "$ways" \
    "  same-numa          gdrcopy, from 17 B gdr-loopback, from 16384 B cuda-ipc"

refused=$("$rsched" probe --compare cgdr-k80-edr 2>&1) && status=1
case $refused in
*"its ways say nothing of host memory"*) ;;
*) printf 'probe --compare: %s\n' "$refused" && status=1 ;;
esac
exit $status
