"""The peer of bench/tensor_bench.cpp: transformers' LlamaForCausalLM, cut by PyTorch's own tensor parallelism
(torch.distributed.tensor.parallel.parallelize_module, DTensor) over Gloo. Prints one JSON line of rank 0.

    torchrun --nproc_per_node 2 -- tensor_peer.py --layers 4 --d 512 --heads 8 --kv 8 --intermediate 1408 --vocab 8192 \
             --T 256 --B 8 --steps 6 --threads 1
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import small_llama

a = small_llama.parser().parse_args()
torch.set_num_threads(a.threads)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
model = small_llama.model(a).train()
plan = {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Replicate())}
for i in range(a.layers):
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
        plan[f"model.layers.{i}.{name}"] = ColwiseParallel()
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        plan[f"model.layers.{i}.{name}"] = RowwiseParallel()
parallelize_module(model, mesh, plan)
cut = [q for q in model.parameters() if isinstance(q, DTensor)]
whole = [q for q in model.parameters() if not isinstance(q, DTensor)]
optimizer = torch.optim.AdamW([{"params": cut}, {"params": whole}], lr=3e-4, weight_decay=0.0, foreach=False)


def train(ids):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())


small_llama.measure_training(a, train)
dist.destroy_process_group()
