#!/usr/bin/env python3
"""Predicts the time of a training step on one H200 from the double's counts: each operator's bytes, FLOPs, launches.

usage: predicted_step.py BUILD [gpt2-124m] [llama-8b] [llama-8b-fp8] [llama-8b-fp8-tensorwise]

The double runs small steps of the true widths without computing products. An operator's cost is linear in rows, layers
and vocabulary, so the cost at full size can be extrapolated. An operator takes the longer of bytes / 4.2 TB/s and
FLOPs / the rate of its kind; the step takes the longer of the sum over operators and the host's launches. The rates are
published measurements on an H200 or H100 (cuBLASLt bf16 products of 768 columns and more; cuDNN attention, forward and
backward together, figures of FlashAttention-3, arXiv 2407.08608); no run here used such a device.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import tempfile

BYTES_PER_SECOND = 4.2e12
LAUNCH_SECONDS = 5e-6
# FLOPs per second by the beginning of the operator's name; the first match decides. Products in bf16: MODELS.
# In fp8 with fast accumulation: 1,083 to 1,141 TFLOP/s were measured on an H100 of 500 W for three shapes of 3584 to
# 65536 (pytorch/FBGEMM pull request 2546, "fp8 row gemm only"; bf16 has 546 to 585 there, so an H200 of 700 W, for
# which MODELS has 660, may have more). Without: 1.15 times slower, since fast accumulation gains 1.1 to 1.2
# (pytorch/ao issue 2377).
RATES = [(r"aten::[\w.]+ BFloat16 unaligned", 230e12), (r"aten::_scaled_mm[\w.]* Float8_\w+ fast", 1100e12),
         (r"aten::_scaled_mm[\w.]* Float8_", 1100e12 / 1.15), (r"(aten::|group_)[\w.]+ Float", 50e12),
         (r".*attention.* d64", 350e12), (r".*attention.* d128", 480e12), (r".*attention", 400e12)]
BF16_PRODUCT = re.compile(r"aten::[\w.]+ BFloat16$")
PEAK = "peak memory"
OPERATION = re.compile(r"OPERATION x(\d+) (.*) bytes (\d+) flops (\d+)")


def settings(name, rows, layers, vocabulary):
    """The program's flags."""
    common = ["--mock_data", "--bf16", "--save_strategy", "no", "--report_to", "none", "--per_device_train_batch_size",
              str(rows)]
    common += MODELS[name][-1]
    if name.startswith("gpt2"):
        return common + ["--config_name", "gpt2", "--block_size", "1024", "--config_overrides",
                         f"n_layer={layers},vocab_size={vocabulary},resid_pdrop=0,embd_pdrop=0,attn_pdrop=0"]
    return common + ["--config_name", "llama-tiny", "--block_size", "8192", "--config_overrides",
                     f"num_hidden_layers={layers},vocab_size={vocabulary},hidden_size=4096,intermediate_size=14336,"
                     "num_attention_heads=32,num_key_value_heads=8,head_dim=128,max_position_embeddings=8192,"
                     "tie_word_embeddings=false"]


