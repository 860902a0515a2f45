"""The process group: torch.distributed's methods over the library's operations.

A subclass of torch's ProcessGroup takes the place of the whole group, therefore in "cpu:tessera,cuda:nccl" the second
backend would be dropped; such a description is refused (see __init__.py). Tensors must be on the CPU.

Threads: as torch requires, collectives of one group are started by one thread at a time and in one order on all ranks.
Callbacks of futures may start collectives, too (compression hooks of DDP do): these go through a second C group of the
same ranks, the shadow, so that their order does not depend on how far the main thread has come.
"""
import collections
import ctypes
import re
import sys
import threading
import time
import weakref
import zlib
from collections import deque
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _CppBackend
from torch._C._distributed_c10d import _create_work_from_future

from tessera import _c
from ._arguments import (CODES, as_list, check_host, check_like, check_root, dense, flat, invalid, milliseconds,
                         payload, reducible, reduction, room_for, write)
from ._errors import error_of
from ._monitored import monitored_barrier
from ._sparse import all_reduce_sparse
from ._store import functions_of
from ._work import EndedWork, Follower, Operation, OperationWork, SeveralWork

VERSION = tuple(int(x) for x in torch.__version__.split("+")[0].split(".")[:2])
# torch 2.6 keeps only the C++ half of a Python Work that it receives through C++, whose wait() then blocks forever.
_CPP_LOSES_WORKS = VERSION < (2, 7)
_LIVE = 64  # number of started operations to keep before looking for ended ones

_get_ident = threading.get_ident
_byref, _handle_of = ctypes.byref, ctypes.c_uint64


class _NamedBackend(_CppBackend):
    """A backend with a name and no operations, for C++ code that looks for one in the group (torch >= 2.8)."""

    def getBackendName(self):
        return "tessera"


_meetings = collections.Counter()  # name of a group -> number of worlds of that name that this process has joined


class World:
    """The processes of one init_process_group; ends when its last group ends."""

    def __init__(self, store, rank, size, timeout, name):
        self._functions, self.store_errors = functions_of(store)
        options = _c.options(timeout_ms=max(1, int(timeout.total_seconds() * 1000)),
                             connect_timeout_ms=max(1, int(timeout.total_seconds() * 1000)))
        handle = ctypes.c_uint64()
        status = _c.lib.init_functions(_byref(self._functions), rank, size, name.encode(), _byref(options),
                                       _byref(handle))
        if status:
            error = error_of(status)
            raise error from (self.store_errors[0] if self.store_errors else None)
        self.handle, self._users = handle.value, 0
        self._lock = threading.Lock()

    def enter(self):
        with self._lock:
            self._users += 1

    def leave(self):
        with self._lock:
            self._users -= 1
            last = self._users == 0 and self.handle
            handle, self.handle = (self.handle, 0) if last else (0, self.handle)
        if handle:
            _c.lib.shutdown(handle)


_open_groups = weakref.WeakSet()


def _end_groups(failed):
    """A script that ends without destroy_process_group(): what it has started is finished, unless an exception ended
    it."""
    groups = list(_open_groups)
    until = time.monotonic() + (0 if failed else _c.PATIENCE_AT_EXIT)
    for group in groups:
        for operation in list(group._live):
            operation.block(max(0.0, until - time.monotonic()))
    for group in groups:
        group.shutdown()


def _meeting_name(name):
    """A world's name (a store key) for a group of any name."""
    plain = re.sub("[^A-Za-z0-9/_. :-]", "_", name)[:60]
    if plain != name:
        plain += "-{:08x}".format(zlib.crc32(name.encode()))
    return "process group {} number {} of torch".format(plain, _meetings[name])


