"""Makes tests/fixtures/torch_files: files of torch.save and a folder of torch.distributed.checkpoint written by two
processes.

    python tests/parity/make_torch_files.py tests/fixtures/torch_files
"""
import collections
import os
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def values(*shape, dtype=torch.float32):
    """0, 0.5, 1, ...: exact in every dtype here."""
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count) / 2).to(dtype).reshape(shape)


def state_dict():
    tied = values(4, 3)
    return collections.OrderedDict(
        [("embed.weight", tied), ("head.weight", tied), ("half", values(5, dtype=torch.float16)),
         ("brain", values(2, 3, dtype=torch.bfloat16)), ("turned", values(3, 4).t()), ("part", values(10)[4:7]),
         ("count", torch.tensor(7)), ("flags", torch.tensor([True, False])), ("none", torch.empty(0, 3)),
         ("parameter", torch.nn.Parameter(values(2, 2)))])


def save_shards(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29641", RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    state = {"model": {"rows": distribute_tensor(values(5, 4), mesh, [Shard(0)]),
                       "columns": distribute_tensor(values(3, 6), mesh, [Shard(1)]),
                       "whole": distribute_tensor(values(7, dtype=torch.bfloat16), mesh, [Replicate()])},
             "optimizer": {"step": torch.tensor(3.0)}, "epoch": 2}
    dcp.save(state, checkpoint_id=folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    torch.save(state_dict(), os.path.join(out, "state_dict.bin"))
    torch.save(values(2, 3), os.path.join(out, "tensor.bin"))
    torch.save({"model": {"w": values(3)}, "step": 5, "names": ["a"]}, os.path.join(out, "nested.bin"))
    torch.save(state_dict(), os.path.join(out, "before_1.6.bin"), _use_new_zipfile_serialization=False)
    torch.save({"w": values(2), "made_by": os.path.join}, os.path.join(out, "with_a_function.bin"))
    dcp_folder = os.path.join(out, "dcp")
    shutil.rmtree(dcp_folder, ignore_errors=True)
    mp.spawn(save_shards, (dcp_folder,), nprocs=2)
