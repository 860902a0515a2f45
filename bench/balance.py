#!/usr/bin/env python3
"""Throughput of --balance_batches with one slow rank, relative to the ideal, with equal and with balanced shares.

bench/balance.py BUILD [--ranks 2 3 4] [--slow 2 3] [--strategy ddp zero2 full_shard] [--steps 60]

Every rank has one thread and a cgroup with a CPU quota (version 1, /sys/fs/cgroup/cpu, so this user must be
root): 80 % of the machine's cores divided equally, so that neither other programs nor a lack of cores determines the
speed of a rank; rank 1 is slowed down to 1/2 or 1/3 of that. Ideal is the joint throughput of the ranks without any
waiting: (ranks - 1 + 1 / slow) / ranks of the throughput of the same ranks when none is slowed down. Step times are
medians over the second half of the steps, when the shares have settled. Runs are interleaved, and the best of --repeat
counts for each.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

GROUPS = pathlib.Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000
CORES_USED = 0.8


def environment_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def rank_process(parent, rank):
    """The launcher's child with RANK=rank."""
    for _ in range(500):
        children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for child in children:
            if f"RANK={rank}".encode() in environment_of(child):
                return int(child)
        time.sleep(0.01)
    raise SystemExit(f"no rank {rank} under process {parent}")


class Quotas:
    """A cgroup for every rank of a job; removed at the end."""

    def __init__(self, ranks, slow):
        self.folders = []
        for rank in range(ranks):
            cores = min(1, CORES_USED * os.cpu_count() / ranks) / (slow if rank == 1 else 1)
            folder = GROUPS / f"tessera_balance_{os.getpid()}_{rank}"
            folder.mkdir()
            self.folders.append(folder)
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(max(1000, round(cores * PERIOD_US))))

    def take(self, rank, pid):
        (self.folders[rank] / "cgroup.procs").write_text(str(pid))

    def end(self):
        for folder in self.folders:
            for _ in range(100):  # retried until the group's processes have exited
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)


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
    quotas = Quotas(ranks, slow)
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for rank in range(ranks):
            quotas.take(rank, rank_process(process.pid, rank))
        errors = process.communicate()[1]
    finally:
        quotas.end()
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
    if not os.access(GROUPS, os.W_OK):
        raise SystemExit(f"{GROUPS} cannot be written to: CPU quotas need control groups of version 1 and root")
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
