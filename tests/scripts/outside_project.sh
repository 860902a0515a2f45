#!/bin/bash
# A user's project with an installed Tessera: a copy of examples/outside is configured, built and run on one and on two
# processes, which must give the same loss. A different LibTorch is refused by name, and Tessera as a subfolder of a
# project provides the same target.
#   tests/scripts/outside_project.sh BUILD
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "outside_project: $*" >&2; exit 1; }
# If ccache is available, objects compiled from the same text are reused; paths are relative to $work.
if command -v ccache > /dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
  export CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime
fi

cmake --install "$build" --prefix "$work/first" > "$work/log" || { cat "$work/log"; fail "cmake --install"; }
mv "$work/first" "$work/prefix"  # the installation can be moved
prefix=$work/prefix

missing=$(cd "$prefix/include" && grep -rhoE '#include <tessera/[^>]+>' . | sed 's/#include <//; s/>//' | sort -u |
          while read -r header; do [ -f "$header" ] || echo "$header"; done)
[ -z "$missing" ] || fail "headers that are included and not installed: $missing"

cp -r "$prefix/share/tessera/examples/outside" "$work/mine"
cd "$work/mine"
began=$SECONDS
cmake -S . -B build -DCMAKE_PREFIX_PATH="$prefix" > "$work/log" || { cat "$work/log"; fail "configuring"; }
cmake --build build > "$work/log" 2>&1 || { cat "$work/log"; fail "building"; }
export OMP_NUM_THREADS=1
one=$(build/train) || fail "one process: $one"
two=$("$prefix/bin/tessera" launch --num_processes 2 build/train 2>&1) || fail "two processes: $two"
[ "${one%% with*}" = "$(grep -o 'loss [0-9.]*' <<< "$two")" ] || fail "one process: $one; two: $two"
took=$((SECONDS - began))
"$prefix/bin/tessera" env > "$work/log" || { cat "$work/log"; fail "the installed program does not find LibTorch"; }

# Our symbols carry the version, the library is found by it, and another version is refused.
version=$("$prefix/bin/tessera" --version | grep -oE '[0-9]+\.[0-9]+' | head -1)
core=$prefix/lib/libtessera_core.so.$version
objdump -T "$core" > "$work/symbols"
bare=$(grep -E ' _ZNK?7tessera' "$work/symbols" | grep -v UND | grep -v "TESSERA_$version" | head -3 || true)
[ "$(grep -c "TESSERA_$version" "$work/symbols")" -gt 1000 ] && [ -z "$bare" ] || fail "symbols without version: $bare"
readelf -d "$prefix/lib/libtessera.so" | grep -qF "[libtessera_core.so.$version]" || fail "no version in libtessera.so"
cat > "$work/one.cpp" <<'CPP'
#include <tessera/base/text.h>
#include <cstdio>
int main() { std::puts(tessera::trim(" text 1 ").c_str()); }
CPP
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
g++ $(pkg-config --cflags tessera) "$work/one.cpp" -o "$work/one" $(pkg-config --libs tessera) || fail "pkg-config"
[ "$("$work/one")" = "text 1" ] || fail "the program of pkg-config"
mkdir "$work/later"
echo "TESSERA_9.9 { *; };" > "$work/later.map"
echo 'int nothing() { return 0; }' | g++ -shared -fPIC -x c++ - -o "$work/later/libtessera_core.so.$version" \
  -Wl,-soname,"libtessera_core.so.$version" -Wl,--version-script="$work/later.map"
if said=$(LD_PRELOAD=$work/later/libtessera_core.so.$version "$work/one" 2>&1); then
  fail "a library of another version was accepted"
fi
grep -q "TESSERA_$version" <<< "$said" || fail "the loader does not name the version: $said"

mkdir -p "$work/other/torch/lib"
echo "__version__ = '2.10.0'" > "$work/other/torch/version.py"
touch "$work/other/torch/lib/libtorch_cpu.so"
if cmake -S . -B other -DCMAKE_PREFIX_PATH="$prefix" -DTESSERA_TORCH_DIR="$work/other" > "$work/log" 2>&1; then
  fail "LibTorch 2.10.0 was accepted"
fi
grep -q "is LibTorch 2.10.0" "$work/log" || { cat "$work/log"; fail "another LibTorch is not named"; }

# As part of another project: no build type is forced on it, and none of our tests or install rules are added.
mkdir "$work/outer"
cat > "$work/outer/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(outer LANGUAGES CXX)
add_subdirectory($root tessera)
add_executable(train $work/mine/train.cpp)
target_link_libraries(train PRIVATE Tessera::tessera)
if(CMAKE_BUILD_TYPE OR TARGET base_tests OR TARGET ddp_simple)
  message(FATAL_ERROR "a sub-folder has changed the project: '\${CMAKE_BUILD_TYPE}'")
endif()
CMAKE
cmake -S "$work/outer" -B "$work/outer/build" > "$work/log" 2>&1 || { cat "$work/log"; fail "as a sub-folder"; }
# Every example is a self-contained folder that can be copied out; one is built (make examples-outside: all).
for source in "$root"/examples/*.cpp; do
  name=$(basename "$source" .cpp)
  [ "$(wc -l < "$prefix/share/tessera/examples/$name/CMakeLists.txt")" = 5 ] || fail "$name has no five lines"
done
cmake -S "$prefix/share/tessera/examples" -B "$work/all" -DCMAKE_PREFIX_PATH="$prefix" > "$work/log" 2>&1 ||
  { cat "$work/log"; fail "configuring all examples"; }
TMPDIR=$work "$root/tools/examples_outside.sh" "$prefix" collectives_tour
echo "outside_project: $one; configured, built and run in $took s; installed: $(du -sh "$prefix" | cut -f1)"
