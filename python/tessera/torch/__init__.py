"""The backend "tessera" of torch.distributed, without compiling and for any torch >= 2.6.

>>> import tessera.torch
>>> torch.distributed.init_process_group("tessera")

After the import, DDP, FSDP2, DTensor, pipelining and everything else of torch.distributed run on it, for tensors of the
CPU. Errors are torch's DistBackendError and name ranks; see docs/python.md.
"""
import sys
import weakref

import torch.distributed as dist

from ._errors import (Aborted, BackendError, InvalidArgument, Mismatch, PeerLost, ShutDown, StoreFailed,  # noqa: F401
                      TimedOut)
from ._group import VERSION, ProcessGroupTessera
from ._memory import empty_shared

__all__ = ["ProcessGroupTessera", "empty_shared", "BackendError", "InvalidArgument", "PeerLost", "TimedOut", "Mismatch",
           "Aborted", "ShutDown", "StoreFailed"]

_default = None  # a weak reference to the group that the last init_process_group() created


def _create(options, pg_options=None):
    """Called by torch for a new group; options.store is for its members only."""
    global _default
    _refuse_second_backend(sys._getframe(1))
    ranks = list(options.global_ranks_in_group or [])
    parent = _default() if _default is not None else None
    # Members of a group other than the default one share the default group's world, so they need not meet again.
    if ranks and parent is not None and parent._open:
        return ProcessGroupTessera(options.store, options.group_rank, options.group_size, options.timeout,
                                   str(options.group_id), parent._world, ranks)
    made = ProcessGroupTessera(options.store, options.group_rank, options.group_size, options.timeout,
                               str(options.group_id) or "default")
    if not ranks:
        _default = weakref.ref(made)
    return made


def _refuse_second_backend(frame):
    """torch keeps a group written in Python as the whole group, and silently drops the backends of other devices
    word."""
    described = frame.f_locals.get("backend_config")
    backends = described.get_device_backend_map() if hasattr(described, "get_device_backend_map") else {}
    others = sorted({name for name in backends.values() if name != "tessera"})
    if others:
        raise InvalidArgument("tessera: {} in the same group: torch would drop it, since a backend written in Python "
                              "is the whole group. Make a second group: new_group(backend={!r})".format(
                                  " and ".join(others), others[0]))


dist.Backend.register_backend("tessera", _create, extended_api=True, devices=["cpu"])


def _open_white_lists():
    """Older releases refuse monitored_barrier() of every backend but Gloo without calling the group."""
    from torch.distributed import distributed_c10d as c10d
    original = c10d.monitored_barrier

    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        if dist.get_rank(group) >= 0:
            own = c10d._get_default_group() if group is None else group
            if isinstance(own, ProcessGroupTessera):
                return own.monitored_barrier(timeout, wait_all_ranks)
        return original(group, timeout, wait_all_ranks)
    monitored_barrier.__doc__ = original.__doc__
    c10d.monitored_barrier = dist.monitored_barrier = monitored_barrier


if VERSION < (2, 15):
    _open_white_lists()
