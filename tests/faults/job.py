"""A job under `tessera launch` or `tessera train` that a fault script starts, injects faults into, and watches.

Standard library only. Times are time.monotonic() seconds; a line's time is when it was read from the agent's pipe.
"""
import argparse
import os
import queue
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def arguments(description, trials, full):
    """The options that all fault scripts share. `trials`: default of --trials; `full`: its value under --full."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder (default: build)")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--full", action="store_const", dest="trials", const=full,
                        help=f"{full} trials, as the bar says")
    parser.add_argument("--program", default="loop_rank",
                        help="loop_rank (collectives of ours) or fake_rank (no tensors)")
    parser.add_argument("--seed", type=int, default=None)
    return parser


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def spread(values, unit="s"):
    if not values:
        return "no value"
    return (f"median {statistics.median(values):.3f} {unit}, p95 {percentile(values, 0.95):.3f} {unit}, "
            f"max {max(values):.3f} {unit}")


def cpu_wait():
    """Seconds since boot during which some process waited for a CPU; None if the kernel does not report it."""
    try:
        with open("/proc/pressure/cpu") as pressure:
            return int(re.search(r"total=(\d+)", pressure.readline()).group(1)) * 1e-6
    except OSError:
        return None


BEGAN = time.monotonic(), cpu_wait()


def limit(quiet):
    """A time limit: `quiet` seconds if no process has waited for a CPU since the script started, up to six times as
    many if some process always did or the kernel does not report it (as in tests/stopwatch.h)."""
    waited = cpu_wait()
    share = 1 if waited is None else min(1, (waited - BEGAN[1]) / (time.monotonic() - BEGAN[0] + 1e-6))
    return quiet * (1 + 5 * share)


def row(name, result, bar, good):
    print(f"| {name} | {result} | {bar} | {'pass' if good else 'FAIL'} |", flush=True)
    return good


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def environment_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)


class Job:
    """Runs a command; collects its lines (both streams) with their arrival times."""

    def __init__(self, command, environment=None):
        self.shared_before = set(os.listdir("/dev/shm"))
        self.began = time.monotonic()
        variables = dict(os.environ, OMP_NUM_THREADS="1", **(environment or {}))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=variables, bufsize=1, start_new_session=True)
        self.lines = []  # (time, text)
        self.incoming = queue.Queue()
        self.pids = set()
        self.ports = set()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.incoming.put((time.monotonic(), line.rstrip("\n")))
        self.incoming.put(None)

    def wait_for(self, pattern, count=1, timeout=60, start=0):
        """The matches of `count` lines from line number `start` on: [(time, match)]; fewer after `timeout` or the
        end."""
        deadline, found, at = time.monotonic() + timeout, [], start
        while True:
            while at < len(self.lines):
                match = re.search(pattern, self.lines[at][1])
                if match:
                    found.append((self.lines[at][0], match))
                    if len(found) == count:
                        return found
                at += 1
            left = deadline - time.monotonic()
            if left <= 0:
                return found
            try:
                item = self.incoming.get(timeout=left)
            except queue.Empty:
                return found
            if item is None:
                self.incoming.put(None)
                return found
            self.lines.append(item)

    def ready(self, ranks, start=0, timeout=120):
        """Waits until every rank has done its first step; returns {rank: pid} and records pids and ports."""
        found = self.wait_for(r"\[rank (\d+)\] (?:ready|begin) (\d+)", ranks, timeout, start)
        pids = {int(m.group(1)): int(m.group(2)) for _, m in found}
        if len(pids) != ranks:
            raise RuntimeError(f"{len(pids)} of {ranks} ranks became ready:\n" + self.text())
        self.pids.update(pids.values())
        variables = environment_of(next(iter(pids.values())))
        self.ports.add(int(variables[b"MASTER_PORT"]))
        if b"TESSERA_STORE" in variables:
            self.ports.add(int(variables[b"TESSERA_STORE"].rsplit(b":", 1)[1]))
        return pids

    def finish(self, timeout=30):
        """Waits until the agent exits; returns (exit code, time), or (None, time) after killing it on timeout."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
            self.process.kill()
            self.process.wait()
        ended = time.monotonic()
        self.wait_for(r"(?!)", timeout=5)  # reads the remaining lines
        return code, ended

    def leftovers(self):
        """Returns the job's leftovers: processes, listening ports, files in /dev/shm."""
        found = [f"process {pid}" for pid in sorted(self.pids) if alive(pid)]
        found += [f"port {port}" for port in sorted(self.ports) if not can_bind(port)]
        def in_use(name):  # by another job on this machine
            owner = re.match(r"tessera-memory-(\d+)-", name)
            return owner is not None and alive(owner.group(1))

        found += [f"/dev/shm/{name}" for name in sorted(set(os.listdir("/dev/shm")) - self.shared_before)
                  if ("tessera" in name or "torch" in name) and not in_use(name)]
        return found

    def text(self):
        return "\n".join(line for _, line in self.lines)


class Hurt:
    """Runs a job to its end; one of its ranks gets a signal at a random moment.

    victim, pid: of the rank; at: time of the signal; said: [(time, match)] of the agent's line about it; code, ended:
    of the agent; left: the job's leftovers.
    """

    def __init__(self, options, chance, number, pattern, timeout=30):
        work = launch(options)
        pids = work.ready(options.ranks)
        time.sleep(chance.uniform(0, 0.3))
        self.victim = chance.randrange(options.ranks)
        self.pid = pids[self.victim]
        self.at = time.monotonic()
        os.kill(self.pid, number)
        self.said = work.wait_for(r"^\[agent\] rank (\d+) \(pid (\d+)\) " + pattern, timeout=timeout)
        self.code, self.ended = work.finish()
        self.left = work.leftovers()
        self.text = work.text()

    def groups(self):
        return [match.groups() for _, match in self.said]

    def story(self):
        return f"rank {self.victim} (pid {self.pid}) was hurt, code {self.code}:\n{self.text}"


def can_bind(port):
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def launch(options, extra=(), program_arguments=("--step_ms", "1"), environment=None):
    program = os.path.join(options.build, "tests", options.program)
    return Job([os.path.join(options.build, "tessera"), "launch",
                "--nproc_per_node", str(options.ranks), *extra, program, *program_arguments], environment)
