"""Errors of the library as torch raises them: each is a DistBackendError, too."""
import torch.distributed as dist

from tessera import _c


class BackendError(dist.DistBackendError, _c.TesseraError):
    """Base of the errors that a process group of this backend raises; `status` is the kind, and the text names
    ranks."""


class InvalidArgument(BackendError, ValueError):
    """Invalid arguments; nothing was sent."""
    status = _c.INVALID


class PeerLost(BackendError):
    """Another rank is gone; the text names it."""
    status = _c.PEER_LOST


class TimedOut(BackendError, TimeoutError):
    """A rank did not take part in time; the text names it."""
    status = _c.TIMEOUT


class Mismatch(BackendError):
    """Ranks started different operations; the text names both."""
    status = _c.MISMATCH


class Aborted(BackendError):
    """A rank aborted the group."""
    status = _c.ABORTED


class ShutDown(BackendError):
    """The group was destroyed."""
    status = _c.SHUT_DOWN


class StoreFailed(BackendError):
    """The store failed while the ranks met."""
    status = _c.STORE


CLASSES = {c.status: c for c in (InvalidArgument, PeerLost, TimedOut, Mismatch, Aborted, ShutDown, StoreFailed)}
CLASSES[_c.SYSTEM] = BackendError


def error_of(status, text=None):
    """The exception for a status of the library; its text is `text`, or the library's last message in this thread."""
    return _c.error_of(status, text, CLASSES)
