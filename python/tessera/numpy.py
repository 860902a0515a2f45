"""Collectives on CPU arrays without torch: numpy's, and others with the buffer protocol or DLPack (JAX's
arrays on the CPU as inputs).

>>> world = tessera.numpy.init()
>>> total = world.all_reduce(numpy.ones(3))

In JAX these are calls from the host (jax.pure_callback), apart from jit's own collectives.
"""
import ctypes
import itertools

import numpy as np

from tessera import _c

_CODES = {"uint8": _c.UINT8, "int8": _c.INT8, "int16": _c.INT16, "int32": _c.INT32, "int64": _c.INT64,
          "float16": _c.FLOAT16, "bfloat16": _c.BFLOAT16, "float32": _c.FLOAT32, "float64": _c.FLOAT64, "bool": _c.BOOL,
          "complex64": _c.COMPLEX64, "complex128": _c.COMPLEX128}
_OPS = {"sum": _c.SUM, "product": _c.PRODUCT, "min": _c.MIN, "max": _c.MAX, "average": _c.AVERAGE, "band": _c.BAND,
        "bor": _c.BOR, "bxor": _c.BXOR}
_worlds = itertools.count()


def _array(value):
    """The value as a row-major array; not copied if it already is one."""
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        value = np.from_dlpack(value)
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    if array.dtype.name not in _CODES:
        raise ValueError("tessera: no operations on {}; there are {}".format(array.dtype, ", ".join(_CODES)))
    if not array.dtype.isnative:
        raise ValueError("tessera: {} has a foreign byte order; convert it with astype(array.dtype.newbyteorder('='))"
                         .format(array.dtype.str))
    return array


def _op(name):
    if name not in _OPS:
        raise ValueError("tessera: no reduction {!r}; there are {}".format(name, ", ".join(_OPS)))
    return _OPS[name]


class Group:
    """A group of ranks. All of them must call every operation, in the same order; it blocks and returns a new array.
    Errors are tessera._c.TesseraError and name ranks."""

    def __init__(self, world, handle):
        self._world, self._handle = world, handle
        self.rank, self.size = _c.number("group_rank", handle), _c.number("group_size", handle)

    def group(self, ranks):
        """A group of some ranks of the world, called by those ranks only."""
        row = (ctypes.c_int32 * len(ranks))(*ranks)
        return Group(self._world, _c.handle("group_create", self._world, row, len(ranks), None))

    def all_reduce(self, value, op="sum"):
        """[...] -> [...]"""
        array = _array(value)
        out = np.empty_like(array)
        _c.call("all_reduce", self._handle, array.ctypes.data, out.ctypes.data, array.size, _CODES[array.dtype.name],
                _op(op), None, None)
        return out

    def broadcast(self, value, root=0):
        """The root's [...]; on other ranks, `value` determines shape and dtype."""
        out = _array(value).copy()
        _c.call("broadcast", self._handle, out.ctypes.data, out.size, _CODES[out.dtype.name], root, None, None)
        return out

    def all_gather(self, value):
        """[...] -> [R, ...]"""
        array = _array(value)
        out = np.empty((self.size,) + array.shape, array.dtype)
        _c.call("all_gather", self._handle, array.ctypes.data, out.ctypes.data, array.size, _CODES[array.dtype.name],
                None, None)
        return out

    def reduce_scatter(self, value, op="sum"):
        """[R, ...] -> [...]: this rank's row of the reduction."""
        array = self._rows(value)
        out = np.empty(array.shape[1:], array.dtype)
        _c.call("reduce_scatter", self._handle, array.ctypes.data, out.ctypes.data, out.size, _CODES[array.dtype.name],
                _op(op), None, None)
        return out

    def all_to_all(self, value):
        """[R, ...] -> [R, ...]: row r goes to rank r, and comes from it."""
        array = self._rows(value)
        out = np.empty_like(array)
        _c.call("all_to_all", self._handle, array.ctypes.data, out.ctypes.data, array.size // self.size,
                _CODES[array.dtype.name], None, None)
        return out

    def send(self, value, destination, tag=0):
        array = _array(value)
        _c.call("send", self._handle, array.ctypes.data, array.size, _CODES[array.dtype.name], destination, tag, None,
                None)

    def receive(self, like, source, tag=0):
        """An array of the shape and dtype of `like`."""
        out = np.empty_like(_array(like))
        _c.call("recv", self._handle, out.ctypes.data, out.size, _CODES[out.dtype.name], source, tag, None, None, None)
        return out

    def barrier(self):
        _c.call("barrier", self._handle, None, None)

    def _rows(self, value):
        array = _array(value)
        if not array.ndim or array.shape[0] != self.size:
            raise ValueError("tessera: shape {} has no row for each of {} ranks".format(array.shape, self.size))
        return array


class World(Group):
    """The group of all ranks; close() ends it."""

    def __init__(self, world):
        super().__init__(world, _c.handle("world_group", world))

    def close(self):
        """Shuts down this rank; the other ranks' operations fail unless a barrier came before."""
        _c.call("shutdown", self._world)


def init(timeout=None):
    """Connects to the other ranks as described by the launcher; one rank if there is no description. `timeout`: seconds
    that an operation waits for a rank; None: half an hour."""
    options = _c.options(timeout_ms=int(timeout * 1000) if timeout else 0)
    return World(_c.handle("init_environment", "numpy.{}".format(next(_worlds)).encode(), ctypes.byref(options)))
