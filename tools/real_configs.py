#!/usr/bin/env python3
"""How many configurations of other people's projects `tessera config` accepts.

usage: real_configs.py FOLDER PROGRAM [--refused] [--only KIND]

FOLDER holds one sub-folder for each checkout (accelerate, DeepSpeed, DeepSpeedExamples, Megatron-LM, transformers,
trl, alignment-handbook, FastChat, LLaVA, Qwen, LLaMA-Factory, ...); PROGRAM is build/tessera. Looked at are
DeepSpeed's JSON, accelerate's YAML, TRL's recipes, the MODEL_ARGS of Megatron-LM's functional tests, and command
lines of training in shell scripts and Markdown. Models, data and folders that only their authors have are replaced
by small ones that exist, and what is left of them is no fault: the verdict is about the words. Each configuration is
accepted; or refused because it needs what is not built, which the refusal names; or refused otherwise. What an
accepted one means is compared with a reading of the file of this script's own (learning rate, batch, stage,
clipping, precision, schedule); differences are printed. With --refused every refusal is printed in full.

Megatron-LM's lists say nothing of the program that they are for: its recipes, below its tests, do. Those for
another one than pretrain_gpt.py (generation, reinforcement learning, T5, BERT, Mamba, images) stand in a row of their
own, "other program", and are not in the sum "all". The recipes also say on how many devices a list is run.
"""
import collections
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile

# Projects whose command lines are for programs with transformers', TRL's or Megatron-LM's own parser; those of other
# projects are for parsers of their own.
PARSERS = {"FastChat", "LLaVA", "Qwen", "stanford_alpaca", "transformers", "trl", "alignment-handbook", "Megatron-LM"}
DEEPSPEED_KEYS = {"train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization", "optimizer", "scheduler",
                  "fp16", "bf16", "gradient_clipping", "gradient_accumulation_steps", "steps_per_print"}
NOT_HERE = re.compile(r"no such (file|folder)")
NOT_BUILT = re.compile(r"not built|not supported|no model here|is Llama's|is not read|are not read|not downloaded|"
                       r"are not delayed|not done here|not trained|not rewritten|not quantized|nothing is generated|"
                       r"is not (GPT-2|OPT|StarCoder2)'s|of the models here|the model here that|DeepSeek-V3's")
# What the projects themselves refuse: files of tests of refusals.
REFUSED_THERE = {"accelerate/tests/test_configs/invalid_keys.yaml"}
# `trl sft` and FastChat's kin name their data and models in words that only their authors' machines know.
MODEL_FLAGS = {"model_name_or_path", "tokenizer_name", "config_name"}
DATA_FLAGS = {"data_path", "train_file", "validation_file", "eval_data_path", "train_data_path", "valid_data_path"}
TRAINING = re.compile(r"(train|finetune|run_clm|run_mlm|sft)[\w-]*\.py$|^sft$")


