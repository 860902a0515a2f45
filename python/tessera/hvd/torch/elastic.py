"""Training that continues after a rank fails: elastic.run and State, with Horovod's names.

>>> state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0)
>>> @hvd.elastic.run
... def train(state): ...

When a collective fails, or when hosts have changed (HostsUpdatedInterrupt), run() returns to the last commit,
meets the
other ranks again and calls the function again. Processes are started and ended by the launcher (`tessera launch`, or
torchrun, with restarts): the ranks that meet are the ones it started.
"""
import copy
import functools

from . import _api
from ._engine import HorovodInternalError
from ._functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts were added or removed: nothing was lost, and the ranks meet again. `skip_sync`: no state needs to be
    sent."""

    def __init__(self, skip_sync=False):
        super().__init__("hosts have changed")
        self.skip_sync = skip_sync


class State:
    """The state that must survive a failure. Subclasses define how it is saved, restored and sent from rank 0."""

    def __init__(self, **values):
        self._reset_callbacks, self._updated = [], False
        self._values = dict(values)
        for name, value in values.items():
            setattr(self, name, value)

    def register_reset_callbacks(self, callbacks):
        """Called after the ranks have met again, e.g. to scale the learning rate."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self):
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, *_):
        """For launchers: the next commit() or check_host_updates() interrupts."""
        self._updated = True

    def commit(self):
        """Saves the state, and checks whether hosts have changed."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self):
        if broadcast_object(self._updated, 0, "elastic.updated"):
            self._updated = False
            raise HostsUpdatedInterrupt()

    def save(self):
        raise NotImplementedError

    def restore(self):
        raise NotImplementedError

    def sync(self):
        raise NotImplementedError

    def reset(self):
        pass


class ObjectState(State):
    """Python values given by name."""

    def __init__(self, **values):
        super().__init__(**values)
        self.save()

    def save(self):
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._values}

    def restore(self):
        for name, value in self._saved.items():
            setattr(self, name, copy.deepcopy(value))

    def sync(self):
        """Sets the values of rank 0 on all ranks."""
        self.save()
        self._saved = broadcast_object(self._saved, 0, "elastic.objects")
        self.restore()


class TorchState(ObjectState):
    """A model, an optimizer, and Python values given by name."""

    def __init__(self, model=None, optimizer=None, **values):
        self.model, self.optimizer = model, optimizer
        super().__init__(**values)

    def save(self):
        super().save()
        self._model = copy.deepcopy(self.model.state_dict()) if self.model is not None else None
        self._optimizer = copy.deepcopy(self.optimizer.state_dict()) if self.optimizer is not None else None

    def restore(self):
        super().restore()
        if self.model is not None:
            self.model.load_state_dict(self._model)
        if self.optimizer is not None:
            self.optimizer.load_state_dict(self._optimizer)
            if hasattr(self.optimizer, "_hvd_handles"):
                self.optimizer._hvd_handles.clear()
                self.optimizer._hvd_delay = {p: self.optimizer._hvd_passes for p in self.optimizer._hvd_delay}

    def sync(self):
        if self.model is not None:
            broadcast_parameters(self.model.state_dict(), 0)
        if self.optimizer is not None:
            broadcast_optimizer_state(self.optimizer, 0)
        super().sync()


def run(function):
    """Decorator for function(state, ...): calls it until it returns; see above."""
    @functools.wraps(function)
    def wrapped(state, *args, **kwargs):
        skip_sync, restarts = False, 0
        while True:
            try:
                if not skip_sync:
                    state.sync()
                return function(state, *args, **kwargs)
            except HorovodInternalError:
                restarts += 1
                if restarts > 100:
                    raise
                state.restore()
                skip_sync = False
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
            _api.shutdown()
            _api.init()
            state.on_reset()
    return wrapped
