# torchrun as the launcher: our ranks join its store, including the one hosted by its agent.
#
#   PEERS=VENV tests/launchers/torchrun.sh [BUILD_FOLDER]     VENV: a Python environment with torch; else skipped (exit
#   status 77)
set -euo pipefail
torchrun=${PEERS:-/nonexistent}/bin/torchrun
[ -x "$torchrun" ] || { echo "skipped: no torchrun; PEERS names a Python environment with torch"; exit 77; }
build=$(cd "${1:-build}" && pwd)
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
cd "$out"
timeout 60 "$torchrun" --no-python --standalone --nproc_per_node 2 "$build/tessera" test 2>&1 | tee agent_store.txt
grep -q "2 processes" agent_store.txt
