#!/bin/bash
# Installs the PJRT plug-in of XLA's CPU backend, on which the tests of --device xla run: 63 MB from PyPI, unpacked into
# .deps/pjrt. No other part of Tessera needs it; to train on TPUs, install libtpu.
set -euo pipefail
cd "$(dirname "$0")/.."
plugin=lammps-jax-pjrt-cpu==0.11.2
prefix=${TESSERA_DEPS:-.deps}/pjrt
[ "$(cat "$prefix/.installed" 2>/dev/null)" != "$plugin" ] || exit 0
echo "downloading $plugin (63 MB) into $prefix"
rm -rf "$prefix"; mkdir -p "$prefix"
pip=(python3 -m pip); "${pip[@]}" --version > /dev/null 2>&1 || pip=(/usr/bin/python3 -m pip)
"${pip[@]}" install -q --disable-pip-version-check --no-compile --no-deps --no-cache-dir --root-user-action=ignore \
  --target "$prefix" "$plugin"
echo "$plugin" > "$prefix/.installed"
