"""The cost of saving: GPT-2 with 124 M parameters (AdamW, fp32: 1.5 GB of state), two processes, compared with dd of
the same bytes into the same folder. (The cost of resuming: bench/resume.py.)

    python3 bench/checkpoint.py [--build build] [--folder DIR] [--strategies full_shard,ddp] [--saves 6] [--json FILE]

`tessera train` saves every twelfth step. Stall: the time the training waited for the first save (which allocates the
pages of its copy) and for later ones except the very last, whose writing the end of the training waits for. Write rate:
the bytes of each process over its time (write and fsync), summed. After each save, while the training continues, dd
writes the bytes of each process, in parallel like the processes (from memory, oflag=direct conv=fsync bs=4M): pairs.
CRC: the time of the checksums over a process's bytes, at the rates of checksum_bench (copying with a checksum minus
copying, and the reading back), relative to the time from the beginning of a save to its end.

Pairs are interleaved because the machine may be shared; ratios are medians over pairs. Exit code 1 when a bar fails:
stall <= 0.15 s per GB of state from the second save on, write rate >= 70 % of dd, CRC <= 10 % of a save.
"""
import argparse, json, os, re, shutil, statistics, subprocess, sys, tempfile, time

from runs import program

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build")
parser.add_argument("--folder", default=None, help="on the disk to measure (default: a temporary folder)")
parser.add_argument("--strategies", default="full_shard,ddp")
parser.add_argument("--saves", type=int, default=6)
parser.add_argument("--json", default="")
args = parser.parse_args()

PROCS, EVERY = 2, 12  # processes, and steps between saves, which leave enough time for a save and for dd
FLAGS = {"full_shard": ["--fsdp", "full_shard"], "ddp": [], "zero1": ["--zero_stage", "1"]}
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
SAVED = re.compile(r"saved (\S+) \(([\d.]+) (\w+), training waited ([\d.]+) s, rank 0 wrote ([\d.]+) (\w+) in ([\d.]+) "
                   r"s\)")
median = statistics.median
failed = []


def bar(name, value, limit, at_most=True):
    good = value <= limit if at_most else value >= limit
    if not good:
        failed.append(name)
    print(f"{name}: {value:.3f} (bar {'<=' if at_most else '>='} {limit}) {'pass' if good else 'FAIL'}", flush=True)
    return value


