"""Text larger than memory: the one-time tokenization, against `tessera tokenize`, a tiny file, and HF datasets.

    bench/tokens.py --build BUILD --text FILE --tokenizer FOLDER [--gigabytes 2] [--ranks 2] [--python PYTHON]

FILE is repeated up to that many gigabytes. Rows of the table:
  rate       CPU-seconds of the processes that make the tokens against those of `tessera tokenize` on the same text
  memory     peak memory (VmHWM) of each rank of a run on it, against the same run on the first 10 MB of it
  start      seconds of a second run of one step on it, against one on 1 MB of it
  HF         with --python (one that has `datasets` and `tokenizers`): CPU-seconds of datasets.map + tokenizers in as
             many processes, on the same lines as .jsonl; ids are compared
  step       share of a step that waits for rows (`phase_ms` of metrics.jsonl) and tokens/s of a GPT-2 of 4 x 512 on
             .jsonl: whole rows from the cache, packed from the cache, packed while streaming; rounds interleaved
Run it on an otherwise idle machine; CPU-seconds tolerate some other load, wall times do not.
"""
import argparse, glob, json, os, resource, shutil, statistics, subprocess, sys, tempfile, threading, time

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--text", required=True)
parser.add_argument("--tokenizer", required=True)
parser.add_argument("--gigabytes", type=float, default=2)
parser.add_argument("--jsonl_megabytes", type=float, default=100)
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--python", default="")
parser.add_argument("--folder", default="")
parser.add_argument("--only", default="rate,memory,start,step,hf")
args = parser.parse_args()
folder = args.folder or tempfile.mkdtemp(prefix="tessera-tokens.")
only = args.only.split(",")


def repeated(name, size):
    path = os.path.join(folder, name)
    if os.path.exists(path) and os.path.getsize(path) == size:
        return path
    body = open(args.text, "rb").read()
    with open(path, "wb") as file:
        left = size
        while left > 0:
            left -= file.write(body[:left])
    return path


def cpu_seconds(command, **more):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, time.monotonic() - begin, done


def train(text, cache, steps=1):
    """Wall seconds, and the peak memory of each rank in MiB."""
    output = os.path.join(folder, "run")
    shutil.rmtree(output, ignore_errors=True)
    command = [f"{args.build}/tessera", "train", "--config_name", "gpt2-tiny", "--config_overrides", "vocab_size=50304",
               "--tokenizer_name", args.tokenizer, "--train_file", text, "--block_size", "128",
               "--max_steps", str(steps),
               "--per_device_train_batch_size", "4", "--logging_steps", "1", "--save_strategy", "no",
               "--num_processes", str(args.ranks), "--data_cache_dir", cache, "--report_to", "none",
               "--validation_split_percentage", "0", "--disable_tqdm", "--output_dir", output]
    peaks, begin = {}, time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True).start()
    while process.poll() is None:
        for status in glob.glob("/proc/[0-9]*/status"):
            try:
                text_of = open(status).read()
                fields = dict(line.split(":", 1) for line in text_of.splitlines() if ":" in line)
                if int(fields["PPid"]) == process.pid and "VmHWM" in fields:
                    peaks[fields["Pid"].strip()] = int(fields["VmHWM"].split()[0]) / 1024
            except (OSError, KeyError):
                pass
        time.sleep(0.01)
    if process.returncode:
        sys.exit("training failed:\n" + "".join(lines)[-3000:])
    return time.monotonic() - begin, sorted(peaks.values())[-args.ranks:]


def rate():
    text = repeated("rate.txt", int(min(args.gigabytes, 0.5) * 1e9))
    single, _, _ = cpu_seconds([f"{args.build}/tessera", "tokenize", "--train_file", text, "--tokenizer_name",
                                args.tokenizer, "--output", os.path.join(folder, "rate")])
    root = os.path.join(folder, "rate-cache")
    worker = f"{args.build}/tests/cache_worker"
    shutil.rmtree(root, ignore_errors=True)
    command = [worker, root, args.tokenizer, "1", text]
    begin = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(args.ranks)]
    outputs = [p.communicate()[0].split() for p in running]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    again, _, _ = cpu_seconds(command)  # this run finds the cache, and hashes its input as the others did
    made = used - args.ranks * again
    size = os.path.getsize(text)
    print(f"| rate | tokenize {size / single / 1e6:.1f} MB per CPU-second, cache {size / made / 1e6:.1f}; ratio "
          f"{single / made:.3f}; {args.ranks} processes took {time.monotonic() - begin:.1f} s of wall | >= 0.9 |")
    assert len({o[1] for o in outputs}) == 1


def memory():
    cache = os.path.join(folder, "cache")
    small = repeated("small.txt", 10_000_000)
    big = repeated("big.txt", int(args.gigabytes * 1e9))
    steps = 200
    _, few = train(small, cache, steps)
    shutil.rmtree(cache)
    wall, making = train(big, cache, steps)
    _, found = train(big, cache, steps)
    print(f"| memory, {args.gigabytes} GB, {args.ranks} ranks | small file {few[-1]:.0f} MiB; while making "
          f"{making[-1]:.0f} MiB (+{making[-1] - few[-1]:.0f}), found {found[-1]:.0f} MiB "
          f"(+{found[-1] - few[-1]:.0f}); "
          f"made and trained in {wall:.0f} s | <= +64 MiB |")


