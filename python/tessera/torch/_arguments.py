"""Translates torch's arguments of a process group for the library: dtypes, reductions, time-outs; checks with Gloo's
texts."""
import torch
import torch.distributed as dist

from tessera import _c
from ._errors import InvalidArgument

CODES = {torch.uint8: _c.UINT8, torch.int8: _c.INT8, torch.int16: _c.INT16, torch.int32: _c.INT32,
         torch.int64: _c.INT64, torch.float16: _c.FLOAT16, torch.bfloat16: _c.BFLOAT16, torch.float32: _c.FLOAT32,
         torch.float64: _c.FLOAT64, torch.bool: _c.BOOL, torch.complex64: _c.COMPLEX64,
         torch.complex128: _c.COMPLEX128}
_KINDS = dist.ReduceOp.RedOpType
# By number: comparing torch's enumerators takes several microseconds.
OPERATIONS = {_KINDS.SUM.value: _c.SUM, _KINDS.PRODUCT.value: _c.PRODUCT, _KINDS.MIN.value: _c.MIN,
              _KINDS.MAX.value: _c.MAX, _KINDS.AVG.value: _c.AVERAGE, _KINDS.BAND.value: _c.BAND,
              _KINDS.BOR.value: _c.BOR, _KINDS.BXOR.value: _c.BXOR}


def invalid(where, why):
    return InvalidArgument("tessera: {}: {}".format(where, why))


def reduction(opts):
    """(operation, factor before it) of an options object, a ReduceOp or None, which is a sum."""
    op = getattr(opts, "reduceOp", opts)
    if op is None:
        return _c.SUM, 0.0
    kind = getattr(op, "op", op)
    code = OPERATIONS.get(kind.value)
    if code is not None:
        return code, 0.0
    if kind == _KINDS.PREMUL_SUM:
        return _c.SUM, float(op.__getstate__()[1])  # the only way to get the factor in Python
    raise invalid("reduction", "unsupported reduction operation {}".format(kind))


def milliseconds(opts):
    """The time-out of an options object; 0 if it has none (negative)."""
    timeout = getattr(opts, "timeout", None)
    if timeout is None:
        return 0
    stated = timeout.total_seconds()
    return max(1, int(stated * 1000)) if stated > 0 else 0


def as_list(tensors):
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def check_host(where, *tensors):
    """Accepts dense CPU tensors; anything else is refused with the reason."""
    for t in tensors:
        if not t.is_cpu:
            raise invalid(where, "tensors of the CPU only, not of {}; a group for another device needs another "
                                 "backend".format(t.device))
        if t.layout != torch.strided:
            raise invalid(where, "unsupported layout {}".format(t.layout))


def check_like(where, tensors, dtype, shape):
    """Checks that all have the same dtype and shape; the error texts are those of Gloo."""
    for t in tensors:
        if t.dtype != dtype:
            raise invalid(where, "invalid tensor type ({}, expected {})".format(t.dtype, dtype))
        if t.shape != shape:
            raise invalid(where, "invalid tensor size ({}, expected {})".format(list(t.shape), list(shape)))


def check_root(where, root, size):
    if not 0 <= root < size:
        raise invalid(where, "invalid root rank: {}".format(root))


def dense(tensor):
    """The tensor, or a row-major copy of it."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    return tensor.resolve_conj().resolve_neg().contiguous()


def room_for(tensor):
    """The tensor itself, or a row-major buffer of its size whose contents must be copied back."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def flat(tensors, dtype):
    """One row of all elements, in order."""
    if len(tensors) == 1:
        return dense(tensors[0].detach()).view(-1)
    return torch.cat([t.detach().reshape(-1) for t in tensors]) if tensors else torch.empty(0, dtype=dtype)


def write(targets, sources):
    """Copies in any thread: into tensors that autograd or inference mode may own."""
    inference = any(t.is_inference() for t in targets)
    with torch.inference_mode() if inference else torch.no_grad():
        for target, source in zip(targets, sources):
            target.copy_(source.view(target.shape) if source.numel() == target.numel() else source)


def payload(tensor):
    """(elements, dtype code) for operations that only move data: a dtype that the library does not know is sent as
    bytes."""
    code = CODES.get(tensor.dtype)
    if code is None:
        return tensor.numel() * tensor.element_size(), _c.UINT8
    return tensor.numel(), code


def reducible(where, tensor, op):
    """The dtype code of a tensor that `op` can reduce; anything else is refused."""
    code = CODES.get(tensor.dtype)
    if code is None:
        raise invalid(where, "Invalid scalar type: no reduction of {}".format(tensor.dtype))
    if tensor.is_complex() and op in (_c.MIN, _c.MAX):
        raise invalid(where, "all_reduce does not support this reduction on complex tensors")
    return code
