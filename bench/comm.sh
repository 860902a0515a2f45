#!/bin/bash
# Checks the required ratios of shared memory to Gloo on this machine: bandwidth and latency of the collectives within
# one host.
#
#   bench/comm.sh BUILD [--rounds 15] [--quick] [--json FILE]
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1; shift
exec python3 bench/comm.py --build "$build" "$@"
