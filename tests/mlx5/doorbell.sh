#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Compiles what rings a queue where a thread plays the kernel, and looks whether a
# fence stands behind the doorbell, too: else it may stay in a buffer of the core,
# which no test over ordinary memory can show. Nothing is run.
# Usage: doorbell.sh SOURCE_DIR COMPILER
set -eu

case $(uname -m) in
x86_64) fence='sfence' store='mov.*,[ \t]*[0-9]*\\(%' ;;
aarch64) fence='dsb[ \t]+st' store='st(l?r|p)[ \t]' ;;
*)
    echo "SKIP: no x86-64 nor AArch64"
    exit 77
    ;;
esac

"$2" -O2 -S -I"$1/include" -x c - -o - <<'END' |
#include <rsched/device.h>
void ring(struct rsched_device_queue *q, uint64_t end, uint32_t a, uint32_t b);
void ring(struct rsched_device_queue *q, uint64_t end, uint32_t a, uint32_t b)
{
    const struct rsched_device_bell bell = rsched_device_queue_bell(q);

    rsched_device_queue_ring(q, &bell, end, a, b);
}
END
    awk -v fence="$fence" -v store="$store" '
        $0 ~ fence { between += stored; fences++; stored = 0 }
        fences > 0 && $0 ~ store { stored = 1 }
        END {
            if (fences == 2 && between == 1 && !stored)
                exit 0
            printf "%d fences, %d stores between them\n", fences, between
            exit 1
        }'
