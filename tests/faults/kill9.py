#!/usr/bin/env python3
"""kill -9 of one of several ranks at a random moment: is it named, how soon, and does nothing remain?

    tests/faults/kill9.py [--build DIR] [--trials 5 | --full] [--ranks 4]

One row of a table; exit code 1 if the bar is missed: culprit and signal named every time, the others gone within 2 s,
detection p95 <= 0.1 s, no leftovers.
"""
import random
import signal
import sys

import job

options = job.arguments(__doc__, trials=5, full=300).parse_args()
chance = random.Random(options.seed)
named, wrong, noticed, gone, left = 0, [], [], [], []
for trial in range(options.trials):
    one = job.Hurt(options, chance, signal.SIGKILL, r"was killed by (SIG\w+)")
    if one.groups() == [(str(one.victim), str(one.pid),
                         "SIGKILL")] and one.code == 137 and one.text.count("[agent] rank ") == 1:
        named += 1
        noticed.append(one.said[0][0] - one.at)
    else:
        wrong.append(f"trial {trial}: {one.story()}")
    gone.append(one.ended - one.at)
    left += one.left
good = (named == options.trials and max(gone) <= job.limit(2) and
        job.percentile(noticed, 0.95) <= job.limit(0.1) and not left)
job.row(f"kill -9 one of {options.ranks} ranks, {options.trials} times",
        f"named {named}/{options.trials}; noticed: {job.spread(noticed)}; all gone: {job.spread(gone)}; "
        f"left behind: {', '.join(left) or 'nothing'}",
        "all named; all gone <= 2 s, noticed p95 <= 0.1 s of a quiet machine; nothing left", good)
for text in wrong[:3]:
    print(text, file=sys.stderr)
sys.exit(0 if good else 1)
