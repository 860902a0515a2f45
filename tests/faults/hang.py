#!/usr/bin/env python3
"""A rank that computes forever outside of collectives, with all heartbeats alive: is it reported, but not killed?

    tests/faults/hang.py [--build DIR] [--trials 2 | --full] [--ranks 4]

One row of a table; exit code 1 if the bar is missed: the right rank every time, reported within max(5 s, 5 x p99 step)
plus 1 s; no process is ended before the agent is asked to stop.
"""
import random
import sys
import time

import job

options = job.arguments(__doc__, trials=2, full=20).parse_args()
chance = random.Random(options.seed)
named, times, wrong, left = 0, [], [], []
for trial in range(options.trials):
    victim = chance.randrange(options.ranks)
    work = job.launch(options, program_arguments=("--step_ms", "1", "--spin", f"{victim},200"))
    work.ready(options.ranks)
    began = work.wait_for(rf"\[rank {victim}\] spins", timeout=60)
    said = work.wait_for(r"^\[agent\] no progress for .*: rank (\d+) \(pid \d+\) computes", timeout=120)
    late = said[0][0] - began[0][0] if said and began else float("inf")
    time.sleep(5)
    alive = work.process.poll() is None
    for _ in range(2):  # the second signal kills the job
        work.process.terminate()
        time.sleep(0.7)
    work.finish(60)
    times.append(late)
    if [m.group(1) for _, m in said] == [str(victim)] and alive and late <= job.limit(6):
        named += 1
    else:
        wrong.append(f"trial {trial}: rank {victim} spins, alive {alive}:\n{work.text()[:4000]}")
    left += work.leftovers()
good = named == options.trials and not left
job.row(f"one of {options.ranks} ranks computes for ever, {options.trials} times",
        f"told {named}/{options.trials}: {job.spread(times)}; left behind: {', '.join(left) or 'nothing'}",
        "all told within 6 s of a quiet machine, nobody ended", good)
for text in wrong[:3]:
    print(text, file=sys.stderr)
sys.exit(0 if good else 1)
