#!/usr/bin/env python3
"""A rank that computes for ever outside of the collectives: is it named, with its stack, while all hearts beat?

    tests/faults/hang.py [--build DIR] [--trials 2 | --full] [--ranks 4]

One row of a table; exit code 1 when the bar fails: the right rank every time, named within max(5 s, 5 x p99 step) and 1
s.
"""
import random
import sys

import job

options = job.arguments(__doc__, trials=2, full=20).parse_args()
chance = random.Random(options.seed)
named, stacks, times, wrong, left = 0, 0, [], [], []
for trial in range(options.trials):
    victim = chance.randrange(options.ranks)
    work = job.launch(options, program_arguments=("--step_ms", "1", "--spin", f"{victim},200"))
    pids = work.ready(options.ranks)
    began = work.wait_for(rf"\[rank {victim}\] spins", timeout=60)
    said = work.wait_for(r"^\[agent\] no progress for .*: rank (\d+) \(pid \d+\) has not come to all_reduce",
                         timeout=120)
    code, _ = work.finish(60)
    late = said[0][0] - began[0][0] if said and began else float("inf")
    times.append(late)
    if [m.group(1) for _, m in said] == [str(victim)] and code == 1 and late <= job.limit(6):
        named += 1
    else:
        wrong.append(f"trial {trial}: rank {victim} spins, code {code}:\n{work.text()[:4000]}")
    stacks += f"rank {victim}:" in work.text() and "spin_for_ever" in work.text()
    left += work.leftovers()
good = named == options.trials and not left
job.row(f"one of {options.ranks} ranks computes for ever, {options.trials} times",
        f"named {named}/{options.trials}: {job.spread(times)}; its stack shown {stacks}; "
        f"left behind: {', '.join(left) or 'nothing'}", "all named within 6 s of a quiet machine", good)
for text in wrong[:3]:
    print(text, file=sys.stderr)
sys.exit(0 if good else 1)
