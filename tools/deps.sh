#!/bin/bash
# Installs the build's dependencies: Debian packages, LibTorch 2.11.0 (the PyPI wheel and the two NVIDIA run-time
# libraries that libtorch_cpu.so is linked to; no CUDA toolkit) into .deps/torch, Apache Arrow into .deps/arrow, and
# the formatter of tools/format.sh into .deps/clang-format. No other step of the build uses the network.
#
#   tools/deps.sh [--torch RELEASE]      another LibTorch of tools/torch/ instead, into .deps/torch-RELEASE
#                                        (cmake -DTESSERA_TORCH_DIR=.deps/torch-RELEASE)
set -euo pipefail
cd "$(dirname "$0")/.."
default=2.11.0 release=2.11.0
if [ $# -gt 0 ]; then
  releases=$(cd tools/torch && echo *.txt | sed 's/\.txt//g')
  if [ $# != 2 ] || [ "$1" != --torch ] || [ ! -f "tools/torch/$2.txt" ]; then
    echo "usage: tools/deps.sh [--torch RELEASE], where RELEASE is one of: $releases" >&2
    exit 2
  fi
  release=$2
fi
packages=(g++ clang-19 libclang-rt-19-dev cmake ninja-build ccache pkg-config make git python3 python3-pip
          libyaml-cpp-dev libpcre2-dev zlib1g-dev libzstd-dev liblzma-dev libisal-dev libpugixml-dev libssl-dev
          libcurl4-openssl-dev libjpeg62-turbo-dev libpng-dev
          libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev
          libjs-dygraphs bible-kjv bible-kjv-text)
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing: ${missing[*]}"
  sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
fi
install_wheels() {  # FOLDER WHEEL...
  local pip=(python3 -m pip); "${pip[@]}" --version > /dev/null 2>&1 || pip=(/usr/bin/python3 -m pip)
  "${pip[@]}" install -q --disable-pip-version-check --no-compile --no-deps --no-cache-dir --root-user-action=ignore \
    --target "$1" "${@:2}"
}
# One wheel of torch for every Python: its libraries and headers are what is used.
prefix=${TESSERA_DEPS:-.deps}/torch
[ "$release" = "$default" ] || prefix+=-$release
wanted=tools/torch/$release.txt
wheels=$(grep -o '^[^ #]*==[^ ]*' "$wanted" | xargs)
stamp="$prefix/.installed"
if [ "$(cat "$stamp" 2>/dev/null)" != "$wheels" ]; then
  echo "downloading LibTorch $release (0.54 GB) into $prefix"
  rm -rf "$prefix"; mkdir -p "$prefix"
  of_wheels=(--python-version 3.11 --only-binary=:all:)
  for p in manylinux_2_28 manylinux_2_25 manylinux2014; do of_wheels+=(--platform "${p}_$(uname -m)"); done
  install_wheels "$prefix" "${of_wheels[@]}" --require-hashes -r "$wanted"
  echo "$wheels" > "$stamp"
fi
# Apache Arrow for Parquet and Arrow files: the wheel's two libraries and their headers (65 MB), without Python.
arrow=pyarrow==26.0.1
prefix=${TESSERA_DEPS:-.deps}/arrow
if [ "$(cat "$prefix/.installed" 2>/dev/null)" != "$arrow" ]; then
  echo "downloading Apache Arrow (55 MB) into $prefix"
  rm -rf "$prefix"; mkdir -p "$prefix/all"
  install_wheels "$prefix/all" "$arrow"
  mkdir "$prefix/pyarrow"
  mv "$prefix"/all/pyarrow/{include,libarrow.so.*,libparquet.so.*} "$prefix/pyarrow"
  rm -rf "$prefix/all"
  echo "$arrow" > "$prefix/.installed"
fi
# The formatter has its own stamp, so that an existing folder with LibTorch gets it too.
formatter=clang-format==19.1.7
prefix=${TESSERA_DEPS:-.deps}/clang-format
if [ "$(cat "$prefix/.installed" 2>/dev/null)" != "$formatter" ]; then
  echo "downloading $formatter (2 MB) into $prefix"
  rm -rf "$prefix"
  install_wheels "$prefix" "$formatter"
  echo "$formatter" > "$prefix/.installed"
fi
