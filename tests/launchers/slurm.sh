# Slurm with two nodes on this machine: ranks by srun, agents by srun, the script of --emit slurm by sbatch. Slurm's
# daemons use temporary folders and free ports, see only their own /etc/hosts (the names node1 and node2), and are
# stopped at the end.
#
#   tests/launchers/slurm.sh [BUILD_FOLDER]      needs root, slurmctld, slurmd, srun; else skipped (exit status 77)
set -euo pipefail
for program in slurmctld slurmd srun sbatch scontrol unshare; do
  command -v $program > /dev/null || { echo "skipped: no $program"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }
unshare --mount --pid --fork true 2> /dev/null || { echo "skipped: namespaces are not allowed here"; exit 77; }
build=$(cd "${1:-build}" && pwd)
[ -n "${TESSERA_IN_NAMESPACE:-}" ] || exec env TESSERA_IN_NAMESPACE=1 unshare --mount --pid --fork --mount-proc \
  --propagation private bash "$0" "$build"

# The rest runs in its own process namespace, so that leftover processes end with it.
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
cd "$out"
{ cat /etc/hosts; echo "127.0.0.1 node1 node2"; } > hosts
mount --bind hosts /etc/hosts
port=$((20000 + RANDOM % 8000))
cat > slurm.conf <<CONF
ClusterName=tessera
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$port
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$out/state
SlurmdSpoolDir=$out/spool-%n
SlurmctldPidFile=$out/slurmctld.pid
SlurmdPidFile=$out/slurmd-%n.pid
SlurmctldLogFile=$out/slurmctld.log
SlurmdLogFile=$out/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
ReturnToService=2
InactiveLimit=0
KillWait=2
NodeName=node1 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=2
NodeName=node2 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$out/slurm.conf
mkdir state spool-node1 spool-node2
show_logs() { echo "--- $1"; tail -n 20 "$out"/*.log; exit 1; }
slurmctld -D > /dev/null 2>&1 &
slurmd -D -N node1 > /dev/null 2>&1 &
slurmd -D -N node2 > /dev/null 2>&1 &
for _ in $(seq 100); do
  [ "$(sinfo -h -t idle -o %D 2> /dev/null)" = 2 ] && break
  sleep 0.1
done
[ "$(sinfo -h -t idle -o %D)" = 2 ] || show_logs "the nodes did not come up"

# The parser of node lists gives the same output as Slurm.
for list in 'a' 'n[1-3]' 'gpu[07-11,3],login' 'r[0-1]n[08-10],x[1,3,5-6]'; do
  scontrol show hostnames "$list" > expected
  "$build/tessera" launch --emit hostfile --host_list "$list" | sed 's/ slots=.*//' > got
  cmp expected got || { echo "node list $list"; exit 1; }
done

echo "--- ranks by srun"
timeout 60 srun -N2 -n4 "$build/tessera" test > srun.txt 2>&1 || { cat srun.txt; show_logs "srun tessera test"; }
cat srun.txt
grep -q "4 processes\|4 ranks" srun.txt

echo "--- agents by srun"
(umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \n' > secret)
timeout 60 srun -N2 -n2 "$build/tessera" launch --num_machines 2 --machine_rank auto --main_process_ip node1 \
  --main_process_port $((port + 3)) --secret_file secret --nproc_per_node 2 \
  sh -c 'echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK"' \
  > agents.txt 2>&1 ||
  { cat agents.txt; show_logs "agents"; }
grep -o "rank . of 4, local . of 2, node ." agents.txt | sort > got
printf 'rank %s of 4, local %s of 2, node %s\n' 0 0 0 1 1 0 2 0 1 3 1 1 | cmp - got

echo "--- the script of --emit slurm"
export PATH=$build:$PATH
tessera launch --emit slurm --num_machines 2 --nproc_per_node 2 --job_name emitted --time 5 tessera test > job.sh
sbatch -W job.sh || { cat emitted-*.log; show_logs "sbatch"; }
cat emitted-*.log
grep -q "4 processes\|4 ranks" emitted-*.log
[ -z "$(ls -A | grep tessera-secret || true)" ] || { echo "the secret was left behind"; exit 1; }

echo "--- a job that was asked to stop, and has saved, goes back into the queue"
tessera launch --emit slurm --requeue --num_machines 2 --nproc_per_node 1 --job_name requeued --time 5 \
  sh -c 'n=${SLURM_RESTART_COUNT:-0}; echo "start $n"; [ "$n" = 1 ] || { sleep 1; exit 3; }' > requeued.sh
job=$(sbatch --parsable requeued.sh)
scontrol update JobId="$job" StartTime=now 2> /dev/null || true
for _ in $(seq 1200); do
  case $(scontrol show job "$job" | grep -o 'JobState=[A-Z]*') in
    JobState=COMPLETED) break ;;
    JobState=FAILED|JobState=CANCELLED) cat requeued-*.log; show_logs "requeued" ;;
    # Slurm delays a requeued job by two minutes.
    JobState=PENDING) scontrol update JobId="$job" StartTime=now 2> /dev/null || true ;;
  esac
  sleep 0.1
done
cat requeued-*.log
starts() { grep -c "^\[rank .\] start $1" requeued-*.log; }
[ "$(starts 0)" = 2 ] && [ "$(starts 1)" = 2 ] ||
  { echo "not started twice on both nodes"; exit 1; }
echo "ok"
