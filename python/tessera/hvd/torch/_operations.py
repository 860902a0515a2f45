"""What each operation does when its turn comes: one object for each request, called by the engine's thread."""
import ctypes

import torch

from tessera import _c
from tessera.torch._arguments import CODES, payload
from ._adasum import adasum

Average, Sum, Adasum, Min, Max, Product = "Average", "Sum", "Adasum", "Min", "Max", "Product"
OPERATIONS = {Average: _c.AVERAGE, Sum: _c.SUM, Min: _c.MIN, Max: _c.MAX, Product: _c.PRODUCT}


def _contiguous(tensor):
    return tensor.detach().contiguous()


class Allreduce:
    """`tensors`: of this rank; `outputs`: where results go (the same ones for the forms in place)."""

    def __init__(self, group, size, op, prescale, postscale, tensors, outputs):
        self.group, self.size, self.op, self.tensors, self.outputs = group, size, op, tensors, outputs
        self.prescale, self.postscale = prescale, postscale

    def key(self):
        return self.group, self.op, self.prescale, self.postscale, self.tensors[0].dtype

    def bytes(self):
        return sum(t.numel() * t.element_size() for t in self.tensors)

    def together(self, other):
        return type(other) is Allreduce and self.op != Adasum and self.key() == other.key()

    def run_together(self, runs):
        rows = [(run, t, o) for run in runs for t, o in zip(run.tensors, run.outputs)]
        self._reduce([t for _, t, _ in rows], [o for _, _, o in rows])
        return [run.outputs for run in runs]

    def __call__(self, engine):
        if self.op == Adasum:
            for t, o in zip(self.tensors, self.outputs):
                o.detach().copy_(adasum(self.group, self.size, t.detach()))
        else:
            self._reduce(self.tensors, self.outputs)
        return self.outputs

    def _reduce(self, tensors, outputs):
        op, postscale = OPERATIONS[self.op], self.postscale
        if self.op == Average and not tensors[0].dtype.is_floating_point and not tensors[0].dtype.is_complex:
            op = _c.SUM  # the library cannot average integers; torch's division below can
        scaled = self.prescale not in (0.0, 1.0) or postscale not in (0.0, 1.0)
        call = ctypes.byref(_c.Call(prescale=self.prescale, postscale=postscale)) if scaled else None
        sources = [_contiguous(t) for t in tensors]
        targets = [o.detach() if o.is_contiguous() else torch.empty(o.shape, dtype=o.dtype) for o in outputs]
        if len(sources) > 1:
            _c.call("batch_begin", self.group)
        for s, t in zip(sources, targets):
            _c.call("all_reduce", self.group, s.data_ptr(), t.data_ptr(), s.numel(), CODES[s.dtype], op, call, None)
        if len(sources) > 1:
            _c.call("batch_end", self.group, None)
        for o, t in zip(outputs, targets):
            if op == _c.SUM and self.op == Average:
                t.copy_(torch.div(t, self.size, rounding_mode="floor"))
            if not o.is_contiguous():
                o.detach().copy_(t)


class Allgather:
    """The rows of all ranks, in rank order; the number of rows may differ."""

    def __init__(self, group, size, tensor):
        self.group, self.size, self.tensor = group, size, tensor

    def __call__(self, engine):
        tensor = _contiguous(self.tensor if self.tensor.dim() else self.tensor.view(1))
        rows = torch.tensor([tensor.shape[0]])
        all_rows = torch.empty(self.size, dtype=torch.int64)
        _c.call("all_gather", self.group, rows.data_ptr(), all_rows.data_ptr(), 1, _c.INT64, None, None)
        width = tensor[0].numel() if tensor.shape[0] else 1
        for side in tensor.shape[1:] if not tensor.shape[0] else ():
            width *= side
        out = torch.empty((int(all_rows.sum()),) + tuple(tensor.shape[1:]), dtype=tensor.dtype)
        _, code = payload(tensor)
        scale = width if code != _c.UINT8 or tensor.dtype == torch.uint8 else width * tensor.element_size()
        counts = (ctypes.c_int64 * self.size)(*[int(n) * scale for n in all_rows])
        _c.call("all_gather_v", self.group, tensor.data_ptr(), out.data_ptr(), counts, code, None, None)
        return out


