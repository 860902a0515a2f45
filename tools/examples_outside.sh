#!/bin/bash
# Builds each example of an installation on its own: copies its folder elsewhere, configures it with nothing but
# -DCMAKE_PREFIX_PATH, builds it, and runs it as the comment at its top shows, on two processes if it trains.
#   tools/examples_outside.sh PREFIX [NAME ...]      default: all; one after another, each compiled with JOBS jobs
set -euo pipefail
prefix=$(realpath "$1"); shift
examples=$prefix/share/tessera/examples
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
launch=("$prefix/bin/tessera" launch --num_processes 2 --no_prefix)
fail() { echo "examples_outside: $*" >&2; cat "$work/log" >&2; exit 1; }

# A small Llama folder with a tokenizer, for the examples that start from one.
model() {
  [ ! -d "$work/model" ] || return 0
  for i in $(seq 200); do echo "stone $((i % 7)) of row $i"; done > "$work/text.txt"
  "$prefix/bin/tessera" train --config_name llama-tiny --tokenizer_name byte --train_file "$work/text.txt" \
    --block_size 32 --max_steps 1 --per_device_train_batch_size 2 --output_dir "$work/model" > "$work/log" 2>&1 ||
    fail "training a model for the examples"
}
run() {
  local program=build/$1
  case $1 in
    record_step) "$program" recorded.json &&
      "$prefix/bin/tessera" plan --model recorded.json --gpus 8xH100 --global_batch 256 ;;
    data_parallel) "$program" --replicas=2 ;;
    next_token) model && "$program" "$work/model" "stone 1" ;;
    parallel_3d) model && "${launch[@]}" "$program" "$work/model" "$work/cut" --mesh=pp=2 ;;
    outside) "${launch[@]}" build/train ;;
    *) "${launch[@]}" "$program" ;;
  esac
}

names=("$@")
[ $# -gt 0 ] || names=($(cd "$examples" && for f in */CMakeLists.txt; do dirname "$f"; done))
for name in "${names[@]}"; do
  started=$SECONDS
  cp -r "$examples/$name" "$work/copy"
  cd "$work/copy"
  cmake -S . -B build -DCMAKE_PREFIX_PATH="$prefix" > "$work/log" 2>&1 || fail "$name: configuring"
  cmake --build build > "$work/log" 2>&1 || fail "$name: building"
  run "$name" > "$work/log" 2>&1 || fail "$name: running"
  echo "examples_outside: $name: $((SECONDS - started)) s: $(grep -v '^ *$' "$work/log" | tail -1)"
  cd "$work" && rm -rf copy
done
