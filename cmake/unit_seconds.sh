#!/bin/bash
# Runs a compiler and notes what it cost: a line "CPU-SECONDS OBJECT" in unit_seconds.txt of the build folder, which is
# where ninja starts it. CMake puts it before the compiler, below the compiler cache, so that what comes from the cache
# has no line. tests/scripts/unit_seconds.sh holds the lines against their budgets.
for ((i = 1; i < $#; ++i)); do
  [ "${!i}" != -o ] || { next=$((i + 1)); object=${!next}; break; }
done
TIMEFORMAT='%U %S'
exec 3>&1 4>&2  # what the compiler prints goes where it would go; only what `time` says is caught
spent=$( { time "$@" >&3 2>&4; } 2>&1 )
status=$?
if [[ $status = 0 && ${object:-} == *.@(o|gch|pch) ]]; then
  awk -v object="$object" '{ print $1 + $2, object }' <<< "${spent##*$'\n'}" >> unit_seconds.txt
fi
exit $status
