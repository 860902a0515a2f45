#!/usr/bin/env python3
"""Checks Tessera on a machine with a GPU: correctness first, then speed. Needs PACK (gpu_pack.py) and torch's wheel.

usage: gpu_check.py [PACK] [--seconds N] [--tiny]

Each item runs under a time limit and prints one JSON line ("ok": true, false, or null for skipped); the table follows
at the end, and the exit status is 1 if an item failed. An item that would start after --seconds is skipped. --tiny:
models that a processor trains in seconds, for trying the script itself. $OUT: a folder for the lines (check.jsonl) and
the logs.
"""
import argparse
import glob
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

GPT2 = "resid_pdrop=0,attn_pdrop=0,embd_pdrop=0"
LLAMA_1B = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 2048,
            "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
            "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True}
QWEN_05B = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936, "hidden_size": 896,
            "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
            "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": True}
MIXTRAL = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 320, "hidden_size": 64,
           "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
           "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
           "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": False}
SMALL = "n_layer=2,n_embd=64,n_head=4,n_positions=128,vocab_size=257,bos_token_id=256,eos_token_id=256," + GPT2

# A GPT-2 of plain PyTorch modules, as PyTorch users would write it. Prints tokens per second.
PEER = r'''
import sys, time, torch, torch.nn as nn, torch.nn.functional as F
rows, length, layers, width, heads, steps = map(int, sys.argv[1:])
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))
class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(50257, width), nn.Embedding(length, width)
        self.blocks, self.norm = nn.Sequential(*[Block() for _ in range(layers)]), nn.LayerNorm(width)
    def forward(self, ids):
        x = self.blocks(self.tok(ids) + self.pos(torch.arange(ids.size(1), device=ids.device)))
        return F.linear(self.norm(x), self.tok.weight)
model = Gpt().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
ids = torch.randint(0, 50257, (rows, length + 1), device="cuda")
for step in range(steps):
    if step == steps // 3:
        torch.cuda.synchronize(); begin = time.time()
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step(); optimizer.zero_grad(set_to_none=True)
torch.cuda.synchronize()
print((steps - steps // 3) * rows * length / (time.time() - begin))
'''


