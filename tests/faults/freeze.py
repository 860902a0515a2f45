#!/usr/bin/env python3
"""SIGSTOP of one rank, permanently and for two seconds: is it named within 3 s, and is the pause tolerated?

    tests/faults/freeze.py [--build DIR] [--trials 3 | --full] [--ranks 4]

Two rows of a table; exit code 1 if a bar is missed.
"""
import os
import random
import signal
import sys
import time

import job

options = job.arguments(__doc__, trials=3, full=50).parse_args()
chance = random.Random(options.seed)

named, times, left, wrong = 0, [], [], []
for trial in range(options.trials):
    one = job.Hurt(options, chance, signal.SIGSTOP, "is frozen: no heartbeat", timeout=20)
    if one.groups() == [(str(one.victim), str(one.pid))] and one.code == 1 and one.said[0][0] - one.at <= job.limit(3):
        named += 1
    else:
        wrong.append(f"trial {trial}: {one.story()}")
    times += [when - one.at for when, _ in one.said]
    left += one.left
good = job.row(f"SIGSTOP one of {options.ranks} ranks for ever, {options.trials} times",
               f"named within 3 s {named}/{options.trials}: {job.spread(times)}; left behind: "
               f"{', '.join(left) or 'nothing'}",
               "all within 3 s of a quiet machine", named == options.trials and not left)

# All pauses happen to one job.
work = job.launch(options)
pids = work.ready(options.ranks)
tolerated = 0
for trial in range(options.trials):
    victim = chance.randrange(options.ranks)
    os.kill(pids[victim], signal.SIGSTOP)
    time.sleep(2)
    os.kill(pids[victim], signal.SIGCONT)
    time.sleep(0.5)
    if work.process.poll() is not None:
        break
    tolerated += 1
work.process.terminate()
code, _ = work.finish()
frozen = work.text().count("is frozen")
told = work.text().count("and continues")
ok = tolerated == options.trials and frozen == 0 and told == options.trials
job.row(f"SIGSTOP one of {options.ranks} ranks for 2 s, {options.trials} times",
        f"tolerated {tolerated}/{options.trials}, told afterwards {told}, false alarms {frozen}", "all tolerated", ok)
for text in wrong[:3] + ([work.text()] if not ok else []):
    print(text, file=sys.stderr)
sys.exit(0 if good and ok else 1)
