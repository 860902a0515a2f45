#!/usr/bin/env python3
"""kill -9 of one of several ranks at a random moment: is it named, how soon, and is nothing left?

    tests/faults/kill9.py [--build DIR] [--trials 5 | --full] [--ranks 4]

One row of a table; exit code 1 when the bar fails: culprit and signal named every time, the others gone within 2 s,
detection p95 <= 0.1 s, nothing left.
"""
import os
import random
import signal
import sys
import time

import job

options = job.arguments(__doc__, trials=5, full=300).parse_args()
chance = random.Random(options.seed)
named, wrong, noticed, gone, left = 0, [], [], [], []
for trial in range(options.trials):
    work = job.launch(options)
    pids = work.ready(options.ranks)
    time.sleep(chance.uniform(0, 0.3))
    victim = chance.randrange(options.ranks)
    killed = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    said = work.wait_for(r"^\[agent\] rank (\d+) \(pid (\d+)\) was killed by (SIG\w+)", timeout=30)
    code, ended = work.finish()
    found = [match.groups() for _, match in said]
    if found == [(str(victim), str(pids[victim]), "SIGKILL")] and code == 137 and work.text().count("[agent] rank ") == 1:
        named += 1
        noticed.append(said[0][0] - killed)
    else:
        wrong.append(f"trial {trial}: killed rank {victim} (pid {pids[victim]}), code {code}:\n{work.text()}")
    gone.append(ended - killed)
    left += work.leftovers()
good = named == options.trials and max(gone) <= 2 and job.percentile(noticed, 0.95) <= 0.1 and not left
job.row(f"kill -9 one of {options.ranks} ranks, {options.trials} times",
        f"named {named}/{options.trials}; noticed: {job.spread(noticed)}; all gone: {job.spread(gone)}; "
        f"left behind: {', '.join(left) or 'nothing'}",
        "all named; all gone <= 2 s; noticed p95 <= 0.1 s; nothing left", good)
for text in wrong[:3]:
    print(text, file=sys.stderr)
sys.exit(0 if good else 1)
