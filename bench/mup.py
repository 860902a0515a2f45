#!/usr/bin/env python3
"""The best learning rate by the model's width, with and without maximal update parameterization (--use_mup).

  bench/mup.py BUILD [--widths 64,128,256,512] [--steps 150] [--rates 5] [--first 2.5e-4] [--seeds 1]
               [--initializer_range 0.02]

A GPT-2 of two layers, heads of 16, learns this project's own documentation (bytes), AdamW, constant rate after a
warm-up of a tenth of the steps. Rates double from column to column; the base width is the first, where both are the
same. Prints the mean loss of the last tenth of the steps, and for each width the best rate: the minimum of the parabola
in its logarithm through the best column and its neighbours.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import tempfile


def run(options, folder, width, rate, mup, seed):
    out = folder / f"{width}-{rate}-{mup}-{seed}"
    command = [options.build + "/tessera", "train", "--config_name", "gpt2-tiny", "--config_overrides",
               f"n_layer=2,n_embd={width},n_head={width // 16},vocab_size=257,n_positions=64,bos_token_id=256,"
               "eos_token_id=256,resid_pdrop=0,embd_pdrop=0,attn_pdrop=0,"
               f"initializer_range={options.initializer_range}",
               "--tokenizer_name", "byte", "--train_file", str(folder / "text.txt"), "--block_size", "64",
               "--per_device_train_batch_size", "8", "--max_steps", str(options.steps), "--learning_rate", str(rate),
               "--lr_scheduler_type", "constant_with_warmup", "--warmup_steps", str(max(1, options.steps // 10)),
               "--weight_decay", "0", "--seed", str(seed), "--logging_steps", "1", "--save_strategy", "no",
               "--report_to", "none", "--disable_tqdm", "true", "--output_dir", str(out)]
    if mup:
        command += ["--use_mup", "--mup_base_hidden_size", str(options.widths[0]), "--mup_base_head_dim", "16"]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    if done.returncode != 0:
        return math.inf
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line and "event" not in line]
    last = losses[-max(1, options.steps // 10):]
    return sum(last) / len(last)


def best(rates, losses):
    """The rate of minimum loss, from the parabola through the minimum and its neighbours."""
    i = min(range(len(rates)), key=lambda k: losses[k])
    if i in (0, len(rates) - 1) or not math.isfinite(losses[i - 1] + losses[i + 1]):
        return rates[i]
    below, here, above = losses[i - 1:i + 2]
    return rates[i] * 2 ** (0.5 * (below - above) / (below - 2 * here + above))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--widths", default="64,128,256,512")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rates", type=int, default=5)
    parser.add_argument("--first", type=float, default=2.5e-4)
    parser.add_argument("--initializer_range", type=float, default=0.02)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    options.widths = [int(width) for width in options.widths.split(",")]
    rates = [options.first * 2 ** k for k in range(options.rates)]
    docs = pathlib.Path(__file__).parent.parent / "docs"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("".join(page.read_text() for page in sorted(docs.glob("*.md"))))
        for mup in (True, False):
            columns = " ".join(f"{rate:8.4g}" for rate in rates)
            print(f"{'use_mup' if mup else 'without':8} width  {columns}   best")
            for width in options.widths:
                losses = [sum(run(options, folder, width, rate, mup, seed) for seed in range(1, options.seeds + 1)) /
                          options.seeds for rate in rates]
                columns = " ".join(f"{loss:8.4f}" for loss in losses)
                print(f"{'':8} {width:5}  {columns}   {best(rates, losses):.2g}", flush=True)


if __name__ == "__main__":
    main()
