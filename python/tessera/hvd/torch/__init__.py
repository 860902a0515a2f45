"""Horovod's names for PyTorch: scripts change `import horovod.torch as hvd` into `import tessera.hvd.torch as hvd`.

>>> hvd.init()
>>> optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
>>> hvd.broadcast_parameters(model.state_dict(), root_rank=0)

For CPU tensors only. docs/python.md lists the differences from Horovod.
"""
from . import elastic  # noqa: F401
from ._api import (Adasum, Average, Max, Min, Product, ProcessSet, Sum, add_process_set, allgather,  # noqa: F401
                   allgather_async, allreduce, allreduce_, allreduce_async, allreduce_async_, alltoall, alltoall_async,
                   barrier, broadcast, broadcast_, broadcast_async, broadcast_async_, ccl_built, cross_rank, cross_size,
                   cuda_built, ddl_built, global_process_set, gloo_built, gloo_enabled, grouped_allgather,
                   grouped_allreduce, grouped_allreduce_, grouped_allreduce_async, grouped_allreduce_async_,
                   grouped_reducescatter, init, is_homogeneous, is_initialized, join, local_rank, local_size, mpi_built,
                   mpi_enabled, mpi_threads_supported, nccl_built, poll, rank, reducescatter, reducescatter_async,
                   remove_process_set, rocm_built, shutdown, size, synchronize)
from ._compression import Compression  # noqa: F401
from ._engine import HorovodInternalError  # noqa: F401
from ._functions import (allgather_object, broadcast_object, broadcast_optimizer_state,  # noqa: F401
                         broadcast_parameters)
from ._optimizer import DistributedOptimizer  # noqa: F401
