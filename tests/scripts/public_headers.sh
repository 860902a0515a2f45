# Every public header that needs no LibTorch compiles alone in a translation unit (tools/public_headers.py). The others
# take minutes: `make headers-check`.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")/../.."
tools/public_headers.py "$build" --torch-free
# The check finds missing includes: of the standard library, of ours, of ours next to LibTorch.
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
printf '#pragma once\nstd::vector<int> numbers();\n' > "$work/standard.h"
printf '#pragma once\n#include <string>\ntessera::Value value(std::string);\n' > "$work/ours.h"
printf '#pragma once\n#include <ATen/ATen.h>\nat::Tensor rank_of(tessera::comm::World&);\n' > "$work/torch.h"
said=$(tools/public_headers.py "$build" "$work"/{standard,ours,torch}.h) && { echo "not seen: $said"; exit 1; }
for name in standard ours torch; do
  grep -q "$work/$name.h does not compile alone" <<< "$said" || { echo "$name.h passed: $said"; exit 1; }
done
