#!/bin/bash
# Installs what the tests of the Python modules (tests/scripts/python_backend.sh) import in addition to LibTorch's
# wheel: the packages that torch's own Python code needs, 27 MB from PyPI by hash, into .deps/python. No other part of
# Tessera needs them.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=${TESSERA_DEPS:-.deps}/python
wanted=tools/deps_python.txt
! cmp -s "$wanted" "$prefix/.installed" || exit 0
echo "downloading what torch's Python needs (27 MB) into $prefix"
rm -rf "$prefix"; mkdir -p "$prefix"
pip=(python3 -m pip); "${pip[@]}" --version > /dev/null 2>&1 || pip=(/usr/bin/python3 -m pip)
"${pip[@]}" install -q --disable-pip-version-check --no-compile --no-deps --no-cache-dir --root-user-action=ignore \
  --require-hashes --target "$prefix" -r "$wanted"
cp "$wanted" "$prefix/.installed"
