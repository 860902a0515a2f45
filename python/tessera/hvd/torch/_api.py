"""Horovod's functions for CPU tensors: init(), topology, process sets, collectives and their asynchronous forms.

Names identify operations: ranks may submit them in any order and from any thread; without names the order must be
equal.
An asynchronous form returns a handle for synchronize() and poll().
"""
import ctypes
import itertools
import threading

import torch

from tessera import _c
from . import _environment
from ._compression import Compression
from ._engine import Engine, HorovodInternalError  # noqa: F401
from ._operations import (Adasum, Allgather, Allreduce, Alltoall, Average, Barrier, Broadcast, Max, Min, Product,
                          Reducescatter, Sum, zeros)
from tessera.torch._arguments import CODES

_OPS = (Average, Sum, Adasum, Min, Max, Product)
_worlds = itertools.count()


class ProcessSet:
    """Some ranks that communicate among themselves. `process_set_id` is None until it is registered."""

    def __init__(self, ranks_or_comm):
        self.ranks, self.process_set_id = sorted(ranks_or_comm), None

    def included(self):
        """Whether this rank is in the set."""
        return rank() in self.ranks

    def rank(self):
        return self.ranks.index(rank()) if self.included() else -1

    def size(self):
        return len(self.ranks)

    def __repr__(self):
        return "ProcessSet(process_set_id={}, ranks={})".format(self.process_set_id, self.ranks)


global_process_set = ProcessSet([])


class _State:
    world = engine = None
    names = {}
    sets = {}
    lock = threading.Lock()


def init(comm=None, process_sets=None):
    """Connects to the other ranks, as described by the launcher of this process (tessera launch, torchrun, mpirun,
    srun, RANK and WORLD_SIZE set by hand); a world of one rank if there is no description. `process_sets`: registered
    at once, equal on all ranks. Horovod's variables that act: HOROVOD_TIMELINE, HOROVOD_GLOO_TIMEOUT_SECONDS,
    HOROVOD_START_TIMEOUT, HOROVOD_GLOO_IFACE, HOROVOD_FUSION_THRESHOLD."""
    if _State.engine is not None:
        return
    if comm is not None:
        raise ValueError("tessera: init(comm=...) is not possible; use process sets")
    world = _c.handle("init_environment", "hvd.{}".format(next(_worlds)).encode(),
                      ctypes.byref(_environment.options()))
    own, size_ = _c.number("rank", world), _c.number("size", world)
    try:
        if _environment.timeline(own):
            _c.call("timeline_start", world, _environment.timeline(own).encode())
    except Exception:
        _c.lib.shutdown(world)
        raise
    _State.world, _State.names = world, {}
    _State.engine = Engine(world, own, size_, zeros, _environment.fusion_bytes())
    global_process_set.ranks, global_process_set.process_set_id = list(range(size_)), 0
    _State.sets = {0: global_process_set}
    for one in process_sets or []:
        add_process_set(one)
    _c.at_exit(_end)


def _end(failed):
    """Runs when a script ends without shutdown(): finishes started operations, unless an exception ended the script."""
    shutdown(0 if failed else _c.PATIENCE_AT_EXIT)


def shutdown(seconds=None):
    """Shuts down this rank. If all ranks call it, they wait for each other first, for at most `seconds`."""
    engine, world = _State.engine, _State.world
    if engine is None:
        return
    if engine.size > 1 and engine._broken is None:
        try:
            meeting = engine.submit("tessera.shutdown", ("barrier", "", (), "", 0), Barrier(engine.groups[0]),
                                    tuple(range(engine.size)))
            if seconds is None or meeting.event.wait(seconds):
                engine.wait(meeting)
        except (HorovodInternalError, ValueError):
            pass  # another rank has left or failed, so there is no one to wait for
    engine.close()
    _State.engine = _State.world = None
    _c.lib.shutdown(world)
    for one in list(_State.sets.values()):
        one.process_set_id = None
    _State.sets = {}


def is_initialized():
    return _State.engine is not None


def _engine():
    if _State.engine is None:
        raise ValueError("tessera: hvd.init() was not called")
    return _State.engine


def rank():
    return _engine().rank


def size():
    return _engine().size


def local_rank():
    _engine()
    return _c.number("local_rank", _State.world)


def local_size():
    _engine()
    return _c.number("local_size", _State.world)


