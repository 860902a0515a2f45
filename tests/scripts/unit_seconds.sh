#!/bin/bash
# No unit takes long to compile, and all of them together neither: what the compiler really did in this build folder
# (unit_seconds.txt, cmake/unit_seconds.sh) against budgets. Seconds differ from machine to machine and with what else
# runs, so everything is counted in compilations of LibTorch's own headers (the precompiled header of modules, which
# none of our code is in). Skips where the compiler cache gave that header, since there is nothing to count in.
set -euo pipefail
build=${1:-build}
largest=0.8  # one unit; the heaviest is 0.4 to 0.6, as busy as the machine is
all=110      # all units of a build folder; 96.7 on 2026-11-25, cold: every addition is paid for here
[ -f "$build/unit_seconds.txt" ] || { echo "nothing was compiled in $build: it came from the compiler cache"; exit 77; }
while read -r seconds object; do
  [ ! -e "$build/$object" ] || echo "$seconds $object"  # a unit that was renamed counts no longer
done < "$build/unit_seconds.txt" | awk -v largest="$largest" -v all="$all" '
  { seconds[$2] = $1 }  # the last compilation counts
  /tessera_pch_module.*\.gch$/ { header = $1 }
  END {
    if (!header) { print "the precompiled header came from the compiler cache"; exit 77 }
    for (unit in seconds) {
      if (unit ~ /\.gch$/) continue
      sum += seconds[unit]; ++units
      if (seconds[unit] <= largest * header) continue
      printf "%s took %.1f CPU-seconds: %.2f of what the headers of LibTorch take (%.1f). A unit may take %.2f: " \
             "let it include less, or cut it\n", unit, seconds[unit], seconds[unit] / header, header, largest
      bad = 1
    }
    printf "%d units: %.0f CPU-seconds, %.1f times the headers of LibTorch; budget %d\n", units, sum, sum / header, all
    exit bad || sum > all * header
  }'
