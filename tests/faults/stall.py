#!/usr/bin/env python3
"""A disk that stalls while runs read, log and save on it (fsfreeze): no process is terminated, and the result is that
of an undisturbed run. Needs root (a loop device).

    tests/faults/stall.py [--build DIR] [--seconds 10,40,90] [--ranks 2]

One row per stall; exit code 1 if a job was terminated or its weights differ.
"""
import os
import subprocess
import sys
import time

import job
import training

parser = training.arguments(__doc__, trials=0, full=0)
parser.add_argument("--seconds", default="10,40,90")
options = parser.parse_args()
training.need_root("to mount a disk and to freeze it")
folder = training.work_folder(options, "stall")
text = training.write_text(folder)
image, disk = os.path.join(folder, "image"), os.path.join(folder, "disk")
os.mkdir(disk)
with open(image, "wb") as file:
    file.truncate(256 << 20)
made = subprocess.run(f"mkfs.ext4 -q -F {image} && mount -o loop {image} {disk}", shell=True, capture_output=True,
                      text=True)
if made.returncode != 0:
    training.remove(folder)
    training.skip(f"no loop device: {made.stderr.strip()}")


def start(name, steps):
    output = os.path.join(disk, name)
    return job.Job(training.command(options, text, output, *options.train_flags.split(), "--save_total_limit", "2",
                                    model=training.TINY_MODEL, steps=steps, save_every=20)), output


wrong = []
try:
    calm, undisturbed = start("calm", 300)
    if calm.finish(300)[0] != 0:
        raise RuntimeError(calm.text())
    for seconds in [float(word) for word in options.seconds.split(",")]:
        work, output = start(f"stalled-{seconds:g}", 300)
        work.wait_for(training.SAVED, 1, 120)
        subprocess.run(["fsfreeze", "-f", disk], check=True)
        try:
            time.sleep(seconds)
        finally:
            subprocess.run(["fsfreeze", "-u", disk], check=True)
        code, _ = work.finish(job.limit(120))
        lines = work.text()
        told = "waits for a disk" in lines or "no progress for" in lines
        same = code == 0 and training.weights(output) == training.weights(undisturbed)
        good = same and (told or seconds < 75)  # the agent reports a waiting save after a minute
        if not good:
            wrong.append(f"{seconds:g} s: exit code {code}, told {told}\n{lines}")
        job.row(f"disk frozen for {seconds:g} s", f"exit code {code}, {'the same' if same else 'other'} weights, "
                f"{'told' if told else 'not told'}", "0, the same, told after a minute of a save", good)
        training.end(work)
        training.remove(output)
finally:
    subprocess.run(["umount", "-l", disk], check=False)
training.conclude(folder, not wrong, wrong)
