#!/usr/bin/env python3
"""--balance_batches when one rank is slowed down: throughput by the ideal, with equal and with balanced shares.

  bench/balance.py BUILD [--ranks 2 3 4] [--slow 2 3] [--strategy ddp zero2 full_shard] [--steps 60]

Rank 1 is stopped and continued (SIGSTOP, SIGCONT) every 30 ms, so that it runs 1/2 or 1/3 of the time: what a CPU quota
of a control group does, where this user may set none. Every rank has one thread. Ideal is what the ranks could do
together if no one ever waited: (ranks - 1 + 1 / slow) / ranks of the throughput of the same ranks when none is slowed
down. Step times are medians over the second half of the steps, when shares have settled. Runs are interleaved, and the
best of --repeat counts for each, since others may use the machine, too.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import threading
import time

PERIOD = 0.03


def environment_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def rank_process(parent, rank):
    """The child of the launcher that has RANK=rank."""
    for _ in range(500):
        children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for child in children:
            if f"RANK={rank}".encode() in environment_of(child):
                return int(child)
        time.sleep(0.01)
    raise SystemExit(f"no rank {rank} under process {parent}")


def slow_down(pid, share, ends):
    """Lets the process run `share` of the time."""
    try:
        while not ends.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(PERIOD * (1 - share))
            os.kill(pid, signal.SIGCONT)
            time.sleep(PERIOD * share)
    except ProcessLookupError:
        pass


def run(options, folder, ranks, strategy, slow, balance):
    out = folder / f"{ranks}-{strategy}-{slow}-{balance}"
    flags = {"ddp": [], "zero1": ["--zero_stage", "1"], "zero2": ["--zero_stage", "2"],
             "full_shard": ["--fsdp", "full_shard auto_wrap"]}[strategy]
    command = [options.build + "/tessera", "train", "--config_name", "gpt2-tiny", "--config_overrides",
               "n_layer=2,n_embd=128,n_head=4,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256",
               "--tokenizer_name", "byte", "--train_file", str(folder / "text.txt"), "--block_size", "64",
               "--per_device_train_batch_size", str(options.rows), "--max_steps", str(options.steps), "--logging_steps",
               "1", "--save_strategy", "no", "--eval_strategy", "no", "--report_to", "none", "--output_dir", str(out),
               "--overwrite_output_dir", "--num_processes", str(ranks), "--threads_per_process", "1",
               "--balance_batches", str(balance).lower(), *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    ends = threading.Event()
    if slow > 1:
        threading.Thread(target=slow_down, args=(rank_process(process.pid, 1), 1 / slow, ends), daemon=True).start()
    errors = process.communicate()[1]
    ends.set()
    if process.returncode != 0:
        raise SystemExit(errors)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "event" not in line]
    settled = steps[len(steps) // 2:]
    return {"ms": statistics.median(line["step_time_ms"] for line in settled),
            "shares": settled[-1].get("batch_shares"),
            "idle": [statistics.median(line["idle_by_rank"][r] for line in settled) for r in range(ranks)]
            if balance else None,
            "losses": [line["loss"] for line in steps]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--slow", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--strategy", nargs="+", default=["ddp"])
    parser.add_argument("--rows", type=int, default=48)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    print("strategy    ranks  slow   even ms  equal/ideal  balanced/ideal  shares  idle by rank  "
          "largest loss difference")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = "".join(f"rank {i % 5} holds tile {i * i % 13} of the mosaic.\n" for i in range(20000))
        (folder / "text.txt").write_text(text)
        for strategy in options.strategy:
            for ranks in options.ranks:
                for slow in options.slow:
                    best = {}
                    for _ in range(options.repeat):
                        for key, how in (("even", (1, False)), ("equal", (slow, False)), ("balanced", (slow, True))):
                            found = run(options, folder, ranks, strategy, *how)
                            if key not in best or found["ms"] < best[key]["ms"]:
                                best[key] = found
                    ideal = best["even"]["ms"] * ranks / (ranks - 1 + 1 / slow)
                    balanced = best["balanced"]
                    apart = max(abs(a - b) / b for a, b in zip(balanced["losses"], best["even"]["losses"]))
                    print(f"{strategy:11} {ranks:5} {'1/' + str(slow):>5} {best['even']['ms']:9.1f} "
                          f"{ideal / best['equal']['ms']:12.3f} {ideal / balanced['ms']:15.3f}  {balanced['shares']} "
                          f"{[round(x, 2) for x in balanced['idle']]} {apart:.1e}", flush=True)


if __name__ == "__main__":
    main()
