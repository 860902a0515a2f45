"""A small `tessera train` that fault scripts start, inject faults into and resume, and checks of its output folder.

Standard library only.
"""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import job

SKIPPED = 77  # exit status of a script that cannot run here, as in tests/scripts
# A step takes about as long as writing its checkpoint, so that a random moment often hits a save.
MODEL = "n_layer=4,n_embd=128,n_head=4,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256"
# For sweeps over every call of a save, where time matters more than size.
TINY_MODEL = "n_layer=1,n_embd=32,n_head=2,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256"

SAVED = r"saved (?:.*/)?checkpoint-(\d+)\b"
RESUMED = r"resumed from .* at step (\d+)"
STEP = r"'loss': "


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def need_root(what):
    if os.geteuid() != 0:
        skip(f"needs root ({what})")


def write_text(folder):
    path = os.path.join(folder, "text.txt")
    with open(path, "w") as file:
        for i in range(3000):
            file.write(f"the {i % 7} small stones of row {i % 11} form a mosaic.\n")
    return path


def command(options, text, output, *more, model=MODEL, steps=1_000_000, save_every=1):
    """The command of a fast, reproducible run that saves every `save_every` steps."""
    return [os.path.join(options.build, "tessera"), "train", "--config_name", "gpt2-tiny", "--config_overrides", model,
            "--tokenizer_name", "byte", "--train_file", text, "--block_size", "32",
            "--per_device_train_batch_size", "2", "--learning_rate", "1e-3", "--lr_scheduler_type", "constant",
            "--max_steps", str(steps), "--logging_steps", "1", "--save_steps", str(save_every), "--report_to",
            "none", "--output_dir", output, "--num_processes", str(options.ranks), *more]


def arguments(description, trials, full):
    parser = job.arguments(description, trials, full)
    parser.set_defaults(ranks=2)
    parser.add_argument("--folder", default=None, help="where to work (default: a temporary folder); it must not exist")
    parser.add_argument("--train_flags", default="--fsdp full_shard", help="more flags of tessera train, in one word")
    return parser


def work_folder(options, name):
    if options.folder:
        os.makedirs(options.folder)
        return options.folder
    return tempfile.mkdtemp(prefix=f"tessera-{name}-")


def ranks_of(agent):
    """{rank: pid} of the current ranks of an agent's job."""
    found = {}
    try:
        with open(f"/proc/{agent}/task/{agent}/children") as file:
            pids = [int(word) for word in file.read().split()]
    except OSError:
        return found
    for pid in pids:
        try:
            variables = job.environment_of(pid)
            if b"RANK" in variables:
                found[int(variables[b"RANK"])] = pid
        except OSError:
            pass
    return found


def steps_in(output):
    """The N of all folders checkpoint-N, complete or not, ascending."""
    names = os.listdir(output) if os.path.isdir(output) else []
    return sorted(int(m.group(1)) for name in names if (m := re.fullmatch(r"checkpoint-(\d+)", name)))


def unfinished(output):
    """Names of folders of unfinished saves and deletions."""
    return sorted(name for name in os.listdir(output) if re.search(r"^checkpoint-\d+\.(tmp|old)\.", name))


def set_aside(output):
    return sorted(name for name in os.listdir(output) if name.startswith("checkpoint-") and ".damaged" in name)


def last_step(output):
    """The last step in metrics.jsonl; 0: none."""
    step = 0
    try:
        with open(os.path.join(output, "metrics.jsonl")) as file:
            for line in file:
                try:
                    step = max(step, json.loads(line).get("step", 0))
                except ValueError:
                    pass  # an incomplete last line
    except OSError:
        pass
    return step


def weights(output):
    """{name: bytes} of the safetensors files of a finished model; raises ValueError if there are none."""
    found = {}
    for path in sorted(glob.glob(os.path.join(output, "*.safetensors"))):
        with open(path, "rb") as file:
            found[os.path.basename(path)] = file.read()
    if not found:
        raise ValueError(f"there is no model in {output}")
    return found


def not_whole(options, output):
    """The lines of `tessera checkpoint verify` about damaged checkpoints; [] if all are intact."""
    done = subprocess.run([os.path.join(options.build, "tessera"), "checkpoint", "verify", output], capture_output=True,
                          text=True)
    if done.returncode == 0:
        return []
    return [line for line in (done.stdout + done.stderr).splitlines()
            if not line.startswith("whole")] or [f"exit code {done.returncode}"]


def end(work, number=signal.SIGKILL):
    """Sends one signal to the agent and each rank, and waits until no process of the job remains."""
    pids = list(ranks_of(work.process.pid).values()) + [work.process.pid]
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
    work.finish(30)
    deadline = time.monotonic() + 30
    while any(job.alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {[pid for pid in pids if job.alive(pid)]} do not end")
        time.sleep(0.005)


def remove(folder):
    shutil.rmtree(folder, ignore_errors=True)


def conclude(folder, good, wrong):
    """Ends a script: prints the failures, and keeps the folder only if there are any."""
    for story in wrong[:5]:
        print(story, file=sys.stderr)
    if good:
        remove(folder)
    else:
        print(f"kept: {folder}", file=sys.stderr)
    sys.exit(0 if good else 1)
