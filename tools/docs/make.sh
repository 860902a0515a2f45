#!/bin/bash
# `make docs`: builds out/docs/html from docs/, README and the public headers, and checks every link in it.
# Sphinx, MyST and Furo are installed into .deps/docs here and not by `make deps`, because building and training do not
# need them.
set -euo pipefail
cd "$(dirname "$0")/../.."
wheels=(sphinx==9.0.4 myst-parser==5.2.0 furo==2025.12.19)
if [ "$(cat .deps/docs/.installed 2>/dev/null)" != "${wheels[*]}" ]; then
  echo "installing ${wheels[*]} into .deps/docs"
  rm -rf .deps/docs
  mkdir -p .deps
  venv_python=python3
  python3 -c "import ensurepip" 2>/dev/null || venv_python=/usr/bin/python3
  "$venv_python" -m venv .deps/docs ||
    { echo "make docs: there is no venv. On Debian 12: apt-get install python3-venv"; exit 1; }
  .deps/docs/bin/pip install -q --disable-pip-version-check --no-cache-dir "${wheels[@]}"
  echo "${wheels[*]}" > .deps/docs/.installed
fi
.deps/docs/bin/python tools/docs/site.py out/docs
python3 tools/docs/links.py out/docs/html
echo "documentation: $PWD/out/docs/html/index.html"
