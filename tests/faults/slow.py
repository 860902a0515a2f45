#!/usr/bin/env python3
"""A rank is limited to 1 % of a CPU for a while (by a cgroup): no process is terminated, and the result is
that of an undisturbed run. Needs root.

    tests/faults/slow.py [--build DIR] [--seconds 10,90] [--ranks 2]

One row per duration; exit code 1 if a job was terminated or its weights differ.
"""
import os
import time

import job
import training

STEPS = 400
PERIOD, QUOTA = 100_000, 1_000  # microseconds

parser = training.arguments(__doc__, trials=0, full=0)
parser.add_argument("--seconds", default="10,90")
options = parser.parse_args()
training.need_root("to make a control group")
V1, V2 = "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"
group = os.path.join(V1 if os.path.isdir(V1) else V2, f"tessera-slow-{os.getpid()}")
try:
    os.mkdir(group)
    if group.startswith(V1):
        limits = {"cpu.cfs_period_us": PERIOD, "cpu.cfs_quota_us": QUOTA}
    else:
        limits = {"cpu.max": f"{QUOTA} {PERIOD}"}
    for name, value in limits.items():
        with open(os.path.join(group, name), "w") as file:
            file.write(str(value))
except OSError as error:
    if os.path.isdir(group):
        os.rmdir(group)
    training.skip(f"no control group of processors: {error}")


def move(pid, to):
    with open(os.path.join(to, "cgroup.procs"), "w") as file:
        file.write(str(pid))


def start(name):
    output = os.path.join(folder, name)
    return job.Job(training.command(options, text, output, *options.train_flags.split(), model=training.TINY_MODEL,
                                    steps=STEPS, save_every=20)), output


folder = training.work_folder(options, "slow")
text = training.write_text(folder)
wrong = []
try:
    calm, undisturbed = start("calm")
    if calm.finish(300)[0] != 0:
        raise RuntimeError(calm.text())
    for seconds in [float(word) for word in options.seconds.split(",")]:
        work, output = start(f"slow-{seconds:g}")
        work.wait_for(training.SAVED, 1, 120)
        victim = training.ranks_of(work.process.pid)[1]
        move(victim, group)
        before = training.last_step(output)
        time.sleep(seconds)
        steps = training.last_step(output) - before
        move(victim, os.path.dirname(group))
        code, _ = work.finish(job.limit(120))
        same = code == 0 and training.weights(output) == training.weights(undisturbed)
        good = same and 0 <= steps < STEPS - 21  # the rank was indeed slowed down
        if not good:
            wrong.append(f"{seconds:g} s: exit code {code}\n{work.text()}")
        job.row(f"a rank at a hundredth of a processor for {seconds:g} s", f"exit code {code}, {steps} steps "
                f"meanwhile, {'the same' if same else 'other'} weights", "0, the same", good)
        training.end(work)
finally:
    for _ in range(50):
        try:
            os.rmdir(group)
            break
        except OSError:
            time.sleep(0.1)
training.conclude(folder, not wrong, wrong)
