"""The peer of bench/pipeline_bench.cpp: transformers' LlamaForCausalLM, cut by hand into two stages, under PyTorch's
own schedules (torch.distributed.pipelining) over Gloo. Prints one JSON line of rank 0.

    torchrun --nproc_per_node 2 -- pipeline_peer.py --schedule 1F1B --blocks 3 --micro_batches 8 --layers 4 --d 512 \
             --heads 8 --kv 8 --intermediate 1408 --vocab 8192 --T 256 --B 8 --steps 6 --threads 1

--schedule GPipe or 1F1B; --blocks: blocks of the first stage, default half of them.
"""
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

import small_llama

p = small_llama.parser(micro_batches=8, blocks=0)
p.add_argument("--schedule", choices=["GPipe", "1F1B"], default="1F1B")
a = p.parse_args()
torch.set_num_threads(a.threads)
dist.init_process_group("gloo")
rank, first = dist.get_rank(), a.blocks or a.layers // 2


class Stage(torch.nn.Module):
    """The blocks of one rank; the first also has the embeddings, the last the norm and the head."""

    def __init__(self, whole):
        super().__init__()
        inner = whole.model
        self.embeddings = inner.embed_tokens if rank == 0 else None
        self.blocks = torch.nn.ModuleList(inner.layers[:first] if rank == 0 else inner.layers[first:])
        self.rotary = inner.rotary_emb
        self.norm, self.head = (None, None) if rank == 0 else (inner.norm, whole.lm_head)

    def forward(self, x):
        if self.embeddings is not None:
            x = self.embeddings(x)
        positions = torch.arange(x.shape[1])[None]
        angles = self.rotary(x, positions)
        for block in self.blocks:  # without a mask: causal
            x = block(x, attention_mask=None, position_ids=positions, position_embeddings=angles)
            x = x[0] if isinstance(x, tuple) else x
        return x if self.head is None else self.head(self.norm(x))


def loss_of(logits, labels):
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


module = Stage(small_llama.model(a)).train()
optimizer = torch.optim.AdamW(module.parameters(), lr=3e-4, weight_decay=0.0, fused=True)
make = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}[a.schedule]
schedule = make(PipelineStage(module, rank, 2, torch.device("cpu")), a.micro_batches, loss_fn=loss_of)


def train(ids):
    losses = []
    if rank == 0:
        schedule.step(ids)
    else:
        schedule.step(target=ids, losses=losses, return_outputs=False)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    loss = torch.tensor([float(torch.stack(losses).detach().mean()) if losses else 0.0])
    dist.broadcast(loss, 1)
    return loss.item()


small_llama.measure_training(a, train)
dist.destroy_process_group()