class Stand:
    """A folder with a model, a text and tokens, in place of what the authors have."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0
        model = os.path.join(folder, "model")
        os.mkdir(model)
        with open(os.path.join(model, "config.json"), "w") as file:
            json.dump({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                       "intermediate_size": 128, "vocab_size": 257}, file)
        with open(os.path.join(model, "tokenizer.json"), "w") as file:
            file.write("{}")
        self.model, self.data = model, os.path.join(folder, "data.jsonl")
        for name in ("data.jsonl", "tokens.bin", "tokens.idx"):
            open(os.path.join(folder, name), "w").close()

    def new(self):
        self.count += 1
        return os.path.join(self.folder, f"new-{self.count}")


def run(program, words, folder, processes=None):
    environment = {name: value for name, value in os.environ.items() if not re.match("ACCELERATE|FSDP|WORLD", name)}
    if processes:
        environment["WORLD_SIZE"] = str(processes)
    done = subprocess.run([program, "config"] + words, cwd=folder, env=environment, capture_output=True, text=True,
                          errors="replace", timeout=60)
    return done.returncode, [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]


# ---- what there is ----

def files(folder):
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        for name in sorted(names):
            yield os.path.join(base, name)


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


def kind_of(path, project):
    if path.endswith(".json") and os.path.getsize(path) < 1 << 20:
        try:
            value = json.loads(read(path))
        except ValueError:
            return None
        known = isinstance(value, dict) and DEEPSPEED_KEYS & set(value)
        return "DeepSpeed" if known and (len(known) > 1 or "zero_optimization" in known) else None
    if path.endswith((".yaml", ".yml")):
        text = read(path)
        if re.search(r"^distributed_type:", text, re.M):
            return "accelerate"
        if re.search(r"^MODEL_ARGS:", text, re.M):
            return "Megatron" if re.search(r"^ +--num-layers", text, re.M) else None
        if project in ("trl", "alignment-handbook") and re.search(r"^model_name_or_path:", text, re.M) and re.search(
                r"^(learning_rate|per_device_train_batch_size):", text, re.M):
            return "recipe"
    return None


def expand(text, variables):
    def value(match):
        name = match.group(1) or match.group(3)
        usual = "" if name.endswith("[@]") else "1" if re.search("NUM|NODE|GPU|SIZE|PORT|RANK", name) else "unset"
        usual = "v1" if name == "PROMPT_VERSION" else usual  # what LLaVA's comments tell to set
        return variables.get(name, match.group(2) or usual)
    for _ in range(4):
        text = re.sub(r"\$\{(\w+(?:\[@\])?)(?::?[-=]([^}]*))?\}|\$(\w+)", value, text)
        text = re.sub(r"\$\(\(([\d\s*+-]+)\)\)", lambda sum: str(eval(sum.group(1))), text)
    # What a command gives is left to the caller, and so is what a test that may fail adds.
    return re.sub(r"\$\([^()]*\)", "", text)


def command_lines(path, training):
    """The words after the training script's name, of each command that starts one."""
    text = read(path)
    pieces = re.findall(r"```(?:bash|sh|shell|console)?\n(.*?)```", text, re.S) if path.endswith(".md") else [text]
    for piece in pieces:
        piece = re.sub(r"^\s*#.*\n", "", piece, flags=re.M)
        piece = re.sub(r"\\\s*(#.*)?\n", " ", piece)
        piece = re.sub(r"^\s*(elif|else)\b.*?(?=^\s*fi\b)", "", piece, flags=re.M | re.S)  # the first branch is taken
        variables = {}
        for name, more, body in re.findall(r"^\s*(\w+)(\+?)=\(\s*\n?(.*?)\n?\s*\)\s*$", piece, re.M | re.S):
            known = variables.get(name + "[@]", "")
            body = re.sub(r"\s*(#[^\n]*)?\n", " ", body + "\n")
            # a list that is made longer; quotes around a flag with its value hold until the shell takes it apart
            body = re.sub(r'"?\$\{' + name + r'\[@\]\}"?', lambda _: known, body)
            body = re.sub(r'"(--[\w-]+ [^"\s]+|\$\{\w+\[@\]\})"', r"\1", body)
            variables[name + "[@]"] = known + " " + body if more else body
        assignment = r"^\s*(?:export +)?(\w+)=(?:[\"']([^\"']*)[\"']|([^\s(\"'][^\s;]*))"
        for name, quoted, bare in re.findall(assignment, piece, re.M):
            # NAME=${NAME:-word}: the word, unless the caller says otherwise
            word = re.sub(r"^\$\{" + name + r":?-[\"']?([^}]*?)[\"']?\}$", r"\1", quoted or bare)
            variables.setdefault(name, word)
            variables.setdefault(name + "[@]", word)
        for line in piece.split("\n"):
            try:
                words = shlex.split(expand(line, variables).replace("&>", " > "), comments=True)
            except ValueError:
                continue
            at = next((i for i, word in enumerate(words) if training.search(word)), None)
            if at is None:
                continue
            rest = words[at + 1:]
            rest = rest[:next((i for i, word in enumerate(rest) if word in ("|", ">", "2>&1", "&", "2>", "&&", ";")),
                              len(rest))]
            count = re.search(r"(?:--nproc[_-]per[_-]node|--num_gpus|--num_processes|NUM_GPUS)[= ](\d+)",
                              " ".join(words[:at]))
            if sum(word.startswith("--") for word in rest) > 3:
                yield rest, int(count.group(1)) if count else None


def stand_in(words, stand, script_folder, root):
    """The same words with models, data and folders that exist."""
    out, i, new = [], 0, stand.new()
    while i < len(words):
        word = words[i]
        name, equals, value = word.partition("=")
        bare = name[2:].replace("-", "_") if name.startswith("--") else ""
        if not bare:
            out.append(word)
            i += 1
            continue
        values = [value] if equals else []
        i += 1
        while not equals and i < len(words) and not words[i].startswith("--"):
            values.append(words[i])
            i += 1
        if bare in MODEL_FLAGS and values:
            values = [stand.model]
        elif bare in DATA_FLAGS and values:
            values = [stand.data]
        elif bare == "image_folder" and values:
            values = [stand.folder]
        elif bare in ("dataset_name", "dataset_config_name"):
            if bare == "dataset_name":
                out += ["--train_file", stand.data]
            continue
        elif bare in ("output_dir", "save", "load", "tensorboard_dir") and values:
            values = [new]
        elif bare == "tokenizer_model" and values:
            values = [stand.model]
        elif bare == "resume_from_checkpoint" and values:
            continue
        elif bare in ("deepspeed", "deepspeed_config", "fsdp_config", "config_file") and values:
            folder = script_folder
            while not os.path.exists(os.path.join(folder, values[0])) and folder != root:
                folder = os.path.dirname(folder)
            if os.path.exists(os.path.join(folder, values[0])):
                values = [os.path.join(folder, values[0])]
        out += [name] + values
    return out


