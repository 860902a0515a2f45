#!/bin/bash
# No unit takes long to compile, and the units of a part together do not either: what the compiler really did in a build
# folder and in the sanitized one beside it (unit_seconds.txt, cmake/unit_seconds.sh) against budgets. Seconds differ
# from machine to machine and with what else runs, so everything is counted in the time of the folder's precompiled
# headers together, which none of our code is in and which no cache serves.
#   tests/scripts/unit_seconds.sh BUILD
set -euo pipefail
build=${1:-build}
status=0

judge() {  # FOLDER LARGEST PART=BUDGET...
  local folder=$1
  [ -f "$folder/unit_seconds.txt" ] || return 0
  while read -r seconds object; do
    [ ! -e "$folder/$object" ] || echo "$seconds $object"  # a unit that was renamed counts no longer
  done < "$folder/unit_seconds.txt" | awk -v folder="$(basename "$folder")" -v largest="$2" -v budgets="${*:3}" '
    { seconds[$2] = $1 }  # the last compilation counts
    END {
      for (unit in seconds) if (unit ~ /\.[gp]ch$/) one += seconds[unit]
      if (!one) { printf "%s: unit_seconds.sh notes no precompiled header\n", folder; exit 1 }
      for (unit in seconds) {
        if (unit ~ /\.[gp]ch$/) continue
        part = unit ~ /^tests\// ? "tests" : "library"
        sum[part] += seconds[unit]; ++units[part]
        if (seconds[unit] <= largest * one) continue
        printf "%s took %.1f CPU-seconds: %.2f of what the precompiled headers take (%.1f). A unit may take %.2f: " \
               "let it include less, or cut it\n", unit, seconds[unit], seconds[unit] / one, one, largest
        bad = 1
      }
      count = split(budgets, rows, " ")
      for (i = 1; i <= count; ++i) {
        split(rows[i], row, "=")
        printf "%s, %s: %d units, %.0f CPU-seconds, %.1f times the precompiled headers; budget %s\n", folder, row[1],
               units[row[1]], sum[row[1]], sum[row[1]] / one, row[2]
        if (sum[row[1]] > row[2] * one) bad = 1
      }
      exit bad
    }' || status=1
}

judge "$build" 0.45 library=20 tests=26
judge "$(dirname "$build")/build-asan" 2.5 library=80 tests=95
exit $status
