# Two agents on loopback as two hosts: different numbers of processes; a failure on one host ends both; a restart of
# both; an agent that is killed or stopped.
#
#   tests/launchers/two_agents.sh [BUILD_FOLDER]
set -euo pipefail
build=$(cd "${1:-build}" && pwd)
out=$(mktemp -d); trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$out"' EXIT
cd "$out"
(umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \n' > secret)
# agents NAME PROCESSES_OF_0 PROCESSES_OF_1 OPTIONS -- PROGRAM: runs both in the background, with output in NAME.0,
# NAME.1
agents() {
  name=$1 n0=$2 n1=$3; shift 3
  port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
  for k in 0 1; do
    n=n$k
    "$build/tessera" launch --num_machines 2 --machine_rank $k --main_process_ip 127.0.0.1 --main_process_port $port \
      --secret_file secret --nproc_per_node ${!n} "$@" > "$name.$k" 2>&1 &
    eval "pid$k=\$!"
  done
}
# ended CODE0 CODE1: checks the exit codes of both agents
ended() {
  code0=0; code1=0
  wait $pid0 || code0=$?
  wait $pid1 || code1=$?
  [ "$code0 $code1" = "$1 $2" ] || { cat "$name".[01]; echo "$name: exit codes $code0 $code1, not $1 $2"; exit 1; }
}

agents plain 1 2 -- sh -c 'echo "rank $RANK of $WORLD_SIZE on $NODE_RANK"'
ended 0 0
cat plain.[01] | grep -o "rank . of 3 on ." | sort | cmp - <(printf 'rank %s of 3 on %s\n' 0 0 1 1 2 1) ||
  { cat plain.*; exit 1; }

agents train 1 1 -- "$build/tessera" test
ended 0 0
grep -q "\[rank 0\] 2 processes" train.0

agents failure 1 1 -- sh -c 'if [ $RANK = 1 ]; then exit 7; fi; sleep 600'
begin=$(date +%s)
ended 7 7
[ $(($(date +%s) - begin)) -le 60 ] || { echo "a failure took too long to end the other host"; exit 1; }
grep -q "rank 1 .*exit code 7" failure.0 || { cat failure.0; echo "the other host does not name the rank"; exit 1; }

agents restart 1 1 --max_restarts 1 -- sh -c '
echo "generation $TESSERA_GENERATION"; [ $RANK$TESSERA_GENERATION = 10 ] && kill -9 $$; sleep 0.5'
ended 0 0
cat restart.[01] | grep -c "generation 1" | grep -qx 2 || { cat restart.*; exit 1; }

# The agent of machine 1 is killed: none of its processes remain, and machine 0 ends its ranks.
agents lost 1 1 -- sh -c "echo started; sleep 600.$$"
for _ in $(seq 600); do [ "$(cat lost.[01] 2> /dev/null | grep -c started)" = 2 ] && break; sleep 0.1; done
kill -9 $pid1
begin=$(date +%s)
ended 1 137
[ $(($(date +%s) - begin)) -le 60 ] || { echo "a lost machine took too long"; exit 1; }
grep -q "machine 1 .*has left: its agent was killed" lost.0 || { cat lost.0; exit 1; }
for _ in $(seq 100); do pgrep -f "^sleep 600\.$$\$" > /dev/null || break; sleep 0.1; done
! pgrep -f "^sleep 600\.$$\$" > /dev/null || { echo "a rank was left running"; exit 1; }

# Without a secret a rendezvous at an address that others can reach is refused.
if "$build/tessera" launch --num_machines 2 --machine_rank 0 --main_process_ip 192.0.2.1 true 2> refused; then
  exit 1
fi
grep -q -- "--secret_file" refused
echo ok
