#!/usr/bin/env python3
"""Loss at equal tokens for batches x1 .. x32, with and without the learning-rate rule.

  bench/large_batches.py BUILD [--rows 8] [--samples 6400] [--learning_rate 1e-3]

A small GPT-2 learns this project's own documentation (bytes), AdamW, constant rate after a warm-up of a tenth of the
rows. Every run sees the same rows; only the rows per step differ. "none" keeps the learning rate, "square_root" and
"linear" let --learning_rate_rule raise it from that of the smallest batch. Prints the evaluation loss at the end.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile


def run(options, folder, rows, rule):
    out = folder / f"{rows}-{rule}"
    steps = options.samples // rows
    command = [options.build + "/tessera", "train", "--config_name", "gpt2-tiny", "--config_overrides",
               "n_layer=2,n_embd=64,n_head=4,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256,"
               "resid_pdrop=0,embd_pdrop=0,attn_pdrop=0",
               "--tokenizer_name", "byte", "--train_file", str(folder / "text.txt"), "--block_size", "64",
               "--per_device_train_batch_size", str(min(rows, 32)), "--gradient_accumulation_steps",
               str(max(1, rows // 32)), "--max_steps", str(steps), "--learning_rate", str(options.learning_rate),
               "--lr_scheduler_type", "constant_with_warmup", "--warmup_steps", str(max(1, steps // 10)),
               "--gradient_noise_scale", str(rows > 32).lower(), "--learning_rate_rule", rule,
               *([] if rule == "none" else ["--learning_rate_batch_size", str(options.rows)]), "--logging_steps", "1",
               "--save_strategy", "no",
               "--do_eval", "true", "--report_to", "none", "--disable_tqdm", "true", "--output_dir", str(out)]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    if done.returncode != 0:
        return "diverged", None
    scales = [line["gradient_noise_scale"] for line in lines if "gradient_noise_scale" in line]
    return [line["eval_loss"] for line in lines if line.get("event") == "eval"][-1], scales[-1] if scales else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--samples", type=int, default=6400)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    options = parser.parse_args()
    docs = pathlib.Path(__file__).parent.parent / "docs"
    print("rows  steps      none  square_root    linear   noise scale at the end (none)")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("".join(page.read_text() for page in sorted(docs.glob("*.md"))))
        for times in (1, 2, 4, 8, 16, 32):
            rows = options.rows * times
            cells, scale = [], None
            for rule in ("none", "square_root", "linear"):
                loss, found = run(options, folder, rows, rule)
                scale = found if rule == "none" else scale
                cells.append(f"{loss:.4f}" if isinstance(loss, float) else loss)
            print(f"{rows:4} {options.samples // rows:6} {cells[0]:>9} {cells[1]:>12} {cells[2]:>9}   "
                  f"{'' if scale is None else round(scale)}", flush=True)


if __name__ == "__main__":
    main()
