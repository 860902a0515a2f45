#!/bin/bash
# Runs one compiler command: compile.sh CCACHE|none COMPILER ARGUMENT...
# Objects come from the compiler cache, which serves every clone on the machine, in whatever folder: ccache makes the
# paths below CCACHE_BASEDIR relative to the build folder before it hashes a command, and NOHASHDIR leaves the folder
# itself out. Precompiled headers do not: clang writes absolute paths into them, so those of another clone would break
# when that clone goes. They are made in each build folder, and FILE.pch.sum, a hash of the command and of the text of
# every header in it, stands for their content (PCH_EXTSUM): objects of one clone serve the others.
# Every compiler that really runs notes its CPU-seconds (unit_seconds.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
cache=$1; shift
object= depfile= previous=
for argument in "$@"; do
  case $previous in -o) object=$argument ;; -MF) depfile=$argument ;; esac
  previous=$argument
done
[[ $cache != none ]] || exec "$here/unit_seconds.sh" "$@"
if [[ $object = *.pch ]]; then
  "$here/unit_seconds.sh" "$@"
  { "$1" --version; printf '%s\n' "${@//$root/}"
    tr -d '\\\n' < "$depfile" | sed 's/^[^:]*://' | tr -s ' ' '\n' | sed '/^$/d; \|/CMakeFiles/|d' | xargs cat
  } | sha256sum > "$object.sum"
  exit
fi
# ccache makes the path of -include-pch relative, but not that of CMake's -Xclang -include-pch -Xclang FILE.
arguments=()
while [ $# -gt 0 ]; do
  case "$1 ${2:-}" in
    "-Xclang -include-pch") arguments+=(-include-pch "${4#"$PWD"/}"); shift 4 ;;
    "-Xclang -include") shift 4 ;;  # the header's text, which is in the precompiled one
    *) arguments+=("$1"); shift ;;
  esac
done
exec env CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1 CCACHE_ABSSTDERR=1 CCACHE_PREFIX="$here/unit_seconds.sh" \
  CCACHE_PCH_EXTSUM=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "$cache" \
  "${arguments[@]}"
