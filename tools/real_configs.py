#!/usr/bin/env python3
"""Measures how many configurations of other people's projects `tessera config` accepts.

FOLDER contains one sub-folder for each checkout ([OWNER+]PROJECT); PROGRAM is build/tessera. Examined are DeepSpeed's
JSON, accelerate's YAML, recipes (YAML) and files of arguments (JSON) with the keys of transformers and TRL or of
axolotl, torchtune and LLaMA-Factory, the MODEL_ARGS of Megatron-LM's functional tests, and training command lines in
shell scripts and Markdown. Models, data and folders that only their authors have are replaced by small existing ones,
and remaining ones do not count as a fault: the verdict is about the keys. At most --most items per project and kind
are judged, drawn at random with a fixed seed; items of one project with the same meaning, or the same refusal,
count once. The table has one row for each kind; its columns are

accepted      where this script's own reading of the file (learning rate, batch, stage, clipping, precision, schedule)
              differs from the program's, the difference is printed
no model/data accepted command lines without a model or data, which `config show` does not require
not built     a feature that is not built, or another program's format, named in the refusal
private       refused only for keys of the project's own parser, which none of the originals has (--originals:
              a folder with Python sources of transformers, TRL, PEFT, DeepSpeed and Megatron-LM; else all are its own)
not readable  refused for a value that only the caller of a script knows
other program not judged: the program does not train a language model (tokenizers, data, rewards, images, BERT, T5); of
              Megatron-LM's lists, whose recipes name the programs, all that are not for pretrain_gpt.py
originals     also refused by the project that reads such files
refused       for any other reason
share         accepted / (accepted + refused): among items that need only implemented features
"""
import argparse
import collections
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

from config_meanings import (Recipes, accelerate_meaning, deepspeed_meaning, files, megatron_meaning, processes_of,
                             processes_of_mesh, read)
from shell_lines import UNREAD, command_lines

# Projects (with owners) whose programs use the parser of transformers, TRL or Megatron-LM itself, so an unknown key
# there is our fault.
PARSERS = {"FastChat": "lm-sys", "LLaVA": "haotian-liu", "Qwen": "QwenLM", "stanford_alpaca": "tatsu-lab",
           "transformers": "huggingface", "trl": "huggingface", "alignment-handbook": "huggingface",
           "Megatron-LM": "NVIDIA"}
DEEPSPEED_KEYS = {"train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization", "optimizer", "scheduler",
                  "fp16", "bf16", "gradient_clipping", "gradient_accumulation_steps", "steps_per_print"}
ARGUMENTS = {"model_name_or_path", "output_dir", "learning_rate", "per_device_train_batch_size", "num_train_epochs"}
FOREIGN = re.compile(r"^(base_model|finetuning_type|_component_|sequence_len):|^ +_component_:", re.M)
NOT_HERE = re.compile(r"no such (file|folder)")
NOT_BUILT = re.compile(r"not built|not implemented|not supported|not available|no model here|is Llama's|is not read|"
                       r"are not read|not downloaded|"
                       r"are not delayed|are not written|not done here|not trained|not rewritten|not quantized|"
                       r"nothing is generated|is not (GPT-2|OPT|StarCoder2)'s|of the models here|the model here that|"
                       r"DeepSeek-V3's")
UNKNOWN = re.compile(r"unknown (?:flag|argument|key) -*([\w.-]+)|unexpected argument|cannot open '|"
                     r"\d+ more (unknown|arguments)")
# Configurations that the original programs refuse, too: accelerate (one tests exactly this; the others have a key or an
# environment that it lacks), Megatron-LM (two flags that exclude each other), and DeepSpeed, whose fp16 and bf16 accept
# only their own keys.
REFUSED_THERE = {"Megatron-LM/examples/gpt3/train_gpt3_175b_distributed.sh #1",
                 "accelerate/tests/test_configs/invalid_keys.yaml",
                 "LLM-Tutorial/DPO/accelerate_config.yaml", "ChatLM-mini-Chinese/accelerate_config_gloo.yaml"}
REFUSED_BY_DEEPSPEED = re.compile(r"please switch to using the deepspeed parameter|unknown key (fp16|bf16)\.")
# `trl sft` and FastChat's relatives refer to data and models that exist only on their authors' machines.
MODEL_FLAGS = {"model_name_or_path", "tokenizer_name", "config_name", "tokenizer_model"}
DATA_FLAGS = {"data_path", "train_file", "validation_file", "eval_data_path", "train_data_path", "valid_data_path",
              "vocab_file", "merge_file"}
