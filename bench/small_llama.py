"""Shared by the PyTorch peers with transformers' Llama: options, model, rows, and the clock of those that run under
torchrun. Like bench/small_llama.h."""
import argparse, json, statistics, time

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

SHAPE = dict(layers=4, d=512, heads=8, kv=8, intermediate=1408, vocab=8192, T=256, B=8)


def parser(**defaults):
    """Integer options by name; default: SHAPE and the steps."""
    p = argparse.ArgumentParser()
    for name, value in {**SHAPE, "steps": 6, "warmup": 2, "threads": 1, **defaults}.items():
        p.add_argument("--" + name, type=int, default=value)
    return p


def model(a, **more):
    """The same initial weights in every process."""
    torch.manual_seed(0)
    config = LlamaConfig(num_hidden_layers=a.layers, hidden_size=a.d, num_attention_heads=a.heads,
                         num_key_value_heads=a.kv, intermediate_size=a.intermediate, vocab_size=a.vocab,
                         max_position_embeddings=max(a.T, 512), use_cache=False, dtype="float32",
                         **{"tie_word_embeddings": False, **more})
    config._attn_implementation = "sdpa"
    return LlamaForCausalLM(config)


def tokens(step, a):
    """31-bit linear congruential generator, restarted per step: x0 = step + 1; token = (x >> 8) mod V, row by row."""
    x, ids = step + 1, []
    for _ in range(a.B * a.T):
        x = (1103515245 * x + 12345) & 0x7FFFFFFF
        ids.append((x >> 8) % a.vocab)
    return torch.tensor(ids).view(a.B, a.T)


def train_alone(a, model, optimizer):
    """Runs the steps of one process: its tok_s, CPU seconds per step, losses."""
    times, losses, cpu = [], [], 0.0
    for step in range(a.steps):
        ids = tokens(step, a)
        if step == a.warmup:
            cpu = time.process_time()
        begin = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        times.append(time.perf_counter() - begin)
    return {"tok_s": a.B * a.T / statistics.median(times[a.warmup:]),
            "cpu_s": (time.process_time() - cpu) / (a.steps - a.warmup), "losses": losses}


def measure_training(a, train):
    """Like measure_training() of bench/small_llama.h: `train` runs one step on ids [B, T] and returns its loss."""
    times, cpu = [], 0.0
    for step in range(a.steps + a.warmup):
        ids = tokens(step, a)
        dist.barrier()
        if step == a.warmup:
            cpu = time.process_time()
        begin = time.perf_counter()
        loss = train(ids)
        times.append(time.perf_counter() - begin)
    spent = torch.tensor([time.process_time() - cpu], dtype=torch.float64)
    dist.all_reduce(spent)
    if dist.get_rank() == 0:
        print(json.dumps({"tok_s": a.B * a.T / statistics.median(times[a.warmup:]), "cpu_s": spent.item() / a.steps,
                          "loss": loss}))
