#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Usage: warnings.sh CUDA_STREAMS. What a process is told of its starts on streams, once
# however many there are.
set -u
program=$1
status=0

# told TIMES TEXT CASE NAME=VALUE
told() {
    log=$(env RSCHED_LOG_LEVEL=info "$4" "$program" processes "$3" 2>&1) || status=1
    number=$(printf '%s\n' "$log" | grep -c "$2")
    if [ "$number" != "$1" ]; then
        printf '%s, %s: told %s times, not %s\n%s\n' "$3" "$4" "$number" "$1" "$log"
        status=1
    fi
}

# Two processes.
told 0 CUDA_MODULE_LOADING destroyed FAKE_CUDA_LOADING=1
told 2 CUDA_MODULE_LOADING destroyed FAKE_CUDA_LOADING=2
told 2 "first epoch since it was" destroyed RSCHED_GPU_WAY=cuda-ipc
told 0 "first epoch since it was" destroyed RSCHED_GPU_WAY=staged
told 0 "first epoch since it was" warm RSCHED_GPU_WAY=cuda-ipc
exit $status
