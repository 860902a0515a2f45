"""Sums of sparse tensors: all entries of all ranks, gathered and added."""
import torch
from torch.distributed import ReduceOp

from ._arguments import check_like, invalid
from ._work import EndedWork


def sparse_of(places, values, shape):
    """torch.sparse_coo_tensor() of entries that are valid already. Without a decision about checks torch warns, and its
    argument check_invariants does not count as one."""
    with torch.sparse.check_sparse_tensor_invariants(False):
        return torch.sparse_coo_tensor(places, values, shape)


def all_reduce_sparse(group, tensors, opts):
    """Every tensor of this rank becomes the sum of all tensors of all ranks. Blocking."""
    where = "allreduce"
    for t in tensors:
        if not t.is_sparse:
            raise invalid(where, "invalid tensor layout {}".format(t.layout))
        if not t.is_cpu:
            raise invalid(where, "tensors of the CPU only, not of {}".format(t.device))
    check_like(where, tensors[1:], tensors[0].dtype, tensors[0].shape)
    op = getattr(opts, "reduceOp", None)
    if op is not None and getattr(op, "op", op) != ReduceOp.RedOpType.SUM:
        raise invalid(where, "unsupported reduction operation (sparse tensors are summed only)")
    total = tensors[0]
    for t in tensors[1:]:
        total = total + t
    total = total.coalesce()
    indices, values = total.indices(), total.values()
    count = torch.tensor([indices.shape[1]])
    counts = torch.empty(group.size(), dtype=torch.int64)
    group._allgather_base(counts, count).wait()
    most = int(counts.max())
    rows = torch.zeros((most,) + values.shape[1:], dtype=values.dtype)
    places = torch.zeros((most, indices.shape[0]), dtype=torch.int64)
    rows[:len(values)], places[:indices.shape[1]] = values, indices.t()
    all_rows = torch.empty((group.size() * most,) + values.shape[1:], dtype=values.dtype)
    all_places = torch.empty((group.size() * most, indices.shape[0]), dtype=torch.int64)
    group._allgather_base(all_rows, rows).wait()
    group._allgather_base(all_places, places).wait()
    used = torch.cat([torch.arange(r * most, r * most + int(n)) for r, n in enumerate(counts)])
    result = sparse_of(all_places[used].t(), all_rows[used], total.shape).coalesce()
    with torch.no_grad():
        for t in tensors:
            t.copy_(result)
    return group._given_to(EndedWork(list(tensors), group._follower))
