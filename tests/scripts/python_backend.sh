#!/bin/bash
# The Python modules over the C library of this build: the backend of torch.distributed runs PyTorch's own cases, DDP
# and
# FSDP2; Horovod's names; numpy (all cases: tests/python/run_cases.py). Uses the torch that python3 imports, or else the
# torch of LibTorch's wheel (.deps/torch) with tools/deps_python.sh and stand-ins for the NVIDIA libraries that its
# import asks for.
#   tests/scripts/python_backend.sh BUILD
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TESSERA_C_LIBRARY=$build/libtessera_c.so OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/python
[ -f "$TESSERA_C_LIBRARY" ] || { echo "$TESSERA_C_LIBRARY is not built"; exit 77; }
deps=${TESSERA_DEPS:-$root/.deps}
python=
for candidate in python3 /usr/bin/python3; do
  ! "$candidate" -c 'import torch.distributed as d, sys; sys.exit(not d.is_gloo_available())' 2> /dev/null ||
    { python=$candidate; break; }
done
if [ -z "$python" ]; then
  [ -d "$deps/python" ] || { echo "python3 cannot import torch, and tools/deps_python.sh has not run"; exit 77; }
  export PYTHONPATH=$PYTHONPATH:$deps/torch:$deps/python LD_LIBRARY_PATH=$work/nvidia
  python3 "$root/tests/python/nvidia_stand_ins.py" "$deps/torch/torch/lib" "$work/nvidia"
  for candidate in python3 /usr/bin/python3; do
    ! "$candidate" -c 'import torch.distributed' 2> "$work/why" || { python=$candidate; break; }
  done
  [ -n "$python" ] || { echo "python3 cannot import the torch of $deps/torch: $(tail -1 "$work/why")"; exit 77; }
fi
cd "$work"
"$python" "$root/tests/python/check_declarations.py" "$root/tessera/c/tessera_c.h"
"$python" "$root/tests/python/run_cases.py" --quick > said || { grep -v " pass " said; exit 1; }
tail -2 said