FILE_FLAGS = {"deepspeed", "deepspeed_config", "fsdp_config", "config_file"}
TRAINING = re.compile(r"(train|finetune|run_clm|run_mlm|sft)[\w-]*\.py$|^sft$")
OTHER_PROGRAM = re.compile(r"tokeniz|prepare|convert|download|validate|split_|sample_|check_|submit|dataset|_data\b|"
                           r"extract|process_|inference|spm_|bert|_t5|_ict|retro|_rm\b|^rm_|reward|scorer|(^|_)gan|t2i|"
                           r"text_to_image|pix2pix|diffusion|(^|_)lcm", re.I)
ORIGINALS = re.compile(r"(training_args\w*|run_[cm]lm|trainer/\w+_config|trl/scripts/utils|lora/config|arguments|"
                       r"training/config/\w+|transformer_config|deepspeed/__init__)\.py$")
VERDICTS = {"accepted": "accepted", "incomplete": "no model/data", "not built": "not built", "private": "private",
            "unread": "not readable", "other": "other program", "originals": "originals", "refused": "refused"}

Found = collections.namedtuple("Found", "kind name path program words processes", defaults=(None, None, None))
Item = collections.namedtuple("Item", "words show processes folder expected", defaults=(None, {}))
Judged = collections.namedtuple("Judged", "project found verdict complaints item")


class Stand:
    """A folder with models, a text, tokens and images, in place of the authors' files."""

    def __init__(self, folder):
        self.folder, self.count, self.models = folder, 0, {}
        self.data, self.tokens = os.path.join(folder, "data.jsonl"), os.path.join(folder, "tokens")
        for name in ("data.jsonl", "tokens.bin", "tokens.idx", "mm_projector.bin"):
            open(os.path.join(folder, name), "w").close()
        self.projector = os.path.join(folder, "mm_projector.bin")
        self.tower = self.made("clip", {"config.json": {
            "model_type": "clip_vision_model", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 64, "image_size": 32, "patch_size": 16}})

    def made(self, name, contents):
        folder = os.path.join(self.folder, name)
        os.mkdir(folder)
        for file, value in contents.items():
            with open(os.path.join(folder, file), "w") as out:
                json.dump(value, out)
        return folder

    def model(self, eos_token="</s>"):
        """A model whose tokenizer ends texts with the token that a recipe requires."""
        if eos_token not in self.models:
            self.models[eos_token] = self.made(f"model-{len(self.models)}", {
                "config.json": {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
                                "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 257,
                                "max_position_embeddings": 4096},
                "tokenizer.json": {}, "tokenizer_config.json": {"eos_token": eos_token}})
        return self.models[eos_token]

    def new(self):
        self.count += 1
        return os.path.join(self.folder, f"new-{self.count}")


def run(program, words, folder, processes=None):
    environment = {name: value for name, value in os.environ.items() if not re.match("ACCELERATE|FSDP|WORLD", name)}
    if processes:
        environment["WORLD_SIZE"] = str(processes)
    try:
        done = subprocess.run([program, "config"] + words, cwd=folder, env=environment, capture_output=True, text=True,
                              errors="replace", timeout=60)
    except subprocess.TimeoutExpired:
        return 124, ["no answer within 60 seconds"]
    return done.returncode, [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]


# ---- finding configurations ----

def kind_of_json(path):
    try:
        value = json.loads(read(path))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    if len(ARGUMENTS & set(value)) > 2:
        return "arguments"
    keys = DEEPSPEED_KEYS & set(value)
    switches = [name for name in ("fp16", "bf16", "optimizer", "scheduler") if isinstance(value.get(name), bool)]
    if len(switches) > 1:  # a program's own arguments
        return None
    return "DeepSpeed" if len(keys) > 1 or "zero_optimization" in keys else None


def kind_of(path):
    if path.endswith(".json") and os.path.getsize(path) < 1 << 20:
        return kind_of_json(path)
    if path.endswith((".sh", ".md")):
        return "command line"
    if not path.endswith((".yaml", ".yml")):
        return None
    text = read(path)
    if re.search(r"^distributed_type:", text, re.M):
        return "accelerate"
    if re.search(r"^MODEL_ARGS:", text, re.M):
        return "Megatron" if re.search(r"^ +--num-layers", text, re.M) else None
    words = ARGUMENTS & set(re.findall(r"^(\w+): *\S", text, re.M))
    foreign = FOREIGN.search(text) and re.search(r"learning_rate|lr:|micro_batch", text)
    return "recipe" if len(words) > 1 or foreign else None


