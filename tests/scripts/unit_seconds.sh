#!/bin/bash
# No unit takes long to compile, nor do all units of a part together: the compile times of a build folder and of its
# sanitized counterpart (unit_seconds.txt, cmake/unit_seconds.sh) are compared with budgets. Seconds vary with the
# machine and its load, so the unit is the total time of the folder's precompiled headers, which contain none of our
# code and are never served from a cache.
#   tests/scripts/unit_seconds.sh BUILD
set -euo pipefail
build=${1:-build}
status=0

judge() {  # FOLDER LARGEST PART=BUDGET...
  local folder=$1
  [ -f "$folder/unit_seconds.txt" ] || return 0
  while read -r seconds object; do
    [ ! -e "$folder/$object" ] || echo "$seconds $object"  # skips units that were renamed
  done < "$folder/unit_seconds.txt" | awk -v folder="$(basename "$folder")" -v largest="$2" -v budgets="${*:3}" '
    { seconds[$2] = $1 }  # the last compilation wins
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
judge "$(dirname "$build")/build-asan" 6 library=95 tests=95
exit $status
