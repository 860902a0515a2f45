"""Pipeline parallelism on this machine: two ranks of one thread under three schedules against one process of two
threads, and against PyTorch's own (torch.distributed.pipelining, Gloo). One model, batch and micro-batches for all,
rounds interleaved; prints tokens/s, CPU seconds a step and the ratios' medians.

    python3 bench/pipeline.py --build BUILD [--venv VENV] [--rounds 3] [any option of pipeline_bench but --schedule]

VENV has PyTorch and transformers (bench/compare.sh makes .deps/peers); without it the peer is skipped. Our model is cut
for the schedule, also within blocks (--layout half_blocks); the peer's stages, which are whole blocks, are cut where it
is best for it.
"""
import argparse, json, os, statistics

from runs import program

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--venv", default="")
parser.add_argument("--rounds", type=int, default=3)
args, options = parser.parse_known_args()

here = os.path.dirname(os.path.abspath(__file__))
bench, tessera = os.path.join(args.build, "bench", "pipeline_bench"), os.path.join(args.build, "tessera")
launch = [tessera, "launch", "--nproc_per_node", "2", bench, *options, "--schedule"]
one = "one process, 2 threads"
ours = {f"pp 2, {name}": (launch + [name], "1") for name in ("1f1b", "zb_h1", "zbv")}
theirs = {}
if args.venv:
    peer = os.path.join(here, "pipeline_peer.py")
    run = [os.path.join(args.venv, "bin", "torchrun"), "--nproc_per_node", "2", "--", peer]
    theirs = {f"PyTorch, {name}": (run + options + ["--schedule", name], "1") for name in ("GPipe", "1F1B")}
results = {name: [] for name in (one, *ours, *theirs)}

if theirs:
    # The number of blocks in the peer's stage 0: the one that gives the shortest 1F1B schedule in our simulation.
    out = program(launch + ["1f1b", "--layout", "flops", "--steps", "2"], OMP_NUM_THREADS="1").stdout
    cut = json.loads(next(l[l.index("{"):] for l in out.splitlines() if '"tok_s"' in l))["cut"]
    first = cut.split("|")[0]
    blocks = int(first.partition("*")[2] or first.count("t"))

for number in range(args.rounds):
    for name, (command, threads) in {one: ([bench, *options], "2"), **ours, **theirs}.items():
        if name in theirs:
            command = command + ["--blocks", str(blocks)]
        out = program(command, OMP_NUM_THREADS=threads, HF_HUB_OFFLINE="1", PYTHONWARNINGS="ignore").stdout
        line = json.loads(next(l[l.index("{"):] for l in out.splitlines() if '"tok_s"' in l))
        results[name].append(line)
        print(f"round {number + 1}: {name:22s} {line['tok_s']:8.0f} tok/s, {line['cpu_s']:.3f} CPU-s a step, "
              f"loss {line['loss']:.6f}", *([f"({line['cut']})"] if "cut" in line else []),
              flush=True)
    losses = [results[name][-1]["loss"] for name in (one, *ours)]
    assert max(losses) - min(losses) < 1e-4, losses


def ratios(name, other):
    """Medians over the rounds of the ratios of time and of CPU seconds."""
    pairs = list(zip(results[name], results[other]))
    return (statistics.median(a["tok_s"] / b["tok_s"] for a, b in pairs),
            statistics.median(b["cpu_s"] / a["cpu_s"] for a, b in pairs))


for name in ours:
    ideal, (speed, cpu) = results[name][0]["ideal"], ratios(name, one)
    print(f"{name} against {one}: {speed:.2f}x tokens/s ({speed / ideal:.2f} of the ideal {ideal:.2f}), "
          f"{cpu:.2f}x by CPU seconds")
    for other in theirs:
        speed, cpu = ratios(name, other)
        print(f"{name} against {other}: {speed:.2f}x tokens/s, {cpu:.2f}x by CPU seconds")
for name in theirs:
    speed, cpu = ratios(name, one)
    print(f"{name} against {one}: {speed:.2f}x tokens/s, {cpu:.2f}x by CPU seconds")
