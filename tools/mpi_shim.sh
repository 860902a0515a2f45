#!/bin/bash
# Compiles libtessera_mpi_shim.so, through which --backend mpi uses an MPI library without MPI-5's standard ABI (Open
# MPI up to 5, MPICH up to 4, and others), on the cluster that has it: with its mpicc, or the one that MPICC names.
#   tools/mpi_shim.sh [FOLDER]     FOLDER: that of libtessera_c.so and libtessera.so, where it is found (default: .)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-.}
read -ra compiler <<< "${MPICC:-mpicc}"
command -v "${compiler[0]}" > /dev/null || {
  echo "mpi_shim: no ${compiler[0]}: load the cluster's MPI module, or install libopenmpi-dev or libmpich-dev" >&2
  exit 1
}
for headers in "$here/.." "$here"; do  # the sources, an installation (share/tessera/mpi)
  source=$headers/tessera/wire/mpi/functions_mpi.cpp
  [ ! -f "$source" ] || break
done
# Without the C++ run time and without the libraries' C++ bindings.
"${compiler[@]}" -x c++ -std=c++11 -O2 -fPIC -fno-exceptions -fno-rtti -fvisibility=hidden -DMPICH_SKIP_MPICXX \
  -DOMPI_SKIP_MPICXX -I"$headers" "$source" -shared -o "$folder/libtessera_mpi_shim.so"
echo "$folder/libtessera_mpi_shim.so"
