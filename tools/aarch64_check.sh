#!/bin/bash
# Runs the tests of a build for 64-bit ARM under the emulator: tools/aarch64_check.sh BUILD [NAME,NAME]
# (names as in tests/run_tests.py; default: the torch-free part and the kernels).
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build-aarch64}
names=${2:-base,config,corpus,format,fuzz,image,kernels,launch,layout,plan,storage,structure,text}
# These tests are skipped: an emulated process has no meaningful speed, processor time in /proc, or thread stacks.
not_here=(Stages.LargeModelsAreCutForRanksQuickly ProcStatus.ABusyThreadCounts
          Watch.ARankThatComputesForEverIsNamedWithStacks)
export GTEST_FILTER=-$(IFS=:; echo "${not_here[*]}")
exec tools/aarch64_run.sh python3 tests/run_tests.py "$build" --only "$names"
