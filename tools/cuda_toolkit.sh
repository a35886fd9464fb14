#!/usr/bin/env bash
# Puts what building for NVIDIA GPUs needs under build/cuda-toolkit: cuda/{bin,include,lib64}, {nccl,cudnn}/{include,lib},
# and bin/cmake, because Debian's CMake does not know CUDA 13. CUDA is the system's where that is version 13 ($CUDA_HOME or
# /usr/local/cuda); NCCL and cuDNN, and else CUDA too, come from PyPI. No driver is needed. Run again, it does nothing, or
# adds what has changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CUDA=13.0.2
NCCL=2.30.7
CUDNN=9.28.0.42
CMAKE=4.1.2
PARTS=nvcc,cudart,cublas,cccl,crt,nvvm

into=build/cuda-toolkit
system=${CUDA_HOME:-/usr/local/cuda}
"$system/bin/nvcc" --version 2>/dev/null | grep -q 'release 13\.' || system=

wanted="cuda ${system:-$CUDA} nccl $NCCL cudnn $CUDNN cmake $CMAKE"
[ "$(cat "$into/complete" 2>/dev/null)" = "$wanted" ] && exit 0

packages=("nvidia-nccl-cu13==$NCCL" "cmake==$CMAKE")
[ -n "$system" ] || packages+=("cuda-toolkit[$PARTS]==$CUDA")
cudnn=nvidia-cudnn-cu13==$CUDNN
echo "installing ${packages[*]} $cudnn into $into"
# What was left half done is done anew.
[ -e "$into/complete" ] || rm -rf "$into"
rm -f "$into/complete"
[ -e "$into/bin/pip" ] || python3 -m venv "$into"
pip() { "$into/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "$@"; }
pip "${packages[@]}"
# (It depends on a cuBLAS, which is there in one way or the other.)
pip --no-deps "$cudnn"

# link_unversioned DIRECTORY: the linker's names of libraries, which the packages leave out.
link_unversioned() {
  local library
  for library in "$1"/lib*.so.*; do
    local plain=${library%%.so.*}.so
    [ -e "$plain" ] || ln -s "$(basename "$library")" "$plain"
  done
}

site=$("$into/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
site=${site#"$PWD/$into/"}
ln -sfn "$site/nvidia/nccl" "$into/nccl"
ln -sfn "$site/nvidia/cudnn" "$into/cudnn"
link_unversioned "$into/nccl/lib"
if [ -n "$system" ]; then
  ln -sfn "$system" "$into/cuda"
else
  ln -sfn "$site/nvidia/cu13" "$into/cuda"
  ln -sfn lib "$into/cuda/lib64"
  link_unversioned "$into/cuda/lib"
fi
echo "$wanted" >"$into/complete"
