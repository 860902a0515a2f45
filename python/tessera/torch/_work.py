"""Operations that were started: torch's Work and Future over the library's handles.

A thread of the group (a Follower) exists only when a future or a copy back into a strided tensor is asked for. It
handles operations in the order in which that was asked. Callbacks of futures run on it, and only there, so that
collectives which they start come in one order on all ranks; those go through a group of their own (see _group.py).
"""
import collections
import ctypes
import sys
import threading
import time
from datetime import timedelta

import torch
from torch.distributed import Work
from torch.futures import Future

from tessera import _c
from ._errors import TimedOut, error_of

_SLICE = 500  # maximum ms that a wait spends in C before Python checks for signals such as Ctrl-C


class Operation:
    """A started operation: its handle, the objects it needs until it ends, the copies made afterwards, and its
    result."""
    __slots__ = ("handle", "keep", "after", "result", "error", "ended", "followed", "__weakref__")

    def __init__(self, handle, keep, after, result):
        self.handle, self.keep, self.after, self.result = handle, keep, after, result
        self.error, self.ended, self.followed = None, False, None

    def poll(self):
        """Whether it has ended."""
        if not self.ended and self.followed is None:
            ended = ctypes.c_int32()
            _c.lib.work_test(self.handle, ctypes.byref(ended))
            if ended.value:
                self._end(_c.lib.work_status(self.handle))
        return self.ended

    def block(self, seconds=None):
        """Waits until it has ended; False: not within `seconds`."""
        if self.ended:
            return True
        if self.followed is not None and threading.current_thread() is not self.followed[0]:
            return self.followed[1].wait(seconds)
        until, ended = None if seconds is None else time.monotonic() + seconds, ctypes.c_int32()
        while True:
            left = _SLICE if until is None else max(0, min(_SLICE, int((until - time.monotonic()) * 1000)))
            status = _c.lib.work_wait(self.handle, left, ctypes.byref(ended))
            if ended.value:
                self._end(status)
                return True
            if until is not None and time.monotonic() >= until:
                return False

    def _end(self, status):
        if status:
            self.error = error_of(status, _c.text("work_error", self.handle))
        elif self.after is not None:
            try:
                self.after()
            except BaseException as error:  # must reach the waiter instead of ending the thread that copies
                self.error = error
        self.after = self.keep = None
        self.ended = True

    def value(self, _=None):
        """Returns the result, or raises the error with which the operation ended."""
        if self.error is not None:
            raise self.error
        return self.result

    def source(self):
        return _c.number("work_source", self.handle)

    def __del__(self):
        if self.handle and _c is not None:
            _c.lib.work_free(self.handle)


class Follower:
    """A thread that waits for operations in the order given, and runs the continuation of each."""

    def __init__(self, name):
        self._name, self._tasks, self._wake, self._closed = name, collections.deque(), threading.Condition(), False
        self.thread = None
        self.ident = 0

    def add(self, task):
        with self._wake:
            if self.thread is None:
                self.thread = threading.Thread(target=self._loop, daemon=True, name=self._name)
                self.thread.start()
            self._tasks.append(task)
            self._wake.notify()

    def follow(self, operation):
        """Makes this thread the one that ends the operation: other threads wait for an event."""
        if operation.followed is None and not operation.ended:
            event = threading.Event()
            with self._wake:
                if self.thread is None:
                    self.thread = threading.Thread(target=self._loop, daemon=True, name=self._name)
                    self.thread.start()
                operation.followed = (self.thread, event)

            def task():
                operation.block()
                event.set()
            self.add(task)

    def _loop(self):
        self.ident = threading.get_ident()
        while True:
            with self._wake:
                while not self._tasks and not self._closed:
                    self._wake.wait()
                if not self._tasks:
                    return
                task = self._tasks.popleft()
            task()
            del task

    def close(self, seconds=10.0):
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(seconds)


