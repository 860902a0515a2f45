#!/bin/bash
# The wheel of this build, installed where no path of the build exists: two wheels are byte-identical and at most 30 MB,
# each file matches RECORD, the program finds the LibTorch next to it and trains, and it reports the path of its CMake
# files.
#   tests/scripts/wheel.sh BUILD
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "wheel: $*" >&2; exit 1; }
pip=(python3 -m pip); "${pip[@]}" --version > /dev/null 2>&1 || pip=(/usr/bin/python3 -m pip)

for name in first second; do python3 "$root/tools/wheel.py" "$build" --output "$work/$name" > "$work/said"; done
cmp "$work"/first/*.whl "$work"/second/*.whl || fail "two wheels of one build differ"
size=$(stat -c %s "$work"/first/*.whl)
[ "$size" -le 30000000 ] || fail "$size bytes"
site=$work/site
release=$(sed -n "s/^set(Tessera_TORCH_VERSION \(.*\))/\1/p" "$build/install/TesseraConfig.cmake")
[ -n "$release" ] || fail "TesseraConfig.cmake does not say which LibTorch this is for"
"${pip[@]}" install -q --no-index --no-deps --no-compile --disable-pip-version-check --root-user-action=ignore \
  --target "$site" "$work"/first/*.whl || fail "pip does not install it"
! grep -l "$root" "$site"/tessera/lib/*.so* "$site/tessera/bin/tessera" 2> /dev/null |
  xargs -r readelf -d | grep -E "PATH.*$root" || fail "a run path names the folder of the build"
torch=$(dirname "$(readlink -f "$(ldd "$build/libtessera.so" | sed -n 's/.*libtorch_cpu.so => \([^ ]*\).*/\1/p')")")
ln -s "$(dirname "$torch")" "$site/torch"
ln -s "$(dirname "$(dirname "$torch")")/nvidia" "$site/nvidia"
export OMP_NUM_THREADS=1 PYTHONPATH=$site
cd "$work"
# A wheel requires its torch, and one for another torch than the default has another version.
grep -qx "Requires-Dist: torch==$release" "$site"/tessera-*.dist-info/METADATA || fail "Requires-Dist"
case $release in 2.11.0) local= ;; *) local=+torch${release%.*} ;; esac
version=$("$site/tessera/bin/tessera" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -1)$local
[ -f "$work/first/tessera-$version-py3-none-manylinux_2_36_x86_64.whl" ] || fail "no $version: $(ls "$work/first")"
[ "$(python3 -c 'import tessera; print(tessera.__version__)')" = "$version" ] || fail "__version__"
python3 -m tessera env | grep -q "LibTorch $release" || fail "the program does not find LibTorch"
[ "$(python3 -m tessera --cmake-prefix-path)" = "$site/tessera" ] || fail "--cmake-prefix-path"
[ -f "$site/tessera/lib/cmake/Tessera/TesseraConfig.cmake" ] || fail "no TesseraConfig.cmake"
# A wheel has no symbolic links, and no file is stored twice: libtessera.so is a linker script, and pkg-config finds the
# torch of the wheel's environment.
[ "$(cat "$site/tessera/lib/libtessera.so")" = "INPUT($(basename "$site"/tessera/lib/libtessera.so.*))" ] ||
  fail "libtessera.so does not lead to the library"
export PKG_CONFIG_PATH=$site/tessera/lib/pkgconfig
torch=$(pkg-config --variable=torch tessera)
[ "$(realpath "$torch/lib/libc10.so")" = "$(realpath "$site/torch/lib/libc10.so")" ] || fail "pkg-config gave $torch"
python3 -m tessera --cpu-requirements | grep -q "^torch==$release nvidia-" || fail "--cpu-requirements"
for i in $(seq 200); do echo "stone $((i % 7)) of row $i"; done > text.txt
python3 -m tessera train --config_name gpt2-tiny --tokenizer_name byte --train_file text.txt --block_size 16 \
  --max_steps 2 --per_device_train_batch_size 2 --num_processes 2 --save_strategy no --output_dir out > said 2>&1 ||
  { cat said; fail "training"; }
