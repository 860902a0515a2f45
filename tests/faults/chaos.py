#!/usr/bin/env python3
"""Trainings on every mesh with faults at random moments: is the result bit-identical to that of an undisturbed run, is
every culprit named, and does nothing hang?

    tests/faults/chaos.py [--build DIR] [--trials 12 | --full] [--meshes fsdp4,topk2] [--seed N] [--keep]

`--trials`: faults per run. One line per mesh; exit code 1 if one fails. The faults: kill -9 of a random rank, of rank
0, of two at once, and again during the restart; SIGSEGV, SIGABRT, SIGSTOP of a rank; SIGTERM and SIGINT of a rank or of
the agent, kill -9 of the agent, each followed by the same command with `--resume_from_checkpoint auto`.
"""
import collections
import json
import os
import random
import re
import signal
import time

import job
import training

SAVE_EVERY = 4
MODEL = training.TINY_MODEL.replace("n_layer=1", "n_layer=4")  # one layer per stage of zbv
MOE = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 257, "hidden_size": 32,
       "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
       "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 64, "bos_token_id": 256,
       "eos_token_id": 256, "tie_word_embeddings": False}
# name: (ranks, flags)
MESHES = {
    "ddp2": (2, ""),
    "ddp2-deterministic": (2, "--deterministic_reduce"),
    "zero1x2": (2, "--zero_stage 1"),
    "zero2x3": (3, "--zero_stage 2"),
    "zero3-bf16x3": (3, "--zero_stage 3 --bf16"),
    "fsdp4": (4, "--fsdp full_shard"),
    "fsdp3-full": (3, "--fsdp full_shard --save_state_dict_type full"),
    "hsdp2x2": (4, "--fsdp hybrid_shard --shard_group_size 2"),
    "tp2": (2, "--tp_size 2 --sequence_parallel"),
    "pp2tp2": (4, "--pp_size 2 --tp_size 2 --gradient_accumulation_steps 2"),
    "pp2fsdp2": (4, "--pp_size 2 --fsdp full_shard --gradient_accumulation_steps 2"),
    "zbv2": (2, "--pp_size 2 --pipeline_schedule zbv --gradient_accumulation_steps 4"),
    "cp2ddp2": (4, "--cp_size 2"),
    "ep2": (2, "--ep_size 2"),
    "ep2ddp2": (4, "--ep_size 2"),
    "lora-fsdp3": (3, "--fsdp full_shard --lora_r 4"),
    "memory3": (3, "--checkpoint_in_memory 2"),
    "memory-tp2fsdp2": (4, "--tp_size 2 --fsdp full_shard --checkpoint_in_memory 2"),
    "streaming3": (3, "--streaming"),
    "plateau2": (2, "--lr_scheduler_type reduce_lr_on_plateau --eval_strategy steps --eval_steps 4 "
                    "--validation_split_percentage 1 --metric_for_best_model loss "
                    "--save_strategy steps"),
    "limit1": (2, "--save_total_limit 1"),
    "topk2": (2, "--grad_compression topk:ratio=0.05"),
    "onebit2": (2, "--grad_compression onebit:warmup=8"),
    "powersgd3": (3, "--grad_compression powersgd:rank=2,start=4,min_rate=1"),
    "offload2": (2, "--zero_stage 2 --cpu_offload optimizer"),
}
# The target of a signal. The job restarts after the targets in RANKS; after the others it ends and is started again.
RANK, RANK_0, TWO, TWICE = "a rank", "rank 0", "two ranks", "a rank, and one while the job restarts"
RANKS = RANK, RANK_0, TWO, TWICE
LAST_RANK, AGENT = "a rank, which ends the job", "the agent"
Fault = collections.namedtuple("Fault", "number whom weight")  # weight: relative frequency
FAULTS = {
    "kill -9": Fault(signal.SIGKILL, RANK, 5),
    "kill -9 of rank 0": Fault(signal.SIGKILL, RANK_0, 3),
    "kill -9 of two": Fault(signal.SIGKILL, TWO, 2),
    "kill -9, again while restarting": Fault(signal.SIGKILL, TWICE, 3),
    "SIGSEGV": Fault(signal.SIGSEGV, RANK, 2),
    "SIGABRT": Fault(signal.SIGABRT, RANK, 1),
    "SIGSTOP": Fault(signal.SIGSTOP, RANK, 2),
    "SIGTERM of a rank": Fault(signal.SIGTERM, LAST_RANK, 1),
    "SIGINT of a rank": Fault(signal.SIGINT, LAST_RANK, 1),
    "SIGTERM of the agent": Fault(signal.SIGTERM, AGENT, 1),
    "SIGINT of the agent": Fault(signal.SIGINT, AGENT, 1),
    "kill -9 of the agent": Fault(signal.SIGKILL, AGENT, 2),
}
# Exit codes of a job after such a signal; 0: the signal came at the last step.
CODES = {signal.SIGTERM: (3, 0), signal.SIGINT: (130, 0), signal.SIGKILL: (-9, 0)}