def counted(build, name, *size):
    """Calls, bytes and FLOPs of a steady step by operator: of a run of three steps, without those of one of two. And
    the largest bytes of tensors on the device at one time, under the key PEAK."""
    total = collections.defaultdict(lambda: [0.0, 0.0, 0.0])
    peak = 0
    for steps, sign in ((3, 1), (2, -1)):
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(build, "double"), DOUBLE_SKIP_PRODUCTS="1",
                               DOUBLE_REPORT=os.path.join(folder, "report"))
            subprocess.run([os.path.join(build, "tessera"), "train", "--device", "cuda", "--max_steps", str(steps),
                            "--output_dir", os.path.join(folder, "out")] + settings(name, *size),
                           env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for line in open(os.path.join(folder, "out", "metrics.jsonl")):
                peak = max(peak, json.loads(line).get("peak_allocated_bytes", 0))
            for file in os.listdir(folder):
                if file.startswith("report"):
                    for line in open(os.path.join(folder, file), errors="replace"):
                        if found := OPERATION.match(line):
                            for i, number in enumerate((found[1], found[3], found[4])):
                                total[found[2]][i] += sign * float(number)
    total[PEAK] = [0, peak, 0]
    return {key: numbers for key, numbers in total.items() if any(numbers)}


def extrapolated(runs, base, changes):
    """`runs`: [(size, counts)], the first at `base` and one for each change; `changes`: [(small, large, full)]."""
    result = {}
    for key in set().union(*(counts for _, counts in runs)):
        at_base = runs[0][1].get(key, [0, 0, 0])
        numbers = list(at_base)
        for (_, counts), (small, large, full) in zip(runs[1:], changes):
            other = counts.get(key, [0, 0, 0])
            for i in range(3):
                numbers[i] += (other[i] - at_base[i]) / (large - small) * (full - small)
        result[key] = numbers
    return result


MODELS = {
    # name: (base size: rows, layers, vocabulary; sizes to vary: (index, other, full); tokens of the step; FLOPs per
    # second of products in bf16, which grow with their size; target; more flags)
    "gpt2-124m": ((1, 12, 50257), [(0, 2, 64)], 64 * 1024, 600e12, 590_000, []),
    "llama-8b": ((1, 1, 16032), [(1, 2, 32), (2, 32064, 128256)], 8192, 660e12, 11_500, []),
}
# Weights, activations and gradients in flight in bf16, fp32 masters: as in llm.c, LLMQ and FSDP's param_dtype.
BF16_WEIGHTS = ["--param_dtype", "bf16", "--bf16_optimizer_states", "--fsdp"]
FP8 = ["--fp8_format", "hybrid", "--fp8_recipe"]
for model, name, flags in (("gpt2-124m", "bf16-weights", BF16_WEIGHTS + ["shard_grad_op"]),
                           ("llama-8b", "bf16-weights", BF16_WEIGHTS + ["full_shard"]),
                           ("llama-8b", "fp8", FP8 + ["delayed"]), ("llama-8b", "fp8-tensorwise", FP8 + ["tensorwise"]),
                           ("llama-8b", "fp8-bf16-weights", FP8 + ["delayed"] + BF16_WEIGHTS + ["full_shard"])):
    MODELS[f"{model}-{name}"] = (*MODELS[model][:-1], flags)


def predict(build, name):
    base, changes, tokens, product_rate, target, _ = MODELS[name]
    runs = [(base, counted(build, name, *base))]
    for index, other, _ in changes:
        size = list(base)
        size[index] = other
        runs.append((size, counted(build, name, *size)))
    step = extrapolated(runs, base, [(base[i], other, full) for i, other, full in changes])
    peak = step.pop(PEAK)[1]
    rows = []
    for key, (calls, moved, flops) in step.items():
        rate = (product_rate if BF16_PRODUCT.match(key)
                else next((r for pattern, r in RATES if re.match(pattern, key)), None))
        seconds = max(moved / BYTES_PER_SECOND, flops / rate if rate else 0)
        rows.append((seconds, key, calls, moved, flops))
    device = sum(row[0] for row in rows)
    host = sum(row[2] for row in rows) * LAUNCH_SECONDS
    print(f"\n{name}: {tokens} tokens a step, predicted for one H200, not measured")
    print(f"{'ms':>8} {'calls':>7} {'GB':>8} {'TFLOP':>7}  operator")
    for seconds, key, calls, moved, flops in sorted(rows, reverse=True)[:25]:
        print(f"{seconds * 1e3:8.2f} {calls:7.0f} {moved / 1e9:8.2f} {flops / 1e12:7.2f}  {key}")
    print(f"{device * 1e3:8.2f} on the device, {host * 1e3:.2f} for the host's {sum(r[2] for r in rows):.0f} launches: "
          f"{tokens / max(device, host):,.0f} tokens/s; target {target:,}; {peak / 1e9:.1f} GB of tensors at the peak",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], default=[])
    arguments = parser.parse_args()
    for name in arguments.models or MODELS:
        predict(os.path.abspath(arguments.build), name)


if __name__ == "__main__":
    main()
