# A CUDA toolkit known to the loader would hide a missing wheel, so the libraries that libtessera.so loads must come
# from .deps.
set -euo pipefail
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
wrong=$(ldd "$build/libtessera.so" | grep -E 'libcupti|libcudart|libgomp|libtorch|libc10' |
  grep -v "$root/.deps/" || true)
if [ -n "$wrong" ]; then
  echo "these libraries do not come from .deps:"; echo "$wrong"; exit 1
fi
ldd "$build/libtessera.so" | grep -q 'not found' && { ldd "$build/libtessera.so" | grep 'not found'; exit 1; }
# Names only, because an address may contain c10.
ldd "$build/tessera" | awk '{ print $1 }' | grep -qE 'torch|c10' && {
  echo "the program itself must not link LibTorch"; exit 1; }
exit 0
