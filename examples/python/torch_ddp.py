"""torch.distributed on the backend "tessera": two lines differ from a script for Gloo.

    tessera launch --num_processes 2 -- python3 torch_ddp.py      # or: torchrun --nproc_per_node 2 torch_ddp.py
"""
import tessera.torch  # noqa: F401 -- registers the backend
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("tessera")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    target = torch.randn(16, 4)
    for step in range(50):
        x = torch.randn(64, 16, generator=torch.Generator().manual_seed(step * size + rank))
        loss = torch.nn.functional.mse_loss(model(x), x @ target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            dist.all_reduce(loss.data)
            if rank == 0:
                print("step {}: loss {:.4f}".format(step + 1, loss.item() / size), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
