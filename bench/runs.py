"""Shared by the comparisons: rows of tokens for both sides, a run of `tessera train`, a run of any program that prints
JSON."""
import json, os, statistics, struct, subprocess, sys, tempfile, time

LR, BETA2, DECAY = 3e-4, 0.95, 0.1  # of both sides


def write_rows(path, rows):
    """Rows of equal length as Megatron PATH.bin and PATH.idx, one document per row."""
    n, length = len(rows), len(rows[0])
    with open(path + ".bin", "wb") as f:
        for row in rows:
            f.write(struct.pack(f"<{length}i", *row))
    with open(path + ".idx", "wb") as f:  # MMIDIDX, version 1, dtype 4 = int32
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, n, n + 1))
        f.write(struct.pack(f"<{n}i", *[length] * n) + struct.pack(f"<{n}q", *[i * length * 4 for i in range(n)]))
        f.write(struct.pack(f"<{n + 1}q", *range(n + 1)))


def lcg_rows(step, batch, length, vocabulary):
    """A step's rows: 31-bit linear congruential generator, x0 = step + 1; token = (x >> 8) mod vocabulary."""
    x, rows = step + 1, []
    for _ in range(batch):
        row = []
        for _ in range(length):
            x = (1103515245 * x + 12345) & 0x7FFFFFFF
            row.append((x >> 8) % vocabulary)
        rows.append(row)
    return rows


def program(command, **environment):
    """Runs a program to its end; returns its standard output, or exits with its errors."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                          env=dict(os.environ, OMP_WAIT_POLICY="PASSIVE", **environment))
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stderr[-3000:]}")
    return done


def run_tessera(build, folder, length, batch, steps, warmup, procs, threads, flags=()):
    """The whole program: FOLDER/model trained on FOLDER/rows.bin, `batch` rows per step over all processes, with
    further `flags`."""
    with tempfile.TemporaryDirectory() as out:
        begin = time.time()
        program([os.path.join(build, "tessera"), "train", "--model_name_or_path", f"{folder}/model",
                 "--train_file", f"{folder}/rows.bin", "--block_size", str(length),
                 "--train_sampling_strategy", "sequential", "--validation_split_percentage", "0",
                 "--output_dir", f"{out}/run", "--max_steps", str(steps), "--per_device_train_batch_size",
                 str(batch // procs), "--learning_rate", str(LR), "--lr_scheduler_type", "constant", "--adam_beta2",
                 str(BETA2), "--weight_decay", str(DECAY), "--max_grad_norm", "0", "--logging_steps", "1",
                 "--save_strategy", "no", "--num_processes", str(procs), "--threads_per_process", str(threads), *flags])
        lines = [json.loads(l) for l in open(f"{out}/run/metrics.jsonl")]
    steps_run = [l for l in lines if "event" not in l]
    ended = next(l for l in lines if "communication" in l)
    timed = steps_run[warmup:]
    return {"tok_s": batch * length * 1e3 / statistics.median(s["step_time_ms"] for s in timed),
            "cpu_s": sum(s["cpu_seconds"] for s in timed) / len(timed),
            "start": steps_run[0]["wall_time_ms"] / 1e3 - begin, "losses": [s["loss"] for s in steps_run],
            "rss": max(s["peak_memory_bytes"] for s in steps_run) / 2**20, "communication": ended["communication"]}
