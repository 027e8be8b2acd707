#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Compiles what kernels use for GPUs, and looks whether the orderings that
# rsched/device.h promises are in the code. Nothing is run.
# Usage: cuda.sh SOURCE_DIR SCRATCH
set -eu

nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
if [ ! -x "$nvcc" ]; then
    echo "SKIP: no nvcc"
    exit 77
fi
source=$1 scratch=$2
mkdir -p "$scratch"

has() {
    grep -q "$2" "$scratch/$1.ptx" || {
        echo "$1: no $2"
        exit 1
    }
}

for unit in tests/mlx5/kernels examples/jacobi-device/jacobi bench/gpu/words; do
    name=$(basename $unit)
    for kind in ptx cubin; do
        for arch in sm_75 sm_90; do
            "$nvcc" -$kind -arch=$arch --fmad=false -Werror all-warnings \
                -I"$source/include" "$source/$unit.cu" -o "$scratch/$name.$kind"
        done
    done
    # Record, fence, doorbell; completion and notification; barrier of a block.
    has "$name" 'st.release.sys.u32'
    has "$name" 'fence.acq_rel.sys'
    has "$name" 'st.mmio.relaxed.sys.u64'
    has "$name" 'ld.acquire.sys.u64'
    # Segments of a WQE at once.
    [ "$name" = jacobi ] || has "$name" 'st.v4.u32'
    # A completion in one load, and not byte by byte.
    if grep -q 'ld.acquire.sys.u8' "$scratch/$name.ptx"; then
        echo "$name: a completion's owner is loaded by itself"
        exit 1
    fi
done
has jacobi 'bar.sync\|barrier.sync'
has kernels 'shfl.sync'
has kernels 'vote.sync.all'
# Words: what is published behind a fence, who rings, who looks for completions.
has kernels 'fence.acq_rel.gpu'
has kernels 'atom.relaxed.gpu.exch.b64'
has kernels 'atom.acq_rel.gpu.add.u64'
has kernels 'atom.acquire.gpu.cas.b64'
has kernels 'atom.release.gpu.cas.b64'
# In the code of one lane: the record, then a fence, then the register.
order=$(grep -o 'st.release.sys.u32\|fence.acq_rel.sys\|st.mmio' "$scratch/jacobi.ptx" |
    tr '\n' ' ')
case $order in
*'st.release.sys.u32 fence.acq_rel.sys st.mmio'*) ;;
*)
    echo "jacobi: record and doorbell are not in their order: $order"
    exit 1
    ;;
esac
echo "compiled for sm_75 and sm_90; not run"
