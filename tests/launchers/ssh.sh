# Start by ssh from a hostfile: two "hosts" (127.0.0.1, 127.0.0.2) of our own sshd on loopback, with throw-away keys.
#
#   tests/launchers/ssh.sh [BUILD_FOLDER]      needs root, sshd, ssh, ssh-keygen; else skipped (exit status 77)
set -euo pipefail
sshd=$(command -v sshd || echo /usr/sbin/sshd)
for program in "$sshd" ssh ssh-keygen; do
  command -v "$program" > /dev/null || { echo "skipped: no $program"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }
build=$(cd "${1:-build}" && pwd)
out=$(mktemp -d)
trap '[ -z "${sshd_pid:-}" ] || kill $sshd_pid 2> /dev/null || true; rm -rf "$out"' EXIT
cd "$out"
ssh-keygen -q -t ed25519 -N '' -f host_key
ssh-keygen -q -t ed25519 -N '' -f key
cp key.pub authorized
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat > sshd_config <<CONF
Port $port
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
HostKey $out/host_key
AuthorizedKeysFile $out/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
CONF
mkdir -p /run/sshd
"$sshd" -D -f sshd_config -E sshd.log &
sshd_pid=$!
for _ in $(seq 50); do (echo > /dev/tcp/127.0.0.2/$port) 2> /dev/null && break; sleep 0.1; done
export TESSERA_SSH="ssh -p $port -i $out/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
TESSERA_SSH+=" -o LogLevel=ERROR"

printf '127.0.0.1 slots=1 # this host\n127.0.0.2 slots=2\n' > hosts
launch() { timeout 300 "$build/tessera" launch --hostfile hosts "$@"; }

# Arguments arrive unchanged, whatever the remote shell might do with them; output lines carry host and rank.
launch --export "GREETING=it's \$HOME" sh -c 'echo "$GREETING|$1|$RANK/$WORLD_SIZE"' x 'a  b"\`*' > words.txt
sort words.txt |
  cmp - <(printf '[%s rank %s] it'"'"'s $HOME|a  b"\\`*|%s/3\n' 127.0.0.1 0 0 127.0.0.2 1 1 127.0.0.2 2 2) ||
  { cat words.txt sshd.log; exit 1; }

launch "$build/tessera" test | tee test.txt
grep -q "\[127.0.0.1 rank 0\] 3 processes" test.txt

# tessera top shows both hosts, and names one that does not answer.
"$build/tessera" launch --hostfile hosts sleep 600 &
job=$!
for _ in $(seq 600); do [[ $("$build/tessera" top --once) != *"sleep 600"* ]] || break; sleep 0.1; done
"$build/tessera" top --hostfile hosts > top.txt || { cat top.txt; exit 1; }
[ "$(grep -c '^== 127.0.0.[12]$' top.txt)" = 2 ] && [ "$(grep -c 'sleep 600' top.txt)" -ge 2 ] ||
  { cat top.txt; exit 1; }
printf '127.0.0.2 slots=1\n127.0.0.3 slots=1\n' > other_hosts
code=0; "$build/tessera" top --hostfile other_hosts --json > top.json || code=$?
[ $code = 1 ] || { cat top.json; exit 1; }
python3 -c 'import json
said = json.load(open("top.json"))
assert list(said["hosts"]) == ["127.0.0.2"] and said["hosts"]["127.0.0.2"]["jobs"], said
assert list(said["failed"]) == ["127.0.0.3"], said'
kill -INT $job; wait $job || [ $? = 130 ]

# A failure on the remote host ends all ranks here with its exit code, and the rank is named.
code=0; launch sh -c 'if [ $RANK = 2 ]; then exit 9; fi; sleep 600' > failure.txt 2>&1 || code=$?
[ $code = 9 ] || { cat failure.txt; echo "exit code $code"; exit 1; }
grep -q "rank 2 .*exit code 9" failure.txt

# Ctrl-C reaches all ranks; no process remains, even if the local end is killed.
"$build/tessera" launch --hostfile hosts sh -c "echo started; sleep 600.$$" > stop.txt 2>&1 &
pid=$!
for _ in $(seq 600); do [ "$(grep -c started stop.txt)" = 3 ] && break; sleep 0.1; done
kill -INT $pid
code=0; wait $pid || code=$?
[ $code = 130 ] || { cat stop.txt; echo "exit code $code after SIGINT"; exit 1; }
"$build/tessera" launch --hostfile hosts --stop_seconds 1 sh -c "echo started; sleep 600.$$" > killed.txt 2>&1 &
pid=$!
for _ in $(seq 600); do [ "$(grep -c started killed.txt)" = 3 ] && break; sleep 0.1; done
kill -9 $pid
wait $pid 2> /dev/null || true
for _ in $(seq 100); do pgrep -f "^sleep 600\.$$\$" > /dev/null || break; sleep 0.1; done
! pgrep -f "^sleep 600\.$$\$" > /dev/null || { echo "ranks were left running"; exit 1; }

# With restarts, an agent whose ssh ends is started again and takes the place of the previous one.
"$build/tessera" launch --hostfile hosts --max_restarts 1 sh -c \
  "echo started; [ \$TESSERA_GENERATION = 1 ] || exec sleep 600.$$" > again.txt 2>&1 &
pid=$!
for _ in $(seq 600); do [ "$(grep -c started again.txt)" = 3 ] && break; sleep 0.1; done
kill -9 $(pgrep -P $pid -x ssh)
code=0; wait $pid || code=$?
[ "$code $(grep -c started again.txt)" = "0 6" ] || { cat again.txt; echo "exit code $code after ssh ended"; exit 1; }
grep -q "host 127.0.0.2 (machine 1): its ssh was killed by SIGKILL; starting its agent again" again.txt ||
  { cat again.txt; exit 1; }

# A missing host and one that refuses the login are named.
printf '127.0.0.1 slots=1\n127.0.0.3 slots=1\n' > hosts
if launch true > missing.txt 2>&1; then exit 1; fi
grep -q "host 127.0.0.3: ssh failed" missing.txt || { cat missing.txt; exit 1; }
echo ok