def copies(checkpoint, folder):
    """The bytes that each process wrote, in a file in memory: disks may treat zeros better than numbers."""
    paths = []
    for rank in range(1, PROCS + 1):
        paths.append(os.path.join(folder, f"part{rank}"))
        with open(paths[-1], "wb") as target:
            for stem in ("model", "optimizer"):
                with open(os.path.join(checkpoint, f"{stem}-{rank:05d}-of-{PROCS:05d}.safetensors"), "rb") as source:
                    shutil.copyfileobj(source, target, 1 << 24)
            target.truncate(target.tell() // (4 << 20) * (4 << 20))  # direct I/O: whole blocks
    return paths


def dd(folder, sources):
    """Total bytes per second of parallel dd processes, one per source."""
    targets, begin = [os.path.join(folder, f"dd{i}") for i in range(len(sources))], time.monotonic()
    running = [subprocess.Popen(["dd", f"if={source}", f"of={target}", "bs=4M", "oflag=direct", "conv=fsync"],
                                stderr=subprocess.DEVNULL)
               for source, target in zip(sources, targets)]
    codes = [one.wait() for one in running]
    seconds = time.monotonic() - begin
    for target in targets:
        os.remove(target)
    if any(codes):
        sys.exit(f"dd failed in {folder}")
    return sum(map(os.path.getsize, sources)) / seconds


def save(strategy, folder, memory, checksum):
    """Trains and saves; returns the figures. Leaves the newest checkpoint in FOLDER/out."""
    text = os.path.join(folder, "text.txt")
    with open(text, "w") as file:
        for i in range(3000):
            file.write(f"the {i % 7} small stones of row {i % 11} form a mosaic.\n")
    out = os.path.join(folder, "out")
    run = subprocess.Popen(
        [os.path.join(args.build, "tessera"), "train", "--config_name", "gpt2", "--tokenizer_name", "byte",
         "--train_file", text, "--block_size", "32", "--per_device_train_batch_size", "1",
         "--max_steps", str(EVERY * args.saves + 3), "--save_steps", str(EVERY), "--save_total_limit", "2",
         "--logging_steps", "1", "--report_to", "none", "--output_dir", out, "--num_processes", str(PROCS),
         "--threads_per_process", "1", *FLAGS[strategy]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    stalls, pairs, shares, lines, begun, sources = [], [], [], [], None, None
    for line in run.stdout:
        lines.append(line)
        step = re.search(r"\{'loss': ", line)
        found = SAVED.search(line)
        if step:
            steps = sum("'loss': " in one for one in lines)
            begun = time.monotonic() if steps % EVERY == 0 else begun
        if not found:
            continue
        all_bytes, own = float(found[2]) * UNITS[found[3]], float(found[5]) * UNITS[found[6]]
        stall, write = float(found[4]), float(found[7])
        stalls.append(stall / (all_bytes * 1e-9))
        whole = time.monotonic() - begun if begun else stall + write  # from the saving step to the log line
        crc = own * 1e-9 * (1 / checksum["copy_with_crc_gb_s"] - 1 / checksum["copy_gb_s"] + 1 / checksum["crc_gb_s"])
        shares.append(crc / whole)
        rate = PROCS * own / write
        sources = sources or copies(found[1], memory)
        pairs.append((rate, dd(out, sources)))
        print(f"  save {len(stalls)}: {all_bytes / 1e9:.2f} GB, stall {stalls[-1]:.3f} s/GB, written at "
              f"{rate / 1e9:.2f} GB/s, dd "
              f"{pairs[-1][1] / 1e9:.2f} GB/s, CRC {100 * shares[-1]:.1f} % of {whole:.2f} s", flush=True)
    if run.wait():
        sys.exit("the training failed:\n" + "".join(lines)[-3000:])
    if len(stalls) < 3:
        sys.exit(f"{len(stalls)} saves were told:\n" + "".join(lines)[-3000:])
    first, later = stalls[0], stalls[1:-1]
    print(f"{strategy}: first stall {first:.3f} s/GB, later ones {', '.join(f'{s:.3f}' for s in later)}")
    return {"first_stall_s_per_gb": first,
            "stall_s_per_gb": bar(f"{strategy}: stall, s per GB of state", median(later), 0.15),
            "gb_s": median(rate for rate, _ in pairs) * 1e-9, "dd_gb_s": median(raw for _, raw in pairs) * 1e-9,
            "of_dd": bar(f"{strategy}: write rate over dd's", median(rate / raw for rate, raw in pairs), 0.7,
                         at_most=False), "crc_share": bar(f"{strategy}: CRC's share of a save", median(shares), 0.10)}


def main():
    figures = {}
    checksum = json.loads(program([os.path.join(args.build, "bench", "checksum_bench"), "512"]).stdout)
    print(f"checksum {checksum['crc_gb_s']:.1f} GB/s, copy {checksum['copy_gb_s']:.1f} GB/s, copy with checksum "
          f"{checksum['copy_with_crc_gb_s']:.1f} GB/s")
    figures["checksum"] = checksum
    for strategy in args.strategies.split(","):
        with (tempfile.TemporaryDirectory(dir=args.folder) as folder,
              tempfile.TemporaryDirectory(dir="/dev/shm") as memory):
            figures[strategy] = save(strategy, folder, memory, checksum)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(figures, file, indent=2)
    print("all bars hold" if not failed else f"FAIL: {'; '.join(failed)}")
    return 1 if failed else 0


sys.exit(main())
