#!/bin/bash
# Runs a command with support for programs for 64-bit ARM. qemu-user is registered with the kernel for this command
# alone (binfmt_misc of a user namespace, Linux 6.7), so that programs that start themselves again, as `tessera train`
# and the tests do, work too. The machine itself is not changed.
#
#   tools/aarch64_run.sh COMMAND...
set -euo pipefail
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
machine='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
export REGISTRATION=":tessera-aarch64:M::$machine:$mask:/usr/libexec/qemu-binfmt/aarch64-binfmt-P:OPF"
exec unshare --user --map-root-user --mount bash -c '
  if ! { mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && printf %s "$REGISTRATION" \
         > /proc/sys/fs/binfmt_misc/register; } 2> /dev/null; then
    echo "tools/aarch64_run.sh: this kernel keeps no binfmt_misc per user namespace (Linux 6.7 does)" >&2
    exit 77
  fi
  unset REGISTRATION
  exec "$@"' aarch64_run "$@"
