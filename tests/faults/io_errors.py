#!/usr/bin/env python3
"""The disk fails while checkpoints are saved: each system call of a save on one rank in turn, and a full disk.

    tests/faults/io_errors.py [--build DIR] [--ranks 2] [--only sweep|full_disk] [--train_flags "--fsdp full_shard"]

sweep      A preloaded library (failing_calls.c, built here with cc) makes the n-th call on the checkpoint's files fail
           on one chosen rank, in every second save, for n over all calls of a save: that call alone, or also all that
           follow; or it flips a bit on the way to the disk.
full_disk  The output folder is on a tmpfs (needs root) that is filled to the last byte and later freed.

Requirements: the training ends with exit code 0 and with exactly the weights of an undisturbed run (so the ranks agree
at every step); each failure is reported with its cause, or the checkpoint is complete; the saves in between succeed;
every checkpoint-N verifies. One row per kind; exit code 1 if one fails, 77 if nothing could run.
"""
import errno
import os
import re
import subprocess
import sys
import time

import job
import training

parser = training.arguments(__doc__, trials=1, full=1)
parser.add_argument("--only", choices=["sweep", "full_disk"], default=None)
parser.add_argument("--rank", type=int, default=None, help="sweep this rank only (default: all)")
parser.add_argument("--kind", default="", help="sweep only kinds that contain this: EIO, ENOSPC, from then on, bit")
options = parser.parse_args()
HERE = os.path.dirname(os.path.abspath(__file__))
folder = training.work_folder(options, "io")
text = training.write_text(folder)
stories = []
# The fault of the n-th call, its errno (None: none), and the variables that request it from failing_calls.c.
KINDS = [("EIO", errno.EIO, {"FAULT_ERRNO": str(errno.EIO)}),
         ("EIO from then on", errno.EIO, {"FAULT_ERRNO": str(errno.EIO), "FAULT_STICKY": "1"}),
         ("ENOSPC", errno.ENOSPC, {"FAULT_ERRNO": str(errno.ENOSPC)}),
         ("ENOSPC from then on", errno.ENOSPC, {"FAULT_ERRNO": str(errno.ENOSPC), "FAULT_STICKY": "1"}),
         ("a bit changes on its way to the disk", None, {"FAULT_FLIP": "1"})]


def run(name, steps, environment=None, flags=()):
    """(exit code, output folder, lines) of a run of `steps` steps that saves after each."""
    output = os.path.join(folder, name)
    work = job.Job(training.command(options, text, output, *flags, *options.train_flags.split(),
                                    model=training.TINY_MODEL, steps=steps),
                   environment)
    code, _ = work.finish(300)
    return code, output, work


def weights(output):
    with open(os.path.join(output, "model.safetensors"), "rb") as file:
        return file.read()


def calls_of(log):
    """{save: [(call, name, path)]} of a log written by failing_calls.c."""
    saves = {}
    if os.path.exists(log):
        with open(log) as file:
            for line in file:
                save, call, name, path = line.rstrip("\n").split(" ", 3)
                saves.setdefault(int(save), []).append((int(call), name, path))
    return saves


def sweep():
    library = os.path.join(folder, "failing_calls.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, os.path.join(HERE, "failing_calls.c"), "-ldl"],
                   check=True)
    good, any_calls = True, False
    for rank in range(options.ranks) if options.rank is None else [options.rank]:
        def injected(name, **more):
            return dict({"LD_PRELOAD": library, "FAULT_RANK": str(rank), "FAULT_BELOW": os.path.join(folder, name),
                         "FAULT_LOG": os.path.join(folder, name + ".log")}, **more)

        counted = f"count{rank}"
        code, _, work = run(counted, 6, injected(counted, FAULT_COUNT="1"))
        if code != 0:
            stories.append(f"rank {rank}: the run without failures ended with {code}:\n{work.text()[-2000:]}")
            good = False
            continue
        calls = max((len(made) for made in calls_of(os.path.join(folder, counted + ".log")).values()), default=0)
        if calls == 0:  # a different rank writes everything
            print(f"rank {rank} writes nothing of a checkpoint with {options.train_flags}")
            continue
        any_calls = True
        steps = 2 * (calls + 2)
        code, undisturbed, work = run(f"undisturbed{rank}", steps, flags=("--save_strategy", "no"))
        if code != 0:
            stories.append(work.text()[-2000:])
        for kind, number, more in [one for one in KINDS if options.kind in one[0]]:
            name = f"rank{rank}-{kind.replace(' ', '-')}"
            code, output, work = run(name, steps, injected(name, **more))
            failed = calls_of(os.path.join(folder, name + ".log"))
            good = judge(f"rank {rank}, {kind}", number, code, output, work, failed, steps, undisturbed, calls) and good
    return good and any_calls


