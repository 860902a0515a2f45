"""FSDP2, FSDP1, DTensor, tensor and sequence parallelism, pipelining, distributed checkpoints, all unmodified."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from harness import Skip, case, equal
from models import batch, build, loss_of

OLD = torch.__version__.startswith("2.6")
if not OLD:
    from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, SequenceParallel,  # noqa: E402
                                               parallelize_module)


def train(rank, model, steps=4, opt=None, data=None):
    opt = opt or torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        x, y = batch(step, rank.rank if data is None else data)
        loss = loss_of(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.detach())
    return losses


def shard(mesh, batch_norm=True, **settings):
    if OLD:
        raise Skip("FSDP2 of torch 2.6 does not run on the CPU, with Gloo neither")
    model = build(batch_norm=batch_norm)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **settings)
    return fully_shard(model, mesh=mesh, **settings)


def whole(model):
    return [p.full_tensor().detach() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]


def fsdp2(rank, **settings):
    rank.start()
    model = shard(init_device_mesh("cpu", (rank.size,)), **settings)
    return train(rank, model) + whole(model)


case("FSDP2")(fsdp2)
case("FSDP2 (4 ranks)", 4)(fsdp2)


@case("FSDP2 without resharding, with prefetch")
def fsdp2_prefetch(rank):
    rank.start()
    model = shard(init_device_mesh("cpu", (rank.size,)), reshard_after_forward=False)
    model.blocks[0].set_modules_to_forward_prefetch([model.blocks[1]])
    model.blocks[1].set_modules_to_backward_prefetch([model.blocks[0]])
    return train(rank, model) + whole(model)


@case("FSDP2, bf16")
def fsdp2_mixed(rank):
    if OLD:
        raise Skip("FSDP2 of torch 2.6 does not run on the CPU, with Gloo neither")
    from torch.distributed.fsdp import MixedPrecisionPolicy
    return fsdp2(rank, batch_norm=False, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))


@case("FSDP2, clipping and accumulation")
def fsdp2_clip(rank):
    rank.start()
    model = shard(init_device_mesh("cpu", (rank.size,)))
    opt, out = torch.optim.SGD(model.parameters(), lr=0.05), []
    for step in range(4):
        model.set_requires_gradient_sync(step % 2 == 1)
        x, y = batch(step, rank.rank)
        loss = loss_of(model(x), y)
        loss.backward()
        if step % 2:
            out.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor())
            opt.step()
            opt.zero_grad()
        out.append(loss.detach())
    return out + whole(model)


@case("HSDP", 4)
def hsdp(rank):
    rank.start()
    model = shard(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    return train(rank, model) + whole(model)


@case("FSDP1")
def fsdp1(rank):
    from torch.distributed.fsdp import FullyShardedDataParallel
    rank.start()
    return train(rank, FullyShardedDataParallel(build(), device_id=torch.device("cpu"), use_orig_params=True))


@case("tensor parallelism")
def tensor_parallel(rank):
    rank.start()
    mesh, model = init_device_mesh("cpu", (rank.size,)), build()
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    opt = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    return train(rank, model, opt=opt, data=0) + whole(model)


@case("sequence parallelism")
def sequence_parallel(rank):
    rank.start()
    torch.manual_seed(0)
    model = torch.nn.Sequential()
    model.norm, model.up, model.down = torch.nn.LayerNorm(32), torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
    model = parallelize_module(model, init_device_mesh("cpu", (rank.size,)), {
        "norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False)})
    y = model(torch.randn(2, 8, 32, generator=torch.Generator().manual_seed(3)))
    y.full_tensor().square().sum().backward()
    return [y.full_tensor()] + [p.grad.full_tensor() for p in model.parameters()]


@case("DTensor", 3)
def dtensor(rank):
    rank.start()
    mesh = init_device_mesh("cpu", (rank.size,))
    x = torch.randn(9, 10, generator=torch.Generator().manual_seed(2))
    a = distribute_tensor(x, mesh, [Shard(0)])
    b = a.redistribute(mesh, [Shard(1)])
    c = b.redistribute(mesh, [Replicate()])
    s = DTensor.from_local(x * rank.rank, mesh, [Partial()]).redistribute(mesh, [Shard(0)])
    return [b.to_local(), c.to_local(), s.full_tensor(), (a @ a.t()).full_tensor()]


@case("FSDP2 times tensor parallelism", 4)
def fsdp_times_tp(rank):
    rank.start()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    if OLD:
        raise Skip("FSDP2 of torch 2.6 does not run on the CPU, with Gloo neither")
    model = build()
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    opt = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    return train(rank, model, opt=opt, data=mesh["dp"].get_local_rank())


def pipeline(rank, schedule, per_rank=1):
    from torch.distributed import pipelining
    rank.start()
    torch.manual_seed(0)
    n = rank.size * per_rank
    parts = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()) for _ in range(n)]
    mine = [i for i in range(n) if i % rank.size == rank.rank]
    stages = [pipelining.PipelineStage(parts[i], i, n, torch.device("cpu")) for i in mine]
    made = getattr(pipelining, schedule)(stages[0] if per_rank == 1 else stages, n_microbatches=4,
                                         loss_fn=torch.nn.functional.mse_loss)
    generator, out = torch.Generator().manual_seed(5), []
    for _ in range(3):
        x, y, losses = torch.randn(8, 16, generator=generator), torch.randn(8, 16, generator=generator), []
        made.step(*((x,) if rank.rank == 0 else ()),
                  **({"target": y, "losses": losses} if rank.rank == rank.size - 1 else {}))
        out += [loss.detach() for loss in losses] + [p.grad.clone() for i in mine for p in parts[i].parameters()]
    return out


case("pipelining, GPipe")(lambda rank: pipeline(rank, "ScheduleGPipe"))
case("pipelining, 1F1B", 3)(lambda rank: pipeline(rank, "Schedule1F1B"))
case("pipelining, interleaved 1F1B")(lambda rank: pipeline(rank, "ScheduleInterleaved1F1B", 2))


@case("distributed checkpoint")
def checkpoint(rank):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    rank.start()
    mesh = init_device_mesh("cpu", (rank.size,))
    model = shard(mesh)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    train(rank, model, 2, opt)
    path = rank.folder + "/checkpoint"
    state, opt_state = get_state_dict(model, opt)
    dcp.save({"m": state, "o": opt_state}, checkpoint_id=path)
    before = whole(model)
    again = shard(mesh)
    opt = torch.optim.Adam(again.parameters(), lr=1e-3)
    state, opt_state = get_state_dict(again, opt)
    dcp.load({"m": state, "o": opt_state}, checkpoint_id=path)
    set_state_dict(again, opt, model_state_dict=state, optim_state_dict=opt_state)
    equal(whole(again), before)
