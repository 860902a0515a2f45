"""The Llama family against its peers on this machine: training speed and memory against eager PyTorch running
transformers' LlamaForCausalLM, loading against a plain program that reads the same bytes, generation against
transformers.

    bench/compare.sh BUILD --llama [--only speed,memory,load,generate] [--rounds 3] [--steps 6] [--json FILE]

Rounds are interleaved (peer, Tessera, peer, ...) because the machine may be shared: of the two ratios, that of
CPU-seconds is the steadier one.
speed     6 layers x 512, 8 heads, 4 key heads, vocabulary 32000, 8 x 256 tokens a step, fp32, one process, 2 threads
memory    the same with 12 layers (1.1 GB of parameters, gradients and moments): peak resident memory above the idle
          process, that is one that has only loaded the library (the peer's: PyTorch and transformers)
load      538 MB of fp32 (the shape of SmolLM2-135M, random), whole and in 5 shards: models::load_model in a fresh
          process against read() of the same files into fresh memory; warm page cache, and cold (posix_fadvise DONTNEED)
generate  the same model: 64 greedy tokens with the KV cache, 2 threads, prompt included
"""
import argparse, glob, json, os, re, resource, statistics, tempfile

from runs import lcg_rows, program, run_tessera, write_rows

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--venv", required=True)
parser.add_argument("--only", default="speed,memory,load,generate")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--warmup", type=int, default=2)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--json", default="")
args = parser.parse_args()

BATCH, LENGTH, VOCABULARY = 8, 256, 32000
SMOLLM2 = dict(layers=30, d=576, heads=9, kv=3, intermediate=1536, vocab=49152, tied=1)
median = statistics.median


def peer(*words, **options):
    command = [os.path.join(args.venv, "bin", "python"),
               os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_peer.py"), *words]
    for name, value in dict(options, threads=args.threads).items():
        command += [f"--{name}", str(value)]
    return program(command, OMP_NUM_THREADS=str(args.threads), HF_HUB_OFFLINE="1", PYTHONWARNINGS="ignore").stdout


def bench(name, *words):
    return json.loads(program([os.path.join(args.build, "bench", name), *words]).stdout)


def rounds(one):
    """[(peer, ours)] of the rounds."""
    results = []
    for r in range(args.rounds):
        results.append(one())
        print(f"  round {r}: peer {brief(results[-1][0])} | tessera {brief(results[-1][1])}", flush=True)
    return results


def brief(result):
    return " ".join(f"{k} {v:.4g}" for k, v in result.items() if isinstance(v, (int, float)))


def training(layers):
    with tempfile.TemporaryDirectory() as folder:
        peer("save", f"{folder}/model", layers=layers)
        write_rows(f"{folder}/rows",
                   [row for step in range(args.steps) for row in lcg_rows(step, BATCH, LENGTH, VOCABULARY)])
        idle = bench("load_bench", "--idle")["idle_bytes"] / 2**20

        def one():
            theirs = json.loads(peer("train", layers=layers, steps=args.steps, warmup=args.warmup))
            ours = run_tessera(args.build, folder, LENGTH, BATCH, args.steps, args.warmup, 1, args.threads)
            return theirs, dict(ours, idle=idle)

        return rounds(one)


def row_of(name, pairs, bar, ratio, **others):
    row = {"name": name, "ratio": median(ratio(p, o) for p, o in pairs), "bar": bar, **others}
    if "cpu_s" in pairs[0][1]:
        row["cpu_ratio"] = median(p["cpu_s"] / o["cpu_s"] for p, o in pairs)
    for key in pairs[0][1]:
        if isinstance(pairs[0][1][key], (int, float)):
            row["tessera_" + key] = median(o[key] for _, o in pairs)
    for key in pairs[0][0]:
        if isinstance(pairs[0][0][key], (int, float)):
            row["peer_" + key] = median(p[key] for p, _ in pairs)
    return row


def difference(pairs):
    """Largest relative difference of the losses: a fast wrong answer is not a result."""
    theirs, ours = pairs[0]
    return max(abs(x - y) / y for x, y in zip(theirs["losses"], ours["losses"]))


def speed():
    pairs = training(6)
    return [row_of("speed: tokens/s", pairs, ">= 1.2", lambda p, o: o["tok_s"] / p["tok_s"],
                   loss_difference=difference(pairs))]


def memory():
    pairs = training(12)
    above = lambda r: r["rss"] - r["idle"]
    return [row_of("memory: peak above idle", pairs, "<= 0.85", lambda p, o: above(o) / above(p),
                   loss_difference=difference(pairs), states_mb=pairs[0][0]["parameters"] * 16 / 2**20,
                   tessera_above_idle=median(above(o) for _, o in pairs),
                   peer_above_idle=median(above(p) for p, _ in pairs))]


def set_cache(files, cold):
    for path in files:
        with open(path, "rb") as f:
            if cold:
                os.fsync(f.fileno())
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while f.read(1 << 24):
                    pass


def load():
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for form, shard in (("whole", "100GB"), ("sharded", "120MB")):
            model = f"{folder}/{form}"
            peer("save", model, shard=shard, **SMOLLM2)
            files = sorted(glob.glob(model + "/*.safetensors"))
            for cold in (False, True):
                print(f" load, {form} ({len(files)} files), {'cold' if cold else 'warm'}")

                def one():
                    set_cache(files, cold)
                    theirs = bench("read_bytes", *files)
                    set_cache(files, cold)
                    return theirs, bench("load_bench", model, str(args.threads))

                rows.append(row_of(f"load: {form}, {'cold' if cold else 'warm'}", rounds(one), "<= 1.2",
                                   lambda p, o: o["seconds"] / p["seconds"]))
    return rows


def generate():
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/model"
        peer("save", model, **SMOLLM2)

        def run(tokens):
            """Seconds of the generation, CPU seconds of the whole process."""
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            log = program([os.path.join(args.build, "tessera"), "generate", "--model_name_or_path", model,
                           "--tokenizer_name", "byte", "--prompt", "It was a bright cold day in April",
                           "--max_new_tokens", str(tokens), "--greedy",
                           "--threads_per_process", str(args.threads)]).stderr
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            made, seconds = re.search(r"(\d+) tokens in ([0-9.e+-]+) s", log).groups()
            assert int(made) == tokens, log
            return float(seconds), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        def ours():
            (_, start), (seconds, all_cpu) = run(4), run(64)
            return {"tok_s": 64 / seconds, "cpu_s": (all_cpu - start) / 60}

        return [row_of("generate: tokens/s", rounds(lambda: (json.loads(peer("generate", model, tokens=64)), ours())),
                       ">= 15 tok/s", lambda p, o: o["tok_s"] / p["tok_s"])]


def main():
    rows = []
    for part in args.only.split(","):
        print(f"{part}:", flush=True)
        rows += {"speed": speed, "memory": memory, "load": load, "generate": generate}[part]()
    print(f"\nmedians of {args.rounds} interleaved rounds\n{'':26s} {'ratio':>6s}  {'bar':12s} details")
    for row in rows:
        details = " ".join(f"{k}={v:.4g}" for k, v in row.items() if k not in ("name", "ratio", "bar"))
        print(f"{row['name']:26s} {row['ratio']:6.2f}  {row['bar']:12s} {details}")
    if args.json:
        json.dump(rows, open(args.json, "w"), indent=2)


main()
