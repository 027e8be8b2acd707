#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Usage: info.sh RSCHED FAKE OLD GDR. What `rsched info` says of GPUs, with
# the drivers in the folders FAKE and OLD, and without one; GDRCopy is in GDR.
set -u
rsched=$1 fake=$2 old=$3 gdr=$4
status=0

# info FOLDER [NAME=VALUE...]
info() {
    folder=$1
    shift
    env LD_LIBRARY_PATH="$folder" "$@" "$rsched" info || echo "exit status $?"
}

# expect WHAT TEXT LINE...: these lines, one after the other
expect() {
    what=$1 text=$2
    shift 2
    lines=$(printf '%s\n' "$@")
    case "
$text
" in
    *"
$lines
"*) ;;
    *)
        printf '%s: no lines\n%s\nin\n%s\n' "$what" "$lines" "$text"
        status=1
        ;;
    esac
}

# contains WHAT TEXT PART
contains() {
    case $2 in
    *"$3"*) ;;
    *)
        printf '%s: no "%s" in\n%s\n' "$1" "$3" "$2"
        status=1
        ;;
    esac
}

two=$(info "$fake" FAKE_CUDA_NUMA=0,1)
expect "two GPUs" "$two" "GPUs" \
    "  0    Fake 0, 81920 MiB, 0000:1B:00.0, NUMA node 0, GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae00" \
    "  1    Fake 1, 81920 MiB, 0000:1C:00.0, NUMA node 1, GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01"
expect "one GPU" "$two" "  0 - 0     same-gpu" \
    "      staged        possible"
expect "two nodes" "$two" "  0 - 1     other-numa" \
    "      staged        possible"
# What there is to say of the engine for NICs there is to say of the way.
nic=$(printf '%s\n' "$two" | sed -n 's/^  verbs *\(not here: .*\)/\1/p')
case $nic in
*"built without"*) nic="not here: built without an engine for NICs" ;;
esac
contains "a NIC" "$two" "      gdr-loopback  ${nic:-possible}"
contains "a NIC, no direct" "$(info "$fake" FAKE_CUDA_DIRECT=0)" \
    "      gdr-loopback  not here: GPU 0 has no GPUDirect RDMA"
contains "no GDRCopy" "$two" "      gdrcopy       not here: no GDRCopy: "
contains "GDRCopy" "$(info "$fake:$gdr")" "      gdrcopy       possible"
contains "no module" "$(info "$fake:$gdr" FAKE_GDR_OPEN=0)" \
    "      gdrcopy       not here: GDRCopy cannot be opened: its kernel module gdrdrv is not loaded"
contains "turned off" "$(info "$fake:$gdr" RSCHED_GDRCOPY=no)" \
    "      gdrcopy       not here: RSCHED_GDRCOPY=no"
contains "IPC" "$two" "      cuda-ipc      possible"

case $two in
*"  blocks in GPU memory are packed by kernels"*) ;;
*"  blocks in GPU memory are copied one by one: built without nvcc"*) ;;
*) printf 'no word about kernels in\n%s\n' "$two"; status=1 ;;
esac

expect "one node" "$(info "$fake")" "  0 - 1     same-numa" \
    "      staged        possible"
expect "no NUMA" "$(info "$fake" FAKE_CUDA_NUMA=-1,-1)" "  0 - 1     same-numa" \
    "      staged        possible"
expect "an unknown node" "$(info "$fake" FAKE_CUDA_NUMA=-9,-9)" \
    "  0 - 1     other-numa" "      staged        possible"
contains "no peers" "$(info "$fake" FAKE_CUDA_PEERS=0)" \
    "      cuda-ipc      not here: GPU 1 cannot access the memory of GPU 0"
contains "no direct" "$(info "$fake" FAKE_CUDA_DIRECT=0)" \
    "      gdrcopy       not here: GPU 0 has no GPUDirect RDMA"
contains "no handles" "$(info "$fake" FAKE_CUDA_INTEGRATED=1 FAKE_CUDA_DESCRIPTORS=0)" \
    "      cuda-ipc      not here: memory of GPU 0 cannot be opened by another process"
expect "exclusive" "$(info "$fake" FAKE_CUDA_MODE=3)" "  0 - 0     same-gpu" \
    "      staged        not here: GPU 0 is not for two processes (its compute mode)"
expect "exclusive, served" "$(info "$fake" FAKE_CUDA_MODE=3 FAKE_CUDA_MPS=1)" \
    "  0 - 0     same-gpu" "      staged        possible"
expect "prohibited" "$(info "$fake" FAKE_CUDA_MODE=2 FAKE_CUDA_MPS=1)" \
    "  0 - 0     same-gpu" \
    "      staged        not here: GPU 0 is not for two processes (its compute mode)"

expect "no GPU" "$(info "$fake" FAKE_CUDA_GPUS=0)" "GPUs" \
    "  not here: cuInit: CUDA_ERROR_NO_DEVICE (no device is there)"
expect "a broken driver" "$(info "$fake" FAKE_CUDA_INIT=999)" "GPUs" \
    "  not here: cuInit: error 999"
contains "an old driver" "$(info "$old")" \
    "  not here: libcuda.so.1 has no cuDeviceCanAccessPeer: too old a driver"
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    contains "no driver" "$(info /nonexistent)" "  not here: no driver: libcuda.so.1: "
fi
exit $status
