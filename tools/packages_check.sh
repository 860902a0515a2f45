#!/bin/bash
# Installs the wheel and the Debian package into fresh Debian 12 trees (debootstrap, as root, with a network) and trains
# ten steps with each; prints sizes and start times. The wheel is installed as in the containers' recipes.
#   tools/packages_check.sh BUILD [FOLDER]      FOLDER keeps the tree between runs
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 folder=${2:-$(mktemp -d)}
[ $# -gt 1 ] || trap 'rm -rf "$folder"' EXIT
command -v debootstrap > /dev/null || { echo "packages_check: apt-get install debootstrap"; exit 1; }
python3 tools/wheel.py "$build" --output "$folder/dist"
python3 tools/deb.py "$build" --output "$folder/dist"
tree=$folder/debian
if [ ! -e "$tree/.ready" ]; then
  debootstrap --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv bookworm "$tree" \
    > "$folder/log"
  touch "$tree/.ready"
fi
cp /etc/ssl/certs/ca-certificates.crt "$tree/etc/ssl/certs/"  # the network may have certificate authorities of its own
unset PIP_FIND_LINKS
export PIP_CERT=/etc/ssl/certs/ca-certificates.crt
inside() { chroot "$tree" /bin/bash -euc "export LC_ALL=C OMP_NUM_THREADS=1 DEBIAN_FRONTEND=noninteractive; $1"; }
tools/demo_text.sh "$tree/root/text.txt" 300 > /dev/null
cp "$folder"/dist/* "$tree/root/"
cleanup() { umount "$tree/proc" "$tree/dev/shm" 2> /dev/null || true; }
cleanup
mkdir -p "$tree/dev/shm"
mount -t proc proc "$tree/proc"
mount -t tmpfs tmpfs "$tree/dev/shm"
trap 'cleanup; [ -d "${2:-}" ] || rm -rf "$folder"' EXIT

ten_steps='train --config_name gpt2-tiny --tokenizer_name byte --train_file /root/text.txt --block_size 64
  --max_steps 10 --per_device_train_batch_size 2 --num_processes 2 --save_strategy no --logging_steps 10'
ten_steps=$(tr '\n' ' ' <<< "$ten_steps")
loss_of() { grep -o "'train_loss': [0-9.]*" <<< "$1" || { echo "packages_check: no ten steps: $1" >&2; exit 1; }; }

inside "apt-get -o APT::Sandbox::User=root install -y -qq --no-install-recommends /root/tessera_*_amd64.deb > /dev/null"
deb=$(loss_of "$(inside "tessera $ten_steps --output_dir /root/by_deb 2>&1")")
inside "time tessera --version" 2>&1 | grep -E 'tessera|real' | tr '\n' ' '; echo "(Debian package)"

inside "python3 -m venv /root/venv; /root/venv/bin/pip install -q --no-deps /root/tessera-*.whl
  /root/venv/bin/python -m tessera --cpu-requirements | xargs /root/venv/bin/pip install -q --no-deps"
wheel=$(loss_of "$(inside "/root/venv/bin/tessera $ten_steps --output_dir /root/by_wheel 2>&1")")
inside "time /root/venv/bin/tessera --version" 2>&1 | grep -E 'tessera|real' | tr '\n' ' '; echo "(wheel)"
[ "$deb" = "$wheel" ] || { echo "packages_check: $deb with the Debian package, $wheel with the wheel"; exit 1; }
echo "ten steps on two processes in a fresh Debian 12, with each: $wheel"
