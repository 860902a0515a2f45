#!/usr/bin/env python3
"""Strangers on the port of the rendezvous store while a job runs: are they kept out, and does the job notice?

    tests/faults/stranger.py [--build DIR] [--trials 3 | --full] [--ranks 2] [--steps 1500]

The attacks: random bytes, greetings under a wrong secret, a replayed session, truncated greetings, frames with huge
lengths, and 1,000 connections held open. Also: does the secret appear in the ranks' environment, arguments or output?
Three rows of a table; exit code 1 if a bar is missed. Times come from pairs of jobs, one undisturbed and one attacked.
"""
import hashlib
import hmac
import os
import random
import socket
import statistics
import struct
import sys
import threading
import time

import job

MAGIC, HELLO, REPLY, MAC = b"TESSRDZV", 80, 96, 32


def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def hello(secret):
    body = MAGIC + struct.pack("<Ii", 1, -1) + os.urandom(32)
    return body + mac(secret, b"hello", body)


def frame(key, sequence, kind, fields):
    payload = b"".join(struct.pack("<I", len(field)) + field for field in fields)
    head = struct.pack("<IHHQqII", len(payload), kind, 0, sequence, 0, len(fields), 0)
    return head + payload + mac(key, head, payload)


def receive(peer, count):
    """Receives up to `count` bytes: fewer if the peer closes or sends nothing for 5 s."""
    data = b""
    try:
        while len(data) < count:
            more = peer.recv(count - len(data))
            if not more:
                break
            data += more
    except OSError:
        pass
    return data


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def session(port, secret):
    """Opens a valid session by hand; returns all bytes that the client sent and the open connection."""
    peer, first = connect(port), hello(secret)
    peer.sendall(first)
    reply = receive(peer, REPLY)
    nonces = first[16:48] + reply[32:64]
    assert mac(secret, b"reply", first[:48], reply[:64]) == reply[64:], "the store's greeting"
    proof, key = mac(secret, b"proof", nonces), mac(secret, b"client", nonces)
    request = frame(key, 0, 5, [b"stranger/count"])  # add 0
    peer.sendall(proof + request)
    assert receive(peer, 32)[4:6] == b"\0\0", "the answer"
    return first + proof + request, peer


class Attack:
    """Attacks from a thread; `answered` counts the bytes received in all attempts, `tried` the attempts by kind."""

    def __init__(self, port, secret, seed):
        self.port, self.secret, self.random = port, secret, random.Random(seed)
        self.answered, self.tried, self.stop = 0, {}, threading.Event()
        self.held = []
        self.thread = threading.Thread(target=self._run)

    def _try(self, kind, data):
        """Sends `data` and receives until the store closes."""
        self.tried[kind] = self.tried.get(kind, 0) + 1
        with connect(self.port) as peer:
            try:
                peer.sendall(data)
            except OSError:
                pass
            self.answered += len(receive(peer, 1))

    def _run(self):
        try:
            self._attack()
        except ConnectionRefusedError:
            pass  # the job has ended, and with it the store
        for one in self.held:
            one.close()

    def _attack(self):
        said, peer = session(self.port, self.secret)
        peer.close()
        for _ in range(1000):  # the number in the bar; dropped connections count
            one = connect(self.port)
            self.held.append(one)
        self.tried["held open"] = len(self.held)
        # Real attackers use other machines, so this thread must not compete with the store for CPU time.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        kinds = ["random bytes", "wrong secret", "replay", "huge length", "cut short"]
        while not self.stop.wait(0.02):
            kind = self.random.choice(kinds)
            if kind == "random bytes":
                self._try(kind, self.random.randbytes(self.random.randrange(80, 4000)))
            elif kind == "wrong secret":
                self._try(kind, hello(os.urandom(32)))
            elif kind == "replay":
                self._try(kind, said)
            elif kind == "huge length":  # a session's frame, read as part of a greeting
                self._try(kind, struct.pack("<IHHQqII", 0xFFFFFFFF, 1, 0, 0, 0, 1, 0) + self.random.randbytes(64))
            else:
                self.tried[kind] = self.tried.get(kind, 0) + 1
                with connect(self.port) as one:
                    one.sendall(hello(self.secret)[: self.random.randrange(1, HELLO)])

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def secret_of(pid):
    fd = int(job.environment_of(pid)[b"TESSERA_SECRET_FD"])
    with open(f"/proc/{pid}/fd/{fd}", "rb") as file:
        return file.read()


def exposures(work, pids, secret):
    """The places where others can read the secret (raw, or in hexadecimal of either case)."""
    forms = [secret, secret.hex().encode(), secret.hex().upper().encode()]
    places = {"the output": work.text().encode()}
    for pid in [*pids.values(), work.process.pid]:
        for name in ("environ", "cmdline"):
            with open(f"/proc/{pid}/{name}", "rb") as file:
                places[f"{name} of process {pid}"] = file.read()
    return [place for place, data in places.items() if any(form in data for form in forms)]


def main():
    parser = job.arguments(__doc__, trials=3, full=15)
    parser.set_defaults(ranks=2)
    parser.add_argument("--steps", type=int, default=1500)
    options = parser.parse_args()
    times, answered, tried, crashed, exposed = {False: [], True: []}, 0, {}, [], []
    for trial in range(2 * options.trials):
        attacked = trial % 2 == 1
        work = job.launch(options, program_arguments=("--step_ms", "1", "--steps", str(options.steps)))
        pids = work.ready(options.ranks)
        port = int(job.environment_of(pids[0])[b"TESSERA_STORE"].rsplit(b":", 1)[1])
        secret = secret_of(pids[0])
        began = time.monotonic()
        if attacked:
            with Attack(port, secret, options.seed) as attack:
                exposed += exposures(work, pids, secret)
                code, ended = work.finish(120)
            answered += attack.answered
            for kind, count in attack.tried.items():
                tried[kind] = tried.get(kind, 0) + count
        else:
            code, ended = work.finish(120)
        exposed += [place for place in ["the output"] if secret.hex() in work.text()]
        times[attacked].append(1000 * (ended - began) / options.steps)
        if code != 0:
            crashed.append(work.text())
    ratios = [attacked / alone for alone, attacked in zip(times[False], times[True])]
    attempts = ", ".join(f"{count} {kind}" for kind, count in sorted(tried.items()))
    good = job.row(f"strangers on the store's port ({attempts})",
                   f"bytes answered {answered}, jobs failed {len(crashed)}", "0 accepted, 0 crashes",
                   answered == 0 and not crashed)
    ratio = statistics.median(ratios)
    good &= job.row(f"step time of {options.ranks} ranks under them, {options.trials} pairs of jobs",
                    f"alone {statistics.median(times[False]):.3f} ms, attacked {statistics.median(times[True]):.3f} "
                    "ms; "
                    f"median of the pairs' ratios {ratio:.3f}", "<= 1.05", ratio <= 1.05)
    good &= job.row("the job's secret in environment, arguments or output of agent and ranks",
                    ", ".join(sorted(set(exposed))) or "nowhere", "nowhere", not exposed)
    for text in crashed[:2]:
        print(text, file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