def judge(name, number, code, output, work, failed, steps, undisturbed, calls):
    """Prints a row. `failed`: {save: failed calls}; `number`: the injected errno, None: a flipped bit."""
    problems = []
    if code != 0:
        problems.append(f"exit code {code}, last step {training.last_step(output)} of {steps}:\n{work.text()[-1500:]}")
    elif weights(output) != weights(undisturbed):
        problems.append("the weights at the end are not those of the undisturbed run")
    there, cause = training.steps_in(output), os.strerror(number) if number else ""
    text_of_run = work.text()
    untold = dropped = 0
    for step in range(1, training.last_step(output) + 1):
        if step in failed and step not in there:
            dropped += 1
            said = [line for line in text_of_run.splitlines() if "warning" in line and cause in line and
                    (f"checkpoint-{step}" in line or f"step {step} " in line)]
            if not said:
                untold += 1
                problems.append(f"save {step}: {failed[step][0]} failed, the checkpoint was dropped, and no warning "
                                f"names it and '{cause}'")
        elif step not in there and code == 0:
            problems.append(f"checkpoint-{step} is missing although nothing failed in its save")
    damaged = training.not_whole(options, output)
    problems += damaged
    if training.unfinished(output):
        problems.append(f"left behind: {', '.join(training.unfinished(output))}")
    stories.extend(f"{name}: {problem}" for problem in problems[:4])
    complete = [failed[step][0] for step in failed if step in there]
    tolerated = sorted({f"{call} of {re.sub(r'[.]tmp[.][0-9]+.*|checkpoint-[0-9]+', '...', path.rsplit('/', 1)[1])}"
                        for _, call, path in complete})
    if tolerated:
        print(f"  {name}: complete although this failed: {', '.join(tolerated)}")
    names = sorted({call[1] for made in failed.values() for call in made[:1]})
    return job.row(f"{name}: call n of a save, n = 1..{calls}, {options.ranks} ranks",
                   f"{len(failed)} saves hurt ({', '.join(names)}): {dropped} checkpoints dropped with a warning of "
                   f"the cause ({untold} without), "
                   f"{len(complete)} complete all the same; {len(there)} checkpoints there, {len(damaged)} damaged; "
                   f"exit code {code}",
                   "training ends, same weights, no damaged checkpoint, next save works", not problems)


def full_disk():
    if os.geteuid() != 0:
        print("skipped: needs root (mount -t tmpfs)")
        return None
    disk = os.path.join(folder, "disk")
    os.mkdir(disk)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode:
        print(f"skipped: a tmpfs mount is not allowed here ({mounted.stderr.strip()})")
        return None
    output, ballast, problems = os.path.join(disk, "out"), os.path.join(disk, "ballast"), []
    work = job.Job(training.command(options, text, output,
                                    "--save_total_limit", "1", *options.train_flags.split(), steps=100_000))
    failures, again, newest = [], [], 0
    try:
        if not work.wait_for(training.SAVED, timeout=60):
            problems.append(f"nothing was saved:\n{work.text()[-2000:]}")
        else:
            at, deadline = len(work.lines), time.monotonic() + 60
            while len(failures) < 3 and time.monotonic() < deadline:
                fill(disk, ballast)  # repeatedly, because removed files free space
                failures = work.wait_for(r"is not saved.*" + os.strerror(errno.ENOSPC), count=3, timeout=0.1, start=at)
            if len(failures) < 3:
                problems.append(f"{len(failures)} warnings of the cause after the disk was "
                                f"filled:\n{work.text()[-2000:]}")
            if work.process.poll() is not None:
                problems.append("the training ended")
            damaged = training.not_whole(options, output)
            newest = max(training.steps_in(output), default=0)
            if damaged or not newest:
                problems.append(f"the old checkpoint: {damaged}")
            os.remove(ballast)
            at = len(work.lines)
            again = work.wait_for(training.SAVED, count=3, timeout=60, start=at)
            if len(again) < 3:
                problems.append(f"{len(again)} saves after the disk was freed:\n{work.text()[-2000:]}")
        work.process.terminate()  # it saves and exits
        work.finish(60)
        if work.process.returncode != 3:
            problems.append(f"ended with {work.process.returncode} instead of 3 after SIGTERM:\n{work.text()[-1000:]}")
        problems += training.not_whole(options, output)
    finally:
        training.end(work)
        subprocess.run(["umount", "-l", disk])
    stories.extend(f"full disk: {problem}" for problem in problems[:4])
    return job.row(f"disk full (tmpfs), {options.ranks} ranks",
                   f"{len(failures)} saves failed with a warning of the cause, training went on; "
                   f"checkpoint-{newest} stayed whole; after space was freed {len(again)} of 3 saves worked",
                   "training goes on, old checkpoint whole, next save works", not problems)


def fill(disk, path):
    """Writes a file until the disk is full."""
    with open(path, "ab", buffering=0) as file:
        while (free := os.statvfs(disk)).f_bavail * free.f_frsize > 0:
            try:
                file.write(bytes(min(1 << 16, free.f_bavail * free.f_frsize)))
            except OSError as full:
                if full.errno != errno.ENOSPC:
                    raise
                return


results = []
if options.only != "full_disk":
    results.append(sweep())
if options.only != "sweep":
    results.append(full_disk())
for story in stories[:8]:
    print(story, file=sys.stderr)
ran = [result for result in results if result is not None]
if all(ran) and ran:
    training.remove(folder)
elif ran:
    print(f"kept: {folder}", file=sys.stderr)
sys.exit(training.SKIPPED if not ran else 0 if all(ran) else 1)
