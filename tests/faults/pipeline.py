#!/usr/bin/env python3
"""Each stage of a four-stage pipeline, under each schedule: killed, stopped permanently, with a NaN weight, killed and
restarted. Is it named, with its stage and action, how soon, and does the restart reproduce the training?

    tests/faults/pipeline.py [--build DIR] [--schedules 1f1b,zbv | --full]

Four rows of a table; exit code 1 if one fails.
"""
import json
import os
import random
import re
import shutil
import signal
import struct
import sys
import tempfile
import time

import job
import training

SCHEDULES = ["gpipe", "1f1b", "interleaved", "looped_bfs", "zb_h1", "zb_h2", "zbv", "dualpipev"]
STAGES = 4
MODEL = "n_layer=8,n_embd=32,n_head=2,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256"
ACTION = r"\d+(?:[FBIW]|SEND_[FB]|RECV_[FB])\d+"

parser = job.arguments(__doc__, trials=0, full=0)
parser.add_argument("--schedules", default="1f1b,zbv")
options = parser.parse_args()
options.ranks = STAGES
schedules = SCHEDULES if "--full" in sys.argv else options.schedules.split(",")
chance = random.Random(options.seed)
folder = tempfile.mkdtemp(prefix="tessera-pipeline-")
text = training.write_text(folder)
failed = []


def start(name, schedule, *more, steps=1_000_000, model=("--config_name", "gpt2-tiny", "--config_overrides", MODEL)):
    output = os.path.join(folder, name)
    shutil.rmtree(output, ignore_errors=True)
    command = training.command(options, text, output, "--pp_size", str(STAGES), "--pipeline_schedule", schedule,
                               "--gradient_accumulation_steps", "8", "--per_device_train_batch_size", "1", *more,
                               steps=steps)
    at = command.index("--config_name")
    return job.Job(command[:at] + list(model) + command[at + 4:]), output


def hurt(kind, number, schedule, rank, pattern):
    """Returns the seconds until the line that names the rank and until all ranks are gone; None: it was not named."""
    work, _ = start(f"{kind}-{schedule}-{rank}", schedule, "--save_strategy", "no")
    if len(work.wait_for(training.STEP, 3)) != 3:
        raise RuntimeError(work.text())
    time.sleep(chance.uniform(0, 0.2))
    pids = training.ranks_of(work.process.pid)
    at = time.monotonic()
    os.kill(pids[rank], number)
    said = work.wait_for(pattern.format(rank=rank, pid=pids[rank]), timeout=20)
    doing = work.wait_for(rf"it was running: step \d+, ({ACTION}|\w+)", timeout=20)
    work.finish(30)
    if not said or not doing:
        failed.append(f"{kind} of stage {rank} under {schedule}:\n{work.text()[-2000:]}")
        return None
    return said[0][0] - at, time.monotonic() - at


for kind, number, pattern, last in [
        ("kill -9", signal.SIGKILL, r"\[agent\] rank {rank} \(pp {rank}; pid {pid}\) was killed by SIGKILL", 2),
        ("SIGSTOP", signal.SIGSTOP, r"\[agent\] rank {rank} \(pp {rank}; pid {pid}\) is stopped", 4)]:
    times = [hurt(kind.replace(" ", ""), number, schedule, rank, pattern)
             for schedule in schedules for rank in range(STAGES)]
    known = [t for t in times if t]
    job.row(f"{kind} of each of {STAGES} stages under {', '.join(schedules)}",
            f"{len(known)}/{len(times)} named with pp and action: {job.spread([t[0] for t in known])}; all gone: "
            f"{job.spread([t[1] for t in known])}", f"all named within 2 s, gone within {last} s of a quiet machine",
            len(known) == len(times) and
            all(t[0] <= job.limit(2) and t[1] <= job.limit(last) for t in known)) or failed.append(kind)

# A NaN weight in each block: the stage that has the block must be named as its origin.
work, good = start("good", "1f1b", steps=2)
work.finish(120)


def damaged(block):
    """A copy of the folder in which one weight of the block is NaN."""
    copy = os.path.join(folder, "damaged")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(good, copy, ignore=shutil.ignore_patterns("checkpoint-*", "runs"))
    wanted = f"transformer.h.{block}.mlp.c_proj.bias"
    for name in os.listdir(copy):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(copy, name), "r+b") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            entry = json.loads(file.read(length)).get(wanted)
            if entry:
                file.seek(8 + length + entry["data_offsets"][0])
                file.write(struct.pack("<f", float("nan")))
                return copy
    raise RuntimeError(f"{wanted} is in no file of {copy}")


named, tried = 0, 0
for schedule in schedules:
    stages = 4 if schedule in ("gpipe", "1f1b", "looped_bfs", "zb_h1", "zb_h2") else 8
    for block in range(0, 8, 2):
        tried += 1
        work, _ = start("nan", schedule, "--save_strategy", "no", steps=3,
                        model=("--model_name_or_path", damaged(block)))
        code, _ = work.finish(60)
        stage = block * stages // 8
        if code == 1 and f"first in stage {stage}, micro-batch 0 ({stage}F0), on rank" in work.text():
            named += 1
        else:
            failed.append(f"NaN in block {block} under {schedule}: exit code {code}\n{work.text()[-2000:]}")
job.row(f"NaN in a weight of each stage under {', '.join(schedules)}", f"{named}/{tried} named with stage and action",
        "all", named == tried)


def losses(output):
    with open(os.path.join(output, "metrics.jsonl")) as file:
        rows = [json.loads(line) for line in file]
    return {row["step"]: row["loss"] for row in rows if "loss" in row and "step" in row}


same, tried = 0, 0
for schedule in schedules:
    work, undisturbed = start("undisturbed", schedule, steps=30)
    work.finish(120)
    tried += 1
    work, output = start("restarted", schedule, "--max_restarts", str(STAGES), steps=30)
    seen = 0
    for rank in range(STAGES):
        work.wait_for(training.SAVED, timeout=60, start=seen)
        time.sleep(chance.uniform(0.1, 0.3))
        pids = training.ranks_of(work.process.pid)
        work.wait_for(r"(?!)", timeout=0.01)
        seen = len(work.lines)
        if rank in pids:
            os.kill(pids[rank], signal.SIGKILL)
        work.wait_for(rf"restart {rank + 1}: resuming from", timeout=60, start=seen)
        seen = len(work.lines)
    code, _ = work.finish(120)
    restarts = len(re.findall(r"restart \d+: resuming from", work.text()))
    if code == 0 and restarts >= 1 and losses(output) == losses(undisturbed):
        same += 1
    else:
        failed.append(f"restarts under {schedule}: exit code {code}, {restarts} restarts\n{losses(output)}\n"
                      f"{losses(undisturbed)}\n{work.text()[-2000:]}")
job.row(f"kill -9 of one stage after the other, restarted, under {', '.join(schedules)}",
        f"{same}/{tried} with the losses of an undisturbed run", "all", same == tried)
shutil.rmtree(folder, ignore_errors=True)
for story in failed[:4]:
    print(story, file=sys.stderr)
sys.exit(1 if failed else 0)