parser = training.arguments(__doc__, trials=12, full=30)
parser.add_argument("--meshes", default=",".join(MESHES))
parser.add_argument("--keep", action="store_true", help="also keep the folders of good runs")
options = parser.parse_args()
seed = options.seed if options.seed is not None else random.randrange(1 << 30)
chance = random.Random(seed)
folder = training.work_folder(options, "chaos")
text = training.write_text(folder)
moe = os.path.join(folder, "moe.json")
with open(moe, "w") as file:
    json.dump(MOE, file)
print(f"seed {seed}, {folder}", flush=True)
wrong, counts, recoveries = [], collections.Counter(), []
HANG = 90  # seconds without a new line after a fault, on a quiet machine


class Lost(Exception):
    """A run that violated a requirement."""


def command(ranks, flags, output, steps, *more):
    options.ranks = ranks
    words = training.command(options, text, output, *flags.split(), *more, model=MODEL, steps=steps,
                             save_every=SAVE_EVERY)
    if "--ep_size" in flags:
        at = words.index("--config_name")
        words[at:at + 4] = ["--config_name", moe]
    if "--lora_r" in flags:
        at = words.index("--config_name")
        words[at:at + 4] = ["--model_name_or_path", base_model()]
    return words


def base_model():
    """A base model for adapters."""
    output = os.path.join(folder, "base")
    if not os.path.isdir(output):
        job.Job(command(1, "--save_strategy no", output, 1)).finish(120)
    return output


def numbers(output):
    """{step: (loss, grad_norm)} of metrics.jsonl; repeated steps must have the same numbers."""
    found = {}
    with open(os.path.join(output, "metrics.jsonl")) as lines:
        for line in lines:
            row = json.loads(line)
            if "grad_norm" not in row:
                continue
            pair = row["loss"], row["grad_norm"]
            if found.setdefault(row["step"], pair) != pair:
                raise Lost(f"step {row['step']} has {found[row['step']]} and {pair}")
    return found


class Run:
    """One training as a chain of jobs; `hurt` injects one fault and returns when the training continues."""

    def __init__(self, name, ranks, flags, steps):
        self.name, self.ranks = name, ranks
        self.output = os.path.join(folder, name)
        self.command = command(ranks, flags, self.output, steps, "--max_restarts", "1000", "--resume_from_checkpoint",
                               "auto")
        self.story = []
        self.start()

    def start(self):
        self.work = job.Job(self.command)
        self.seen = 0

    def wait(self, pattern, count=1):
        """Waits until `count` more lines match; False: the job has ended. Raises Lost if neither happens."""
        begin = time.monotonic()
        found = self.work.wait_for(pattern, count, job.limit(HANG), self.seen)
        self.work.wait_for(r"(?!)", timeout=0.01)
        self.seen = len(self.work.lines)
        if len(found) == count:
            return True
        if self.work.process.poll() is None and time.monotonic() - begin > HANG / 2:
            raise Lost(f"hangs: no {pattern}")
        return False

    def steps(self, count):
        return self.wait(training.STEP, count)

    def pids(self):
        return training.ranks_of(self.work.process.pid)

    def kill(self, number, rank):
        try:
            os.kill(self.pids()[rank], number)
            return True
        except (KeyError, ProcessLookupError):
            return False

    def ended(self, codes, pids=()):
        """Requires that the agent ends with one of `codes`, and the rest of the job, including `pids`, soon after."""
        code, _ = self.work.finish(job.limit(30))
        if code is None:
            raise Lost("did not end")
        if code not in codes:
            raise Lost(f"ended with {code}, not {codes}")
        self.work.pids.update(pids)
        deadline = time.monotonic() + job.limit(3)
        while left := self.work.leftovers():
            if time.monotonic() > deadline:
                raise Lost(f"left {left}")
            time.sleep(0.02)

    def named(self, number, ranks):
        said = r"is stopped|no heartbeat" if number == signal.SIGSTOP else f"was killed by {number.name}"
        text = "\n".join(line for _, line in self.work.lines[self.before:])
        blamed = re.search(rf"^\[agent\] rank (\d+) \(.*(?:{said})", text, re.M)
        if not blamed or int(blamed.group(1)) not in ranks:
            raise Lost(f"{number.name} of rank {ranks} was not named:\n{text}")

    def hurt(self, fault):
        """Injects a fault; False: the training ended first."""
        self.work.wait_for(r"(?!)", timeout=0.01)
        self.before = self.seen = len(self.work.lines)
        return self.hurt_ranks(fault) if fault.whom in RANKS else self.hurt_job(fault)

    def hurt_job(self, fault):
        pids = {}
        if fault.whom == AGENT:
            if self.work.process.poll() is not None:
                return False
            pids = self.pids()
            self.work.process.send_signal(fault.number)
        elif not self.kill(fault.number, chance.randrange(self.ranks)):
            return False
        self.ended(CODES[fault.number], pids.values())
        if self.work.process.returncode == 0:
            return False
        self.start()
        return self.steps(1)

    def hurt_ranks(self, fault):
        began = time.monotonic()
        victim = 0 if fault.whom == RANK_0 else chance.randrange(self.ranks)
        victims = {victim}
        if not self.kill(fault.number, victim):
            return False
        if fault.whom == TWO:
            other = (victim + 1) % self.ranks
            victims.add(other)
            self.kill(fault.number, other)
        if fault.whom == TWICE:
            if not self.wait(r"restart \d+: "):
                return False
            time.sleep(chance.uniform(0, 1.5))
            again = chance.randrange(self.ranks)
            victims.add(again)
            self.kill(fault.number, again)
        if not self.wait(r"restart \d+: "):
            if self.work.process.poll() == 0:
                return False
            raise Lost(f"no restart after {fault.number.name}")
        self.named(fault.number, victims)
        alive = self.steps(1)
        if alive and fault.whom != TWICE:
            recoveries.append(time.monotonic() - began)
        return alive