def start():
    cache = os.path.join(folder, "cache")
    tiny = repeated("tiny.txt", 1_000_000)
    big = repeated("big.txt", int(args.gigabytes * 1e9))
    train(big, cache), train(tiny, cache)
    times = [(train(tiny, cache)[0], train(big, cache)[0]) for _ in range(3)]
    few, many = min(t[0] for t in times), min(t[1] for t in times)
    print(f"| second start, one step | tiny {few:.2f} s, {args.gigabytes} GB {many:.2f} s (+{many - few:.2f} s) "
          f"| <= +1.5 s |")


def written_as_jsonl(name, size):
    path = os.path.join(folder, name)
    with open(path, "w") as out:
        for line in open(repeated(name + ".txt", size), errors="replace"):
            if line.strip():
                out.write(json.dumps({"text": line}, ensure_ascii=False) + "\n")
    return path


def step(steps=24, skipped=4, rounds=3):
    text, output = written_as_jsonl("step.jsonl", 40_000_000), os.path.join(folder, "run")
    ways = {"whole rows": [], "--packing": ["--packing"], "--packing --streaming": ["--packing", "--streaming"]}
    shares, rates = {way: [] for way in ways}, {way: [] for way in ways}
    for _ in range(rounds):
        for way, flags in ways.items():
            shutil.rmtree(output, ignore_errors=True)
            cpu_seconds([f"{args.build}/tessera", "train", "--config_name", "gpt2", "--config_overrides",
                         "n_embd=512,n_layer=4,n_head=8,vocab_size=50304", "--tokenizer_name", args.tokenizer,
                         "--train_file", text, "--block_size", "256", "--per_device_train_batch_size", "4",
                         "--max_steps", str(steps), "--logging_steps", "1", "--save_strategy", "no",
                         "--num_processes", str(args.ranks), "--data_cache_dir", os.path.join(folder, "step-cache"),
                         "--report_to", "none", "--validation_split_percentage", "0", "--disable_tqdm",
                         "--output_dir", output, *flags], env=dict(os.environ, OMP_NUM_THREADS="1"))
            logged = [json.loads(line) for line in open(os.path.join(output, "metrics.jsonl"))]
            logged = [line for line in logged if "phase_ms" in line][skipped:]
            phases = [line["phase_ms"] for line in logged]
            shares[way].append(sum(p["data"] for p in phases) / sum(sum(p.values()) for p in phases))
            rates[way].append(statistics.median(line["tokens_per_second"] for line in logged))
    for way in ways:
        print(f"| {way}: waiting for rows | {100 * statistics.median(shares[way]):.2f} % of a step "
              f"({', '.join(f'{100 * share:.2f}' for share in shares[way])}), "
              f"{statistics.median(rates[way]):.0f} tokens/s | <= 1 % |")


HF = """
import sys, json, datasets, tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[2] + "/tokenizer.json")
data = datasets.load_dataset("json", data_files=sys.argv[1], split="train", cache_dir=sys.argv[3])
data = data.map(lambda b: {"ids": [e.ids for e in tokenizer.encode_batch(b["text"], add_special_tokens=False)]},
                batched=True, num_proc=int(sys.argv[4]), remove_columns=["text"])
with open(sys.argv[5], "w") as out:
    for i in range(0, len(data), max(1, len(data) // 2000)):
        out.write(json.dumps([i, data[i]["ids"]]) + "\\n")
"""


def hf():
    if not args.python:
        return
    path = written_as_jsonl("hf.jsonl", int(args.jsonl_megabytes * 1e6))
    ids = os.path.join(folder, "hf.ids")
    shutil.rmtree(os.path.join(folder, "hf-cache"), ignore_errors=True)
    theirs, _, _ = cpu_seconds([args.python, "-c", HF, path, args.tokenizer, os.path.join(folder, "hf-cache"),
                                str(args.ranks), ids], env=dict(os.environ, TOKENIZERS_PARALLELISM="false"))
    imports, _, _ = cpu_seconds([args.python, "-c", "import datasets, tokenizers"])
    worker = f"{args.build}/tests/cache_worker"
    root = os.path.join(folder, "hf-tokens")
    shutil.rmtree(root, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = [subprocess.Popen([worker, root, args.tokenizer, "1", path], stdout=subprocess.PIPE, text=True)
               for _ in range(args.ranks)]
    for p in running:
        p.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    ours = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = subprocess.run([worker, root, args.tokenizer, "1", path], stdin=open(ids), stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, CACHE_WORKER_COMPARE="1"))
    print(f"| {os.path.getsize(path) / 1e6:.0f} MB of .jsonl, {args.ranks} processes | HF {theirs:.1f} CPU-s (imports "
          f"{imports:.1f}), ours {ours:.2f}: {theirs / ours:.1f}x; {told.stdout.splitlines()[-1]} | >= 3x, ids equal |")


for name, row in {"rate": rate, "memory": memory, "start": start, "step": step, "hf": hf}.items():
    if name in only:
        row()
        sys.stdout.flush()
if not args.folder:
    shutil.rmtree(folder)
