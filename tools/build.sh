#!/bin/bash
# Configures and builds with a progress display, `[123/440, 61 s, about 157 s left]`: a single line on a terminal; in a
# log, a line for every 25th step and at least every ten seconds. Compiler output is always shown, CMake's output only
# when it fails.
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
export NINJA_STATUS="[%f/%t] "
ninja=(ninja -C "$folder" -j "${JOBS:-$(nproc)}" "$@")

show() {  # STEP: "[61/440] Building ...", with the elapsed time and an estimate of the remaining time
  local now=$((SECONDS - begun)) left=
  [[ $1 =~ ^\[([0-9]+)/([0-9]+)\]\ (.*) ]] || return 0
  [ "$now" -lt 10 ] || [ "${BASH_REMATCH[1]}" = 0 ] ||
    left=", about $(((BASH_REMATCH[2] - BASH_REMATCH[1]) * now / BASH_REMATCH[1])) s left"
  printf "$line" "[${BASH_REMATCH[1]}/${BASH_REMATCH[2]}, $now s$left] ${BASH_REMATCH[3]}"
  shown_at=$SECONDS last=
}
# In a log, a step that is not shown is kept in `last`. It is shown after all if the next line is not a step, so that a
# warning appears below its step. Ninja's exit status is that of the pipeline (pipefail).
begun=$SECONDS every=25 clear= line='%s\n'
[ ! -t 1 ] || every=1 clear=$'\r\033[K' line='\r\033[K%.110s'
"${ninja[@]}" 2>&1 | {
  steps=0 shown_at=$SECONDS last= current= held=
  while :; do
    status=0
    IFS= read -r -t 8 text || status=$?
    text=$held$text held=
    if [ $status -gt 128 ]; then  # no output for eight seconds: a step takes long
      held=$text
      show "$current"
      continue
    fi
    [ $status = 0 ] || [ -n "$text" ] || break
    case $text in
      "ninja: Entering directory"* | "ninja: no work to do." | "[0/"*"] Re-checking globbed directories..."*) ;;
      "["[0-9]*/*"] "*)
        steps=$((steps + 1)) last=$text current=$text
        if [ $((steps % every)) = $((every > 1)) ] || [ $((SECONDS - shown_at)) -ge 8 ]; then show "$text"; fi ;;
      *)
        show "$last"
        printf '%s%s\n' "$clear" "$text" ;;
    esac
  done
  show "$last"
  [ ! -t 1 ] || echo
}
