#!/usr/bin/env bash
# Two "hosts": network namespaces with IPC and process namespaces of their own, joined by a veth pair. Each runs two
# ranks of the distributed tests' hier program through `tessera launch`; the bytes on the wire are read from the
# interface. Needs root, ip and unshare; exits 77 (skipped) without them.
#   tests/distributed/two_hosts.sh [BUILD_DIR]
set -euo pipefail
build=$(cd "${1:-build}" && pwd)
[ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v unshare >/dev/null ||
  { echo "skipped: needs root, ip, unshare"; exit 77; }
a=tsa$$ b=tsb$$
cleanup() {
  for pid in ${pids:-}; do kill -- "$pid" 2>/dev/null || true; done
  ip netns del $a 2>/dev/null || true
  ip netns del $b 2>/dev/null || true
}
trap cleanup EXIT
ip netns add $a && ip netns add $b || { echo "skipped: no network namespaces here"; exit 77; }
ip link add va$$ netns $a type veth peer name vb$$ netns $b || { echo "skipped: no veth here"; exit 77; }
ip -n $a addr add 10.77.0.1/24 dev va$$ && ip -n $b addr add 10.77.0.2/24 dev vb$$
for n in $a $b; do ip -n $n link set lo up; done
ip -n $a link set va$$ up && ip -n $b link set vb$$ up

start_host() {  # namespace, first rank, task
  ip netns exec "$1" env -u TESSERA_HOST_ID TESSERA_TWO_HOSTS="$3" FIRST="$2" WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 \
    OMP_NUM_THREADS=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29777 \
    unshare --pid --fork --mount-proc --kill-child bash -c '
      for local in 0 1; do
        RANK=$((FIRST + local)) LOCAL_RANK=$local GROUP_RANK=$((FIRST / 2)) \
          "$0" --gtest_brief=1 --gtest_filter=TwoHosts.rank &
        ranks="$ranks $!"
      done
      status=0
      for rank in $ranks; do wait $rank || status=1; done
      exit $status' "$build/tests/distributed_tests" &
  pids="${pids:-} $!"
}
sent() { ip netns exec $a cat /sys/class/net/va$$/statistics/tx_bytes; }
for task in conformance volume; do
  before=$(sent)
  start_host $a 0 $task
  start_host $b 2 $task
  status=0
  for pid in $pids; do wait "$pid" || status=1; done
  pids=
  bytes=$(($(sent) - before))
  echo "$task: status $status, $bytes bytes left host A"
  [ $status = 0 ] || exit 1
done
# Four all-reduces of 16 MB: 67,108,864 bytes of payload, plus the overhead of TCP and the store.
[ "$bytes" -ge 67108864 ] && [ "$bytes" -le 72000000 ] || { echo "expected 67-72 MB"; exit 1; }
echo "passed"
