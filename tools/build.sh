#!/bin/bash
# Configures and builds, and shows how far it is: `[123/440, 61 s]` on one line of a terminal; in a log, a line for
# every 25th step or after 20 seconds. What a compiler says is always shown, what CMake says only when it fails.
#
#   tools/build.sh PRESET FOLDER [-DNAME=VALUE ...] [TARGET ...]       environment: JOBS
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1 folder=$2; shift 2
options=(); while [ $# -gt 0 ] && [ "${1#-D}" != "$1" ]; do options+=("$1"); shift; done
if ! said=$(cmake --preset "$preset" -B "$folder" "${options[@]}" --log-level=NOTICE 2>&1); then
  printf '%s\n' "$said" >&2
  exit 1
fi
export NINJA_STATUS="[%f/%t, %e s] "
ninja=(ninja -C "$folder" -j "${JOBS:-$(nproc)}" "$@")
[ ! -t 1 ] || exec "${ninja[@]}"

# A step that is not shown is kept in `last`: it is shown after all when a line follows that is no step, so that a
# warning stands below the step it belongs to. Ninja's exit status is that of the whole (pipefail).
"${ninja[@]}" 2>&1 | {
  steps=0 shown_at=0 last=
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
      "ninja: Entering directory"* | "ninja: no work to do." | "[0/"*" s] Re-checking globbed directories..."*) ;;
      "["[0-9]*/*" s] "*)
        steps=$((steps + 1)) last=$line
        if [ $((steps % 25)) = 1 ] || [ $((SECONDS - shown_at)) -ge 20 ]; then
          printf '%s\n' "$line"
          shown_at=$SECONDS last=
        fi ;;
      *)
        [ -z "$last" ] || printf '%s\n' "$last"
        last=
        printf '%s\n' "$line" ;;
    esac
  done
  [ -z "$last" ] || printf '%s\n' "$last"
}
