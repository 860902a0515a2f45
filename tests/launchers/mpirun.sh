# Open MPI's mpirun as the launcher: its ranks find each other, have distinct ranks, and train like ours.
#
#   tests/launchers/mpirun.sh [BUILD_FOLDER]     needs mpirun of Open MPI; else skipped (exit status 77)
set -euo pipefail
mpirun --version 2> /dev/null | grep -q "Open MPI" || { echo "skipped: no Open MPI"; exit 77; }
build=$(cd "${1:-build}" && pwd)
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
cd "$out"
run() { timeout 60 mpirun --allow-run-as-root --oversubscribe "$@" 2>&1; }

run -n 4 "$build/tessera" test | tee test.txt
grep -q "4 processes" test.txt

# One agent per "host" under mpirun, which assigns the machine ranks.
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
run -n 2 "$build/tessera" launch --num_machines 2 --machine_rank auto --main_process_ip 127.0.0.1 \
  --main_process_port $port \
  --nproc_per_node 2 "$build/tessera" test | tee agents.txt
grep -q "\[rank 0\] 4 processes" agents.txt

# If a rank fails, mpirun's exit status is not 0.
if run -n 2 "$build/tessera" train --config_name /does/not/exist > failed.txt; then
  cat failed.txt; echo "a failing job ended with 0"; exit 1
fi
grep -q "does/not/exist" failed.txt
