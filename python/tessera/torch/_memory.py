"""Tensors in the memory that the ranks of a host share."""
import ctypes
import math
import operator
import weakref

import torch

from tessera import _c


def empty_shared(*shape, dtype=None):
    """Returns an uninitialized tensor like torch.empty(*shape, dtype=dtype), in memory that the ranks of this host read
    in place: their all_reduce and reduce_scatter copy nothing, which about doubles the speed of large ones. The memory
    is freed with the tensor."""
    shape = tuple(shape[0]) if len(shape) == 1 and not hasattr(shape[0], "__index__") else shape
    shape = tuple(operator.index(size) for size in shape)
    dtype = dtype or torch.get_default_dtype()
    count = math.prod(shape)
    if min(shape, default=0) < 0:
        raise ValueError("tessera: empty_shared{}: sizes cannot be negative".format(shape))
    if not count:
        return torch.empty(shape, dtype=dtype)
    address = ctypes.c_void_p()
    size = count * torch.empty(0, dtype=dtype).element_size()
    _c.call("memory_allocate", size, ctypes.byref(address))
    memory = (ctypes.c_char * size).from_address(address.value)
    freed = weakref.finalize(memory, _c.lib.memory_free, address.value)
    freed.atexit = False
    return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)
