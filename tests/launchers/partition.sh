# Two agents in two network namespaces, joined by a cable that is then cut: each side ends its ranks by itself. If
# restarts remain, both continue once the cable, or the address of machine 0, is back.
#
#   tests/launchers/partition.sh [BUILD_FOLDER]      needs root and ip; else skipped (exit status 77)
set -euo pipefail
command -v ip > /dev/null || { echo "skipped: no ip"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }
build=$(cd "${1:-build}" && pwd)
a=tessera-a-$$ b=tessera-b-$$
ip netns add $a 2> /dev/null || { echo "skipped: network namespaces are not allowed here"; exit 77; }
out=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null || true; ip netns del $a; ip netns del $b 2> /dev/null || true; rm -rf "$out"' EXIT
ip netns add $b
ip link add ta$$ netns $a type veth peer name tb$$ netns $b 2> /dev/null || { echo "skipped: no veth"; exit 77; }
ip -n $a addr add 10.200.7.1/24 dev ta$$; ip -n $a link set ta$$ up; ip -n $a link set lo up
ip -n $b addr add 10.200.7.2/24 dev tb$$; ip -n $b link set tb$$ up; ip -n $b link set lo up
cd "$out"
(umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \n' > secret)
agent() {  # namespace, machine, options
  ip netns exec "$1" "$build/tessera" launch --num_machines 2 --machine_rank "$2" --main_process_ip 10.200.7.1 \
    --main_process_port 23456 --secret_file secret --nproc_per_node 1 "${@:3}" \
    sh -c 'echo started; [ $TESSERA_GENERATION = 1 ] || exec sleep 600'
}
started() {  # options: starts both agents and waits for their ranks
  agent $a 0 "$@" > 0.txt 2>&1 & pid0=$!
  agent $b 1 "$@" > 1.txt 2>&1 & pid1=$!
  for _ in $(seq 600); do [ "$(cat 0.txt 1.txt | grep -c started)" = 2 ] && break; sleep 0.1; done
  [ "$(cat 0.txt 1.txt | grep -c started)" = 2 ] || { cat 0.txt 1.txt; echo "the agents did not meet"; exit 1; }
}
for cut in "link set ta$$ down" "addr del 10.200.7.1/24 dev ta$$"; do
  started --max_restarts 1 --host_timeout 3
  ip -n $a $cut
  for _ in $(seq 600); do grep -q "to return" 0.txt && grep -q "to rejoin" 1.txt && break; sleep 0.1; done
  case $cut in link*) ip -n $a link set ta$$ up ;; *) ip -n $a addr add 10.200.7.1/24 dev ta$$ ;; esac
  code0=0; wait $pid0 || code0=$?
  code1=0; wait $pid1 || code1=$?
  [ "$code0 $code1" = "0 0" ] || { cat 0.txt 1.txt; echo "$cut: exit codes $code0 $code1"; exit 1; }
  [ "$(cat 0.txt 1.txt | grep -c started)" = 4 ] || { cat 0.txt 1.txt; echo "$cut: not restarted"; exit 1; }
  [ "$(grep -c "has not been heard from" 0.txt) $(grep -c "lost the job's store" 1.txt)" = "1 1" ] ||
    { cat 0.txt 1.txt; echo "$cut: not reported exactly once"; exit 1; }
done
started

sleep 1
ip -n $a link set ta$$ down
begin=$(date +%s)
code0=0; wait $pid0 || code0=$?
code1=0; wait $pid1 || code1=$?
seconds=$(($(date +%s) - begin))
cat 0.txt 1.txt
[ "$code0 $code1" = "1 1" ] || { echo "exit codes $code0 $code1"; exit 1; }
[ $seconds -le 60 ] || { echo "it took $seconds s"; exit 1; }
grep -q "machine 1 .*has not been heard from" 0.txt
grep -q "lost the job's store" 1.txt
echo "ok after $seconds s"
