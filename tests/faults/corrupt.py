#!/usr/bin/env python3
"""The newest checkpoint is damaged before a run resumes: an end-to-end test from the command line to the first
step.

    tests/faults/corrupt.py [--build DIR] [--trials 20 | --full] [--ranks 2] [--train_flags "--fsdp full_shard"]

The damage: a flipped bit, a truncation, zeros, two swapped shards, an edited number, a symbolic link, a missing file,
each in a random file of the newest checkpoint-N. The resumed run must name the file, continue from the previous
checkpoint, and train. (The 10,000 cases of sharding_tests --gtest_filter='CheckpointCorruption*' use the same functions
without the program.) One row of a table; exit code 1 unless all damage was found.
"""
import os
import random
import shutil
import sys
import time

import job
import training

options = training.arguments(__doc__, trials=20, full=200).parse_args()
options.seed = random.randrange(10**6) if options.seed is None else options.seed
print(f"seed {options.seed}")
chance = random.Random(options.seed)
folder = training.work_folder(options, "corrupt")
text, master, output = training.write_text(folder), os.path.join(folder, "master"), os.path.join(folder, "out")


def change_bytes(path, change):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    changed = change(bytearray(data))
    with open(path, "wb") as file:
        file.write(changed)
    return changed != data


def flip(data):
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def zero(data):
    length = min(len(data), 1 << 20)
    begin = chance.randrange(len(data) - length + 1)
    data[begin:begin + length] = bytes(length)
    return data


def edit(data):
    digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
    if digits:
        at = chance.choice(digits)
        data[at] = ord(chance.choice([d for d in "123456789" if ord(d) != data[at]]))
    return data


def damage(checkpoint):
    """Returns (kind, file names, one of which must be reported), or None if nothing was changed."""
    names = sorted(os.listdir(checkpoint))
    kind = chance.choice(["bit", "cut", "zeros", "swap", "number", "link", "missing"])
    if kind == "swap":
        names = chance.sample([name for name in names if name.endswith(".safetensors")], 2)
        paths = [os.path.join(checkpoint, name) for name in names]
        os.rename(paths[0], paths[0] + ".aside")
        os.rename(paths[1], paths[0])
        os.rename(paths[0] + ".aside", paths[1])
        return kind, names
    if kind == "number":
        names = [name for name in names if name.endswith(".json")]
    name = chance.choice(names)
    path = os.path.join(checkpoint, name)
    if kind in ("bit", "zeros", "number"):
        if not change_bytes(path, {"bit": flip, "zeros": zero, "number": edit}[kind]):
            return None
    elif kind == "cut":
        os.truncate(path, chance.randrange(os.path.getsize(path)))
    elif kind == "link":
        os.rename(path, os.path.join(folder, "elsewhere"))
        os.symlink(os.path.join(folder, "elsewhere"), path)
    else:
        os.remove(path)
    return kind, [name]


def resume(steps):
    work = job.Job(training.command(options, text, output,
                                    "--resume_from_checkpoint", "true", *options.train_flags.split(),
                                    model=training.TINY_MODEL, steps=steps))
    return work.finish(120)[0], work


first = job.Job(training.command(options, text, master, *options.train_flags.split(), model=training.TINY_MODEL,
                                 steps=3))
if first.finish(120)[0] != 0:
    sys.exit("the training failed:\n" + first.text()[-3000:])
wrong, found, kinds, begun = [], 0, {}, time.monotonic()
while found + len(wrong) < options.trials and len(wrong) < 5:
    shutil.rmtree(output, ignore_errors=True)
    shutil.copytree(master, output)
    what = damage(os.path.join(output, "checkpoint-3"))
    if what is None:
        continue
    kind, names = what
    code, work = resume(4)
    resumed = work.wait_for(training.RESUMED, timeout=0)
    warned = [line for _, line in work.lines if "warning" in line and any(name in line for name in names)]
    if code == 0 and resumed and resumed[0][1].group(1) == "2" and warned and training.steps_in(output)[-1] == 4:
        found += 1
        kinds[kind] = kinds.get(kind, 0) + 1
    else:
        wrong.append(f"{kind} in {names}: exit code {code}, {work.text()[-2500:]}")
good = not wrong
told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
job.row(f"damage before `--resume_from_checkpoint true`, {options.ranks} ranks, {options.trials} times",
        f"found and named, checkpoint before taken: {found}/{options.trials} ({told}); "
        f"{time.monotonic() - begun:.0f} s", "all", good)
training.conclude(folder, good, wrong)