# ---- what it means ----

def number(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def deepspeed_meaning(path):
    """Settings as the file has them, read independently of the program."""
    ds, meaning = json.load(open(path)), {}
    zero = ds.get("zero_optimization")
    if isinstance(zero, dict):
        meaning["zero_stage"] = number(zero.get("stage", 0))
    if ds.get("gradient_clipping") != "auto":
        meaning["max_grad_norm"] = number(ds.get("gradient_clipping", 0))
    optimizer = (ds.get("optimizer") or {}).get("params", {})
    schedule = (ds.get("scheduler") or {}).get("params", {})
    meaning["learning_rate"] = number(optimizer.get("lr"))
    meaning["weight_decay"] = number(optimizer.get("weight_decay"))
    for i, name in enumerate(("adam_beta1", "adam_beta2")):
        betas = optimizer.get("betas")
        meaning[name] = number(betas[i]) if isinstance(betas, list) else None
    meaning["per_device_train_batch_size"] = number(ds.get("train_micro_batch_size_per_gpu"))
    meaning["gradient_accumulation_steps"] = number(ds.get("gradient_accumulation_steps"))
    for name in ("fp16", "bf16"):
        enabled = (ds.get(name) or {}).get("enabled")
        meaning[name] = enabled if isinstance(enabled, bool) else None
    if ds.get("scheduler") and number(schedule.get("warmup_num_steps")) is not None:
        meaning["warmup_num_steps"] = number(schedule["warmup_num_steps"])
    return {name: value for name, value in meaning.items() if value is not None}


def processes_of(path):
    ds = json.load(open(path))
    batch, micro, steps = (number(ds.get(name)) for name in (
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"))
    if batch and micro and batch >= micro * (steps or 1):
        return int(batch // (micro * (steps or 1))) * ranks_per_sample(ds)
    return None


def ranks_per_sample(ds):
    tensor, stages = ds.get("tensor_parallel") or {}, number((ds.get("pipeline") or {}).get("stages"))
    return (int(number(tensor.get("autotp_size")) or 1) * int(number(ds.get("sequence_parallel_size")) or 1) *
            int(stages or 1))


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
OTHER_PROGRAMS = re.compile("inference|grpo|logitsmatch")
OTHER_FOLDERS = {"bert", "t5", "hybrid", "mimo", "multimodal-llava", "nemotron"}


def processes_of_mesh(given):
    pp, tp, cp, ep, etp = (int(number(given.get(name)) or 1) for name in (
        "pipeline-model-parallel-size", "tensor-model-parallel-size", "context-parallel-size",
        "expert-model-parallel-size", "expert-tensor-parallel-size"))
    if "expert-tensor-parallel-size" not in given:
        etp = tp
    return pp * math.lcm(tp * cp, ep * etp if ep > 1 else 1)


class Recipes:
    """Megatron-LM's recipes, read by their lines: nothing but Python's own library is needed."""

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
        """Of the recipe, or as few as the mesh needs, 8 at least."""
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
        if model in OTHER_FOLDERS or OTHER_PROGRAMS.search(case):
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


def megatron_copy(path, stand):
    """The same file with data, tokenizers and folders that exist."""
    text = read(path)
    tokens, new = os.path.join(stand.folder, "tokens"), stand.new()
    text = re.sub(r"^( *--(?:train-|valid-)?data-path:) +[^\s\d][^\s]*$", rf"\1 {tokens}", text, flags=re.M)
    text = re.sub(r"^( *--tokenizer-model:).*$", rf"\1 {stand.model}", text, flags=re.M)
    text = re.sub(r"^( *--(?:save|load):) .*$", rf"\1 {new}", text, flags=re.M)
    text = re.sub(r"^( *--seed:) .*\$.*$", r"\1 1234", text, flags=re.M)
    text = re.sub(r"\$\{\w+\}", stand.folder, text)
    copy = stand.new() + ".yaml"
    with open(copy, "w") as file:
        file.write(text)
    return copy


def home(path, root):
    """Where a file that names another by a relative path is meant to be used."""
    folder = os.path.dirname(path)
    text = read(path) if path.endswith((".yaml", ".yml")) else ""
    other = re.search(r"deepspeed_config_file: *([^/\s][^\s]*)", text)
    while other and folder != root and not os.path.exists(os.path.join(folder, other.group(1))):
        folder = os.path.dirname(folder)
    return folder


def differences(program, words, folder, processes, expected):
    code, lines = run(program, ["show", "--all", "--format", "json"] + words, folder, processes)
    if code != 0:
        return [f"config show refuses what config check accepts: {lines[:2]}"]
    text = "\n".join(lines)
    values = {name: leaf["value"] for section in json.JSONDecoder().raw_decode(text)[0].values()
              for name, leaf in section.items()}
    out = []
    for name, value in expected.items():
        if name == "zero_stage":
            # offloading and groups of copies have strategies of their own names
            stages = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "full_shard": 3, "hybrid_shard": 3}
            ours = stages.get(values["strategy"], 9)
        elif name == "warmup_num_steps":
            ours = json.loads(values["lr_scheduler_kwargs"]).get(name)
        else:
            ours = values[name]
        if ours != value and not (isinstance(value, float) and abs(ours - value) <= 1e-9 * abs(value)):
            out.append(f"{name} is {ours}, in the file {value}")
    return out


# ---- the table ----

def look(project, folder, program, stand, only):
    recipes = Recipes(folder)
    for path in files(folder):
        name, kind = os.path.relpath(path, folder), None
        if path.endswith((".json", ".yaml", ".yml")):
            kind = kind_of(path, project)
        if f"{project}/{name}" in REFUSED_THERE:
            continue
        if kind and only in (None, kind):
            expected, words, processes = {}, ["check", path], None
            if kind == "DeepSpeed":
                words += ["--kind", "deepspeed"]
                processes, expected = processes_of(path), deepspeed_meaning(path)
                show = ["--deepspeed", path]
            elif kind == "Megatron":  # which may turn out to be for another program
                if recipes.other_program(path):
                    kind = "other program"
                processes = recipes.processes(path)
                expected = megatron_meaning(path, processes)
                path = megatron_copy(path, stand)
                words, show = ["check", path], ["--args_file", path]
            elif kind == "accelerate":
                expected, show = accelerate_meaning(path), ["--config_file", path]
            if kind == "recipe":
                words = ["show", "--config", path, "--train_file", stand.data, "--model_name_or_path", stand.model,
                         "--output_dir", stand.new()]
            elif processes:
                words += ["--num_processes", str(processes)]
            code, lines = run(program, words, home(path, folder))
            differ = []
            if code == 0 and expected:
                count = ["--num_processes", str(processes)] if processes else []
                differ = differences(program, show + count, home(path, folder), None, expected)
            yield kind, name, code, lines, differ
        if path.endswith((".sh", ".md")) and project in PARSERS and only in (None, "command line"):
            training = re.compile("pretrain_gpt\\.py$") if project == "Megatron-LM" else TRAINING
            for i, (words, processes) in enumerate(command_lines(path, training)):
                words = stand_in(words, stand, os.path.dirname(path), folder)
                if project == "Megatron-LM":  # how many hosts there are is left to the caller
                    needed = processes_of_mesh({word[2:]: value for word, value in zip(words, words[1:])})
                    processes = needed * -(-(processes or 1) // needed)
                code, lines = run(program, ["show"] + words, folder, processes)
                yield "command line", f"{name} #{i + 1}", code, lines, []


def main(arguments):
    refused = "--refused" in arguments
    only = arguments[arguments.index("--only") + 1] if "--only" in arguments else None
    root, program = os.path.abspath(arguments[0]), os.path.abspath(arguments[1])
    table = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as folder:
        stand = Stand(folder)
        for project in sorted(os.listdir(root)):
            for kind, name, code, lines, differ in look(project, os.path.join(root, project), program, stand, only):
                verdict = "accepted"
                if code != 0:
                    lines = [line for line in lines
                             if not re.search(r"problems in the configuration:$|warning: ", line)]
                    lines = [line for line in lines if not NOT_HERE.search(line)]
                    if not lines:
                        code = 0
                if code != 0:
                    built = any(NOT_BUILT.search(line) for line in lines)
                    verdict = "not built" if built else "refused"
                    if refused or code != 2:
                        print(f"{verdict}: {project}/{name} (exit {code})\n    " + "\n    ".join(lines))
                for line in differ:
                    print(f"MEANS SOMETHING ELSE: {project}/{name}: {line}")
                table[project, kind][verdict] += 1
                table["all", kind][verdict] += 1
                if kind != "other program":
                    table["all", ""][verdict] += 1
    heads = ("number", "accepted", "not built", "refused", "of the built")
    print(f"{'project':20} {'kind':14}", *(f"{head:>12}" for head in heads))
    for (project, kind), row in sorted(table.items(), key=lambda item: (item[0][0] == "all", item[0])):
        count = sum(row.values())
        share = row["accepted"] / (count - row["not built"]) if count > row["not built"] else 1
        numbers = (count, row["accepted"], row["not built"], row["refused"])
        print(f"{project:20} {kind:14}", *(f"{value:12}" for value in numbers), f"{share:12.1%}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
