"""Step time of `tessera train` (data parallel, CPU) over different communication backends, interleaved.

  python3 bench/ddp_backends.py --build build --backends gloo,shm --procs 2 --rounds 3

The model is a GPT-2 of 4 layers x 256 with random weights (13 MB of gradients); rows are random tokens. No peer is
needed.
"""
import argparse, json, os, random, statistics, tempfile

from runs import program, write_rows

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--backends", default="gloo,shm")
parser.add_argument("--procs", type=int, default=2)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--warmup", type=int, default=3)
parser.add_argument("--rows", type=int, default=1, help="per process")
parser.add_argument("--length", type=int, default=128)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--vocab", type=int, default=257)
parser.add_argument("--extra", default="", help="more flags of tessera train")
args = parser.parse_args()


def run(folder, backend):
    shape = (f"n_layer={args.layers},n_embd={args.width},n_head=4,vocab_size={args.vocab},n_positions={args.length},"
             "bos_token_id=0,"
             "eos_token_id=0,resid_pdrop=0,embd_pdrop=0,attn_pdrop=0")
    with tempfile.TemporaryDirectory() as out:
        program([os.path.join(args.build, "tessera"), "train", "--config_name", "gpt2-tiny",
                 "--config_overrides", shape, "--train_file", f"{folder}/rows.bin", "--block_size", str(args.length),
                 "--train_sampling_strategy", "sequential", "--validation_split_percentage", "0",
                 "--output_dir", f"{out}/run", "--max_steps", str(args.steps),
                 "--per_device_train_batch_size", str(args.rows), "--logging_steps", "1", "--save_strategy", "no",
                 "--num_processes", str(args.procs), "--threads_per_process", str(args.threads)] + args.extra.split(),
                TESSERA_BACKEND=backend)
        lines = [json.loads(l) for l in open(f"{out}/run/metrics.jsonl")]
    timed = [l for l in lines if "event" not in l][args.warmup:]
    return {"ms": statistics.median(s["step_time_ms"] for s in timed),
            "cpu_s": statistics.median(s["cpu_seconds"] for s in timed), "loss": timed[-1]["loss"]}


backends = args.backends.split(",")
results = {b: [] for b in backends}
with tempfile.TemporaryDirectory() as folder:
    rng = random.Random(1)
    write_rows(f"{folder}/rows", [[rng.randrange(1, args.vocab) for _ in range(args.length)]
                                  for _ in range(args.steps * args.procs * args.rows * 12)])
    for r in range(args.rounds):
        for backend in backends:
            results[backend].append(run(folder, backend))
            print(f"round {r} {backend:6s} {results[backend][-1]['ms']:8.1f} ms/step "
                  f"{results[backend][-1]['cpu_s']:7.3f} cpu-s", flush=True)
base = results[backends[0]]
print(f"\n{args.procs} processes x {args.threads} threads, medians of {args.rounds} interleaved rounds; ratio: "
      f"{backends[0]}'s time by this one's")
for backend in backends:
    ratio = statistics.median(b["ms"] / o["ms"] for b, o in zip(base, results[backend]))
    print(f"{backend:6s} {statistics.median(o['ms'] for o in results[backend]):8.1f} ms/step "
          f"{statistics.median(o['cpu_s'] for o in results[backend]):7.3f} cpu-s/step  ratio {ratio:.2f}  last loss "
          f"{results[backend][0]['loss']:.6f}")
