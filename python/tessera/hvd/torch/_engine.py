"""Operations by name, in any order and from any thread: the negotiation between ranks, and the threads that run the
operations.

Every rank reports its operations to rank 0 (the leader); when all ranks of the set have reported one, the leader orders
them to run it, to all in one order. A name with its description is agreed upon once and is a number from then on. Each
rank has a thread that sends, and one that receives orders and runs them; the leader has a thread for each other rank
and one that decides. Operations that arrive together are ordered and run together: small reductions are sent as one.

A rank that has joined contributes zeros to the others' reductions, and no rows to their gathers.
"""
import ctypes
import os
import pickle
import queue
import socket
import struct
import threading
from collections import OrderedDict, deque

from tessera import _c

_PATIENCE = 60  # seconds in which the ranks of a world, which have already met, must connect to rank 0


class HorovodInternalError(RuntimeError):
    """A collective failed: a rank is gone, or ranks disagree. elastic.run() restores and tries again."""


class Request:
    """One operation of this rank: `description` must be equal on all ranks; `run(engine)` runs it."""

    def __init__(self, name, description, run):
        self.name, self.description, self.run = name, description, run
        self.event, self.result, self.error = threading.Event(), None, None

    def end(self, result=None, error=None):
        self.result, self.error, self.run = result, error, None
        self.event.set()


class Channel:
    """Messages of any length over a socket. Only one thread may receive. `peer`: the other rank, for errors."""

    def __init__(self, connection, peer):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._peer, self._lock = connection, peer, threading.Lock()

    def send(self, data):
        try:
            with self._lock:
                self._connection.sendall(struct.pack("<I", len(data)) + data)
        except OSError as error:
            raise HorovodInternalError("tessera: rank {} is gone: {}".format(self._peer, error)) from error

    def receive(self):
        size, = struct.unpack("<I", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size):
        parts = bytearray()
        while len(parts) < size:
            try:
                some = self._connection.recv(size - len(parts))
            except OSError as error:
                raise HorovodInternalError("tessera: rank {} is gone: {}".format(self._peer, error)) from error
            if not some:
                raise HorovodInternalError("tessera: rank {} is gone, or has ended its part".format(self._peer))
            parts += some
        return bytes(parts)

    def close(self):
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side has already closed the connection
        self._connection.close()


def meet(world, rank, size):
    """Channels of rank 0 to all others, by rank; of another rank to rank 0. A connecting rank sends a secret that rank
    0 has put into the world's store. A socket, because waiting for long in a receive of the library, which is what a
    rank without work does, counts as a deadlock there."""
    key = b"hvd.leader"
    if rank == 0:
        secret = os.urandom(16)
        with socket.create_server(("", 0), backlog=size) as server:
            value = pickle.dumps((secret, socket.gethostname(), _own_address(), server.getsockname()[1]), protocol=4)
            _c.call("store_set", world, key, value, len(value))
            server.settimeout(_PATIENCE)
            channels = {}
            while len(channels) < size - 1:
                connection, _ = server.accept()
                connection.settimeout(_PATIENCE)
                try:
                    said = Channel(connection, "?")._exactly(20)
                except HorovodInternalError:
                    said = b""
                if said[:16] != secret:
                    connection.close()
                    continue
                connection.settimeout(None)
                other, = struct.unpack("<I", said[16:])
                channels[other] = Channel(connection, other)
        return channels
    buffer, length = ctypes.create_string_buffer(4096), ctypes.c_int64()
    _c.call("store_get", world, key, _PATIENCE * 1000, buffer, 4096, ctypes.byref(length))
    secret, host, address, port = pickle.loads(buffer.raw[:length.value])
    connection = socket.create_connection(("127.0.0.1" if host == socket.gethostname() else address, port), _PATIENCE)
    connection.settimeout(None)
    connection.sendall(secret + struct.pack("<I", rank))
    return {0: Channel(connection, 0)}


