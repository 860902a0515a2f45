# Ray with two nodes on this machine: the program of --emit ray places an agent on each node, the ranks connect, a
# failing program's exit code is returned, and a job that Ray stops asks its ranks to save.
#
#   PEERS=VENV tests/launchers/ray.sh [BUILD_FOLDER]     VENV: a Python environment with ray; else skipped (exit
#   status 77)
set -euo pipefail
python=${PEERS:-/nonexistent}/bin/python
"$python" -c "import ray" 2> /dev/null || { echo "skipped: no ray; PEERS names a Python environment with it"; exit 77; }
build=$(cd "${1:-build}" && pwd)
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
cd "$out"
export PATH=$build:$PATH RAY_USAGE_STATS_ENABLED=0
# The emitted program calls ray.init(), which finds this cluster through RAY_ADDRESS.
cat > cluster.py << 'PY'
import os, signal, subprocess, sys, time
from ray.cluster_utils import Cluster

cluster = Cluster()
for _ in range(2):
    cluster.add_node(num_cpus=2, object_store_memory=80 * 1024 * 1024)
try:
    job = subprocess.Popen([sys.executable, sys.argv[1]], env={**os.environ, "RAY_ADDRESS": cluster.address})
    while len(sys.argv) > 2 and job.poll() is None:  # stops it like `ray job stop` once all of these exist
        if all(os.path.exists(path) for path in sys.argv[2:]):
            job.send_signal(signal.SIGTERM)
            break
        time.sleep(0.1)
    sys.exit(job.wait())
finally:
    cluster.shutdown()
PY
ranks='echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK"'
tessera launch --emit ray --num_machines 2 --nproc_per_node 2 sh -c "$ranks" > job.py
timeout 120 "$python" cluster.py job.py > ranks.txt 2>&1 || { cat ranks.txt; exit 1; }
grep -o "rank . of 4, local . of 2, node ." ranks.txt | sort -u > got
printf 'rank %s of 4, local %s of 2, node %s\n' 0 0 0 1 1 0 2 0 1 3 1 1 | cmp - got || { cat ranks.txt; exit 1; }
tessera launch --emit ray --num_machines 2 --nproc_per_node 1 sh -c 'exit 2' > bad.py
code=0
timeout 120 "$python" cluster.py bad.py > bad.txt 2>&1 || code=$?
[ "$code" = 2 ] || { cat bad.txt; echo "exit code $code instead of 2"; exit 1; }
cat > saves.sh << SH
trap 'touch $out/saved-\$RANK; exit 3' TERM
touch $out/started-\$RANK
while :; do sleep 0.1; done
SH
tessera launch --emit ray --num_machines 2 --nproc_per_node 1 bash "$out/saves.sh" > stopped.py
code=0
timeout 120 "$python" cluster.py stopped.py started-0 started-1 > stopped.txt 2>&1 || code=$?
[ "$code" = 3 ] && [ -e saved-0 ] && [ -e saved-1 ] ||
  { cat stopped.txt; ls; echo "not asked to save, or exit code $code"; exit 1; }
echo "ok"