class Broadcast:
    """Writes the root's values to `output`."""

    def __init__(self, group, root, tensor, output):
        self.group, self.root, self.tensor, self.output = group, root, tensor, output

    def __call__(self, engine):
        own = _contiguous(self.tensor)
        if own.data_ptr() == self.tensor.data_ptr() and self.output is not self.tensor:
            own = own.clone()
        count, code = payload(own)
        _c.call("broadcast", self.group, own.data_ptr(), count, code, self.root, None, None)
        if own.data_ptr() != self.output.data_ptr():
            self.output.detach().copy_(own)
        return self.output


class Alltoall:
    """Rows by `splits`; returns (rows received, how many came from each rank)."""

    def __init__(self, group, size, tensor, splits):
        self.group, self.size, self.tensor, self.splits = group, size, tensor, splits

    def __call__(self, engine):
        tensor = _contiguous(self.tensor)
        sent = torch.tensor(self.splits, dtype=torch.int64)
        received = torch.empty_like(sent)
        _c.call("all_to_all", self.group, sent.data_ptr(), received.data_ptr(), 1, _c.INT64, None, None)
        out = torch.empty((int(received.sum()),) + tuple(tensor.shape[1:]), dtype=tensor.dtype)
        width = 1
        for side in tensor.shape[1:]:
            width *= side
        _, code = payload(tensor)
        if code == _c.UINT8 and tensor.dtype != torch.uint8:
            width *= tensor.element_size()
        row = ctypes.c_int64 * self.size
        _c.call("all_to_all_v", self.group, tensor.data_ptr(), row(*[int(n) * width for n in sent]), out.data_ptr(),
                row(*[int(n) * width for n in received]), code, None, None)
        return out, received


class Reducescatter:
    """Rows of the reduction: rank r gets the r-th part; if the rows do not divide evenly, the first ranks get one
    more."""

    def __init__(self, group, rank, size, op, prescale, postscale, tensors):
        self.group, self.rank, self.size, self.op, self.tensors = group, rank, size, op, tensors
        self.prescale, self.postscale = prescale, postscale

    def __call__(self, engine):
        return [self._one(t) for t in self.tensors]

    def _one(self, tensor):
        source = _contiguous(tensor)
        rows = source.shape[0]
        parts = [rows // self.size + (r < rows % self.size) for r in range(self.size)]
        out = torch.empty((parts[self.rank],) + tuple(source.shape[1:]), dtype=source.dtype)
        width = source.numel() // rows if rows else 0
        integers = self.op == Average and not source.dtype.is_floating_point
        call = ctypes.byref(_c.Call(prescale=self.prescale, postscale=self.postscale))
        _c.call("reduce_scatter_v", self.group, source.data_ptr(), out.data_ptr(),
                (ctypes.c_int64 * self.size)(*[p * width for p in parts]), CODES[source.dtype],
                _c.SUM if integers else OPERATIONS[self.op], call, None)
        return out.div_(self.size, rounding_mode="floor") if integers else out


class Barrier:
    def __init__(self, group):
        self.group = group

    def __call__(self, engine):
        _c.call("barrier", self.group, None, None)


def zeros(engine, description):
    """How a joined rank takes part in the others' operations: zeros for reductions, no rows for gathers."""
    kind, dtype, shapes, op, set_id = description[:5]
    group, members = engine.groups[set_id], engine.set_ranks[set_id]
    if kind == "barrier":
        return Barrier(group)
    dtype = getattr(torch, dtype)
    if kind in ("allreduce", "grouped_allreduce"):
        tensors = [torch.zeros(shape, dtype=dtype) for shape in shapes]
        return Allreduce(group, len(members), op, description[5], description[6], tensors, tensors)
    if kind == "allgather":
        return Allgather(group, len(members), torch.zeros((0,) + tuple(shapes[0]), dtype=dtype))
    return Reducescatter(group, members.index(engine.rank), len(members), op, description[5], description[6],
                         [torch.zeros(shape, dtype=dtype) for shape in shapes])
