"""Tessera against PyTorch on this machine: the same model, the same initial weights, the same rows in the same order.

    bench/compare.sh BUILD [--rounds 3] [--steps 12] [--pairs single:1x2,ddp:2x1] [--model tiny|small] [--compile]
                     [--json FILE]

Runs are interleaved (peer, Tessera, peer, Tessera, ...) because the machine may be shared: read the ratios; that of
CPU-seconds per step is the steadier one. Every Tessera run is the whole program (`tessera train`), including data and
logging. The losses of both sides are compared as well: a fast wrong answer is not a result.

Peers: "single" eager PyTorch, one process x 2 threads; "ddp" DistributedDataParallel over Gloo; "hf"
transformers.Trainer; "fsdp2" PyTorch's fully_shard, against --fsdp "full_shard auto_wrap"; "ds2", "ds3" DeepSpeed (if
installed in the venv), against
--zero_stage. --layers and --d override the shape of --model (6 and 512: "6 x 512").
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

from runs import run_tessera, write_rows

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--venv", required=True)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--warmup", type=int, default=2)
parser.add_argument("--model", default="tiny", choices=["tiny", "small"])
parser.add_argument("--layers", type=int, default=0)
parser.add_argument("--d", type=int, default=0)
parser.add_argument("--pairs", default="single:1x2,ddp:2x1,hf:2x1,ddp:4x1", help="peer mode:PROCESSESxTHREADS")
parser.add_argument("--compile", action="store_true", help="the peers' modules under torch.compile")
parser.add_argument("--json", default="")
args = parser.parse_args()

size = [f"--{name}={value}" for name, value in (("layers", args.layers), ("d", args.d), ("heads", args.d // 64))
        if value]
same_as = {"fsdp2": ["--fsdp", "full_shard auto_wrap"], "ds1": ["--zero_stage", "1"], "ds2": ["--zero_stage", "2"],
           "ds3": ["--zero_stage", "3"]}  # our flags that correspond to a peer's mode
peers = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")
sys.path.insert(0, peers)
bin_dir = os.path.join(os.path.abspath(args.venv), "bin")


def shape():
    import train_peer
    argv, sys.argv = sys.argv, ["x", "--mode", "single", "--model", args.model, *size]
    a = train_peer.parse()
    sys.argv = argv
    return train_peer, a


def write_inputs(folder):
    """Writes the peer's initial weights (Hugging Face) and rows (Megatron .bin/.idx, one document per row)."""
    train_peer, a = shape()
    train_peer.build(a).save_pretrained(os.path.join(folder, "model"))
    rows = [row for s in range(args.steps) for row in train_peer.tokens(s, a.B, a.T, a.vocab)]
    write_rows(os.path.join(folder, "rows"), rows)
    return a


def run_peer(mode, procs, threads):
    script = [os.path.join(peers, "train_peer.py"), "--mode", mode, "--model", args.model,
              "--steps", str(args.steps), "--warmup", str(args.warmup), "--threads", str(threads), *size,
              *(["--compile"] if args.compile else [])]
    command = ([f"{bin_dir}/torchrun", "--standalone", "--nproc-per-node", str(procs), "--"] if procs > 1
               else [f"{bin_dir}/python"]) + script
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="PASSIVE", PYTHONWARNINGS="ignore",
               HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", PATH=bin_dir + ":" + os.environ["PATH"])
    env["PEER_T0"] = repr(time.time())
    out = subprocess.run(command, capture_output=True, text=True, env=env)
    for line in out.stdout.splitlines():
        if "PEER {" in line:
            r = json.loads(line[line.index("PEER {") + 5:])
            return {"tok_s": r["tok_s"], "cpu_s": r["cpu_s_step"], "start": r["startup_s"], "losses": r["losses"],
                    "rss": max(r["rss_mb"])}
    sys.exit(f"peer {mode} failed:\n{out.stderr[-3000:]}")


def main():
    pairs = []
    for p in args.pairs.split(","):
        mode, size = p.split(":")
        pairs.append((p, mode, *map(int, size.split("x"))))
    median = statistics.median
    with tempfile.TemporaryDirectory() as folder:
        a = write_inputs(folder)
        results = {p[0]: ([], []) for p in pairs}
        for r in range(args.rounds):
            for key, mode, procs, threads in pairs:
                peer = run_peer(mode, procs, threads)
                ours = run_tessera(args.build, folder, a.T, a.B, args.steps, args.warmup, procs, threads,
                                   same_as.get(mode, []))
                results[key][0].append(peer)
                results[key][1].append(ours)
                print(f"round {r} {key:12s} peer {peer['tok_s']:7.0f} tok/s {peer['cpu_s']:6.3f} cpu-s | "
                      f"tessera {ours['tok_s']:7.0f} tok/s {ours['cpu_s']:6.3f} cpu-s", flush=True)
    print(f"\nGPT-2 {a.layers} x {a.d}, V {a.vocab}, T {a.T}, global batch {a.B}, fp32; medians of {args.rounds} "
          "interleaved rounds")
    print(f"{'peer':12s} {'tok/s':>8s} {'ours':>8s} {'ratio':>6s} | {'cpu-s/step':>10s} {'ours':>7s} {'ratio':>6s} | "
          f"{'start s':>8s} {'ours':>6s} | {'RSS MB':>7s} {'ours':>6s} | max loss difference")
    rows = []
    for key, mode, procs, _ in pairs:
        theirs, ours = results[key]
        row = {"peer": key, "speed_ratio": median(o["tok_s"] / p["tok_s"] for p, o in zip(theirs, ours)),
               "cpu_ratio": median(p["cpu_s"] / o["cpu_s"] for p, o in zip(theirs, ours))}
        for name in ("tok_s", "cpu_s", "start", "rss"):
            row[f"peer_{name}"], row[f"tessera_{name}"] = median(p[name] for p in theirs), median(o[name] for o in ours)
    # transformers.Trainer divides by all labels, including the one that is shifted out: (T-1)/T of the mean
        factor = a.T / (a.T - 1) if mode == "hf" else 1
        row["loss_difference"] = max(abs(x * factor - y) / y for x, y in zip(theirs[0]["losses"], ours[0]["losses"]))
        rows.append(row)
        print(f"{key:12s} {row['peer_tok_s']:8.0f} {row['tessera_tok_s']:8.0f} {row['speed_ratio']:6.2f} | "
              f"{row['peer_cpu_s']:10.3f} "
              f"{row['tessera_cpu_s']:7.3f} {row['cpu_ratio']:6.2f} | {row['peer_start']:8.1f} "
              f"{row['tessera_start']:6.2f} | "
              f"{row['peer_rss']:7.0f} {row['tessera_rss']:6.0f} | {row['loss_difference']:.1e}")
    if args.json:
        json.dump(rows, open(args.json, "w"), indent=2)


main()
