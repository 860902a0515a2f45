#!/bin/bash
# The C interface as others use it: the header compiles as C99 and C++, the examples (C and, where there is gfortran,
# Fortran by pkg-config; Python) run under our launcher, torchrun's and Open MPI's environments, and the library needs
# nothing but the C++ run time.
#   tests/scripts/c_interface.sh BUILD
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "c_interface: $*" >&2; exit 1; }

cat > "$work/header.c" <<< '#include <tessera/c/tessera_c.h>'
cc -std=c99 -pedantic -Wall -Wextra -Werror -I"$root" -fsyntax-only "$work/header.c"
c++ -x c++ -std=c++11 -Wall -Wextra -Werror -I"$root" -fsyntax-only "$work/header.c"
# As installed, in a folder of its own.
mkdir -p "$work/prefix/include/tessera/c" "$work/prefix/lib/pkgconfig"
cp "$root/tessera/c/tessera_c.h" "$work/prefix/include/tessera/c"
cp -a "$build"/libtessera_c.so* "$work/prefix/lib"
cp "$build/install/tessera_c.pc" "$work/prefix/lib/pkgconfig"
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
cc -std=c99 -Wall -Wextra -Werror $(pkg-config --cflags tessera_c) "$root/examples/c/all_reduce.c" \
  $(pkg-config --libs tessera_c) -o "$work/all_reduce"
programs=("$work/all_reduce" "python3 $root/examples/c/all_reduce.py")
if command -v gfortran > /dev/null; then
  gfortran -std=f2008 -Wall -Werror -J"$work" "$root/examples/c/all_reduce.f90" $(pkg-config --libs tessera_c) \
    -o "$work/all_reduce_fortran"
  programs+=("$work/all_reduce_fortran")
else
  echo "c_interface: skipped: the example in Fortran, since there is no gfortran"
fi

needed=$(readelf -d "$build/libtessera_c.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
         grep -vE '^(libstdc\+\+|libm|libgcc_s|libc|ld-linux.*)\.so' || true)
[ -z "$needed" ] || fail "libtessera_c.so needs $needed"

export TESSERA_C_LIBRARY=$build/libtessera_c.so
said="ranks added 1000 numbers each"
for program in "${programs[@]}"; do
  got=$($program) || fail "$program alone"
  [[ $got == "1 $said"* ]] || fail "$program alone: $got"
  got=$("$build/tessera" launch --num_processes 3 $program 2>&1) || fail "$program under our launcher: $got"
  [[ $got == *"3 $said: the last sum is 3000"* ]] || fail "$program under our launcher: $got"
  port=$((20000 + RANDOM % 10000))
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port $program \
      > "$work/torchrun.$rank" 2>&1 &
  done
  wait
  grep -q "2 $said: the last sum is 1999" "$work/torchrun.0" || fail "torchrun's variables: $(cat "$work"/torchrun.*)"
  for rank in 0 1; do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$rank OMPI_COMM_WORLD_LOCAL_SIZE=2 \
      MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 1)) $program > "$work/mpi.$rank" 2>&1 &
  done
  wait
  grep -q "2 $said" "$work/mpi.0" || fail "Open MPI's variables: $(cat "$work"/mpi.*)"
done
