#!/usr/bin/env python3
"""kill -9 of one rank, or of all, while a run saves after each step: does the next start resume by itself?

    tests/faults/kill_save.py [--build DIR] [--trials 30 | --full] [--ranks 2] [--train_flags "--fsdp full_shard"]

All trials use one output folder: each run is killed at a random moment (every other time while the folder of an
unfinished checkpoint exists), and the next one continues with --resume_from_checkpoint true. One row of a table; exit
code 1 unless every run resumed from a checkpoint at least as new as the newest announced one and lost at most
--bar_lost steps, every checkpoint-N verified, and the partial files of killed runs were gone after the next save.
"""
import os
import random
import signal
import sys
import time

import job
import training

parser = training.arguments(__doc__, trials=30, full=300)
parser.add_argument("--bar_lost", type=int, default=2,
                    help="steps that may be lost: the current one, and one whose checkpoint is being written")
options = parser.parse_args()
options.seed = random.randrange(10**6) if options.seed is None else options.seed
print(f"seed {options.seed}")
chance = random.Random(options.seed)
folder = training.work_folder(options, "kill")
text, output = training.write_text(folder), os.path.join(folder, "out")


def start():
    more = ["--resume_from_checkpoint", "true"] if training.steps_in(output) else []
    return job.Job(training.command(options, text, output,
                                    "--save_total_limit", "3", *more, *options.train_flags.split()))


def wait_for_half_written(seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if any(".tmp." in name for name in training.unfinished(output)):
            return
        time.sleep(0.0005)


wrong, lost, half_written, whom, begun = [], [], 0, {"one rank": 0, "all": 0}, time.monotonic()
announced, told, left = 0, 0, []
for trial in range(options.trials + 1):  # the last trial only resumes
    work = start()
    if trial > 0:
        resumed = work.wait_for(training.RESUMED, timeout=60)
        if not resumed:
            wrong.append(f"trial {trial}: did not resume:\n{work.text()[-3000:]}")
            training.end(work)
            break
        at = int(resumed[0][1].group(1))
        lost.append(told - at)
        if at < announced:
            wrong.append(f"trial {trial}: resumed at step {at}, but checkpoint-{announced} had been announced")
        if told - at > options.bar_lost:
            wrong.append(f"trial {trial}: {told - at} steps lost ({told} -> {at})")
    if not work.wait_for(training.SAVED, timeout=60):
        wrong.append(f"trial {trial}: nothing was saved:\n{work.text()[-3000:]}")
        training.end(work)
        break
    stale = [name for name in left if os.path.exists(os.path.join(output, name))]
    if stale:
        wrong.append(f"trial {trial}: {', '.join(stale)} of the run before is still there after a save")
    if trial == options.trials:
        work.process.terminate()
        work.finish(60)
        break
    time.sleep(chance.uniform(0, 0.5))
    if trial % 2:
        wait_for_half_written(5)
        time.sleep(chance.uniform(0, 0.03))
    pids = training.ranks_of(work.process.pid)
    kind = chance.choice(list(whom))
    whom[kind] += 1
    for pid in (pids.values() if kind == "all" else [chance.choice(list(pids.values()))]):
        os.kill(pid, signal.SIGKILL)
    work.finish(30)
    work.pids.update(pids.values())
    survivors = [pid for pid in pids.values() if job.alive(pid)]
    if survivors:
        wrong.append(f"trial {trial}: processes {survivors} are still there")
        training.end(work)
    told = training.last_step(output)
    announced = max(int(m.group(1)) for _, m in work.wait_for(training.SAVED, count=10**9, timeout=0))
    left = training.unfinished(output)
    half_written += any(".tmp." in name for name in left)
    damaged = training.not_whole(options, output)
    if damaged:
        wrong.append(f"trial {trial}: " + "; ".join(damaged))
    if training.set_aside(output):
        wrong.append(f"trial {trial}: {training.set_aside(output)} had to be set aside")
        break
resumed = len(lost)
good = not wrong and resumed == options.trials
job.row(f"kill -9 during saves, {options.ranks} ranks, {options.trials} times ({whom['one rank']} of one rank, "
        f"{whom['all']} of all)",
        f"resumed {resumed}/{options.trials}; {half_written} left a half-written folder, which the next save removed; "
        "steps lost: "
        f"{sum(lost)} in all, at most {max(lost, default=0)} at once; {time.monotonic() - begun:.0f} s",
        f"all resume, no manual step; at most {options.bar_lost} lost", good)
training.conclude(folder, good, wrong)
