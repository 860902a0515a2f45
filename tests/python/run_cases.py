#!/usr/bin/env python3
"""Runs the table of cases and prints a line for each: pass, fail or skip, seconds, reason; then the share that passed.

    python3 tests/python/run_cases.py [-k TEXT] [--modules c10d_gloo,ddp] [--backend tessera|gloo|both]
                                      [--quick] [--list] [--show]

With --backend both each case runs on Gloo too and results are compared: "= gloo" means bit for bit. The exit status
is 0 when every case passed on tessera (or on gloo, if only gloo was asked for).
"""
import argparse
import importlib
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, os.path.join(os.path.dirname(os.path.dirname(HERE)), "python")]
for name, value in (("OMP_NUM_THREADS", "1"), ("GLOO_SOCKET_IFNAME", "lo"), ("TORCH_CPP_LOG_LEVEL", "ERROR")):
    os.environ.setdefault(name, value)
MODULES = ("c10d_gloo", "distributed", "groups", "ddp", "sharded", "hvd", "numpy_arrays")
SAME = 1e-5  # tolerance between two backends that sum in different orders


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", default="")
    parser.add_argument("--modules", default=",".join(MODULES))
    parser.add_argument("--backend", default="tessera", choices=("tessera", "gloo", "both"))
    parser.add_argument("--quick", action="store_true", help="without variations: as CI runs it")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--show", action="store_true", help="output of the ranks of a failed case")
    args = parser.parse_args()
    import torch
    import torch._dynamo  # noqa: F401 -- imported here because DDP in every forked rank would import it
    import harness
    torch.set_num_threads(1)
    begin = time.monotonic()
    for module in args.modules.split(","):
        importlib.import_module("cases." + module)
    backends = ("tessera", "gloo") if args.backend == "both" else (args.backend,)
    chosen = [c for c in harness.CASES if (args.k in c.name or args.k in c.group) and not (args.quick and c.more)]
    if args.list:
        print("\n".join("{}.{} ({} ranks)".format(c.group, c.name, c.ranks) for c in chosen))
        return 0
    versions = (torch.__version__, *sys.version_info[:2])
    print("torch {} on Python {}.{}, {} cases".format(*versions, len(chosen)), flush=True)
    if "tessera" in backends:
        import tessera.torch  # noqa: F401 -- registers the backend, which forked ranks inherit
    count, failed = {}, []
    for one in chosen:
        got = {}
        for backend in [b for b in backends if b in one.backends]:
            status, why, results, seconds = harness.run(one, backend, args.show)
            note = why
            if status == "pass" and backend == "gloo" and "tessera" in got:
                apart = harness.difference(got["tessera"], results)
                note = "tessera = gloo" if apart == 0 else "tessera within {:.0e} of gloo".format(apart)
                if apart > SAME:
                    status, note = "fail", "tessera and gloo are {:.0e} apart".format(apart)
                    failed.append("{}.{}: {}".format(one.group, one.name, note))
            if status == "pass":
                got[backend] = results
            count[backend, status] = count.get((backend, status), 0) + 1
            if status == "fail" and backend == backends[0]:
                failed.append("{}.{}: {}".format(one.group, one.name, why))
            print("{:8s}{:5s}{:6.2f} s  {}.{} ({} ranks){}".format(
                backend, status, seconds, one.group, one.name, one.ranks, "  " + note if note else ""), flush=True)
    took = time.monotonic() - begin
    for backend in backends:
        good, bad, skipped = (count.get((backend, s), 0) for s in ("pass", "fail", "skip"))
        print("{}: {} passed, {} failed, {} skipped: {:.1f} % of all {} pass".format(
            backend, good, bad, skipped, 100.0 * good / max(1, good + bad + skipped), good + bad + skipped))
    print("{:.0f} s".format(took))
    for line in failed:
        print("FAILED " + line)
    return 1 if failed or not count.get((backends[0], "pass")) else 0


if __name__ == "__main__":
    sys.exit(main())
