#!/usr/bin/env python3
"""kill -9 of one rank of a small training with --max_restarts: how long until the first new step?

    tests/faults/restart.py [--build DIR] [--trials 3 | --full] [--ranks 4] [--peers /opt/peers]
                            [--text FILE --tokenizer FOLDER]

All trials use one job. The time runs from the kill to the line of the first step of the next generation. With --peers
(a Python environment with torch; also the variable PEERS) torchrun's time for a small model is measured as well,
--peer_trials times. One row each; exit code 1 if ours misses its bar: p95 <= 3 s, every restart from the newest
checkpoint. With --text the training reads that file, however large; its tokens are cached in TESSERA_CACHE.
"""
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time

import job
import training

parser = job.arguments(__doc__, trials=3, full=50)
parser.add_argument("--peers", default=os.environ.get("PEERS", ""))
parser.add_argument("--peer_trials", type=int, default=3)
parser.add_argument("--text", default="")
parser.add_argument("--tokenizer", default="byte")
options = parser.parse_args()
chance = random.Random(options.seed)
folder = tempfile.mkdtemp(prefix="tessera-restart-")

text = options.text or os.path.join(folder, "text.txt")
if not options.text:
    with open(text, "w") as file:
        for i in range(3000):
            file.write(f"the {i % 7} small stones of row {i % 11} form a mosaic.\n")
vocabulary = "vocab_size=257,bos_token_id=256,eos_token_id=256" if options.tokenizer == "byte" else "vocab_size=50304"
work = job.Job([os.path.join(options.build, "tessera"), "train", "--config_name", "gpt2-tiny", "--config_overrides",
                "n_layer=2,n_embd=32,n_head=2,n_positions=64," + vocabulary,
                "--tokenizer_name", options.tokenizer, "--train_file", text, "--block_size", "32",
                "--per_device_train_batch_size", "2", "--max_steps", "1000000", "--logging_steps", "1",
                "--save_steps", "20", "--save_total_limit", "2", "--output_dir", os.path.join(folder, "out"),
                "--num_processes", str(options.ranks), "--max_restarts", str(options.trials)])
step_line = r"'loss': "
saved_line = r"saved .*checkpoint-(\d+)"
times, resumed, wrong = [], 0, []
at = 0
if not work.wait_for(step_line, timeout=120 if not options.text else 7200):
    sys.exit("the training did not begin:\n" + work.text())
for trial in range(options.trials):
    # Waits for a new checkpoint, then for a random time.
    if not work.wait_for(saved_line, timeout=120, start=at):
        break
    time.sleep(chance.uniform(0, 0.5))
    pids = training.ranks_of(work.process.pid)
    victim = chance.choice(sorted(pids))
    work.wait_for(r"(?!)", timeout=0.01)
    before = len(work.lines)
    killed = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    restart = work.wait_for(rf"restart {trial + 1}: resuming from .*checkpoint-(\d+)", timeout=60, start=before)
    if not restart:
        wrong.append(f"restart {trial + 1} did not resume:\n" + "\n".join(line for _, line in work.lines[before:]))
        break
    at = next(i for i, (when, line) in enumerate(work.lines) if i >= before
              and re.search(r"restart \d+: resuming from", line))
    first = work.wait_for(step_line, timeout=60, start=at + 1)
    if not first:
        wrong.append("no step after the restart:\n" + work.text()[-3000:])
        break
    times.append(first[0][0] - killed)
    saved = [int(match.group(1)) for _, line in work.lines[:at] if (match := re.search(saved_line, line))]
    resumed += int(restart[0][1].group(1)) >= max(saved)
work.process.terminate()
work.finish(60)
shutil.rmtree(folder, ignore_errors=True)
good = len(times) == options.trials and resumed == options.trials and job.percentile(times, 0.95) <= job.limit(3)
job.row(f"restart after kill -9, {options.ranks} ranks, {options.trials} times",
        f"first new step: {job.spread(times)}; from the newest checkpoint {resumed}/{options.trials}",
        "p95 <= 3 s of a quiet machine", good)
for text in wrong:
    print(text, file=sys.stderr)

torchrun = os.path.join(options.peers, "bin", "torchrun")
if options.peers and os.path.exists(torchrun):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torchrun_rank.py")
    # By default torchrun uses one store for all attempts, in which new ranks find the Gloo addresses of dead ones
    # ("connectFullMesh failed: Connection refused", pytorch#135712), so each attempt gets its own store.
    work = job.Job([torchrun, "--standalone", "--nproc_per_node", str(options.ranks), "--max_restarts", "100",
                    "--monitor_interval", "0.1", script], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
    theirs, at = [], 0
    for trial in range(options.peer_trials):
        found = work.wait_for(r"ready (\d+) (\d+)", options.ranks, 120, at)
        if len(found) < options.ranks:
            print("torchrun did not start:\n" + work.text()[-2000:], file=sys.stderr)
            break
        at = len(work.lines)
        killed = time.monotonic()
        os.kill(int(chance.choice(found)[1].group(2)), signal.SIGKILL)
        again = work.wait_for(r"ready (\d+) (\d+)", options.ranks, 120, at)
        if len(again) < options.ranks:
            print("torchrun did not recover:\n" + work.text()[-2000:], file=sys.stderr)
            break
        theirs.append(again[-1][0] - killed)
    work.process.terminate()
    work.finish(60)
    job.row(f"the same with torchrun (monitor interval 0.1 s), {len(theirs)} times",
            f"first new step: {job.spread(theirs)}", "for comparison", True)
sys.exit(0 if good else 1)