def everything(folder, kinds):
    """The project's items by kind, in a random order that is the same each time."""
    found = collections.defaultdict(list)
    for path in files(folder):
        kind, name = kind_of(path), os.path.relpath(path, folder)
        if kind not in kinds:
            continue
        if kind != "command line":
            found[kind].append(Found(kind, name, path))
            continue
        training = re.compile("pretrain_gpt\\.py$") if short(folder) == "Megatron-LM" else TRAINING
        for i, (program, words, count) in enumerate(command_lines(path, read(path), training)):
            found[kind].append(Found(kind, f"{name} #{i + 1}", path, program, words, count))
    for kind in found:
        random.Random(kind).shuffle(found[kind])
    return found


def short(folder):
    """OWNER+PROJECT is PROJECT."""
    return os.path.basename(folder).rpartition("+")[2]


def has_known_parser(folder):
    owner, _, project = os.path.basename(folder).rpartition("+")
    return project in PARSERS and owner in ("", PARSERS[project])


def is_other_program(found, recipes):
    if found.kind == "Megatron":
        return recipes.other_program(found.path)
    names = (os.path.basename(found.program or ""), os.path.basename(found.path) if found.program else "")
    return bool(OTHER_PROGRAM.search(names[0]) or names[1].startswith("prepare"))


# ---- replacing models, data and folders by existing ones ----

def beside(name, folder, root):
    """The file of this name in the folder or one above it; else the name itself."""
    while not os.path.exists(os.path.join(folder, name)) and folder != root:
        folder = os.path.dirname(folder)
    path = os.path.join(folder, name)
    return path if os.path.exists(path) else name


def flags(words):
    """(flag, values) of each flag; a word that belongs to no flag has no values."""
    i = 0
    while i < len(words):
        word, equals, value = words[i].partition("=") if words[i].startswith("--") else (words[i], "", "")
        values = [value] if equals else []
        i += 1
        while word.startswith("--") and not equals and i < len(words) and not words[i].startswith("--"):
            values.append(words[i])
            i += 1
        yield word, values


def eos_of(text):
    """The token with which a recipe ends its texts, or Llama's."""
    found = re.search(r"^ *\"?eos_token\"?: *[\"']?([^\s\"',]+)", text, re.M)
    return found[1] if found else "</s>"


def stand_in(words, stand, script_folder, root):
    out, new, eos = [], stand.new(), "</s>"
    for name, values in flags(words):
        recipe = beside(values[0], script_folder, root) if name == "--config" and values else ""
        eos = values[0] if name == "--eos_token" and values else eos_of(read(recipe)) if os.path.isfile(recipe) else eos
    model = stand.model(eos)
    for name, values in flags(words):
        bare = name[2:].replace("-", "_") if name.startswith("--") else ""
        if bare == "dataset_name":
            name, values = "--train_file", [stand.data]
        elif bare == "dataset_config_name" or bare == "resume_from_checkpoint" and values:
            continue
        elif bare in FILE_FLAGS and values:
            values = [beside(values[0], script_folder, root)]
        elif values:
            instead = (model if bare in MODEL_FLAGS else stand.data if bare in DATA_FLAGS else
                       {"image_folder": stand.folder, "vision_tower": stand.tower, "output_dir": new, "save": new,
                        "load": new, "tensorboard_dir": new, "pretrain_mm_mlp_adapter": stand.projector}.get(bare))
            values = [instead] if instead else values
        out += [name] + values
    return out


def megatron_copy(path, stand):
    """The same file with existing data, tokenizers and folders."""
    text = read(path)
    new = stand.new()
    text = re.sub(r"^( *--(?:train-|valid-)?data-path:) +[^\s\d][^\s]*$", rf"\1 {stand.tokens}", text, flags=re.M)
    text = re.sub(r"^( *--tokenizer-model:).*$", rf"\1 {stand.model()}", text, flags=re.M)
    text = re.sub(r"^( *--(?:save|load):) .*$", rf"\1 {new}", text, flags=re.M)
    text = re.sub(r"^( *--seed:) .*\$.*$", r"\1 1234", text, flags=re.M)
    text = re.sub(r"\$\{\w+\}", stand.folder, text)
    copy = stand.new() + ".yaml"
    with open(copy, "w") as file:
        file.write(text)
    return copy


def home(path, root):
    """The folder from which a file's relative paths are meant to be resolved."""
    folder = os.path.dirname(path)
    text = read(path) if path.endswith((".yaml", ".yml")) else ""
    other = re.search(r"deepspeed_config_file: *([^/\s][^\s]*)", text)
    while other and folder != root and not os.path.exists(os.path.join(folder, other.group(1))):
        folder = os.path.dirname(folder)
    return folder


