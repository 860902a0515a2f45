"""The bars of comm/shm against LibTorch's Gloo on this machine, as a table: bar, measured, ok.

    bench/comm.sh BUILD [--rounds 15] [--quick] [--json FILE]

The backends alternate in the same processes (`tessera bench comm --backend shm,c10d_gloo`), each rank with its own
output, every result checked. "x" is Gloo's time divided by Tessera's, pair by pair: the median, and in brackets
the 10th and 90th percentile.
--quick omits the sizes above 16 MB of the sweep. Exit status 1 when a bar does not hold.
"""
import argparse, json, os, subprocess, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("--quick", action="store_true")
parser.add_argument("--ours", default="shm")
parser.add_argument("--theirs", default="c10d_gloo")
parser.add_argument("--json", default="")
args = parser.parse_args()

OPS = ["all_reduce", "reduce_scatter", "all_gather"]
rows = []  # (name, required ratio, our measured JSON, theirs)


def measure(ranks, ops, sizes, shared):
    """{(op, bytes): (ours, theirs)}."""
    print(f"measuring: {ranks} ranks, {','.join(ops)}, {sizes}, {'arena' if shared else 'ordinary'} tensors ...",
          file=sys.stderr, flush=True)
    command = [os.path.join(args.build, "tessera"), "bench", "comm", "--num_processes", str(ranks),
               "--backend", f"{args.ours},{args.theirs}", "--op", ",".join(ops), "--bytes", sizes,
               "--rounds", str(args.rounds), "--json"] + (["--shared"] if shared else [])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    found = {}
    for line in map(json.loads, done.stdout.splitlines()):
        found.setdefault((line["op"], line["bytes"]), []).append(line)
    return found


def size_text(size):
    for unit, name in ((2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def bar(where, wanted, pair):
    ours, theirs = pair
    rows.append({"what": f"{where}: {ours['op']} {size_text(ours['bytes'])}", "bar": wanted,
                 "ratio": theirs["time_ratio"], "p10": theirs["time_ratio_p10"], "p90": theirs["time_ratio_p90"],
                 "ok": theirs["time_ratio"] >= wanted, "ours": ours, "theirs": theirs})


begin = time.time()
for shared, wanted in ((True, (3, 5, 4)), (False, (2, 3, 3))):
    found = measure(2, OPS, "64M", shared)
    for op, ratio in zip(OPS, wanted):
        bar(f"2 ranks, {'arena' if shared else 'ordinary'}", ratio, found[op, 2**26])
bar("2 ranks, ordinary", 3, measure(2, ["all_reduce"], "4K", False)["all_reduce", 4096])
for shared in (True, False):
    bar(f"4 ranks, {'arena' if shared else 'ordinary'}", 3,
        measure(4, ["all_reduce"], "64M", shared)["all_reduce", 2**26])
for op in OPS:
    for pair in measure(4, [op], "1K..16M" if args.quick else "1K..256M", False).values():
        bar("4 ranks, ordinary", 0.95, pair)

print(f"{args.ours} against {args.theirs}, {args.rounds} interleaved pairs each, {os.cpu_count()} cores, "
      f"{time.time() - begin:.0f} s\n")
print(f"{'what':44s} {'ours':>21s} {'theirs':>21s} {'bar':>6s}  measured")
for row in rows:
    def figures(m):
        return f"{m['latency_us']:.0f} us {m['algbw_gb_per_s']:5.2f} GB/s"
    print(f"{row['what']:44s} {figures(row['ours']):>21s} {figures(row['theirs']):>21s} {row['bar']:5g}x "
          f"{row['ratio']:6.2f}x ({row['p10']:.2f} .. {row['p90']:.2f})  {'ok' if row['ok'] else 'NO'}")
missed = [row for row in rows if not row["ok"]]
print(f"\n{len(rows) - len(missed)} of {len(rows)} bars hold")
if args.json:
    json.dump(rows, open(args.json, "w"), indent=1)
sys.exit(1 if missed else 0)