def cross_rank():
    """The index of this rank's host."""
    host = ctypes.c_int32()
    _c.call("host_of", _State.world, _engine().rank, ctypes.byref(host))
    return host.value


def cross_size():
    """The number of hosts."""
    _engine()
    return _c.number("host_count", _State.world)


def is_homogeneous():
    """Whether all hosts have the same number of ranks."""
    hosts = {}
    for r in range(size()):
        host = ctypes.c_int32()
        _c.call("host_of", _State.world, r, ctypes.byref(host))
        hosts[host.value] = hosts.get(host.value, 0) + 1
    return len(set(hosts.values())) == 1


def _built(answer):
    return lambda verbose=False: answer


mpi_built = mpi_enabled = mpi_threads_supported = _built(False)
nccl_built = cuda_built = rocm_built = ccl_built = ddl_built = _built(False)
gloo_built = gloo_enabled = _built(True)  # scripts call this to check for communication without MPI


def add_process_set(process_set):
    """Registers a set. All ranks must call it with the same ranks, and in the same order."""
    engine = _engine()
    one = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if one.process_set_id is not None:
        raise ValueError("tessera: {} is registered already".format(one))
    for other in _State.sets.values():
        if other.ranks == one.ranks:
            raise ValueError("tessera: {} has the same ranks".format(other))
    if not one.ranks or min(one.ranks) < 0 or max(one.ranks) >= engine.size:
        raise ValueError("tessera: ranks {} of {}".format(one.ranks, engine.size))
    number = max(_State.sets) + 1
    if engine.rank in one.ranks:
        ranks = (ctypes.c_int32 * len(one.ranks))(*one.ranks)
        engine.groups[number] = _c.handle("group_create", _State.world, ranks, len(one.ranks),
                                          "hvd.set{}".format(number).encode())
    engine.set_ranks[number] = tuple(one.ranks)
    one.process_set_id = number
    _State.sets[number] = one
    barrier()
    return one


def remove_process_set(process_set):
    """Unregisters a set. All ranks must call it. Returns False if the set was not registered."""
    number = process_set.process_set_id
    if number is None or number == 0:
        return False
    barrier()
    engine = _engine()
    engine.set_ranks.pop(number)
    if number in engine.groups:
        _c.call("group_destroy", engine.groups.pop(number))
    del _State.sets[number]
    process_set.process_set_id = None
    return True


# ---- handing in ----

class Handle:
    """An asynchronous operation: `finish(result)` makes what synchronize() returns."""

    def __init__(self, request, finish):
        self._request, self._finish = request, finish


def synchronize(handle):
    """Waits for the operation and returns its result. HorovodInternalError: a rank is gone. ValueError: ranks
    disagree."""
    return handle._finish(Engine.wait(handle._request))


def poll(handle):
    """Whether synchronize() would return at once."""
    return handle._request.event.is_set()


def _name(kind, name, number):
    """A name for an unnamed operation, from the number of unnamed ones before it in the set: equal if the order is."""
    if name is not None:
        return "{}.{}".format(kind, name)
    with _State.lock:
        count = _State.names[number] = _State.names.get(number, 0) + 1
        return "{}.noname.{}.{}".format(kind, number, count)


def _set(process_set):
    """(number, C group, ranks of the set, this rank's place)."""
    engine, number = _engine(), process_set.process_set_id
    if number is None or number not in engine.set_ranks:
        raise ValueError("tessera: {} is not registered".format(process_set))
    ranks = engine.set_ranks[number]
    if engine.rank not in ranks:
        raise ValueError("tessera: rank {} is not in {}".format(engine.rank, process_set))
    return number, engine.groups[number], ranks, ranks.index(engine.rank)


def _check(*tensors):
    for t in tensors:
        if not isinstance(t, torch.Tensor) or not t.is_cpu or t.layout != torch.strided:
            raise ValueError("tessera: dense tensors of the CPU, not {}".format(
                "{} {}".format(t.device, t.layout) if isinstance(t, torch.Tensor) else type(t).__name__))


def _op_of(average, op):
    if average is not None and op is not None:
        raise ValueError("tessera: `average` and `op` state the same thing")
    op = (Average if average or average is None else Sum) if op is None else op
    if op not in _OPS:
        raise ValueError("tessera: op={!r} is not a reduction; there are {}".format(
            op, ", ".join("hvd." + known for known in _OPS)))
    return op


