"""Loading a checkpoint against a plain C program that reads the same bytes into fresh memory.

    bench/resume.py --build BUILD [--checkpoint DIR] [--ranks 2] [--rounds 5] [--huge] [--json FILE]

Without --checkpoint a GPT-2 of 124 M parameters is trained for a step and saved by that many processes (1.5 GB).
Loading is the work of a resuming rank: reading its part of weights and optimizer states, computing checksums, and
comparing them with the manifest together with the other ranks (bench/resume_bench.cpp). `whole`: every rank
reads everything (data parallelism); `share`: 1/ranks of it (full_shard). The ranks run at the same time, the slowest
counts; rounds alternate between the two programs. Cold: the files are dropped from the page cache before each run.
--huge: the plain program reads into memory with huge pages, like ours.
"""
import argparse, glob, json, os, socket, statistics, subprocess, sys, tempfile

from runs import program

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--checkpoint", default="")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--huge", action="store_true")
parser.add_argument("--json", default="")
args = parser.parse_args()


def together(commands):
    """JSON of each of the programs, which run at the same time like the ranks of a job."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        job = {"WORLD_SIZE": str(len(commands)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True,
                                env=dict(os.environ, **job, RANK=str(rank), LOCAL_RANK=str(rank),
                                         LOCAL_WORLD_SIZE=str(len(commands))))
               for rank, c in enumerate(commands)]
    texts = [p.communicate()[0] for p in running]
    if any(p.returncode for p in running):
        sys.exit("a program failed: " + " ".join(commands[0]))
    return [json.loads(t) for t in texts]


def drop(files):
    os.sync()
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def save(folder):
    words = "".join(f"word {i * i % 977} of the text is here. " for i in range(4000))
    open(f"{folder}/text.txt", "w").write(words)
    program([f"{args.build}/tessera", "train", "--config_name", "gpt2", "--tokenizer_name", "byte",
             "--train_file", f"{folder}/text.txt", "--block_size", "64", "--per_device_train_batch_size", "1",
             "--max_steps", "1", "--save_steps", "1", "--num_processes", str(args.ranks), "--report_to", "none",
             "--fsdp", "full_shard auto_wrap", "--output_dir", f"{folder}/run"])
    return f"{folder}/run/checkpoint-1"


def huge_pages():
    """The system's rule, "always" (Debian's), "madvise" or "never": with "always" the plain program's memory also has
    huge pages."""
    try:
        return open("/sys/kernel/mm/transparent_hugepage/enabled").read().split("[")[1].split("]")[0]
    except (OSError, IndexError):
        return "unknown"


def compare(folder):
    print(f"huge pages: {huge_pages()}", flush=True)
    files = sorted(glob.glob(f"{folder}/*.safetensors"))
    rows = []
    for kind, cold in [(k, c) for k in ("whole", "share") for c in (False, True)]:
        plain, ours = [], []
        for _ in range(args.rounds):
            for results, command in ((plain, lambda r: [f"{args.build}/bench/read_bytes"] + ["--huge"] * args.huge
                                      + (["--share", str(r), str(args.ranks)] if kind == "share" else []) + files),
                                     (ours, lambda r: [f"{args.build}/bench/resume_bench", folder, kind])):
                if cold:
                    drop(files)
                results.append(together([command(r) for r in range(args.ranks)]))
        slowest = lambda results, key: statistics.median(max(one[key] for one in ranks) for ranks in results)
        row = {"kind": kind, "cold": cold, "bytes": ours[0][0]["bytes"], "plain_s": slowest(plain, "seconds"),
               "ours_s": slowest(ours, "seconds"), "verdict_s": slowest(ours, "verdict_seconds"),
               "extra_mib": slowest(ours, "extra_bytes") / 2**20}
        row["ratio"] = row["ours_s"] / row["plain_s"]
        rows.append(row)
        print(f"{kind:6} {'cold' if cold else 'warm'}  {row['bytes'] / 1e9:.2f} GB a rank  read() {row['plain_s']:.2f} "
              f"s  ours {row['ours_s']:.2f} s (after the last tensor {row['verdict_s']:.2f} s)"
              f"  ratio {row['ratio']:.2f}  memory beside what is held {row['extra_mib']:.0f} MiB", flush=True)
    return rows


with tempfile.TemporaryDirectory() as scratch:
    rows = compare(args.checkpoint or save(scratch))
if args.json:
    json.dump(rows, open(args.json, "w"), indent=1)
