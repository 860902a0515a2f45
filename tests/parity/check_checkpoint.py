"""Checks checkpoints from Python: transformers opens OUT/checkpoint-N of a running training, and the final output,
unchanged, and computes our logits (bound: 1e-5 of the largest); safetensors opens every file, and the indexes match the
files.

    python tests/parity/check_checkpoint.py [build]        (needs torch, transformers, safetensors)
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

PROMPT = "the small stones of row 7 form a mosaic."
BOUND = 1e-5

# name, model, processes, further flags, whether checkpoints are divided
RUNS = [
    ("gpt2, full_shard, 2 ranks", "gpt2-tiny", 2, ["--fsdp", "full_shard"], True),
    ("gpt2, full_shard, 3 ranks", "gpt2-tiny", 3, ["--fsdp", "full_shard"], True),
    ("gpt2, ddp, 2 ranks", "gpt2-tiny", 2, [], True),
    ("gpt2, zero 1, 2 ranks, adafactor", "gpt2-tiny", 2, ["--zero_stage", "1", "--optim", "adafactor"], True),
    ("gpt2, 1 rank", "gpt2-tiny", 1, [], False),
    ("gpt2, full_shard, 2 ranks, FULL", "gpt2-tiny", 2, ["--fsdp", "full_shard", "--save_state_dict_type", "full"],
     False),
    ("llama, full_shard, 2 ranks", "llama-tiny", 2, ["--fsdp", "full_shard"], True),
    ("llama, hybrid_shard, 2 ranks", "llama-tiny", 2, ["--fsdp", "hybrid_shard", "--shard_group_size", "1"], True),
    ("llama, full_shard, 3 ranks, bf16", "llama-tiny", 3, ["--fsdp", "full_shard", "--bf16"], True),
]


def logits_of(build, folder, scratch):
    """Compares transformers' logits of one prompt with ours: (difference relative to the largest logit, problems)."""
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    problems = [f"{what}: {names}" for what, names in info.items() if names]
    file = os.path.join(scratch, "logits.safetensors")
    subprocess.run([f"{build}/examples/next_token", folder, PROMPT, "--logits", file], check=True,
                   stdout=subprocess.DEVNULL)
    ours = load_file(file)
    with torch.no_grad():
        theirs = model.eval()(ours["ids"]).logits
    return ((ours["logits"] - theirs).abs().max() / theirs.abs().max()).item(), problems


def weight_files(folder):
    """Problems of the weight files and their index, read with safetensors."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        load_file(os.path.join(folder, "model.safetensors"))
        return []
    with open(index) as file:
        content = json.load(file)
    held, size = {}, 0
    for path in glob.glob(os.path.join(folder, "model-*.safetensors")):
        for name, tensor in load_file(path).items():
            held[name] = os.path.basename(path)
            size += tensor.numel() * tensor.element_size()
    problems = [] if held == content["weight_map"] else ["the index does not say what the files hold"]
    if size != content["metadata"]["total_size"]:
        problems.append(f"total_size is {content['metadata']['total_size']}, the tensors have {size} bytes")
    return problems


def states(folder):
    """{name: whole tensor} of the optimizer, assembled from the pieces that the ranks wrote
    (docs/checkpoints.md)."""
    index = os.path.join(folder, "optimizer.safetensors.index.json")
    if not os.path.exists(index):
        return load_file(os.path.join(folder, "optimizer.safetensors"))
    with open(index) as file:
        tensors = json.load(file)["tensors"]
    files, whole = {}, {}
    for name, entry in tensors.items():
        flat = None
        for piece in entry["pieces"]:
            if piece["file"] not in files:
                files[piece["file"]] = safe_open(os.path.join(folder, piece["file"]), framework="pt")
            part = files[piece["file"]].get_tensor(piece.get("key", name)).flatten()
            if flat is None:
                flat = torch.full((torch.Size(entry["shape"]).numel(),), float("nan"), dtype=part.dtype)
            flat[piece["begin"]:piece["end"]] = part
        whole[name] = flat.reshape(entry["shape"])
    return whole


def state_files(folder):
    """Problems of the optimizer states, compared with their weights."""
    shapes, problems = {}, []
    for path in glob.glob(os.path.join(folder, "model*.safetensors")):
        with safe_open(path, framework="pt") as file:
            shapes.update({name: list(file.get_slice(name).get_shape()) for name in file.keys()})
    for name, tensor in states(folder).items():
        if not torch.isfinite(tensor).all():
            problems.append(f"{name}: its pieces do not cover it")
        kind, parameter = name.split(".", 1)
        if kind in ("exp_avg", "exp_avg_sq") and list(tensor.shape) != shapes.get(parameter):
            problems.append(f"{name} has shape {list(tensor.shape)}, its parameter {shapes.get(parameter)}")
    return problems


def check(build, name, preset, ranks, flags, divided):
    with tempfile.TemporaryDirectory() as scratch:
        with open(f"{scratch}/text.txt", "w") as file:
            for i in range(3000):
                file.write(f"the {i % 7} small stones of row {i % 11} form a mosaic.\n")
        out = f"{scratch}/out"
        command = [f"{build}/tessera", "train", "--config_name", preset, "--config_overrides",
                   "vocab_size=257,bos_token_id=256,eos_token_id=256", "--tokenizer_name", "byte",
                   "--train_file", f"{scratch}/text.txt", "--block_size", "64", "--per_device_train_batch_size", "2",
                   "--learning_rate", "1e-3", "--max_steps", "300", "--save_steps", "50", "--logging_steps", "1",
                   "--output_dir", out, "--num_processes", str(ranks), *flags]
        run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env=dict(os.environ, OMP_NUM_THREADS="1"))
        lines, worst, problems, opened_while_running = [], 0.0, [], 0

        def open_it(folder, what):
            nonlocal worst
            difference, found = logits_of(build, folder, scratch)
            found += weight_files(folder)
            worst = max(worst, difference)
            if difference > BOUND:
                found.append(f"logits differ by {difference:.1e}")
            problems.extend(f"{what}: {text}" for text in found)

        for line in run.stdout:
            lines.append(line)
            saved = re.search(r"saved (\S*checkpoint-(\d+))", line)
            if saved and int(saved.group(2)) in (50, 150):
                folder = saved.group(1)
                if os.path.exists(os.path.join(folder, "model.safetensors.index.json")) != divided:
                    problems.append(f"checkpoint-{saved.group(2)} is {'not ' if divided else ''}divided")
                # The program's output pipe is not read while it runs; the output is small enough not to block it.
                open_it(folder, f"checkpoint-{saved.group(2)}")
                problems.extend(f"checkpoint-{saved.group(2)}: {text}" for text in state_files(folder))
                opened_while_running += run.poll() is None
        if run.wait():
            problems.append(f"exit code {run.returncode}: {''.join(lines)[-1500:]}")
        else:
            open_it(f"{out}/checkpoint-300", "checkpoint-300")
            open_it(out, "the final model")
        print(f"{name:36s} logits within {worst:.1e}, {opened_while_running} checkpoints opened while it ran: "
              f"{'; '.join(problems) or 'as it should be'}", flush=True)
        return not problems and opened_while_running > 0


def main(build="build"):
    disable_progress_bar()
    good = [check(build, *run) for run in RUNS]
    print(f"{sum(good)} of {len(good)} runs as they should be")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