class Check:
    def __init__(self, options):
        self.options = options
        self.begin = time.monotonic()
        self.pack = os.path.abspath(options.pack)
        self.out = os.environ.get("OUT") or tempfile.mkdtemp(prefix="tessera-gpu-check-")
        self.work = tempfile.mkdtemp(prefix="tessera-gpu-work-")
        self.lines = []
        self.environment = {**os.environ, "LD_LIBRARY_PATH": self.library_path(), "OMP_NUM_THREADS": "4",
                            "HF_HOME": self.work, "TESSERA_TEST_SOURCE": self.pack}
        with open(os.path.join(self.work, "text.txt"), "w") as file:
            for i in range(4000):
                file.write(f"the {i % 7} small stones of row {i % 11} form a mosaic.\n")

    def library_path(self):
        """The pack's folder, those of torch's wheel (found without importing torch), then the current value."""
        folders = [os.path.join(self.pack, "lib")]
        place = os.environ.get("TESSERA_TORCH_LIB")  # a folder with libtorch_cpu.so
        spec = importlib.util.find_spec("torch") if place is None else None
        if place is None and (spec is None or spec.origin is None):
            sys.exit("gpu_check: no torch wheel in this Python; set TESSERA_TORCH_LIB to the folder of libtorch_cpu.so")
        place = place or os.path.join(os.path.dirname(spec.origin), "lib")
        folders += [place] + sorted(glob.glob(os.path.join(place, "..", "..", "nvidia", "*", "lib")))
        return ":".join(folders + [path for path in [os.environ.get("LD_LIBRARY_PATH")] if path])

    def item(self, name, limit, function):
        began = time.monotonic()
        limit *= 10 if self.options.tiny else 1  # --tiny runs on the CPU, which may be busy
        if began - self.begin > self.options.seconds:
            line = {"item": name, "ok": None, "why": "no time left"}
        else:
            try:
                line = {"item": name, "ok": True, **(function(limit) or {})}
            except Skipped as why:
                line = {"item": name, "ok": None, "why": str(why)}
            except Exception as error:  # a failing item does not end the session
                line = {"item": name, "ok": False, "why": str(error)[-600:]}
        line["seconds"] = round(time.monotonic() - began, 1)
        self.lines.append(line)
        print(json.dumps(line), flush=True)
        with open(os.path.join(self.out, "check.jsonl"), "a") as file:
            file.write(json.dumps(line) + "\n")

    def run(self, name, limit, *command):
        """Runs a command; its output goes to a log. Raises with the log's end when it fails."""
        log = os.path.join(self.out, name.replace(" ", "_").replace("/", "_") + ".log")
        with open(log, "w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=self.environment,
                                       cwd=self.work, start_new_session=True)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = f"over {limit} s"
                os.killpg(process.pid, signal.SIGKILL)  # including its ranks
                process.wait()
        text = open(log, errors="replace").read()
        if code != 0:
            raise RuntimeError(f"{code}: {text[-500:]}")
        return text

    def train(self, name, limit, device, *settings, ranks=1):
        """Trains; returns the values in the metrics of the steps."""
        out = os.path.join(self.work, name.replace(" ", "_"))
        shutil.rmtree(out, ignore_errors=True)
        program = os.path.join(self.pack, "tessera")
        launcher = [] if ranks == 1 else ["launch", "--nproc_per_node", str(ranks), program]
        self.run(name, limit, program, *launcher, "train", "--device", device, "--output_dir", out, "--save_strategy",
                 "no", "--lr_scheduler_type", "constant", "--logging_nan_inf_filter",
                 "false", *settings)
        lines = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))]
        return [line for line in lines if "event" not in line]

    def config(self, name, value):
        path = os.path.join(self.work, name + ".json")
        json.dump(value, open(path, "w"))
        return path

    # ---- items ----
    def devices(self, limit):
        text = self.run("env", limit, os.path.join(self.pack, "tessera"), "env")
        count = int(re.search(r"plug-in found, (\d+) device", text)[1])
        if count == 0:
            raise RuntimeError("the plug-in sees no device")
        return {"devices": count}

    def tests(self, limit):
        program = os.path.join(self.pack, "device_check")
        some = ["--gtest_filter=*/llama:*/mixtral:DeviceRows.*:DeviceHeadLoss.*"] if self.options.tiny else []
        shown = self.run("device_check", limit, program, *some)
        return {"passed": int(re.search(r"\[  PASSED  \] (\d+) tests", shown)[1])}

    def losses(self, limit, *model, bound=2e-5, more=(), ranks=1):
        settings = [*model, "--tokenizer_name", "byte", "--train_file", os.path.join(self.work, "text.txt"),
                    "--block_size", "64", "--per_device_train_batch_size", "4", "--learning_rate", "1e-3",
                    "--logging_steps", "1", "--max_steps", "3" if self.options.tiny else "20"]
        cpu = self.train("losses cpu", limit / 2, "cpu", *settings, ranks=ranks)
        cuda = self.train("losses cuda", limit / 2, "cuda", *settings, *more, ranks=ranks)
        worst = max(abs(float(a["loss"]) - float(b["loss"])) / float(a["loss"]) for a, b in zip(cpu, cuda, strict=True))
        if not worst <= bound:  # this condition is also true for NaN
            raise RuntimeError(f"losses differ by {worst:.2g}, more than {bound}")
        return {"worst_relative_difference": worst}

    def speed(self, limit, rows, length, *model, more=("--bf16",)):
        if self.options.tiny:
            rows, length, model = 2, 32, ("--config_name", "gpt2", "--config_overrides", SMALL)
        steps = 6 if self.options.tiny else 30
        lines = self.train(f"speed {rows}x{length}", limit, "cuda", *model, "--mock_data", "--block_size", str(length),
                           "--per_device_train_batch_size", str(rows), "--max_steps", str(steps), "--logging_steps",
                           str(steps // 3), "--learning_rate", "1e-4", *more)
        return {"tokens_per_second": round(lines[-1]["tokens_per_second"]), "rows": rows, "length": length}

    def peer(self, limit, rows, length):
        if self.options.tiny:
            raise Skipped("no CUDA in PyTorch here")
        text = self.run(f"peer {rows}x{length}", limit, sys.executable, "-c", PEER, str(rows), str(length), "12", "768",
                        "12", "30")
        return {"tokens_per_second": round(float(text.split()[-1])), "rows": rows, "length": length}

    def sanitizer(self, limit):
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.path.exists(tool):
            raise Skipped("no compute-sanitizer")
        self.run("sanitizer", limit, tool, "--tool", "memcheck", "--error-exitcode", "9",
                 os.path.join(self.pack, "device_check"),
                 "--gtest_filter=*OneRank/llama:DeviceRows.*:DeviceHeadLoss.*:DeviceDropout.*")

    def all(self):
        gpt2 = ("--config_name", "gpt2", "--config_overrides")
        small = (*gpt2, SMALL)
        self.item("devices", 60, self.devices)
        self.item("device_check", 120, self.tests)
        self.item("losses gpt2 fp32", 40, lambda s: self.losses(s, *small))
        self.item("losses gpt2 bf16", 40, lambda s: self.losses(s, *small, bound=5e-3, more=("--bf16",)))
        self.item("losses mixtral fp32", 40,
                  lambda s: self.losses(s, "--config_name", self.config("mixtral", MIXTRAL)))
        self.item("losses full_shard, 2 ranks on one GPU", 60,
                  lambda s: self.losses(s, *small, "--fsdp", "full_shard", ranks=2))
        for rows in (64, 4):
            self.item(f"speed gpt2 124M {rows}x1024", 60, lambda s: self.speed(s, rows, 1024, *gpt2, GPT2))
            self.item(f"PyTorch eager gpt2 124M {rows}x1024", 60, lambda s: self.peer(s, rows, 1024))
        self.item("speed gpt2 1558M 8x1024", 90,
                  lambda s: self.speed(s, 8, 1024, *gpt2, "n_layer=48,n_embd=1600,n_head=25," + GPT2))
        self.item("speed qwen2.5 0.5B 8x2048", 60,
                  lambda s: self.speed(s, 8, 2048, "--config_name", self.config("qwen", QWEN_05B)))
        self.item("speed llama 1B 4x4096", 60,
                  lambda s: self.speed(s, 4, 4096, "--config_name", self.config("llama", LLAMA_1B)))
        self.item("compute-sanitizer memcheck", 90, self.sanitizer)
        print("\n| item | result | seconds |\n|---|---|---|")
        for line in self.lines:
            numbers = ", ".join(f"{k} {v}" for k, v in line.items() if k not in ("item", "ok", "seconds"))
            word = {True: "ok", False: "FAILED", None: "skipped"}[line["ok"]]
            print(f"| {line['item']} | {word} {numbers} | {line['seconds']} |")
        shutil.rmtree(self.work, ignore_errors=True)
        return 1 if any(line["ok"] is False for line in self.lines) else 0


class Skipped(Exception):
    pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", nargs="?", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--seconds", type=float, default=430)
    parser.add_argument("--tiny", action="store_true")
    sys.exit(Check(parser.parse_args()).all())


main()
