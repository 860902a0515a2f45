#!/usr/bin/env python3
"""Savings and cost of gradient compression: `tessera train` on the same data with each method.

  bench/compression.py [--steps 200] [--processes 2] [--fsdp full_shard] [METHOD ...]

Prints one line per method: final training loss (mean of the last 20 steps), its difference to the uncompressed run,
bytes sent per step and rank from the record of collectives (everything, not only gradients), time per step.
The data are the repository's own documents, tokenized by bytes; the model is GPT-2, 2 layers of 128.
"""
import argparse, json, os, re, statistics, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
METHODS = ["none", "bf16", "fp16", "powersgd:rank=2,start=20", "powersgd:rank=8,start=20", "topk:ratio=0.1",
           "topk:ratio=0.01", "onebit:warmup=20"]


def run(options, method, text):
    with tempfile.TemporaryDirectory() as out:
        command = [f"{options.build}/tessera", "train", "--config_name", "gpt2-tiny", "--config_overrides",
                   "n_layer=2,n_embd=128,n_head=4", "--tokenizer_name", "byte", "--train_file", text,
                   "--block_size", "64", "--output_dir", f"{out}/run", "--max_steps", str(options.steps),
                   "--per_device_train_batch_size", "8", "--learning_rate", "1e-3", "--warmup_steps", "10",
                   "--lr_scheduler_type", "constant_with_warmup", "--logging_steps", "1", "--save_strategy", "no",
                   "--num_processes", str(options.processes), "--seed", "1", "--grad_compression", method]
        if options.fsdp:
            command += ["--fsdp", options.fsdp]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{method}: {done.stderr[-2000:]}")
        steps = [s for s in map(json.loads, open(f"{out}/run/metrics.jsonl")) if "event" not in s]
        report = open(f"{out}/run/report.html").read()
    sent = sum(int(n) for n in re.findall(r'"wire_bytes":\s*(\d+)', report))
    return {"loss": statistics.mean(s["loss"] for s in steps[-20:]), "bytes": sent / len(steps),
            "ms": statistics.median(s["step_time_ms"] for s in steps[5:])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--build", default=f"{HERE}/build")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--fsdp", default="")
    options = parser.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        for name in sorted(os.listdir(f"{HERE}/docs")):
            if name.endswith(".md"):
                text.write(open(f"{HERE}/docs/{name}").read())
        text.flush()
        base = None
        print(f"{'method':28} {'loss':>8} {'change':>8} {'KB/step':>9} {'saved':>6} {'ms':>7}")
        for method in options.methods:
            row = run(options, method, text.name)
            base = base or row
            print(f"{method:28} {row['loss']:8.4f} {row['loss'] - base['loss']:+8.4f} {row['bytes'] / 1e3:9.1f} "
                  f"{1 - row['bytes'] / base['bytes']:6.1%} {row['ms']:7.1f}", flush=True)


main()
