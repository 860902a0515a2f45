"""Runs cases, each in N processes of its own that are forked from one process which has imported torch.

A case is a function of a `Rank`; it fails by raising. What it returns (tensors, numbers, lists of them) can be compared
with what another backend's run of it returned. Every process of a case is ended when the case is over, or after
`seconds`, so nothing is left behind.
"""
import contextlib
import faulthandler
import json
import os
import pickle
import re
import shutil
import signal
import socket
import tempfile
import time
import traceback
from datetime import timedelta

CASES = []
GRACE = 2.0  # seconds until the others are killed after one rank has failed


class Case:
    """A row of the table: the name (upstream's, where the case is one of PyTorch's), what to call, on how many
    ranks."""

    def __init__(self, name, function, ranks, seconds, backends, group, more):
        self.name, self.function, self.ranks, self.seconds = name, function, ranks, seconds
        self.backends, self.group, self.more = backends, group, more


def case(name=None, ranks=2, seconds=30, only=None, arguments=(), more=False):
    """Adds the decorated function to the table. `only`: the one backend that it is meant for. `more`: a variation of
    another case, which a quick run leaves out."""
    def add(function):
        module = function.__module__.split(".")[-1]
        CASES.append(Case(name or function.__name__, (lambda rank: function(rank, *arguments)), ranks, seconds,
                          (only,) if only else ("tessera", "gloo"), module, more))
        return function
    return add


class Skip(Exception):
    """The case is not possible here; the text says why."""


class Rank:
    """What a case is given: its rank, the number of ranks, the backend's name, a folder that all ranks share."""

    def __init__(self, rank, size, backend, folder, port):
        self.rank, self.size, self.backend, self.folder, self.port = rank, size, backend, folder, port

    def environment(self):
        """Sets what a launcher would."""
        os.environ.update(RANK=str(self.rank), WORLD_SIZE=str(self.size), LOCAL_RANK=str(self.rank),
                          LOCAL_WORLD_SIZE=str(self.size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self.port))

    def store(self, name="store"):
        import torch.distributed as dist
        return dist.FileStore(os.path.join(self.folder, name), self.size)

    def start(self, timeout=20.0, **more):
        """Makes the default group and returns what carries out its operations."""
        import torch
        import torch.distributed as dist
        dist.init_process_group(self.backend, store=self.store(), rank=self.rank, world_size=self.size,
                                timeout=timedelta(seconds=timeout), **more)
        return dist.group.WORLD._get_backend(torch.device("cpu"))

    def die(self):
        """Ends this process as a crash would, and has the case count that as wanted."""
        with open(os.path.join(self.folder, "result-{}".format(self.rank)), "wb") as file:
            pickle.dump(None, file)
        _say(self, {"status": "pass", "why": ""})
        os.kill(os.getpid(), signal.SIGKILL)

    def meet(self, name):
        """Waits for every rank without the backend: by files."""
        open(os.path.join(self.folder, "meet-{}-{}".format(name, self.rank)), "w").close()
        for other in range(self.size):
            while not os.path.exists(os.path.join(self.folder, "meet-{}-{}".format(name, other))):
                time.sleep(0.002)


def equal(got, want, tolerance=0.0):
    """Asserts that tensors, or lists of them, are equal: shape, dtype and values."""
    import torch
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want), "{} values, not {}".format(len(got), len(want))
        for a, b in zip(got, want):
            equal(a, b, tolerance)
    elif isinstance(want, torch.Tensor):
        assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, got.dtype, want.shape, want.dtype)
        if got.is_sparse:
            got, want = got.to_dense(), want.to_dense()
        same = torch.equal(got, want) if not tolerance else torch.allclose(got, want, rtol=tolerance, atol=tolerance)
        assert same, "{} is not {}".format(got.flatten()[:8], want.flatten()[:8])
    else:
        assert got == want, "{!r} is not {!r}".format(got, want)


@contextlib.contextmanager
def raises(pattern, kind=RuntimeError):
    """Asserts that the body raises `kind` with a text that `pattern` is found in."""
    try:
        yield
    except kind as error:
        assert re.search(pattern, str(error)), "the text is: {}".format(error)
        return
    raise AssertionError("nothing was raised; wanted: {}".format(pattern))


def _say(rank, said):
    """Leaves the rank's verdict, whole or not at all."""
    path = os.path.join(rank.folder, "said-{}".format(rank.rank))
    with open(path + ".new", "w") as file:
        json.dump(said, file)
    os.rename(path + ".new", path)