def mesh(name):
    ranks, flags = MESHES[name]
    steps = 4 * options.trials + 20
    calm = os.path.join(folder, name + "-undisturbed")
    work = job.Job(command(ranks, flags, calm, steps))
    code, _ = work.finish(600)
    if code != 0:
        raise Lost(f"the undisturbed run ended with {code}:\n{work.text()[-2000:]}")
    run = Run(name, ranks, flags, steps)
    done = 0
    try:
        if not run.steps(1):
            raise Lost("it did not begin")
        while done < options.trials:
            if not run.steps(chance.randint(1, 6)):
                break
            time.sleep(chance.uniform(0, 0.1))
            name_of_fault = chance.choices(list(FAULTS), [fault.weight for fault in FAULTS.values()])[0]
            run.story.append(name_of_fault)
            counts[name_of_fault] += 1
            done += 1
            if not run.hurt(FAULTS[name_of_fault]):
                break
        for _ in range(3):  # a job that a signal ended at its last step is started again
            code, _ = run.work.finish(job.limit(300))
            if code is None:
                raise Lost("hangs")
            if code in (3, 130, -9):
                run.start()
            else:
                break
        run.ended((0,))
        ours, theirs = numbers(run.output), numbers(calm)
        for step in sorted(theirs):
            if ours.get(step) != theirs[step]:
                raise Lost(f"step {step}: (loss, grad_norm) {ours.get(step)}, undisturbed {theirs[step]}")
        if ours.keys() != theirs.keys():
            raise Lost(f"steps {sorted(ours.keys() - theirs.keys())} are too many")
        if training.weights(run.output) != training.weights(calm):
            raise Lost("the same losses, other weights")
    except (Lost, ValueError) as lost:
        raise Lost(f"{lost}\nfaults: {run.story}\n{run.work.text()[-6000:]}") from lost
    finally:
        training.end(run.work)
    if not options.keep:
        training.remove(calm)
        training.remove(run.output)
    return done


began, total, same = time.monotonic(), 0, 0
for name in options.meshes.split(","):
    start = time.monotonic()
    try:
        faults = mesh(name)
        total += faults
        same += 1
        print(f"{name}: {faults} faults, the same bits, {time.monotonic() - start:.0f} s", flush=True)
    except (Lost, ValueError) as lost:
        wrong.append(f"{name}: {lost}")
        print(f"{name}: FAILED: {str(lost).splitlines()[0]}", flush=True)
tried = len(options.meshes.split(","))
print(f"faults: {dict(counts)}; first step after one: {job.spread(recoveries)}; {time.monotonic() - began:.0f} s")
good = job.row(f"{tried} meshes, {sum(counts.values())} faults", f"{same} runs end with the bits of an undisturbed "
               "one, each culprit named, nothing left", "all", same == tried)
training.conclude(folder, good, wrong)