class OrderedFuture(Future):
    """A future whose Python callbacks run on the group's follower, even if it is already complete."""

    def _of(self, follower):
        self._follower = follower
        return self

    def then(self, callback):
        out = OrderedFuture()._of(self._follower)

        def task():
            try:
                value = callback(self)
            except BaseException as error:
                out.set_exception(error)
            else:
                out.set_result(value)
        self._run(task)
        return out

    def add_done_callback(self, callback):
        self._run(lambda: callback(self))

    def _run(self, task):
        if threading.get_ident() == self._follower.ident:
            task()
        else:
            self._follower.add(task)


def _asked_by_python():
    """Whether the caller of the caller is Python code that names get_future, not C++ such as DDP's reducer."""
    try:
        return "get_future" in sys._getframe(2).f_code.co_names
    except ValueError:  # a C++ thread without a Python frame
        return False


class OperationWork(Work):
    """torch's Work of one operation. torch's own, made from a future, neither raises nor takes a time-out."""

    def __init__(self, operation, follower):
        super().__init__()
        self._operation, self._follower, self._future = operation, follower, None

    def wait(self, timeout=timedelta(0)):
        operation = self._operation
        if not operation.ended:
            seconds = timeout.total_seconds()
            if not operation.block(seconds if seconds > 0 else None):
                raise TimedOut("tessera: timed out: the operation has not ended within {} s".format(seconds))
        if operation.error is not None:
            raise operation.error
        return True

    def synchronize(self):
        self.wait()

    def get_future(self):
        ordered, of_cpp = self._futures()
        return ordered if _asked_by_python() else of_cpp

    def get_future_of_cpp(self):
        return self._futures()[1]

    def _futures(self):
        """(the future for Python, whose callbacks are ordered; the future for C++, which carries errors as it
        wants)."""
        if self._future is None:
            operation, follower = self._operation, self._follower
            start = Future()
            # A callback that raises sets the error of the C++ future, which DDP checks; set_exception() would not.
            done = start.then(operation.value)
            result = OrderedFuture()._of(follower)
            self._future = (result, done)

            def task():
                operation.block()
                start.set_result(None)
                if operation.error is None:
                    result.set_result(operation.result)
                else:
                    result.set_exception(operation.error)
            follower.add(task)
        return self._future

    def result(self):
        return self._operation.result

    def is_completed(self):
        return self._operation.poll()

    def is_success(self):
        return self._operation.poll() and self._operation.error is None

    def exception(self):
        return self._operation.error

    def source_rank(self):
        return self._operation.source()

    _source_rank = source_rank


class EndedWork(Work):
    """The Work of an operation that had ended when the call returned."""

    def __init__(self, result, follower):
        super().__init__()
        self._result, self._follower = result, follower

    def wait(self, timeout=timedelta(0)):
        return True

    def synchronize(self):
        pass

    def get_future(self):
        future = OrderedFuture()._of(self._follower)
        future.set_result(self._result)
        return future

    get_future_of_cpp = get_future

    def result(self):
        return self._result

    def is_completed(self):
        return True

    is_success = is_completed

    def exception(self):
        return None


def _of_cpp(work):
    return work.get_future_of_cpp() if hasattr(work, "get_future_of_cpp") else work.get_future()


class SeveralWork(Work):
    """The Work of several operations of one call; it ends when all have ended."""

    def __init__(self, works, result):
        super().__init__()
        self._works, self._result = works, result

    def wait(self, timeout=timedelta(0)):
        for work in self._works:
            work.wait(timeout)
        return True

    def synchronize(self):
        self.wait()

    def get_future(self):
        result = self._result

        def all_of(futures):
            for future in futures.value():
                future.value()
            return result
        return torch.futures.collect_all([_of_cpp(w) for w in self._works]).then(all_of)

    get_future_of_cpp = get_future

    def result(self):
        return self._result

    def is_completed(self):
        return all(w.is_completed() for w in self._works)

    def is_success(self):
        return all(w.is_success() for w in self._works)

    def exception(self):
        return next((w.exception() for w in self._works if w.exception() is not None), None)
