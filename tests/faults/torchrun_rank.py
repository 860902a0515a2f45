"""torchrun's side of restart.py: a small model under DistributedDataParallel over Gloo; reports the end of its first
step."""
import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(256, 128),
                                                                      torch.nn.Linear(128, 256)))
optimizer = torch.optim.AdamW(model.parameters())
step = 0
while True:
    model(torch.ones(2, 256)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if step == 1:
        os.write(1, f"ready {dist.get_rank()} {os.getpid()}\n".encode())  # one write: all ranks share a pipe