def item_of(found, root, stand, recipes):
    """How to pass a configuration to the program, and its expected meaning."""
    path, folder = found.path, home(found.path, root)
    if found.kind == "command line":
        words, processes = stand_in(found.words, stand, folder, root), found.processes
        if short(root) == "Megatron-LM":  # the number of hosts is up to the caller
            needed = processes_of_mesh({word[2:]: value for word, value in zip(words, words[1:])})
            processes = needed * -(-(processes or 1) // needed)
        return Item(["show", "--all", "--format", "json"] + words, words, processes, root)
    if found.kind in ("recipe", "arguments"):
        words = ["--config" if found.kind == "recipe" else "--args_file", path, "--train_file", stand.data,
                 "--model_name_or_path", stand.model(eos_of(read(path))), "--output_dir", stand.new()]
        return Item(["show"] + words, words, None, folder)
    if found.kind == "accelerate":
        return Item(["check", path], ["--config_file", path], None, folder, accelerate_meaning(path))
    if found.kind == "DeepSpeed":
        processes, words, show = processes_of(path), ["check", path, "--kind", "deepspeed"], ["--deepspeed", path]
        expected = deepspeed_meaning(path)
    else:
        processes, expected = recipes.processes(path), megatron_meaning(path, recipes.processes(path))
        copy = megatron_copy(path, stand)
        words, show = ["check", copy], ["--args_file", copy]
    count = ["--num_processes", str(processes)] if processes else []
    return Item(words + count, show + count, None, folder, expected)


# ---- the verdict ----

def words_of_originals(folder):
    """Flags and dataclass fields in the sources of the projects whose keys we accept, as users spell them. Names
    of a single word (lr, mode) are too ambiguous and excluded."""
    names = set()
    for path in files(folder):
        if ORIGINALS.search(path):
            fields, options = re.findall(r"^    (\w+): ", read(path), re.M), re.findall(r"[\"']--([\w-]+)", read(path))
            names |= {field.replace("_", "-") if "/megatron/" in path else field for field in fields} | set(options)
    return {name for name in names if re.search("[_-]", name)}


def complaints_of(lines):
    """Removes headings, warnings, complaints about missing files, and positions in files."""
    lines = [line for line in lines if not re.search(r"problems in the configuration:$|warning: |^ *note: ", line)]
    lines = [re.sub(r"^(tessera: )?(\S+\.(json|ya?ml)(:\d+)*: )?", "", line.strip())
             for line in lines if not NOT_HERE.search(line)]
    return [re.sub(r"(?<![\w.])/\S*/", "", line) for line in lines]


def is_private(found, root, complaints, originals):
    if found.kind not in ("command line", "recipe", "arguments") or has_known_parser(root):
        return False
    unknown = [UNKNOWN.match(line) for line in complaints]
    return all(unknown) and not any(match[1] in originals for match in unknown)


def refusal(found, root, complaints, originals):
    if f"{short(root)}/{found.name}" in REFUSED_THERE or any(REFUSED_BY_DEEPSPEED.search(line) for line in complaints):
        return "originals"
    if any(NOT_BUILT.search(line) and UNREAD not in line for line in complaints):
        return "not built"
    if is_private(found, root, complaints, originals):
        return "private"
    return "unread" if any(UNREAD in line for line in complaints) else "refused"


def values_of(lines):
    sections = json.JSONDecoder().raw_decode("\n".join(lines))[0].values()
    return {name: leaf["value"] for section in sections for name, leaf in section.items()}


def differences(program, item):
    """Differences between the program's reading of a file and this script's."""
    code, lines = run(program, ["show", "--all", "--format", "json"] + item.show, item.folder)
    if code != 0:
        return [f"config show refuses what config check accepts: {lines[:2]}"]
    values, out = values_of(lines), []
    # offloading and replica groups have their own strategy names
    stages = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "full_shard": 3, "hybrid_shard": 3}
    values["zero_stage"] = stages.get(values["strategy"], 9)
    if "warmup_num_steps" in item.expected:
        words = values["lr_scheduler_kwargs"]
        values["warmup_num_steps"] = json.loads(words).get("warmup_num_steps") if words.startswith("{") else None
    for name, value in item.expected.items():
        ours = values[name]
        near = isinstance(value, float) and isinstance(ours, (int, float)) and math.isclose(ours, value, rel_tol=1e-9)
        if ours != value and not near:
            out.append(f"{name} is {ours}, in the file {value}")
    return out


def has_model_and_data(values):
    model = values["model_name_or_path"] or values["config_name"]
    return bool(model and (values["train_file"] or values["mock_data"]))


