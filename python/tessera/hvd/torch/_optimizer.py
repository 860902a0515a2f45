"""DistributedOptimizer: gradients are reduced during backward, and step() waits for them."""
import contextlib
import warnings

import torch

from tessera.torch._sparse import sparse_of
from ._api import (Adasum, Average, Sum, allgather_async, allreduce_async_, global_process_set,
                   grouped_allreduce_async_, size, synchronize)
from ._compression import Compression


class _Distributed:
    """Mixed into the class of the user's optimizer: hooks on its parameters, and step()."""

    def _prepare(self, named_parameters, compression, passes, op, predivide, groups, sparse_as_dense, process_set):
        self._hvd_compression, self._hvd_passes, self._hvd_op = compression, passes, op
        self._hvd_set, self._hvd_sparse_as_dense = process_set, sparse_as_dense
        self._hvd_scales = (1.0, 1.0)
        if predivide != 1.0:
            # The gradient is divided by this factor before the sum, and by the rest of the average's divisor after it.
            self._hvd_op, self._hvd_scales = Sum, (1.0 / predivide, predivide / process_set.size())
        parameters = [p for group in self.param_groups for p in group["params"]]
        named = list(named_parameters or [("parameter.{}".format(i), p) for i, p in enumerate(parameters)])
        if len({name for name, _ in named}) != len(named):
            raise ValueError("tessera: named_parameters has a name twice")
        names = {p: name for name, p in named}
        missing = [p for p in parameters if p not in names]
        if missing:
            raise ValueError("tessera: named_parameters lacks {} parameters of the optimizer".format(len(missing)))
        self._hvd_names = {p: names[p] for p in parameters}
        self._hvd_delay = {p: passes for p in parameters}
        self._hvd_handles, self._hvd_synchronized, self._hvd_wait = {}, False, True
        self._hvd_group_of, self._hvd_groups = {}, []
        trained = [p for p in parameters if p.requires_grad]
        if groups is not None:
            rows = groups if isinstance(groups, (list, tuple)) else [trained[i::groups] for i in range(groups)]
            for row in rows:
                by_dtype = {}
                for p in row:
                    by_dtype.setdefault(p.dtype, []).append(p)
                for some in by_dtype.values():
                    self._hvd_groups.append((some, set()))
                    self._hvd_group_of.update((p, len(self._hvd_groups) - 1) for p in some)
        if process_set.size() > 1:
            for p in trained:
                p.register_post_accumulate_grad_hook(self._hvd_ready)

    def _hvd_ready(self, p):
        if p in self._hvd_handles and self._hvd_delay[p] <= 0:
            raise AssertionError("tessera: a gradient was accumulated again before step(); backward_passes_per_step "
                                 "says how often that is wanted")
        self._hvd_delay[p] -= 1
        if self._hvd_delay[p] == 0:
            self._hvd_start(p)

    def _hvd_start(self, p):
        place = self._hvd_group_of.get(p)
        if place is None:
            self._hvd_handles[p] = self._hvd_reduce(p)
            return
        members, ready = self._hvd_groups[place]
        ready.add(p)
        if len(ready) == len(members):
            ready.clear()
            self._hvd_reduce_group(place, members)

    def _hvd_reduce(self, p):
        """(handle or handles, the function that turns the result into the gradient)."""
        name, gradient, passes = self._hvd_names[p], p.grad, self._hvd_passes
        if gradient.is_sparse and not self._hvd_sparse_as_dense:
            return self._hvd_reduce_sparse(name, p)
        if gradient.is_sparse:
            p.grad = gradient = gradient.to_dense()
        packed, context = self._hvd_compression.compress(gradient)
        before, after = self._hvd_scales
        handle = allreduce_async_(packed, None, name, self._hvd_op, before, after / passes, self._hvd_set)

        def finish():
            result = self._hvd_compression.decompress(synchronize(handle), context)
            if result is not p.grad:
                p.grad.copy_(result)
        return finish

    def _hvd_reduce_group(self, place, members):
        packed = [self._hvd_compression.compress(p.grad) for p in members]
        before, after = self._hvd_scales
        handle = grouped_allreduce_async_([t for t, _ in packed], None, "group.{}".format(place), self._hvd_op, before,
                                          after / self._hvd_passes, self._hvd_set)

        def finish():
            for p, (_, context), result in zip(members, packed, synchronize(handle)):
                result = self._hvd_compression.decompress(result, context)
                if result is not p.grad:
                    p.grad.copy_(result)
        for p in members:
            self._hvd_handles[p] = None
        self._hvd_handles[members[0]] = finish

    def _hvd_reduce_sparse(self, name, p):
        gradient = p.grad.coalesce()
        places = allgather_async(gradient.indices().t().contiguous(), name + ".places", self._hvd_set)
        values = allgather_async(gradient.values(), name + ".values", self._hvd_set)

        def finish():
            rows = synchronize(values)
            scale = self._hvd_scales[0] * self._hvd_scales[1] / self._hvd_passes
            rows *= scale / self._hvd_set.size() if self._hvd_op == Average else scale
            p.grad = sparse_of(synchronize(places).t(), rows, gradient.shape)
        return finish

    def synchronize(self):
        """Waits for all gradients. A parameter without a gradient in this step contributes zeros."""
        if self._hvd_set.size() > 1:
            for p in self._hvd_names:
                if p.requires_grad and p not in self._hvd_handles:
                    if p.grad is None:
                        p.grad = torch.zeros_like(p)
                    self._hvd_start(p)
            with torch.no_grad():
                for finish in [f for f in self._hvd_handles.values() if f is not None]:
                    finish()
        self._hvd_handles.clear()
        self._hvd_delay = {p: self._hvd_passes for p in self._hvd_delay}
        self._hvd_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self):
        """Inside this context, step() does not wait: synchronize() was called before, e.g. for clipping."""
        self._hvd_wait = False
        try:
            yield
        finally:
            self._hvd_wait = True

    def step(self, closure=None):
        if self._hvd_wait:
            if self._hvd_synchronized:
                warnings.warn("tessera: step() waits again after synchronize(); use optimizer.skip_synchronize()")
            self.synchronize()
        self._hvd_synchronized = False
        return super(self.__class__, self).step(closure)

    def zero_grad(self, *args, **kwargs):
        if self._hvd_handles:
            raise AssertionError("tessera: zero_grad() between backward() and step() or synchronize()")
        return super(self.__class__, self).zero_grad(*args, **kwargs)


