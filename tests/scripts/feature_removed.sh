#!/bin/bash
# A feature of a run has one owner (tessera/train/features): deleting its header, its source and its lines in
# features.cpp removes it. Nothing else in the library includes it, and the rest of the run compiles without it.
#   tests/scripts/feature_removed.sh BUILD [FEATURE]
set -euo pipefail
build=$(realpath "$1") feature=${2:-noise_scale}
cd "$(dirname "$0")/../.."
header=tessera/train/features/$feature.h
[ -f "$header" ] && [ -f "${header%.h}.cpp" ] || { echo "there is no feature $feature: $header"; exit 1; }

own="^tessera/train/features/($feature|features)\.cpp$"
if others=$(grep -rlE "#include [<\"]$header" tessera tools | grep -vE "$own"); then
  echo "$header is included by others than the list of features:" $others
  exit 1
fi

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cp -as "$PWD/tessera" "$work/tessera"
rm "$work/$header" "$work/${header%.h}.cpp"
list=tessera/train/features/features.cpp
command=$(python3 - "$build/compile_commands.json" "$PWD" "$work" <<'PY'
import json, re, shlex, sys
commands, root, work = sys.argv[1:]
for entry in json.load(open(commands)):
    if re.search(r"train[/_]features", entry["file"]):
        words = shlex.split(entry["command"])
        words = words[:words.index("-o")]  # removes the names of object and source
        print(shlex.join(f"-I{work}" if word == f"-I{root}" else word for word in words))
        break
PY
)
[ -n "$command" ] || { echo "$build/compile_commands.json has no unit of train/features"; exit 1; }
compile() { (cd "$build" && eval "$command -fsyntax-only $work/$1") > "$work/log" 2>&1; }

compile $list && { echo "features.cpp compiles although the files of $feature are gone: nothing was checked"; exit 1; }
grep -q "$feature.h" "$work/log" || { cat "$work/log"; exit 1; }
grep -vE "[/_]$feature(\.h>|,)" $list > "$work/shorter"
removed=$(($(wc -l < $list) - $(wc -l < "$work/shorter")))
[ "$removed" = 2 ] || { echo "$list: $removed lines name $feature; an include and a row do"; exit 1; }
rm "$work/$list"
mv "$work/shorter" "$work/$list"
for source in $list tessera/train/loop/training_loop.cpp; do
  compile $source || { echo "$source does not compile without $feature:"; head -20 "$work/log"; exit 1; }
done
echo "$feature: two files and two lines, and what remains compiles"
