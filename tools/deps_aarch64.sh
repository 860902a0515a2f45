#!/bin/bash
# Installs what a build for 64-bit ARM needs on an x86-64 machine: Debian's cross compiler and emulator, and Debian's
# arm64 packages of the libraries into .deps/aarch64/sysroot. They are unpacked, not installed: this system's own
# packages, and apt's architecture settings, stay unchanged.
#
#   tools/deps_aarch64.sh            the torch-free part and the kernels (11 MB)
#   tools/deps_aarch64.sh --torch    also LibTorch 2.11.0 for aarch64 (0.42 GB), for tools/aarch64_parity.sh
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$PWD/.deps/aarch64
packages=(g++-aarch64-linux-gnu qemu-user-static)
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

libraries=(libyaml-cpp0.7 libyaml-cpp-dev libpcre2-8-0 libpcre2-posix3 libpcre2-dev zlib1g zlib1g-dev libzstd1
           libzstd-dev liblzma5 liblzma-dev
           libisal2 libisal-dev libpugixml-dev libssl-dev libjpeg62-turbo libjpeg62-turbo-dev
           libpng16-16 libpng-dev libgtest-dev libgmock-dev librapidcheck-dev)
stamp=$prefix/sysroot/.installed
if [ "$(cat "$stamp" 2>/dev/null)" != "${libraries[*]}" ]; then
  echo "downloading the arm64 libraries (8 MB) into $prefix/sysroot"
  work=$prefix/apt
  rm -rf "$prefix/sysroot" "$work"
  mkdir -p "$prefix/sysroot/usr/lib" "$work"/{lists,cache/archives,packages}/partial
  touch "$work/status"
  # A separate apt configuration, with arm64 only and this machine's sources.
  apt=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User= -o Debug::NoLocking=1
       -o Dir::State="$work" -o Dir::State::lists="$work/lists" -o Dir::State::status="$work/status"
       -o Dir::Cache="$work/cache")
  apt-get "${apt[@]}" update
  (cd "$work/packages" && apt-get "${apt[@]}" download "${libraries[@]}")
  ln -s usr/lib "$prefix/sysroot/lib"
  for package in "$work"/packages/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$prefix/sysroot"
  done
  # A link to /lib/aarch64-linux-gnu/libz.so.1 would point outside the folder.
  find "$prefix/sysroot" -type l -lname '/*' | while IFS= read -r link; do
    ln -sfr "$prefix/sysroot$(readlink "$link")" "$link"
  done
  rm -rf "$work"
  echo "${libraries[*]}" > "$stamp"
fi
[ "${1:-}" = --torch ] || exit 0

# Like tools/deps.sh for this machine's architecture. Only the wheels' headers and the libraries that
# libtorch_cpu.so is linked to are kept (0.4 GB).
wanted=tools/torch/2.11.0.txt
wheels=$(grep -o '^[^ #]*==[^ ]*' "$wanted" | xargs)
stamp=$prefix/torch/.installed
if [ "$(cat "$stamp" 2>/dev/null)" != "$wheels" ]; then
  echo "downloading LibTorch for aarch64 (0.42 GB) into $prefix/torch"
  rm -rf "$prefix/torch" "$prefix/all"
  pip=(python3 -m pip); "${pip[@]}" --version > /dev/null 2>&1 || pip=(/usr/bin/python3 -m pip)
  "${pip[@]}" install -q --disable-pip-version-check --no-compile --no-deps --no-cache-dir --root-user-action=ignore \
    --only-binary=:all: --python-version 3.11 --platform manylinux_2_28_aarch64 --platform manylinux_2_25_aarch64 \
    --platform manylinux2014_aarch64 --target "$prefix/all" --require-hashes -r "$wanted"
  mkdir -p "$prefix/torch/torch"
  mv "$prefix"/all/nvidia "$prefix/torch"
  mv "$prefix"/all/torch/{version.py,include,lib} "$prefix/torch/torch"
  rm -rf "$prefix/all"
  rm -f "$prefix"/torch/torch/lib/lib{torch_cuda,torch_cuda_linalg,torch_nvshmem,torch_python,c10_cuda}.so
  echo "$wheels" > "$stamp"
fi