def _own_address():
    """The address of this host that reaches the meeting place (MASTER_ADDR), else the one of its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((os.environ.get("MASTER_ADDR", ""), 9))  # sends nothing
            own = probe.getsockname()[0]
        except OSError:
            own = "127."
    return socket.gethostname() if own.startswith("127.") else own


class Leader:
    """Rank 0's decisions: which operations are complete, and in which order they run."""

    def __init__(self, size, give):
        self._size, self._give = size, give  # give(rank, [orders])
        self._numbers, self._known = {}, []  # (name, description) -> number; number -> (name, description, ranks)
        self._waiting = OrderedDict()  # number -> ranks that have submitted it
        self._joined, self._last_joined = set(), -1
        self._told = [0] * size  # how many of the numbers each rank has been sent

    def hear(self, rank, items):
        """`items` of a rank: numbers, (name, description, ranks), or "join"."""
        for item in items:
            if item == "join":
                self._joined.add(rank)
                self._last_joined = rank
            else:
                self._count(rank, item)

    def _count(self, rank, item):
        if not isinstance(item, int):
            key = (item[0], item[1])
            if key not in self._numbers:
                self._numbers[key] = len(self._known)
                self._known.append(item)
            item = self._numbers[key]
        self._waiting.setdefault(item, set()).add(rank)

    def decide(self):
        """Returns the orders that are ready: [("run", number, None or (name, description))] and others."""
        orders = {r: [] for r in range(self._size)}
        for number in list(self._waiting):
            have = self._waiting.get(number)
            if have is None:
                continue  # refused together with an earlier one
            name, description, ranks = self._known[number]
            absent = set(ranks) - have
            if not absent <= self._joined:
                clash = self._clash(number, name, absent)
                if clash:
                    for rank in have:
                        orders[rank].append(("refuse", number, self._known[number][:2], clash[1]))
                    for rank in self._waiting.pop(clash[0]):
                        orders[rank].append(("refuse", clash[0], self._known[clash[0]][:2], clash[1]))
                    del self._waiting[number]
                continue
            del self._waiting[number]
            why = "" if not absent or description[0] in ("allreduce", "grouped_allreduce", "allgather", "reducescatter",
                                                         "barrier") else \
                "tessera: {} of {!r} while rank {} has joined: only reductions, allgather and barrier are possible " \
                "then".format(description[0], name, min(absent))
            for rank in ranks:
                if why and rank in absent:
                    continue
                orders[rank].append(("refuse", number, (name, description), why) if why
                                    else ("run", number, (name, description)))
        if len(self._joined) == self._size:
            for rank in orders:
                orders[rank].append(("joined", self._last_joined))
            self._joined, self._last_joined = set(), -1
        for rank, some in orders.items():
            if some:
                self._give(rank, some)

    def _clash(self, number, name, absent):
        """(another number of the same name that an absent rank waits for, a sentence), or nothing."""
        for other, have in self._waiting.items():
            if other != number and self._known[other][0] == name and have & absent:
                one, two = self._known[number], self._known[other]
                return other, "tessera: ranks {} have {!r} as {}, ranks {} as {}".format(
                    sorted(self._waiting[number]), name, describe(one[1]), sorted(have), describe(two[1]))
        return None


def describe(description):
    """A readable description: the operation's kind and its other properties."""
    return " ".join(str(part) for part in description if part not in (None, ""))