def _dtype(tensor):
    return str(tensor.dtype).replace("torch.", "")


def _reducible(tensors, op):
    _check(*tensors)
    if not tensors:
        raise ValueError("tessera: no tensors")
    for t in tensors:
        if t.dtype not in CODES:
            raise ValueError("tessera: no reduction of {}".format(t.dtype))
        if t.dtype != tensors[0].dtype:
            raise ValueError("tessera: tensors of one group have one dtype, not {} and {}".format(t.dtype,
                                                                                              tensors[0].dtype))
    if op == Adasum and not tensors[0].dtype.is_floating_point:
        raise ValueError("tessera: Adasum takes floating point")


def _submit_allreduce(kind, tensors, outputs, name, op, prescale, postscale, process_set, finish):
    _reducible(tensors, op)
    number, group, ranks, _ = _set(process_set)
    shapes = tuple(tuple(t.shape) for t in tensors)
    description = (kind, _dtype(tensors[0]), shapes, op, number, prescale, postscale)
    run = Allreduce(group, len(ranks), op, prescale, postscale, tensors, outputs)
    return Handle(_engine().submit(_name(kind, name, number), description, run, ranks), finish)


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                    process_set=global_process_set):
    """Returns a handle; the result is a new tensor."""
    out = torch.empty(tensor.shape, dtype=tensor.dtype)
    return _submit_allreduce("allreduce", [tensor], [out], name, _op_of(average, op), prescale_factor,
                             postscale_factor, process_set, lambda results: results[0])


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                     process_set=global_process_set):
    """Returns a handle; the result is written into `tensor`."""
    return _submit_allreduce("allreduce", [tensor], [tensor], name, _op_of(average, op), prescale_factor,
                             postscale_factor, process_set, lambda results: results[0])


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                            process_set=global_process_set):
    """Tensors of one dtype that are reduced together or not at all; the result is a list."""
    outs = [torch.empty(t.shape, dtype=t.dtype) for t in tensors]
    return _submit_allreduce("grouped_allreduce", list(tensors), outs, name, _op_of(average, op), prescale_factor,
                             postscale_factor, process_set, list)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                             process_set=global_process_set):
    return _submit_allreduce("grouped_allreduce", list(tensors), list(tensors), name, _op_of(average, op),
                             prescale_factor, postscale_factor, process_set, list)


class _AllreduceFunction(torch.autograd.Function):
    """Gradients of a reduction are reduced the same way."""

    @staticmethod
    def forward(ctx, tensor, name, op, prescale, postscale, process_set):
        ctx.settings = (op, prescale, postscale, process_set)
        return synchronize(allreduce_async(tensor, None, name, op, prescale, postscale, process_set))

    @staticmethod
    def backward(ctx, gradient):
        op, prescale, postscale, process_set = ctx.settings
        return (synchronize(allreduce_async(gradient.contiguous(), None, None, op, prescale, postscale, process_set)),
                None, None, None, None, None)


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
              postscale_factor=1.0, process_set=global_process_set):
    """A new tensor; differentiable."""
    packed, context = compression.compress(tensor)
    reduced = _AllreduceFunction.apply(packed, name, _op_of(average, op), prescale_factor, postscale_factor,
                                          process_set)
    return compression.decompress(reduced, context)


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=global_process_set):
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set))


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
                      postscale_factor=1.0, process_set=global_process_set):
    packed = [compression.compress(t) for t in tensors]
    results = synchronize(grouped_allreduce_async([p for p, _ in packed], average, name, op, prescale_factor,
                                                  postscale_factor, process_set))
    return [compression.decompress(r, c) for r, (_, c) in zip(results, packed)]


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                       process_set=global_process_set):
    return synchronize(grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor,
                                                process_set))


def allgather_async(tensor, name=None, process_set=global_process_set):
    """The rows of all ranks. The number of rows may differ; the other dimensions must be equal."""
    _check(tensor)
    number, group, ranks, _ = _set(process_set)
    description = ("allgather", _dtype(tensor), (tuple(tensor.shape[1:]),), "", number)
    run = Allgather(group, len(ranks), tensor)
    return Handle(_engine().submit(_name("allgather", name, number), description, run, ranks), lambda result: result)