def _child(the_case, rank):
    """The body of a forked process; never returns."""
    out = os.open(os.path.join(rank.folder, "output-{}".format(rank.rank)), os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(1.0, the_case.seconds - 2), exit=False)
    result, said = None, {"status": "pass", "why": ""}
    try:
        result = the_case.function(rank)
    except Skip as reason:
        said = {"status": "skip", "why": str(reason)}
    except BaseException as error:
        text = str(error).strip().splitlines()
        said = {"status": "fail", "why": "{}: {}".format(type(error).__name__, text[0][:300] if text else "")}
        traceback.print_exc()
    with open(os.path.join(rank.folder, "result-{}".format(rank.rank)), "wb") as file:
        try:
            pickle.dump(result, file)
        except Exception as error:
            said = {"status": "fail", "why": "the result cannot be saved: {}".format(error)}
    _say(rank, said)
    # The process ends only after all ranks have reported: a rank that leaves first must not look dead to the others.
    end = time.monotonic() + GRACE + 3
    while time.monotonic() < end and not all(
            os.path.exists(os.path.join(rank.folder, "said-{}".format(r))) for r in range(rank.size)):
        time.sleep(0.002)
    os._exit(0)


def _end(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(the_case, backend, show=False):
    """(status, reason, results of the ranks, seconds): status is pass, fail or skip."""
    port = _free_port()
    folder, pids, begin = tempfile.mkdtemp(prefix="tessera-case-"), [], time.monotonic()
    try:
        for r in range(the_case.ranks):
            pid = os.fork()
            if pid == 0:
                os.setpgid(0, 0)
                _child(the_case, Rank(r, the_case.ranks, backend, folder, port))
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            pids.append(pid)
        end, said, left, codes = begin + the_case.seconds, {}, list(pids), {}
        while left and time.monotonic() < end:
            for pid in list(left):
                done, code = os.waitpid(pid, os.WNOHANG)
                if done:
                    left.remove(pid)
                    codes[pids.index(pid)] = code
            for r in range(the_case.ranks):
                path = os.path.join(folder, "said-{}".format(r))
                if r not in said and os.path.exists(path):
                    with open(path) as file:
                        said[r] = json.load(file)
                    if said[r]["status"] == "fail":
                        end = min(end, time.monotonic() + GRACE)
            if any(r in codes and r not in said and not os.path.exists(os.path.join(folder, "said-{}".format(r)))
                   for r in range(the_case.ranks)):
                end = min(end, time.monotonic() + GRACE)
            time.sleep(0.004)
        _end(left)
        seconds = time.monotonic() - begin
        status, why = "pass", ""
        for r in range(the_case.ranks):
            mine = said.get(r)
            if mine is None:
                mine = {"status": "fail", "why": "killed by signal {}".format(codes[r] & 127) if r in codes
                        else "did not end within {:.0f} s".format(end - begin)}
            if mine["status"] == "fail" and status != "fail" or mine["status"] == "skip" and status == "pass":
                status, why = mine["status"], "rank {}: {}".format(r, mine["why"]) if mine["status"] == "fail" \
                    else mine["why"]
                first = r
        if show and status == "fail":
            for r in range(the_case.ranks):
                with contextlib.suppress(FileNotFoundError):
                    with open(os.path.join(folder, "output-{}".format(r)), errors="replace") as file:
                        print("--- rank {}{}\n{}".format(r, " (first)" if r == first else "", file.read()), flush=True)
        results = []
        if status == "pass":
            for r in range(the_case.ranks):
                with open(os.path.join(folder, "result-{}".format(r)), "rb") as file:
                    results.append(pickle.load(file))
        return status, why, results, seconds
    finally:
        _end([pid for pid in pids if pid in left] if "left" in locals() else pids)
        shutil.rmtree(folder, ignore_errors=True)


def difference(ours, theirs):
    """(how far apart two results are relative to 1, whether their shapes agree); bit-equal results are 0.0 apart."""
    import torch
    if isinstance(ours, torch.Tensor):
        if not isinstance(theirs, torch.Tensor) or ours.shape != theirs.shape:
            return float("inf")
        if ours.is_sparse:
            ours, theirs = ours.to_dense(), theirs.to_dense()
        if torch.equal(ours, theirs):
            return 0.0
        a, b = ours.detach().to(torch.complex128), theirs.detach().to(torch.complex128)
        return ((a - b).abs() / b.abs().clamp(min=1.0)).max().item()
    if isinstance(ours, (list, tuple)):
        if len(ours) != len(theirs):
            return float("inf")
        return max([difference(a, b) for a, b in zip(ours, theirs)], default=0.0)
    if isinstance(ours, float):
        return abs(ours - theirs) / max(1.0, abs(theirs))
    return 0.0 if ours == theirs else float("inf")
