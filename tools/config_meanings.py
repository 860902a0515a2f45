"""The meaning of DeepSpeed, accelerate and Megatron-LM configurations, read without Tessera (for real_configs.py)."""
import json
import math
import os
import re


def files(folder):
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        for name in sorted(names):
            yield os.path.join(base, name)


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


def number(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def section(ds, name):
    """A section of DeepSpeed's JSON; empty unless it is an object."""
    return ds[name] if isinstance(ds.get(name), dict) else {}


def deepspeed_meaning(path):
    """The file's settings, read independently of the program."""
    ds, meaning = json.loads(read(path)), {}
    if isinstance(ds.get("zero_optimization"), dict):
        meaning["zero_stage"] = number(ds["zero_optimization"].get("stage", 0))
    if ds.get("gradient_clipping") != "auto":
        meaning["max_grad_norm"] = number(ds.get("gradient_clipping", 0))
    optimizer, schedule = section(section(ds, "optimizer"), "params"), section(section(ds, "scheduler"), "params")
    meaning["learning_rate"] = number(optimizer.get("lr"))
    meaning["weight_decay"] = number(optimizer.get("weight_decay"))
    for i, name in enumerate(("adam_beta1", "adam_beta2")):
        betas = optimizer.get("betas")
        meaning[name] = number(betas[i]) if isinstance(betas, list) and len(betas) == 2 else None
    meaning["per_device_train_batch_size"] = number(ds.get("train_micro_batch_size_per_gpu"))
    meaning["gradient_accumulation_steps"] = number(ds.get("gradient_accumulation_steps"))
    for name in ("fp16", "bf16"):
        enabled = section(ds, name).get("enabled")
        meaning[name] = enabled if isinstance(enabled, bool) else None
    meaning["warmup_num_steps"] = number(schedule.get("warmup_num_steps"))
    return {name: value for name, value in meaning.items() if value is not None}


def processes_of(path):
    """The number of processes that the three batch sizes of DeepSpeed's JSON imply."""
    ds = json.loads(read(path))
    batch, micro, steps = (number(ds.get(name)) for name in (
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"))
    if batch and micro and batch >= micro * (steps or 1):
        return int(batch // (micro * (steps or 1))) * ranks_per_sample(ds)
    return None


def ranks_per_sample(ds):
    sizes = (section(ds, "tensor_parallel").get("autotp_size"), ds.get("sequence_parallel_size"),
             section(ds, "pipeline").get("stages"))
    return math.prod(int(number(size) or 1) for size in sizes)


def accelerate_meaning(path):
    given = dict(re.findall(r"^ *(\w+): *['\"]?([^\s'\"#]+)", read(path), re.M))
    meaning, word = {}, given.get("mixed_precision", "no").lower()
    if "deepspeed_config_file" not in given:
        meaning = {"bf16": word in ("bf16", "fp8"), "fp16": word == "fp16"}
        for theirs, ours in (("gradient_accumulation_steps", "gradient_accumulation_steps"),
                             ("gradient_clipping", "max_grad_norm"), ("zero_stage", "zero_stage")):
            if given.get("distributed_type") == "DEEPSPEED" and number(given.get(theirs)) is not None:
                meaning[ours] = number(given[theirs])
    several = given.get("distributed_type") != "NO" and given.get("num_machines") == "1"
    for theirs, ours in (("tp_size", "tp_size"), ("cp_size", "cp_size"), ("sp_size", "cp_size")):
        size = number(given.get("parallelism_config_" + theirs))
        if size and size > 1:
            meaning[ours] = size
    if several and number(given.get("num_processes")):
        meaning["num_processes"] = number(given["num_processes"])
    if given.get("distributed_type") == "FSDP" and given.get("fsdp_sharding_strategy") in ("FULL_SHARD", "1"):
        meaning["strategy"] = "full_shard"
    return meaning


MEGATRON = {"lr": "learning_rate", "train-iters": "max_steps", "micro-batch-size": "per_device_train_batch_size",
            "seq-length": "block_size", "clip-grad": "max_grad_norm", "adam-beta2": "adam_beta2",
            "weight-decay": "weight_decay", "save-interval": "save_steps", "seed": "seed",
            "tensor-model-parallel-size": "tp_size", "context-parallel-size": "cp_size",
            "pipeline-model-parallel-size": "pp_size"}
OTHER_LISTS = re.compile("inference|grpo|logitsmatch")
OTHER_FOLDERS = {"bert", "t5", "hybrid", "mimo", "multimodal-llava", "nemotron"}


def processes_of_mesh(given):
    pp, tp, cp, ep, etp = (int(number(given.get(name)) or 1) for name in (
        "pipeline-model-parallel-size", "tensor-model-parallel-size", "context-parallel-size",
        "expert-model-parallel-size", "expert-tensor-parallel-size"))
    if "expert-tensor-parallel-size" not in given:
        etp = tp
    return pp * math.lcm(tp * cp, ep * etp if ep > 1 else 1)


class Recipes:
    """Megatron-LM's recipes, parsed line by line with Python's standard library only."""

    def __init__(self, root):
        self.of = {}
        folder = os.path.join(root, "tests", "test_utils", "recipes")
        for path in files(folder):
            text = read(path)
            script = re.search(r"TRAINING_SCRIPT_PATH=([\w./-]+)", text)
            sizes = [re.search(rf"^  {name}: *(\d+)", text, re.M) for name in ("nodes", "gpus")]
            model = re.search(r"^  model: *([\w-]+)", text, re.M)
            if not all(sizes) or not model:
                continue
            devices = int(sizes[0].group(1)) * int(sizes[1].group(1))
            for cases in re.findall(r"test_case: *\[([^\]]*)\]", text):
                for case in re.findall(r"[\w.-]+", cases):
                    known = self.of.setdefault((model.group(1), case), (devices, script and script.group(1)))
                    if devices > known[0]:
                        self.of[model.group(1), case] = (devices, script and script.group(1))

    def processes(self, path):
        """The recipe's number, or the smallest that the mesh allows, at least 8."""
        known = self.of.get(tuple(path.split(os.sep)[-3:-1]))
        given = megatron_arguments(path)
        needed = processes_of_mesh(given)
        count = known[0] if known and known[0] % needed == 0 else needed * -(-8 // needed)
        rows, micro = (number(given.get(name + "-batch-size")) for name in ("global", "micro"))
        fits = not rows or not micro or rows % (micro * max(1, count // needed)) == 0
        return count if fits else needed

    def other_program(self, path):
        model, case = path.split(os.sep)[-3:-1]
        script = self.of.get((model, case), (0, None))[1]
        if model in OTHER_FOLDERS or OTHER_LISTS.search(case):
            return True
        return script not in (None, "pretrain_gpt.py")


def megatron_arguments(path):
    section = re.split(r"\n(?=[^\s#])", ("\n" + read(path)).split("\nMODEL_ARGS:")[1])[0]
    return dict(re.findall(r"^  --([\w-]+): *([^\s#]+)", section, re.M))


def megatron_meaning(path, processes):
    given = megatron_arguments(path)
    meaning = {ours: number(given[theirs]) for theirs, ours in MEGATRON.items()
               if number(given.get(theirs)) is not None}
    if number(given.get("exit-interval")) and "max_steps" in meaning:
        meaning["max_steps"] = min(meaning["max_steps"], number(given["exit-interval"]))
    pp, tp, cp = (number(given.get(name, 1)) for name in ("pipeline-model-parallel-size",
                                                          "tensor-model-parallel-size", "context-parallel-size"))
    if all(number(given.get(name)) for name in ("global-batch-size", "micro-batch-size")) and pp and tp and cp:
        rows = number(given["micro-batch-size"]) * max(1, processes // (pp * tp * cp))
        meaning["gradient_accumulation_steps"] = number(given["global-batch-size"]) // rows
    return meaning
