#!/usr/bin/env python3
"""A power cut while a run saves after each step: what does the disk contain after the reboot?

    tests/faults/power_cut.py [--build DIR] [--trials 10 | --full] [--ranks 2] [--mount data=ordered] [--image_mb 256]

The output folder is on its own ext4 file system, in a loop-mounted file. At a random moment the file system is shut
down with EXT4_IOC_SHUTDOWN and NOLOGFLUSH: only data that was flushed to the disk survives, without the journal's open
transaction (linux/fs/ext4/ioctl.c). The processes are killed, the file system is mounted again, which replays its
journal, and the next run continues with --resume_from_checkpoint true. One row of a table; exit code 1 unless every run
resumed from a checkpoint at least as new as the newest announced one ("saved ..."), and every existing checkpoint-N
verified. Needs root (mount); exit code 77 where it cannot run.
"""
import fcntl
import os
import random
import struct
import subprocess
import sys
import time

import job
import training

EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), linux/fs.h
NOLOGFLUSH = 2                  # EXT4_GOING_FLAGS_NOLOGFLUSH

parser = training.arguments(__doc__, trials=10, full=100)
parser.add_argument("--mount", default="data=ordered", help="options of the mount, e.g. data=writeback or nobarrier")
parser.add_argument("--image_mb", type=int, default=256)
options = parser.parse_args()
training.need_root("mount -o loop")
options.seed = random.randrange(10**6) if options.seed is None else options.seed
print(f"seed {options.seed}")
chance = random.Random(options.seed)
folder = training.work_folder(options, "power")
text, image, disk = training.write_text(folder), os.path.join(folder, "disk.ext4"), os.path.join(folder, "disk")
output = os.path.join(disk, "out")


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def mount():
    run("mount", "-o", f"loop,{options.mount}", image, disk)


def unmount(seconds=10):
    deadline = time.monotonic() + seconds
    while True:
        try:
            return run("umount", disk)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def cut_power():
    fd = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
    finally:
        os.close(fd)


os.mkdir(disk)
with open(image, "wb") as file:
    file.truncate(options.image_mb << 20)
run("mkfs.ext4", "-q", "-F", image)
try:
    mount()
except RuntimeError as why:
    training.remove(folder)
    training.skip(f"a loop mount is not allowed here ({why})")

wrong, lost, half_written, damaged_seen, begun = [], [], 0, 0, time.monotonic()
announced = told = at = 0
try:
    for trial in range(options.trials + 1):  # the last trial only resumes
        more = ["--resume_from_checkpoint", "true"] if trial else []
        work = job.Job(training.command(options, text, output,
                                        "--save_total_limit", "2", *more, *options.train_flags.split()))
        try:
            if trial > 0:
                resumed = work.wait_for(training.RESUMED, timeout=60)
                if not resumed:
                    wrong.append(f"trial {trial}: did not resume:\n{work.text()[-3000:]}")
                    break
                at = int(resumed[0][1].group(1))
                lost.append(told - at)
                if at < announced:
                    wrong.append(f"trial {trial}: resumed at step {at}, but checkpoint-{announced} had been announced")
            if trial == options.trials:
                break
            if not work.wait_for(training.SAVED, timeout=60):
                wrong.append(f"trial {trial}: nothing was saved:\n{work.text()[-3000:]}")
                break
            time.sleep(chance.uniform(0, 0.4))
            cut_power()
        finally:
            training.end(work)
        # Lines after the cut also count: data that can no longer reach the disk must not be reported as saved.
        announced = max(int(m.group(1)) for _, m in work.wait_for(training.SAVED, count=10**9, timeout=0))
        told = at + len(work.wait_for(training.STEP, count=10**9, timeout=0))
        unmount()
        mount()
        half_written += any(".tmp." in name for name in training.unfinished(output))
        damaged = training.not_whole(options, output)
        if damaged:
            damaged_seen += 1
            wrong.append(f"trial {trial}: " + "; ".join(damaged))
finally:
    unmount()
good = not wrong and len(lost) == options.trials
job.row(f"power cut (ext4 {options.mount}, shutdown without log flush) during saves, {options.ranks} ranks, "
        f"{options.trials} times",
        f"resumed {len(lost)}/{options.trials}; {half_written} left a half-written folder; damaged checkpoint-N: "
        f"{damaged_seen}; steps "
        f"lost: {sum(lost)} in all, at most {max(lost, default=0)} at once; {time.monotonic() - begun:.0f} s",
        "all resume, no manual step", good)
training.conclude(folder, good, wrong)
