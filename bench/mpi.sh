#!/bin/bash
# All-reduces of two ranks over the transport mpi and by MPI_Allreduce itself, turn by turn in the same processes
# (bench/mpi_all_reduce.c), between two network namespaces, as between two hosts (root). Needs tools/deps_mpi.sh.
#   bench/mpi.sh BUILD [here]     here: on this host, through the library's shared memory
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
mpi=$(cd "${TESSERA_DEPS:-$root/.deps}/mpi/mpich" && pwd)
work=$(mktemp -d)
name=tessera$$
trap 'ip netns del ${name}a 2> /dev/null; ip netns del ${name}b 2> /dev/null; rm -rf "$work"' EXIT
PATH=$mpi/root/bin:$PATH "$mpi/root/bin/mpicc_abi" -O2 -I"$root" "$root/bench/mpi_all_reduce.c" -L"$build" -ltessera_c \
  -Wl,-rpath,"$build" -o "$work/all_reduce"
if [ "${2:-}" = here ]; then
  "$mpi/mpirun" -n 2 "$work/all_reduce"
  exit
fi
net=10.$((RANDOM % 200 + 20)).$((RANDOM % 250))
ip netns add ${name}a
ip netns add ${name}b
ip link add eth0 netns ${name}a type veth peer name eth0 netns ${name}b
for side in "a 1" "b 2"; do
  read -r space last <<< "$side"
  ip -n $name$space addr add $net.$last/24 dev eth0
  ip -n $name$space link set eth0 up
  ip -n $name$space link set lo up
done
# What mpirun takes for ssh: HOST COMMAND.
cat > "$work/enter" << END
#!/bin/bash
[ "\$1" != -x ] || shift
host=\$1; shift
case \$host in *.1) space=${name}a;; *) space=${name}b;; esac
exec ip netns exec \$space bash -c "\$*"
END
chmod +x "$work/enter"
# UCX sees that both are one host, and would share memory.
UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 MASTER_ADDR=$net.1 MASTER_PORT=29500 ip netns exec ${name}a "$mpi/mpirun" -launcher ssh -launcher-exec "$work/enter" \
  -hosts $net.1,$net.2 -n 2 "$work/all_reduce"