class Engine:
    """The negotiation of one world, and its threads. `zeros(engine, description)` runs it for a joined rank.
    `fusion_bytes`: maximum bytes of reductions that are sent as one."""

    def __init__(self, world, rank, size, zeros, fusion_bytes=16 << 20):
        self._fusion_bytes = fusion_bytes
        self.rank, self.size, self.world, self._zeros = rank, size, world, zeros
        self.groups = {0: _c.handle("world_group", world)}
        self.set_ranks = {0: tuple(range(size))}
        self._lock = threading.Condition()
        self._pending, self._outbox, self._numbers = {}, deque(), {}
        self._by_number, self._joins, self._broken, self.closing = {}, [], None, False
        self._threads, self._to = [], {}
        if size > 1:
            self._heard, self._own_orders = queue.SimpleQueue(), queue.SimpleQueue()
            self._to = meet(world, rank, size)
            self._spawn(self._send_loop, "sends")
            self._spawn(self._order_loop, "runs")
            if rank == 0:
                self._spawn(self._leader_loop, "leads")
                for r in range(1, size):
                    self._spawn(lambda r=r: self._hear_loop(r), "hears {}".format(r))

    def _spawn(self, function, what):
        def guarded():
            try:
                function()
            except BaseException as error:
                if not self.closing:
                    self.fail(error)
        thread = threading.Thread(target=guarded, daemon=True, name="tessera.hvd " + what)
        self._threads.append(thread)
        thread.start()

    # ---- called by the program's threads ----

    def submit(self, name, description, run, ranks):
        """Submits an operation; returns its Request. ValueError if an operation with this name is in flight."""
        request = Request(name, description, run)
        with self._lock:
            if self._broken is not None:
                raise HorovodInternalError(str(self._broken)) from self._broken
            if name in self._pending:
                raise ValueError("tessera: {!r} is in flight already; a name can be used again when its operation has "
                                 "ended".format(name))
            self._pending[name] = request
            if self.size == 1:
                pass
            else:
                number = self._numbers.get((name, description))
                self._outbox.append((name, description, ranks) if number is None else number)
                self._lock.notify_all()
        if self.size == 1:
            self._run([request])
        return request

    @staticmethod
    def wait(request):
        """Returns the result of a request; raises HorovodInternalError if a rank is gone or the ranks disagree."""
        while not request.event.wait(0.5):  # in steps: Ctrl-C
            pass
        if request.error is not None:
            if isinstance(request.error, (ValueError, TypeError)) and not isinstance(request.error, _c.TesseraError):
                raise request.error
            raise HorovodInternalError(str(request.error)) from request.error
        return request.result

    def join(self):
        """Takes part in the others' operations until all ranks have joined; returns the rank that joined last."""
        if self.size == 1:
            return 0
        request = Request("join", ("join",), None)
        with self._lock:
            if self._broken is not None:
                raise HorovodInternalError(str(self._broken)) from self._broken
            self._joins.append(request)
            self._outbox.append("join")
            self._lock.notify_all()
        return self.wait(request)

    def fail(self, error):
        """Makes all current and future operations fail with this error; rank 0 sends the reason to the others."""
        with self._lock:
            first = self._broken is None
            if first:
                self._broken = error
            requests = list(self._pending.values()) + self._joins
            self._pending, self._joins = {}, []
            self._lock.notify_all()
        for request in requests:
            request.end(error=self._broken)
        if first and self.rank == 0 and not self.closing:
            for channel in self._to.values():
                try:
                    channel.send(pickle.dumps([("failed", str(error))], protocol=4))
                except HorovodInternalError:
                    pass  # this rank is the one that has gone, or it has noticed the failure itself

    def close(self):
        self.closing = True
        self.fail(HorovodInternalError("tessera: shutdown() was called"))
        for channel in self._to.values():
            channel.close()
        if self.rank == 0 and self.size > 1:
            self._own_orders.put(None)
            self._heard.put(None)

    # ---- threads ----

    def _send_loop(self):
        while True:
            with self._lock:
                while not self._outbox and self._broken is None:
                    self._lock.wait()
                if self._broken is not None:
                    return
                items, self._outbox = list(self._outbox), deque()
            if self.rank == 0:
                self._heard.put((0, items))
            else:
                self._to[0].send(pickle.dumps(items, protocol=4))

    def _hear_loop(self, rank):
        while True:
            self._heard.put((rank, pickle.loads(self._to[rank].receive())))

    def _leader_loop(self):
        leader = Leader(self.size, lambda rank, orders: self._own_orders.put(orders) if rank == 0
                        else self._to[rank].send(pickle.dumps(orders, protocol=4)))
        while True:
            heard = self._heard.get()
            if heard is None:
                return
            leader.hear(*heard)
            while not self._heard.empty():
                heard = self._heard.get()
                if heard is None:
                    return
                leader.hear(*heard)
            leader.decide()

    def _order_loop(self):
        while True:
            orders = self._own_orders.get() if self.rank == 0 else pickle.loads(self._to[0].receive())
            if orders is None:
                return
            ready = []
            for order in orders:
                if order[0] == "failed":
                    raise HorovodInternalError(order[1])
                if order[0] == "joined":
                    self._run(ready)
                    ready = []
                    with self._lock:
                        joins, self._joins = self._joins, []
                    for request in joins:
                        request.end(order[1])
                    continue
                number, (name, description) = order[1], order[2]
                with self._lock:
                    self._numbers[name, description] = number
                    request = self._pending.get(name)
                if order[0] == "refuse":
                    with self._lock:
                        self._pending.pop(name, None)
                    if request is not None:
                        request.end(error=ValueError(order[3]))
                elif request is None:
                    ready.append(Request(name, description, self._zeros(self, description)))
                else:
                    ready.append(request)
            self._run(ready)

    def _run(self, requests):
        """Runs them in order; adjacent ones are combined where possible (see _operations.py)."""
        at = 0
        while at < len(requests):
            count = 1
            join = getattr(requests[at].run, "together", None)
            if join is not None:
                left = self._fusion_bytes - requests[at].run.bytes()
                while at + count < len(requests) and join(requests[at + count].run):
                    left -= requests[at + count].run.bytes()
                    if left < 0:
                        break
                    count += 1
            some = requests[at:at + count]
            at += count
            try:
                results = some[0].run.run_together([r.run for r in some]) if count > 1 else [some[0].run(self)]
            except BaseException as error:
                if isinstance(error, _c.TesseraError) and not isinstance(error, _c.InvalidArgument):
                    for request in some:
                        request.end(error=error)
                    raise
                results = None
                self._done(some, [None] * count, error)
            if results is not None:
                self._done(some, results, None)

    def _done(self, requests, results, error):
        with self._lock:
            for request in requests:
                if self._pending.get(request.name) is request:
                    del self._pending[request.name]
        for request, result in zip(requests, results):
            request.end(result, error)
