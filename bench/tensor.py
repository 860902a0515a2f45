"""Tensor parallelism on this machine: two ranks of one thread against one process of two threads, and against PyTorch's
own (DTensor, parallelize_module, Gloo). One model and batch for all, rounds interleaved; prints tokens/s, CPU seconds a
step and the ratios' medians.

    python3 bench/tensor.py --build BUILD [--venv VENV] [--rounds 3] [any option of tensor_bench]

VENV has PyTorch and transformers (bench/compare.sh makes .deps/peers); without it the peer is skipped.
"""
import argparse, json, os, statistics

from runs import program

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--venv", default="")
parser.add_argument("--rounds", type=int, default=3)
args, options = parser.parse_known_args()

here = os.path.dirname(os.path.abspath(__file__))
bench, tessera = os.path.join(args.build, "bench", "tensor_bench"), os.path.join(args.build, "tessera")
launch = [tessera, "launch", "--nproc_per_node", "2", bench, *options]
ways = {"one process, 2 threads": ([bench, *options], "2"), "tp 2": (launch, "1"),
        "tp 2, sequence parallel": (launch + ["--sequence_parallel", "1"], "1")}
if args.venv:
    run = os.path.join(args.venv, "bin", "torchrun")
    own = [word for i, word in enumerate(options) if options[i - i % 2] not in ("--bf16", "--sequence_parallel")]
    ways["PyTorch, tp 2"] = ([run, "--nproc_per_node", "2", "--", os.path.join(here, "tensor_peer.py"), *own], "1")

results = {name: [] for name in ways}
for number in range(args.rounds):
    for name, (command, threads) in ways.items():
        out = program(command, OMP_NUM_THREADS=threads, HF_HUB_OFFLINE="1", PYTHONWARNINGS="ignore",
                      PYTHONPATH=here).stdout
        line = json.loads(next(l[l.index("{"):] for l in out.splitlines() if '"tok_s"' in l))
        results[name].append(line)
        print(f"round {number + 1}: {name:26s} {line['tok_s']:8.0f} tok/s, {line['cpu_s']:.3f} CPU-s a step, "
              f"loss {line['loss']:.6f}", flush=True)

for ours, theirs in (("tp 2", "one process, 2 threads"), ("tp 2, sequence parallel", "one process, 2 threads"),
                     ("tp 2", "PyTorch, tp 2"), ("tp 2, sequence parallel", "PyTorch, tp 2")):
    if theirs not in results:
        continue
    pairs = list(zip(results[ours], results[theirs]))
    speed = statistics.median(a["tok_s"] / b["tok_s"] for a, b in pairs)
    cpu = statistics.median(b["cpu_s"] / a["cpu_s"] for a, b in pairs)
    print(f"{ours} against {theirs}: {speed:.2f}x tokens/s, {cpu:.2f}x by CPU seconds")