def allgather(tensor, name=None, process_set=global_process_set):
    return synchronize(allgather_async(tensor, name, process_set))


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    name = name or _name("grouped", None, process_set.process_set_id)
    handles = [allgather_async(t, "{}.{}".format(name, i), process_set) for i, t in enumerate(tensors)]
    return [synchronize(h) for h in handles]


def _broadcast(tensor, output, root_rank, name, process_set):
    _check(tensor)
    number, group, ranks, _ = _set(process_set)
    if root_rank not in ranks:
        raise ValueError("tessera: root rank {} is not in {}".format(root_rank, process_set))
    description = ("broadcast", _dtype(tensor), (tuple(tensor.shape),), root_rank, number)
    run = Broadcast(group, ranks.index(root_rank), tensor, output)
    return Handle(_engine().submit(_name("broadcast", name, number), description, run, ranks), lambda result: result)


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """The values of `root_rank` (a rank of the world) in a new tensor."""
    return _broadcast(tensor, torch.empty(tensor.shape, dtype=tensor.dtype), root_rank, name, process_set)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    return _broadcast(tensor, tensor, root_rank, name, process_set)


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    return synchronize(broadcast_async(tensor, root_rank, name, process_set))


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Exchanges rows by `splits` (none: equal parts); returns a tensor, with splits also the number of rows from each
    rank."""
    _check(tensor)
    number, group, ranks, _ = _set(process_set)
    rows = tensor.shape[0] if tensor.dim() else 0
    if splits is None and rows % len(ranks):
        raise ValueError("tessera: {} rows do not divide among {} ranks; state splits".format(rows, len(ranks)))
    parts = [rows // len(ranks)] * len(ranks) if splits is None else [int(s) for s in splits]
    if len(parts) != len(ranks) or sum(parts) != rows or min(parts) < 0:
        raise ValueError("tessera: splits {} of {} rows among {} ranks".format(parts, rows, len(ranks)))
    description = ("alltoall", _dtype(tensor), (tuple(tensor.shape[1:]),), "", number)
    run = Alltoall(group, len(ranks), tensor, parts)
    return Handle(_engine().submit(_name("alltoall", name, number), description, run, ranks),
                  (lambda result: result[0]) if splits is None else (lambda result: result))


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    return synchronize(alltoall_async(tensor, splits, name, process_set))


def _reducescatter(kind, tensors, name, op, prescale, postscale, process_set, finish):
    op = Average if op is None else op
    if op not in (Average, Sum):
        raise ValueError("tessera: reducescatter sums or averages")
    _reducible(tensors, op)
    number, group, ranks, place = _set(process_set)
    description = ("reducescatter", _dtype(tensors[0]), tuple(tuple(t.shape) for t in tensors), op, number, prescale,
                   postscale)
    run = Reducescatter(group, place, len(ranks), op, prescale, postscale, list(tensors))
    return Handle(_engine().submit(_name(kind, name, number), description, run, ranks), finish)


def reducescatter_async(tensor, name=None, op=None, process_set=global_process_set, prescale_factor=1.0,
                        postscale_factor=1.0):
    """This rank's rows of the reduction, in a new tensor."""
    return _reducescatter("reducescatter", [tensor], name, op, prescale_factor, postscale_factor, process_set,
                          lambda results: results[0])


def reducescatter(tensor, name=None, compression=Compression.none, op=None, process_set=global_process_set,
                  prescale_factor=1.0, postscale_factor=1.0):
    packed, context = compression.compress(tensor)
    return compression.decompress(synchronize(reducescatter_async(packed, name, op, process_set, prescale_factor,
                                                                  postscale_factor)), context)


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=None, process_set=global_process_set,
                          prescale_factor=1.0, postscale_factor=1.0):
    packed = [compression.compress(t) for t in tensors]
    results = synchronize(_reducescatter("grouped_reducescatter", [p for p, _ in packed], name, op, prescale_factor,
                                         postscale_factor, process_set, list))
    return [compression.decompress(r, c) for r, (_, c) in zip(results, packed)]


def barrier(process_set=global_process_set):
    number, group, ranks, _ = _set(process_set)
    synchronize(Handle(_engine().submit(_name("barrier", None, number), ("barrier", "", (), "", number),
                                        Barrier(group), ranks), lambda result: None))


def join(device=-1):
    """For a rank that has no more data: contributes zeros until all ranks have called it. Returns the last rank to
    join."""
    return _engine().join()
