"""Runs the fuzzers on millions of inputs and records the counts.

    cmake --preset fuzz && cmake --build --preset fuzz            (or fuzz-fast: no sanitizers, more inputs)
    python3 tests/fuzz/campaign.py BUILD --inputs 5000000 --corpora DIR [--only NAME,NAME]

Readers take turns in chunks of at most --chunk inputs and --seconds, each with one of a few lengths, until each has
read --inputs inputs. Inputs that reach new code are kept in DIR/NAME, and DIR/counts.tsv gets a line for each chunk
(reader, commit, sanitizers or "none", longest input, inputs, seconds, exit status, edges reached). A campaign restarted
with the same DIR continues where it stopped, so new code needs a new DIR. An input that crashes, takes 20 minutes or
allocates more than 64 MiB at once (only detected under sanitizers) is kept as DIR/crash/NAME-*, and its reader gets no
more inputs; the exit status is then 1. A chunk's only wall-clock limit merely ends it early, so the programs may be
stopped and continued at any time.
"""
import argparse, csv, glob, os, re, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COLUMNS = ["reader", "commit", "sanitizers", "max_len", "inputs", "seconds", "status", "edges"]

# Reader: (input lengths, used in turn; sources whose string literals form its dictionary). A reader that takes fixtures
# unchanged has a line in FIXTURES; the others start with a selector byte and from tests/fuzz/corpus.
READERS = {
    "safetensors_header": ([256, 128, 512, 1024], ["format/safetensors/safetensors.cpp"]),
    "safetensors_index": ([256, 128, 512], ["format/safetensors/safetensors_index.cpp"]),
    "state_index": ([512, 256, 1024, 2048], []),
    "manifest": ([64, 128, 256, 512], ["format/manifest/manifest.cpp"]),
    "torch_file": ([1024, 2048, 512, 4096], ["format/torch/*.cpp"]),
    "deepspeed_checkpoint": ([1536, 1024, 2048, 3072], ["format/deepspeed/*.cpp", "format/torch/torch_file.cpp"]),
    "indexed": ([256, 128, 512, 1024], []),
    "image": ([1024, 2048, 512, 4096], []),
    "training_args": ([64, 96, 64, 256], ["config/hf/training_args_rows.cpp", "config/core/fields.cpp"]),
    "tessera_file": ([64, 96, 64, 256], ["config/core/fields.cpp"]),
    "accelerate_file": ([96, 64, 128, 512],
                        ["config/accelerate/accelerate_*.cpp", "config/hf/fsdp_config.cpp", "config/megatron/*.cpp"]),
    "deepspeed": ([64, 96, 128, 512], []),
    "hjson": ([96, 256, 128, 512], []),
    "jinja": ([256, 128, 512, 1024], ["text/jinja/*.cpp"]),
    "gguf": ([1024, 2048, 512, 3072], ["format/gguf/*.cpp"]),
    "json_yaml": ([96, 128, 256, 512], []),
    "jsonl": ([128, 256, 1024], []),
    "corpus_records": ([64, 128, 256], []),
    "decompress": ([256, 512, 1024], []),
    "hostfile": ([64, 128, 256], []),
    "object_store_answers": ([256, 128, 512, 1024], ["storage/answers.cpp"]),
    "store_message": ([128, 256, 512], []),
    "schedule_file": ([128, 64, 256, 1024], ["layout/schedule/*_file.cpp", "layout/schedule/schedule.cpp"]),
    "plan_files": ([2048], ["architectures/reading.cpp", "plan/hardware.cpp"]),
    "tokenizer_json": ([128, 256, 512], ["text/tokenizer_*.cpp", "text/pipeline/*_json.cpp"]),
    "tokenizer_files": ([512, 256, 1024], ["text/sentencepiece/*.cpp"]),
}
# MiB that a reader may allocate at once, if more than 64: the windows that zstd and xz are allowed.
LARGEST = {"decompress": 300}
FIXTURES = {
    "safetensors_header": ["safetensors"],
    "state_index": ["state_index"],
    "torch_file": ["torch_files", "torch_files/dcp"],
    "hjson": ["deepspeed"],
    "gguf": ["gguf"],
    "json_yaml": ["accelerate", "deepspeed"],
}


def dictionary(name, folder):
    """libFuzzer's option for the reader's dictionary, if it has one."""
    kept = os.path.join(HERE, f"{name}.dict")
    if os.path.exists(kept):
        return [f"-dict={kept}"]
    sources = [path for pattern in READERS[name][1] for path in glob.glob(os.path.join(ROOT, "tessera", pattern))]
    words = {word for path in sources for word in re.findall(r'"([A-Za-z_][A-Za-z0-9_.]{1,47})"', open(path).read())}
    if not words:
        return []
    path = os.path.join(folder, f"{name}.dict")
    with open(path, "w") as out:
        out.writelines(f'"{word}"\n' for word in sorted(words))
    return [f"-dict={path}"]


