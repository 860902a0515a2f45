#!/usr/bin/env python3
"""The cache of tokens under kill -9, a full disk, two jobs at once and sources that change: never a wrong token.

    tests/faults/cache.py [--build DIR] [--trials 25 | --full] [--ranks 3]

Every process prints a hash of all tokens that it received, which is compared with that of an undisturbed process.
Prints rows of a table; exit code 1 unless all pass.
  kill -9      --ranks processes make one entry; at a random moment one or all are killed, and new ones take over
  full disk    the file size limit of a process is smaller than the tokens: a named error, no files remain
  two jobs     twice as many processes at once: no record is encoded twice, all get the same tokens
  changed      the source is replaced during tokenization: an error, or the tokens of the old or the new text
  damaged      a file of a finished entry is truncated, or an entry is half removed: it is made again
"""
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import job

parser = job.arguments(__doc__, trials=25, full=100)
parser.set_defaults(ranks=3)
parser.add_argument("--megabytes", type=int, default=24, help="size of the text")
options = parser.parse_args()
options.seed = random.randrange(10**6) if options.seed is None else options.seed
print(f"seed {options.seed}")
chance = random.Random(options.seed)
worker = os.path.join(options.build, "tests", "cache_worker")
folder = tempfile.mkdtemp(prefix="tessera-cache-faults.")
root, text = os.path.join(folder, "tokens"), os.path.join(folder, "text.txt")


def write_text(seed, path=text):
    """Writes lines of words, always of the same total size; texts of different seeds differ only in the middle."""
    lines, words = [], random.Random(seed)
    size = options.megabytes << 20
    some = "".join(f"{words.randrange(10**9)} words of line {i}\n" for i in range(20000))
    body = (some * (size // len(some) + 1))[: size - 400]
    with open(path + ".new", "w") as file:
        file.write("x" * 100 + "\n" + body + "\n" + "y" * (size - len(body) - 102))
    os.utime(path + ".new", (1e9, 1e9))
    os.replace(path + ".new", path)


def start(where=root, source=text, limit=None):
    def before():
        if limit:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return subprocess.Popen([worker, where, "byte", "1", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, preexec_fn=before)


def end(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out.split()[:2], err


def alone(source=text):
    """The output of an undisturbed process."""
    with tempfile.TemporaryDirectory(dir=folder) as private:
        return end(start(private, source))[1]


def fresh():
    shutil.rmtree(root, ignore_errors=True)


results = []
write_text(1)
right = alone()
began = time.monotonic()
end(start(os.path.join(folder, "timing")))
whole = time.monotonic() - began

wrong, taken_over = [], 0
for trial in range(options.trials):
    fresh()
    processes = [start() for _ in range(options.ranks)]
    time.sleep(chance.uniform(0, 0.8 * whole))
    victims = processes if trial % 3 == 0 else [chance.choice(processes)]
    for process in victims:
        process.send_signal(signal.SIGKILL)
    for process in victims:
        process.communicate()
    taken_over += any(name.endswith(".building") for name in (os.listdir(root) if os.path.isdir(root) else []))
    for process in [p for p in processes if p not in victims] + [start()]:
        code, got, err = end(process)
        if code != 0 or got != right:
            wrong.append(f"trial {trial}: {code} {got} {err}")
    left = [name for name in os.listdir(root) if len(name) != 32]
    if left:
        wrong.append(f"trial {trial}: {left} is left")
results.append(job.row("kill -9 while the cache is written",
                       f"{options.trials} trials, {taken_over} with a half made entry left, {len(wrong)} wrong",
                       "0 wrong", not wrong))
for line in wrong[:5]:
    print("   ", line)

wrong = []
for trial in range(max(options.trials // 5, 3)):
    fresh()
    processes = [start(limit=chance.randrange(5000, 900_000)) for _ in range(options.ranks)]
    for process in processes:
        code, _, err = end(process)
        if code != 1 or "File too large" not in err or " free, and the tokens of " not in err:
            wrong.append(f"trial {trial}: {code} {err}")
    if os.path.isdir(root) and os.listdir(root):
        wrong.append(f"trial {trial}: {os.listdir(root)} is left")
    code, got, err = end(start())
    if got != right:
        wrong.append(f"trial {trial}: afterwards {code} {got} {err}")
results.append(job.row("disk full (files of at most so many bytes)", f"{len(wrong)} wrong",
                       "a named error, nothing left", not wrong))
for line in wrong[:5]:
    print("   ", line)

wrong = []
for trial in range(max(options.trials // 5, 3)):
    fresh()
    for process in [start() for _ in range(2 * options.ranks)]:
        code, got, err = end(process)
        if code != 0 or got != right:
            wrong.append(f"trial {trial}: {code} {got} {err}")
results.append(job.row(f"{2 * options.ranks} processes at once", f"{len(wrong)} wrong", "0 wrong", not wrong))

wrong, refused = [], 0
for trial in range(options.trials):
    fresh()
    old = alone()
    processes = [start() for _ in range(options.ranks)]
    time.sleep(chance.uniform(0, 0.9 * whole))
    write_text(trial + 2)
    new = alone()
    for process in processes + [start()]:
        code, got, err = end(process)
        if code == 1 and ("chang" in err or "is being written" in err):
            refused += 1
        elif code != 0 or got not in (old, new):
            wrong.append(f"trial {trial}: {code} {got} {err}")
    code, got, err = end(start())
    if got != new:
        wrong.append(f"trial {trial}: afterwards {code} {got} {err}; the text's are {new}")
results.append(job.row("a source that changes meanwhile", f"{options.trials} trials, {refused} processes refused it, "
                       f"{len(wrong)} wrong", "0 wrong", not wrong))
for line in wrong[:5]:
    print("   ", line)

wrong = []
for trial in range(max(options.trials, 10)):
    fresh()
    right = end(start())[1]
    entry = os.path.join(root, next(name for name in os.listdir(root) if len(name) == 32))
    victim = os.path.join(entry, chance.choice([n for n in os.listdir(entry) if n not in ("lock", "seen.json")]))
    if chance.random() < 0.5:
        os.truncate(victim, chance.randrange(os.path.getsize(victim)))
    else:
        os.remove(victim)
    code, got, err = end(start())
    if code != 0 or got != right:
        wrong.append(f"trial {trial}: {os.path.basename(victim)}: {code} {got} {err}")
results.append(job.row("an entry that lost bytes or a file", f"{len(wrong)} wrong", "made again", not wrong))
for line in wrong[:5]:
    print("   ", line)

shutil.rmtree(folder)
sys.exit(0 if all(results) else 1)