class ProcessGroupTessera(dist.ProcessGroup):
    """A group of the backend "tessera". `ranks`: of the world, in the group's order; None: all of a new world."""

    def __init__(self, store, rank, size, timeout, name, world=None, ranks=None):
        super().__init__(rank, size)
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout
        self._name, self._desc, self._given = name, "undefined", name
        self._splits = self._sequence = self._barriers = 0
        self._live, self._batch, self._shadow, self._open = deque(), None, 0, False
        self._follower = Follower("tessera-" + name[:40])
        self._message_follower = Follower("tessera-messages-" + name[:30])
        if world is None:
            # Keys of an earlier group of this name may still be in a store that outlives the group (that of torchrun's
            # agent).
            _meetings[name] += 1
            world, ranks = World(store, rank, size, timeout, _meeting_name(name)), list(range(size))
            self._group = _c.handle("world_group", world.handle)
            self._own = False
        else:
            self._group = self._make(world, ranks, name)
            self._own = True
        self._world, self._ranks = world, ranks
        world.enter()
        self._open = True
        _open_groups.add(self)
        _c.at_exit(_end_groups)
        self._set_default_timeout(timeout)
        if VERSION >= (2, 8):
            self._register_named_backend()

    @staticmethod
    def _make(world, ranks, name):
        handle = ctypes.c_uint64()
        name = re.sub("[\x00-\x1f\x7f]", "_", name)[:60]
        status = _c.lib.group_create(world.handle, (ctypes.c_int32 * len(ranks))(*ranks), len(ranks), name.encode(),
                                     _byref(handle))
        if status:
            raise error_of(status)
        return handle.value

    def _register_named_backend(self):
        """The flight recorder and hooks of newer releases look for a C++ backend of the group."""
        try:
            self._backend_for_cpp = _NamedBackend(self._rank, self._size)
        except TypeError:
            return  # this release cannot create such a backend in Python, and does not look for one
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._register_backend(torch.device("cpu"), kind, self._backend_for_cpp)
        self._set_default_backend(kind)

    # ---- properties of the group ----

    def getBackendName(self):
        return "tessera"

    name = _get_backend_name = getBackendName

    def _set_group_name(self, name):
        self._name = name

    setGroupName = _set_group_name

    def getGroupName(self):
        return self._name

    group_name = property(getGroupName)

    def _set_group_desc(self, description):
        self._desc = description

    setGroupDesc = _set_group_desc

    def getGroupDesc(self):
        return self._desc

    group_desc = property(getGroupDesc)

    @property
    def _device_types(self):
        return [torch.device("cpu")]

    def _get_backend(self, device):
        return self

    def get_group_store(self):
        return self._store

    supports_splitting = True
    supports_coalescing = False
    supports_time_estimate = False
    options = None

    def supports_tensor_alloc(self, device):
        return False

    def eager_connect_single_device(self, device):
        pass

    def perform_nocolor_split(self, device):
        pass

    def _set_sequence_number_for_group(self):
        pass

    def _get_sequence_number_for_group(self):
        """How many operations this rank has started in the group; equal on all ranks that have reached the same
        point."""
        return self._sequence

    def _set_default_timeout(self, timeout):
        """Sets the time-out of later operations that have none of their own."""
        self._timeout = timeout
        _c.call("group_set_timeout", self._group, max(1, int(timeout.total_seconds() * 1000)))

    set_timeout = _set_default_timeout

    # ---- running an operation ----

    def _start(self, function, arguments, opts, keep, result, after=None, prescale=0.0, message=False, source=None):
        """Starts `function` of the library with `arguments` (without group, call, work) and returns torch's Work.
        `keep`: what must live until it ends; `after`: what is done then, before it counts as ended."""
        timeout = milliseconds(opts)
        call = None
        if timeout or prescale:
            call = _byref(_c.Call(timeout_ms=timeout, prescale=prescale))
        self._sequence += not message
        in_callback = _get_ident() == self._follower.ident
        if in_callback or opts is not None and not getattr(opts, "asyncOp", True):
            # Blocks in this thread, so that no other thread has to be woken.
            group = self._callbacks_group() if in_callback else self._group
            status = function(group, *arguments, call, None)
            if status:
                raise error_of(status)
            if after is not None:
                after()
            return self._given_to(EndedWork(result, self._follower))
        handle = _handle_of()
        status = function(self._group, *arguments, call, _byref(handle))
        if status:
            raise error_of(status)
        operation = Operation(handle.value, keep, after, result)
        follower = self._message_follower if message else self._follower
        if after is not None:
            # The result must be copied back even if the Work is dropped and the program waits only for a barrier.
            follower.follow(operation)
        live = self._live
        live.append(operation)
        if len(live) > _LIVE:
            self._forget_ended()
        work = OperationWork(operation, follower)
        if self._batch is not None:
            self._batch.append(work)
        return self._given_to(work)

    def _forget_ended(self):
        """Releases the objects kept by operations that have ended, in the order in which they started."""
        live = self._live
        for _ in range(len(live)):
            operation = live.popleft()
            if not operation.poll():
                live.append(operation)

    def _given_to(self, work):
        """In the torch release that would lose our Works, callers in C++ get torch's own."""
        if _CPP_LOSES_WORKS:
            frame = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename.startswith(_HERE):
                frame = frame.f_back
            if frame is None or not frame.f_code.co_filename.endswith("distributed_c10d.py"):
                return _create_work_from_future(work.get_future_of_cpp())
        return work

    def _callbacks_group(self):
        """The C group of collectives that callbacks of futures start; made when the first one does."""
        if not self._shadow:
            self._shadow = self._make(self._world, self._ranks, self._given + ".callbacks")
        return self._shadow

    def _together(self, works, result):
        if len(works) == 1:
            return works[0]
        return self._given_to(SeveralWork(works, result)) if works else EndedWork(result, self._follower)

    # ---- reductions ----

    def allreduce(self, tensors, opts=None):
        """In place. Several tensors are inputs of this rank, of one shape: all of them become the reduction of all."""
        if type(tensors) is list and len(tensors) == 1:
            tensor = tensors[0]
            code = CODES.get(tensor.dtype)
            if code is not None and tensor.is_cpu and tensor.layout is torch.strided:
                op, factor = reduction(opts)
                if not tensor.is_contiguous() or tensor.is_complex():
                    return self._allreduce_any(tensors, opts, op, factor)
                address = tensor.data_ptr()
                return self._start(_c.lib.all_reduce, (address, address, tensor.numel(), code, op), opts, tensor,
                                   tensors, None, factor)
        tensors = as_list(tensors)
        if not tensors:
            raise invalid("allreduce", "requires non-empty tensor list")
        if tensors[0].is_sparse:
            return all_reduce_sparse(self, tensors, opts)
        return self._allreduce_any(tensors, opts, *reduction(opts))

    def _allreduce_any(self, tensors, opts, op, factor):
        first = tensors[0]
        for t in tensors:
            if t.layout != first.layout:
                raise invalid("allreduce", "invalid tensor layout {}".format(t.layout))
        check_host("allreduce", *tensors)
        check_like("allreduce", tensors[1:], first.dtype, first.shape)
        code = reducible("allreduce", first, op)
        own = dense(first)
        if len(tensors) > 1:
            if factor or op == _c.AVERAGE:
                raise invalid("allreduce", "several tensors at once: sums, products, extremes and bits only")
            own = _combined(tensors, op)
        elsewhere = [t for t in tensors if t is not own]
        after = (lambda: write(elsewhere, [own] * len(elsewhere))) if elsewhere else None
        address = own.data_ptr()
        return self._start(_c.lib.all_reduce, (address, address, own.numel(), code, op), opts, (own, tensors),
                           list(tensors), after, factor)

    def allreduce_coalesced(self, tensors, opts=None):
        """Each tensor is reduced separately; all are sent together."""
        if not tensors:
            raise invalid("allreduce_coalesced", "requires non-empty tensor list")
        for i, t in enumerate(tensors):
            if t.layout != tensors[0].layout:
                raise invalid("allreduce_coalesced", "invalid tensor layout at index {}".format(i))
            if t.dtype != tensors[0].dtype:
                raise invalid("allreduce_coalesced", "tensors must all have the same type")
        check_host("allreduce_coalesced", *tensors)
        op, factor = reduction(opts)
        code = reducible("allreduce_coalesced", tensors[0], op)
        own = [dense(t) for t in tensors]
        moved = [(t, o) for t, o in zip(tensors, own) if t is not o]
        after = (lambda: write(*zip(*moved))) if moved else None
        call = _byref(_c.Call(timeout_ms=milliseconds(opts), prescale=factor)) if factor or milliseconds(opts) else None
        parts = [(_c.lib.all_reduce, (o.data_ptr(), o.data_ptr(), o.numel(), code, op)) for o in own]
        return self._start(_Batch(parts, call), (), None if _asynchronous(opts) else opts, (own, tensors),
                           list(tensors), after)

    def reduce(self, tensors, opts=None, op=None):
        """Reduces into the root's tensor; the other ranks' tensors keep their values."""
        tensors = as_list(tensors)
        root = opts if isinstance(opts, int) else getattr(opts, "rootRank", 0)
        op, factor = reduction(opts if op is None and not isinstance(opts, int) else op)
        check_root("reduce", root, self._size)
        if len(tensors) != 1:
            raise invalid("reduce", "requires a single-element tensor list")
        if getattr(opts, "rootTensor", 0):
            raise invalid("reduce", "invalid root tensor: {}".format(opts.rootTensor))
        tensor = tensors[0]
        check_host("reduce", tensor)
        code = reducible("reduce", tensor, op)
        own = dense(tensor)
        after = (lambda: write([tensor], [own])) if own is not tensor and root == self._rank else None
        return self._start(_c.lib.reduce, (own.data_ptr(), own.data_ptr(), own.numel(), code, op, root),
                           opts if hasattr(opts, "timeout") else None, (own, tensor), list(tensors), after, factor)

    def _reduce_scatter_base(self, output, input, opts=None):
        """input [R * n] -> output [n]: this rank's part of the reduction."""
        where = "reduce_scatter"
        check_host(where, output, input)
        if input.numel() != output.numel() * self._size:
            raise invalid(where, "the input's size must be world size times the output's")
        check_like(where, [input], output.dtype, input.shape)
        op, factor = reduction(opts)
        code = reducible(where, input, op)
        source, target = dense(input), room_for(output)
        after = (lambda: write([output], [target])) if target is not output else None
        return self._start(_c.lib.reduce_scatter, (source.data_ptr(), target.data_ptr(), target.numel(), code, op),
                           opts, (source, target, output), [output], after, factor)

    def reduce_scatter(self, outputs, inputs, opts=None):
        """inputs[0]: a tensor for each rank, whose sizes may differ -> outputs[0]: the reduction of this rank's."""
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        return self._together([self._reduce_scatter_list(o, i, opts) for o, i in zip(outputs, inputs)], list(outputs))

    def _reduce_scatter_list(self, output, inputs, opts):
        where = "reduce_scatter"
        check_host(where, output, *inputs)
        if len(inputs) != self._size:
            raise invalid(where, "invalid input tensor list: {} tensors for {} ranks".format(len(inputs), self._size))
        check_like(where, [t.view(-1)[:0] for t in map(dense, inputs)], output.dtype, torch.Size([0]))
        if inputs[self._rank].numel() != output.numel():
            raise invalid(where, "invalid tensor size: the output has {} elements, this rank's input {}".format(
                output.numel(), inputs[self._rank].numel()))
        op, factor = reduction(opts)
        code = reducible(where, output, op)
        source, target = flat(inputs, output.dtype), room_for(output)
        after = (lambda: write([output], [target])) if target is not output else None
        counts = (ctypes.c_int64 * self._size)(*[t.numel() for t in inputs])
        return self._start(_c.lib.reduce_scatter_v, (source.data_ptr(), target.data_ptr(), counts, code, op), opts,
                           (source, target, output), [output], after, factor)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        return self._together([self._reduce_scatter_base(o, i, opts) for o, i in zip(outputs, inputs)], list(outputs))

    # ---- operations that only move data, of any dtype ----

    def broadcast(self, tensors, opts=None, root=None):
        """Copies the root's tensor to all; of several tensors of one shape, the root's number `rootTensor`."""
        tensors = as_list(tensors)
        if isinstance(opts, int):
            opts, root = None, opts
        root = getattr(opts, "rootRank", 0) if root is None else root
        chosen = getattr(opts, "rootTensor", 0)
        check_root("broadcast", root, self._size)
        if not 0 <= chosen < len(tensors):
            raise invalid("broadcast", "invalid root tensor: {}".format(chosen))
        first = tensors[0]
        check_host("broadcast", *tensors)
        check_like("broadcast", tensors[1:], first.dtype, first.shape)
        own = dense(tensors[chosen])
        others = [t for t in tensors if t is not own]
        after = (lambda: write(others, [own] * len(others))) if others else None
        count, code = payload(own)
        return self._start(_c.lib.broadcast, (own.data_ptr(), count, code, root), opts, (own, tensors), list(tensors),
                           after)

    def _allgather_base(self, output, input, opts=None):
        """input [n] -> output [R * n]."""
        where = "allgather"
        check_host(where, output, input)
        if output.numel() != input.numel() * self._size:
            raise invalid(where, "invalid tensor size: the output's must be world size times the input's")
        if output.dtype != input.dtype:
            raise invalid(where, "invalid tensor type ({}, expected {})".format(output.dtype, input.dtype))
        source, target = dense(input), room_for(output)
        after = (lambda: write([output], [target])) if target is not output else None
        count, code = payload(source)
        return self._start(_c.lib.all_gather, (source.data_ptr(), target.data_ptr(), count, code), opts,
                           (source, target, output), [output], after)

    def allgather(self, outputs, inputs, opts=None):
        """inputs: tensors of one shape; outputs[i]: R times as many tensors, those of rank 0 first."""
        where = "allgather"
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        if not inputs:
            raise invalid(where, "requires non-empty input tensor list")
        if len(inputs) != len(outputs):
            raise invalid(where, "requires input/output tensor lists to have the same length")
        n, first = len(inputs), inputs[0]
        for i, row in enumerate(outputs):
            if len(row) != n * self._size:
                raise invalid(where, "invalid output tensor list at index {} (expected length {}, got {})".format(
                    i, n * self._size, len(row)))
        check_host(where, *inputs, *[t for row in outputs for t in row])
        check_like(where, inputs[1:], first.dtype, first.shape)
        for row in outputs:
            check_like(where, row, first.dtype, first.shape)
        source = flat(inputs, first.dtype)
        return self._gather_rows(_c.lib.all_gather, (), source, [list(row) for row in outputs], opts, outputs)

    def _gather_rows(self, function, more, source, rows, opts, result):
        """Gathers `source` of all ranks and copies it into the tensors of each row, in order."""
        gathered = torch.empty(source.numel() * self._size if rows else 0, dtype=source.dtype)
        after = None
        if rows:
            def after():
                parts = gathered.view(len(rows[0]), -1) if source.numel() else [gathered] * len(rows[0])
                for row in rows:
                    write(row, parts)
        count, code = payload(source)
        result = rows[0] if len(rows) == 1 else result
        return self._start(function, (source.data_ptr(), gathered.data_ptr(), count, code) + more, opts,
                           (source, gathered, rows), result, after)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """outputs[r][i]: inputs[i] of rank r."""
        where = "allgather_coalesced"
        if not inputs:
            raise invalid(where, "requires non-empty input tensor list")
        if len(outputs) != self._size:
            raise invalid(where, "output lists should be equal to world size")
        for row in outputs:
            if len(row) != len(inputs):
                raise invalid(where, "invalid output size: (expected length {}, got {})".format(len(inputs), len(row)))
            for i, (out, one) in enumerate(zip(row, inputs)):
                if out.shape != one.shape:
                    raise invalid(where, "invalid size of output tensor at index {}".format(i))
                if out.dtype != one.dtype:
                    raise invalid(where, "invalid tensor type at index {}".format(i))
        works = [self.allgather([list(row)], [one], opts) for row, one in zip(zip(*outputs), inputs)]
        return self._together(works, outputs)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        return self._together([self._allgather_base(o, i, opts) for o, i in zip(outputs, inputs)], list(outputs))

    def gather(self, outputs, inputs, opts=None):
        """inputs [1] -> on the root outputs[0] [R]; elsewhere outputs is empty."""
        where, root = "gather", getattr(opts, "rootRank", 0)
        if isinstance(inputs, torch.Tensor):
            inputs, outputs = [inputs], [outputs] if outputs else []
        check_root(where, root, self._size)
        if len(inputs) != 1:
            raise invalid(where, "requires a single-element input tensor list")
        one, rows = inputs[0], []
        check_host(where, one)
        if root == self._rank:
            if len(outputs) != 1:
                raise invalid(where, "requires a single-element output list containing a list with {} tensors".format(
                    self._size))
            if len(outputs[0]) != self._size:
                raise invalid(where, "Incorrect output list size {}. Output list size should be {}, same as size of "
                                     "the process group".format(len(outputs[0]), self._size))
            check_host(where, *outputs[0])
            check_like(where, outputs[0], one.dtype, one.shape)
            rows = [list(outputs[0])]
        elif outputs and len(outputs[0]):
            raise invalid(where, "requires empty output on non-root")
        return self._gather_rows(_c.lib.gather, (root,), flat([one], one.dtype), rows, opts, [])

    def scatter(self, outputs, inputs, opts=None):
        """On the root inputs[0] [R], elsewhere empty -> outputs [1]."""
        where, root = "scatter", getattr(opts, "rootRank", 0)
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs] if inputs else []
        check_root(where, root, self._size)
        if len(outputs) != 1:
            raise invalid(where, "requires a single-element output tensor list")
        output, source = outputs[0], torch.empty(0, dtype=outputs[0].dtype)
        check_host(where, output)
        if root == self._rank:
            if len(inputs) != 1:
                raise invalid(where, "requires a single-element input list containing a list with {} tensors".format(
                    self._size))
            if len(inputs[0]) != self._size:
                raise invalid(where, "Incorrect input list size {}. Input list size should be {}, same as size of the "
                                     "process group".format(len(inputs[0]), self._size))
            check_host(where, *inputs[0])
            check_like(where, inputs[0], output.dtype, output.shape)
            source = flat(inputs[0], output.dtype)
        elif inputs and len(inputs[0]):
            raise invalid(where, "requires empty input on non-root")
        target = room_for(output)
        after = (lambda: write([output], [target])) if target is not output else None
        count, code = payload(target)
        return self._start(_c.lib.scatter, (source.data_ptr(), target.data_ptr(), count, code, root), opts,
                           (source, target, output), [output], after)

    def alltoall(self, outputs, inputs, opts=None):
        """inputs[r] goes to rank r, outputs[r] comes from it; sizes may differ from rank to rank."""
        where = "alltoall"
        if len(outputs) != self._size or len(inputs) != self._size:
            raise invalid(where, "{} inputs and {} outputs for {} ranks".format(len(inputs), len(outputs), self._size))
        check_host(where, *outputs, *inputs)
        dtype = inputs[0].dtype
        for t in list(inputs) + list(outputs):
            if t.dtype != dtype:
                raise invalid(where, "invalid tensor type ({}, expected {})".format(t.dtype, dtype))
        source = flat(inputs, dtype)
        sizes = [t.numel() for t in outputs]
        target = torch.empty(sum(sizes), dtype=dtype)
        return self._exchange(source, [t.numel() for t in inputs], target, sizes, opts, list(outputs),
                              lambda: write(outputs, target.split(sizes)))

    def alltoall_base(self, output, input, output_splits, input_splits, opts=None):
        """Rows of input, input_splits[r] of them to rank r, into rows of output; no splits: equal parts."""
        where = "alltoall_base"
        check_host(where, output, input)
        if output.dtype != input.dtype:
            raise invalid(where, "invalid tensor type ({}, expected {})".format(output.dtype, input.dtype))

        def counts(tensor, splits):
            rows = tensor.shape[0] if tensor.dim() else 0
            if not splits:
                if rows % self._size:
                    raise invalid(where, "Tensor's dim 0 does not divide equally across group size")
                splits = [rows // self._size] * self._size
            if len(splits) != self._size or sum(splits) != rows:
                raise invalid(where, "Split sizes doesn't match total dim 0 size: {} of {} rows for {} ranks".format(
                    list(splits), rows, self._size))
            width = tensor.numel() // rows if rows else 0
            return [s * width for s in splits]
        source, target = dense(input), room_for(output)
        after = (lambda: write([output], [target])) if target is not output else None
        return self._exchange(source, counts(input, input_splits), target, counts(output, output_splits), opts,
                              [output], after, output)

    def _exchange(self, source, sent, target, received, opts, result, after, *keep):
        row = ctypes.c_int64 * self._size
        code = CODES.get(source.dtype)
        if code is None:
            code, width = _c.UINT8, source.element_size()
            sent, received = [s * width for s in sent], [r * width for r in received]
        return self._start(_c.lib.all_to_all_v, (source.data_ptr(), row(*sent), target.data_ptr(), row(*received),
                                                     code),
                           opts, (source, target) + keep, result, after)

    def barrier(self, opts=None):
        """Ends when all ranks have called it and this rank's earlier operations have ended."""
        after = None
        if self._live and any(o.followed is not None and not o.ended for o in self._live):
            def after():
                pass  # the follower ends operations in order, so earlier ones have been copied back by then
        if after is not None and opts is not None and not getattr(opts, "asyncOp", True):
            opts = None
        return self._start(_c.lib.barrier, (), opts, None, [], after)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """A barrier that names missing ranks: the first one, or with `wait_all_ranks` all of them."""
        self._barriers += 1
        monitored_barrier(self._store, self._rank, self._size, timeout or self._timeout, wait_all_ranks,
                          "{}/{}".format(self._given, self._barriers))

    # ---- messages ----

    def send(self, tensors, dst, tag=0):
        """Ends when rank `dst` has received it."""
        tensor = as_list(tensors)[0]
        check_host("send", tensor)
        source = dense(tensor)
        count, code = payload(source)
        return self._start(_c.lib.send, (source.data_ptr(), count, code, dst, tag), None, source, [tensor],
                           message=True)

    def recv(self, tensors, src, tag=0):
        tensor = as_list(tensors)[0]
        check_host("recv", tensor)
        target = room_for(tensor)
        after = (lambda: write([tensor], [target])) if target is not tensor else None
        count, code = payload(target)
        return self._start(_c.lib.recv, (target.data_ptr(), count, code, src, tag, None), None, (target, tensor),
                           [tensor], after, message=True)

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, _c.ANY_SOURCE, tag)

    def _start_coalescing(self, device=None):
        self._batch = []

    def _end_coalescing(self, device=None):
        works, self._batch = self._batch or [], None
        return self._together(works, [])

    # ---- newer names of the same operations ----

    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    start_coalescing = _start_coalescing
    end_coalescing = _end_coalescing

    # ---- other groups; shutdown ----

    def split_group(self, ranks, timeout=None, opts=None, group_name=None, group_desc=None, *more, **others):
        """The group of `ranks` of this one; None for a rank that is not among them. Called by all ranks."""
        self._splits += 1
        if self._rank not in ranks:
            return None
        name = group_name or "{}.split{}".format(self._given, self._splits)
        store = dist.PrefixStore("tessera/split/{}".format(name), self._store)
        made = ProcessGroupTessera(store, list(ranks).index(self._rank), len(ranks), timeout or self._timeout, name,
                                   self._world, [self._ranks[r] for r in ranks])
        made._name, made._desc = group_name or name, group_desc or "undefined"
        return made

    splitGroup = split_group

    def abort(self, reason="abort() was called"):
        """Makes every operation of the group fail, here and on all ranks, and ends the group."""
        if self._open:
            _c.lib.group_abort(self._group, str(reason).encode())
        self.shutdown()

    def shutdown(self):
        """Ends the group on this rank; operations in flight fail."""
        if not self._open:
            return
        self._open = False
        _open_groups.discard(self)
        if self._shadow:
            _c.lib.group_destroy(self._shadow)
        if self._own:
            _c.lib.group_destroy(self._group)
        self._world.leave()
        self._follower.close()
        self._message_follower.close()
        self._live.clear()

    def __del__(self):  # torch 2.6 does not call shutdown() for a group written in Python
        if getattr(self, "_open", False) and _c is not None:
            self.shutdown()

    def __repr__(self):
        return "ProcessGroupTessera(rank={}, size={}, name={!r})".format(self._rank, self._size, self._name)


class _Batch:
    """Several operations as one function of the library: begin, each, end."""

    def __init__(self, parts, call):
        self._parts, self._call = parts, call

    def __call__(self, group, _, work):
        status = _c.lib.batch_begin(group)
        for function, arguments in self._parts:
            status = status or function(group, *arguments, self._call, None)
        text = _c.lib.last_error() if status else b""
        ended = _c.lib.batch_end(group, work)
        if status:
            raise error_of(status, text.decode(errors="replace"))
        return ended


def _asynchronous(opts):
    return opts is None or getattr(opts, "asyncOp", True)


def _combined(tensors, op):
    """The reduction of this rank's tensors, row-major."""
    total = dense(tensors[0]).clone()
    for t in tensors[1:]:
        if op == _c.SUM:
            total += t
        elif op == _c.PRODUCT:
            total *= t
        elif op == _c.MIN:
            total = torch.minimum(total, t)
        elif op == _c.MAX:
            total = torch.maximum(total, t)
        elif op == _c.BAND:
            total &= t
        elif op == _c.BOR:
            total |= t
        else:
            total ^= t
    return total


_HERE = __file__.rsplit("/", 1)[0]