def commit():
    """The last commit of the checkout, with "+" if the torch-free part has changes."""
    git = lambda *words: subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True,
                                        check=True).stdout.strip()
    parts = [f"tessera/{layer}" for layer in ("base", "layout", "text", "format", "config", "launch", "storage")]
    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--", *parts) else "")


def sanitizers(build):
    """The sanitizers that BUILD was compiled with, from its CMake cache."""
    cache = open(os.path.join(build, "CMakeCache.txt")).read()
    return re.search(r"^TESSERA_SANITIZE:\w+=(.*)$", cache, re.M)[1] or "none"


def taken(counts):
    """{reader: number of inputs read}."""
    totals = dict.fromkeys(READERS, 0)
    if os.path.exists(counts):
        for row in csv.DictReader(open(counts), delimiter="\t"):
            totals[row["reader"]] += int(row["inputs"])
    return totals


def chunk(args, name, length, inputs):
    """Runs one chunk; returns (inputs read, exit status, edges reached)."""
    corpus, crash, logs = (os.path.join(args.corpora, part) for part in (name, "crash", "log"))
    for folder in (corpus, crash, logs):
        os.makedirs(folder, exist_ok=True)
    seeds = [os.path.join(HERE, "corpus", name)] + [os.path.join(HERE, "..", "fixtures", f)
                                                    for f in FIXTURES.get(name, [])]
    log = os.path.join(logs, name)
    command = [os.path.join(args.build, "tests", "fuzz", f"{name}_fuzz"), f"-max_len={length}", f"-runs={inputs}",
               f"-max_total_time={args.seconds}", "-timeout=1200", "-report_slow_units=1200", "-rss_limit_mb=2560",
               f"-malloc_limit_mb={LARGEST.get(name, 64)}", "-entropic=0", "-reduce_inputs=0", "-reload=0",
               "-print_final_stats=1",
               f"-artifact_prefix={crash}/{name}-", *dictionary(name, args.corpora), corpus,
               *filter(os.path.isdir, seeds)]
    # A quarter faster; a crash is reproduced without these options.
    environment = {**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=4:malloc_context_size=1"}
    if os.path.isdir("/dev/shm"):
        environment["TMPDIR"] = "/dev/shm"  # some readers need a file
    with open(log, "w") as out:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment).returncode
    text = open(log, errors="replace").read()
    lines = re.findall(r"^#(\d+)\t.*? cov: (\d+)", text, re.M) or [("0", "0")]
    final = re.search(r"^stat::number_of_executed_units:\s*(\d+)", text, re.M)
    return int(final[1] if final else lines[-1][0]), status, int(lines[-1][1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", help="a build folder of the preset fuzz or fuzz-fast")
    parser.add_argument("--inputs", type=int, required=True, help="number of inputs per reader")
    parser.add_argument("--corpora", required=True, help="folder of the inputs found so far and of counts.tsv")
    parser.add_argument("--only", default=",".join(READERS), help="readers, separated by commas")
    parser.add_argument("--chunk", type=int, default=500_000)
    parser.add_argument("--seconds", type=int, default=120, help="time limit of a chunk")
    args = parser.parse_args()
    args.corpora = os.path.abspath(args.corpora)
    os.makedirs(args.corpora, exist_ok=True)
    counts, names, code = os.path.join(args.corpora, "counts.tsv"), args.only.split(","), commit()
    if unknown := set(names) - set(READERS):
        parser.error(f"--only: no reader {', '.join(sorted(unknown))}; readers are {', '.join(READERS)}")
    if not os.path.exists(counts):
        with open(counts, "w") as out:
            print(*COLUMNS, sep="\t", file=out)
    crashed, turn = set(), 0
    while todo := [name for name in names if name not in crashed and taken(counts)[name] < args.inputs]:
        for name in todo:
            lengths = READERS[name][0]
            length, left = lengths[turn % len(lengths)], args.inputs - taken(counts)[name]
            begin = time.time()
            inputs, status, edges = chunk(args, name, length, min(args.chunk, left))
            seconds = time.time() - begin
            with open(counts, "a") as out:
                print(name, code, sanitizers(args.build), length, inputs, f"{seconds:.1f}", status, edges, sep="\t",
                      file=out)
            total = taken(counts)[name]
            print(f"{time.strftime('%H:%M:%S')} {name}: {inputs} inputs of at most {length} bytes in {seconds:.0f} s, "
                  f"{edges} edges; "
                  f"{total} of {args.inputs}", flush=True)
            if status != 0 or inputs == 0:
                crashed.add(name)
                print(f"{name} ended with {status}: see {args.corpora}/log/{name} and {args.corpora}/crash", flush=True)
        turn += 1
    return 1 if crashed else 0


if __name__ == "__main__":
    sys.exit(main())
