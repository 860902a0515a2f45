# A PyTorch script under `tessera launch`: it finds the standard variables, MASTER_PORT is free for its own store, and a
# rank that dies is named although the script knows nothing of Tessera.
#
#   PEERS=VENV tests/launchers/pytorch.sh [BUILD_FOLDER]     VENV: a Python environment with torch; else skipped (exit
#   status 77)
set -euo pipefail
python=${PEERS:-/nonexistent}/bin/python
[ -x "$python" ] || { echo "skipped: no torch; PEERS names a Python environment with torch"; exit 77; }
build=$(cd "${1:-build}" && pwd)
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
cd "$out"
cat > script.py <<'PY'
import os, sys, signal
import torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.full((4,), float(dist.get_rank() + 1))
dist.all_reduce(t)
print("sum", t[0].item(), "of", dist.get_world_size(), "local", os.environ["LOCAL_RANK"], flush=True)
if len(sys.argv) > 1 and dist.get_rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
dist.destroy_process_group()
PY
# One rank dies; all ranks restart, and the second attempt succeeds.
PATH=${PEERS}/bin:$PATH timeout 180 "$build/tessera" launch --num_processes 2 \
  --max_restarts 1 script.py die > restart.txt 2>&1
cat restart.txt
grep -q "rank 1 (pid [0-9]*).*SIGKILL" restart.txt
[ "$(grep -c "sum 3.0 of 2" restart.txt)" -ge 3 ]
! grep -q Traceback <(sed '1,/restarting all ranks/d' restart.txt)