class _DistributedAdasum:
    """Adasum reduces what a step has changed, not gradients: each rank steps by itself first."""

    def _prepare(self, named_parameters, compression, passes, process_set):
        parameters = [p for group in self.param_groups for p in group["params"]]
        names = {p: name for name, p in named_parameters or []}
        self._hvd_names = {p: names.get(p, "parameter.{}".format(i)) for i, p in enumerate(parameters)}
        self._hvd_compression, self._hvd_passes, self._hvd_set, self._hvd_count = compression, passes, process_set, 0

    def step(self, closure=None):
        self._hvd_count += 1
        if self._hvd_count % self._hvd_passes:
            return None
        before = {p: p.detach().clone() for p in self._hvd_names}
        result = super(self.__class__, self).step(closure)
        if self._hvd_set.size() > 1:
            with torch.no_grad():
                rows = []
                for p, name in self._hvd_names.items():
                    packed, context = self._hvd_compression.compress(p - before[p])
                    rows.append((p, context, allreduce_async_(packed, None, "delta." + name, Adasum,
                                                              process_set=self._hvd_set)))
                for p, context, handle in rows:
                    p.copy_(before[p] + self._hvd_compression.decompress(synchronize(handle), context))
        return result


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none, backward_passes_per_step=1,
                         op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False,
                         process_set=global_process_set):
    """The optimizer, whose step() uses gradients that are reduced over the ranks of the set. `op`: Average, Sum,
    Adasum.
    `groups`: a number, or lists of parameters that are reduced together. ValueError: contradictory settings."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("tessera: gradient_predivide_factor goes with op=Average")
    mixin = _DistributedAdasum if op == Adasum else _Distributed
    names = dict(vars(mixin))
    for drop in ("__dict__", "__weakref__", "__doc__", "__module__"):
        names.pop(drop, None)
    made = type(optimizer.__class__.__name__, (optimizer.__class__,), names)
    optimizer.__class__ = made
    named_parameters = list(named_parameters) if named_parameters is not None else None
    if op == Adasum:
        optimizer._prepare(named_parameters, compression, backward_passes_per_step, process_set)
    else:
        optimizer._prepare(named_parameters, compression, backward_passes_per_step, op, gradient_predivide_factor,
                           groups if groups is not None else (num_groups or None), sparse_as_dense, process_set)
    return optimizer
