"""Parameters, optimizer states and objects from one rank to all."""
import io
import pickle

import torch

from ._api import allgather, broadcast_, broadcast_async_, global_process_set, rank, synchronize


def broadcast_parameters(params, root_rank, process_set=global_process_set):
    """In place: a state_dict(), named_parameters(), or a list of (name, tensor)."""
    rows = sorted(params.items()) if isinstance(params, dict) else list(params)
    handles = []
    for i, row in enumerate(rows):
        name, tensor = row if isinstance(row, tuple) else (str(i), row)
        if isinstance(tensor, torch.Tensor):
            with torch.no_grad():
                handles.append(broadcast_async_(tensor, root_rank, "parameters." + name, process_set))
    for handle in handles:
        synchronize(handle)


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """Broadcasts any picklable object; returns the root's."""
    data = torch.empty(0, dtype=torch.uint8)
    if rank() == root_rank:
        data = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    size = broadcast_(torch.tensor([data.numel()]), root_rank, name and name + ".size", process_set)
    if rank() != root_rank:
        data = torch.empty(int(size), dtype=torch.uint8)
    broadcast_(data, root_rank, name and name + ".data", process_set)
    if rank() == root_rank:
        return obj
    return pickle.loads(data.numpy().tobytes() if _has_numpy() else bytes(data.tolist()))


def allgather_object(obj, name=None, process_set=global_process_set):
    """The objects of all ranks of the set, in rank order."""
    data = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    sizes = allgather(torch.tensor([data.numel()]), name and name + ".sizes", process_set)
    rows = allgather(data, name and name + ".data", process_set)
    return [pickle.loads(bytes(part.tolist()) if not _has_numpy() else part.numpy().tobytes())
            for part in rows.split([int(n) for n in sizes])]


def broadcast_optimizer_state(optimizer, root_rank, model=None):
    """Broadcasts the state of the root's optimizer, also to ranks on which it is empty."""
    buffer = io.BytesIO()
    if rank() == root_rank:
        torch.save(optimizer.state_dict(), buffer)
    data = broadcast_object(buffer.getvalue(), root_rank, "optimizer_state")
    if rank() != root_rank:
        base = super(type(optimizer), optimizer) if hasattr(optimizer, "_hvd_names") else optimizer
        base.load_state_dict(torch.load(io.BytesIO(data), weights_only=False))


def _has_numpy():
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True