def judge(found, root, program, stand, recipes, originals):
    """(verdict, complaints, item); prints the differences of an accepted one."""
    if is_other_program(found, recipes):
        return "other", [], None
    item = item_of(found, root, stand, recipes)
    code, lines = run(program, item.words, item.folder, item.processes)
    complaints = complaints_of(lines) if code else []
    if code not in (0, 2):
        complaints.append(f"exit code {code}")
    if complaints:
        return refusal(found, root, complaints, originals), complaints, item
    if found.kind == "command line" and code == 0 and not has_model_and_data(values_of(lines)):
        return "incomplete", [], item
    for line in differences(program, item) if code == 0 and item.expected else []:
        print(f"MEANS SOMETHING ELSE: {os.path.basename(root)}/{found.name}: {line}")
    return "accepted", [], item


def judged(root, options, stand, originals):
    """Yields each item of the project that counts."""
    recipes = Recipes(root)
    for kind, items in sorted(everything(root, options.only).items()):
        seen = set()
        for found in items:
            if len(seen) == options.most:
                break
            verdict, complaints, item = judge(found, root, options.program, stand, recipes, originals)
            text = (found.program, *found.words) if found.words else read(found.path)
            before = len(seen)
            seen.add(tuple(complaints) or text)
            if len(seen) > before:
                yield Judged(os.path.basename(root), found, verdict, complaints, item)


# ---- the table ----

def row(name, items):
    count = collections.Counter(item.verdict for item in items)
    asked = count["accepted"] + count["refused"]
    share = f"{count['accepted'] / asked:.1%}" if asked else "-"
    size = f"{len(items)}/{len({item.project for item in items})}"
    return f"{name:14}" + "".join(f"{value:>14}" for value in (size, *(count[key] for key in VERDICTS), share))


def print_table(items):
    print(f"{'kind':14}" + "".join(f"{head:>14}" for head in ("items/projects", *VERDICTS.values(), "share")))
    for kind in sorted({item.found.kind for item in items}):
        print(row(kind, [item for item in items if item.found.kind == kind]))
    print(row("all", items))


def print_messages(items, most):
    """The most frequent complaints of refusals, each with an example."""
    those = collections.defaultdict(list)
    for item in items:
        for line in set(item.complaints) if item.verdict == "refused" else ():
            those[re.sub(r'"[^"]+"|\(first at [^)]*\)', "...", line)].append(f"{item.project}/{item.found.name}")
    for line, names in sorted(those.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:most]:
        print(f"{len(names):4} {line[:200]}\n       {names[0]}")


def print_sample(items, count, seed, program):
    """Prints items for a person to judge: the file's content and the program's reading."""
    accepted = [item for item in items if item.verdict == "accepted"]
    for item in random.Random(seed).sample(accepted, min(count, len(accepted))):
        asked = item.item
        code, lines = run(program, ["show"] + asked.show, asked.folder, asked.processes)
        given = " ".join((item.found.program, *item.found.words)) if item.found.words else read(item.found.path).strip()
        print(f"==== {item.project}/{item.found.name}\n{given}\n---- means")
        print("\n".join(lines) if code == 0 else "    what it names is not here: " + " ".join(lines))


def options_of(words):
    kinds = ["DeepSpeed", "accelerate", "recipe", "arguments", "Megatron", "command line"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=os.path.abspath)
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("--only", choices=kinds, nargs="+", default=kinds)
    parser.add_argument("--most", type=int, default=15, help="items of a project and kind (15)")
    parser.add_argument("--originals", type=os.path.abspath, help="the originals' sources (FOLDER)")
    parser.add_argument("--refused", action="store_true", help="print every refusal in full")
    parser.add_argument("--messages", type=int, default=0, metavar="N", help="print the N most frequent complaints")
    parser.add_argument("--sample", type=int, nargs=2, metavar=("N", "SEED"), help="print N accepted ones to be judged")
    return parser.parse_args(words)


def main(words):
    options, items = options_of(words), []
    originals = words_of_originals(options.originals or options.folder)
    with tempfile.TemporaryDirectory() as folder:
        stand = Stand(folder)
        for project in sorted(os.listdir(options.folder)):
            for item in judged(os.path.join(options.folder, project), options, stand, originals):
                items.append(item)
                crashed = any(line.startswith("exit code") for line in item.complaints)
                if item.complaints and (options.refused or crashed):
                    print(f"{VERDICTS[item.verdict]}: {project}/{item.found.name}")
                    print("    " + "\n    ".join(item.complaints))
        if options.sample:
            print_sample(items, *options.sample, options.program)
    print_messages(items, options.messages)
    print_table(items)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
