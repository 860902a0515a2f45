"""The peer of bench/tensor_bench.cpp: transformers' LlamaForCausalLM, cut by PyTorch's own tensor parallelism
(torch.distributed.tensor.parallel.parallelize_module, DTensor) over Gloo. Prints one JSON line of rank 0.

    torchrun --nproc_per_node 2 tensor_peer.py --layers 4 --d 512 --heads 8 --kv 8 --intermediate 1408 --vocab 8192 \
             --T 256 --B 8 --steps 6 --threads 1
"""
import argparse, json, statistics, time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from transformers import LlamaConfig, LlamaForCausalLM

p = argparse.ArgumentParser()
for name, value in dict(layers=4, d=512, heads=8, kv=8, intermediate=1408, vocab=8192, T=256, B=8, steps=6,
                        warmup=2, threads=1).items():
    p.add_argument("--" + name, type=int, default=value)
a = p.parse_args()


def tokens(step):
    """As rows() of bench/tensor_bench.cpp."""
    x, ids = step + 1, []
    for _ in range(a.B * a.T):
        x = (1103515245 * x + 12345) & 0x7FFFFFFF
        ids.append((x >> 8) % a.vocab)
    return torch.tensor(ids).view(a.B, a.T)


torch.set_num_threads(a.threads)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
torch.manual_seed(0)
config = LlamaConfig(num_hidden_layers=a.layers, hidden_size=a.d, num_attention_heads=a.heads,
                     num_key_value_heads=a.kv, intermediate_size=a.intermediate, vocab_size=a.vocab,
                     max_position_embeddings=max(a.T, 512), tie_word_embeddings=False, use_cache=False, dtype="float32")
config._attn_implementation = "sdpa"
model = LlamaForCausalLM(config).train()
plan = {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Replicate())}
for i in range(a.layers):
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
        plan[f"model.layers.{i}.{name}"] = ColwiseParallel()
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        plan[f"model.layers.{i}.{name}"] = RowwiseParallel()
parallelize_module(model, mesh, plan)
cut = [q for q in model.parameters() if isinstance(q, torch.distributed.tensor.DTensor)]
whole = [q for q in model.parameters() if not isinstance(q, torch.distributed.tensor.DTensor)]
optimizer = torch.optim.AdamW([{"params": cut}, {"params": whole}], lr=3e-4, weight_decay=0.0, foreach=False)

times, cpu = [], 0.0
for step in range(a.steps + a.warmup):
    ids = tokens(step)
    dist.barrier()
    if step == a.warmup:
        cpu = time.process_time()
    begin = time.perf_counter()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    value = float(loss.detach())
    times.append(time.perf_counter() - begin)
spent = torch.tensor([time.process_time() - cpu], dtype=torch.float64)
dist.all_reduce(spent)
if dist.get_rank() == 0:
    print(json.dumps({"tok_s": a.B * a.T / statistics.median(times[a.warmup:]), "cpu_s": spent.item() / a.steps,
                      "loss": value}))
dist.destroy_process_group()
