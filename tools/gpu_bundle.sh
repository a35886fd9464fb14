#!/usr/bin/env bash
# Copies what the preset cuda has built to build/gpu-bundle, with the libraries that another system may lack, for
# tests/bench/gpu.py on a machine that has a GPU but nothing to build with. CUDA, cuDNN and NCCL are to be there already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

from=build/cuda/bin
into=build/gpu-bundle
rm -rf "$into"
mkdir -p "$into/bin" "$into/lib"
programs=(lockstep lockstep-trainer gpu_bench liblockstep-cuda.so)
for test in "$from"/*_gpu_test; do programs+=("$(basename "$test")"); done
for program in "${programs[@]}"; do
  cp "$from/$program" "$into/bin/"
  strip --strip-debug "$into/bin/$program"
done
# glibc and the compiler's own libraries are everywhere, and newer ones do.
ldd "$into"/bin/* 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -Ev '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcudart|libcublasLt|libnccl)\.so' |
  xargs -I{} cp -L {} "$into/lib/"
du -sh "$into"
