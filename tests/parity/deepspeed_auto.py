"""Makes tests/fixtures/deepspeed/auto.json: the values that transformers' HfTrainerDeepSpeedConfig gives to "auto", and
the mismatches that it reports.

    python tests/parity/deepspeed_auto.py      (transformers 5, deepspeed 0.18; not needed by `make test`)

A case consists of the file, the run's settings (all that transformers compares), the number of processes, and the
model's config.json. Its result is the file as filled in by transformers, the mismatches, the error if the model has no
hidden size, and, if nothing differs, the batch sizes that deepspeed's own DeepSpeedConfig infers.
"""
import copy, json, os, types

from deepspeed.runtime.config import DeepSpeedConfig
from transformers import (DistilBertConfig, GPT2Config, LlamaConfig, LlavaConfig, ResNetConfig, T5Config,
                          TrainingArguments)
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "deepspeed", "auto.json")

BATCH = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
OPTIMIZER = {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}
DECAY = {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                             "warmup_num_steps": "auto", "total_num_steps": "auto"}}
ZERO3 = {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
         "stage3_param_persistence_threshold": "auto", "sub_group_size": 1e9,
         "stage3_gather_16bit_weights_on_model_save": True}
EVERYTHING = {**BATCH, "gradient_clipping": "auto", "optimizer": OPTIMIZER, "scheduler": DECAY,
              "zero_optimization": ZERO3, "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000,
                                                   "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
              "bf16": {"enabled": "auto"}, "steps_per_print": 2000, "wall_clock_breakdown": False}

RUN = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_grad_norm": 0.5, "learning_rate": 3e-4,
       "adam_beta1": 0.8, "adam_beta2": 0.99, "adam_epsilon": 1e-6, "weight_decay": 0.01, "warmup_steps": 10,
       "max_steps": 100, "fp16": False, "bf16": True}


def explicit(**changes):
    """The file equivalent to RUN, except for the changes (dotted keys)."""
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "train_batch_size": 16,
              "gradient_clipping": 0.5, "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.8, 0.99],
                                                                                  "eps": 1e-6, "weight_decay": 0.01}},
              "scheduler": {"type": "WarmupDecayLR",
                            "params": {"warmup_max_lr": 3e-4, "warmup_num_steps": 10, "total_num_steps": 100}},
              "fp16": {"enabled": False}, "bf16": {"enabled": True}}
    for path, value in changes.items():
        node = config
        *above, key = path.split("__")
        for name in above:
            node = node[name]
        node[key] = value
    return config


gpt2 = GPT2Config(n_embd=48, n_head=4)
CASES = [
    ("everything", EVERYTHING, {}, 2, gpt2),
    ("fp16", EVERYTHING, {"fp16": True, "bf16": False}, 1, gpt2),
    ("no warm-up", EVERYTHING, {"warmup_steps": 0}, 1, LlamaConfig(hidden_size=40, num_attention_heads=4)),
    ("0.9 h h is no whole number", {"zero_optimization": ZERO3}, {}, 1,
     LlamaConfig(hidden_size=38, num_attention_heads=1)),
    ("hidden_sizes", {"zero_optimization": ZERO3}, {}, 1, ResNetConfig(hidden_sizes=[8, 72, 16, 24])),
    ("text_config", {"zero_optimization": ZERO3}, {}, 1,
     LlavaConfig(text_config=LlamaConfig(hidden_size=56, num_attention_heads=4))),
    ("d_model", {"zero_optimization": ZERO3}, {}, 1, T5Config(d_model=88)),
    ("dim", {"zero_optimization": ZERO3}, {}, 1, DistilBertConfig(dim=96, n_heads=4)),
    ("stage 2 fills the bucket only", {"zero_optimization": {**ZERO3, "stage": 2}}, {}, 1, gpt2),
    ("explicit sizes stay", {"zero_optimization": {**ZERO3, "reduce_bucket_size": 1000000,
                                                   "stage3_param_persistence_threshold": 7}}, {}, 1, gpt2),
    ("no hidden size", {"zero_optimization": ZERO3}, {}, 1, None),
    ("no model needed", {"zero_optimization": {"stage": 2}}, {}, 1, None),
    ("absent sections are not added", {}, {}, 1, gpt2),
    ("the same said twice", explicit(), {}, 2, gpt2),
    ("everything differs", explicit(train_micro_batch_size_per_gpu=8, gradient_accumulation_steps=1,
                                    gradient_clipping=1.0, optimizer__params__lr=1e-4,
                                    optimizer__params__betas=[0.9, 0.999], optimizer__params__eps=1e-8,
                                    optimizer__params__weight_decay=0.1, scheduler__params__warmup_max_lr=1e-3,
                                    scheduler__params__warmup_num_steps=20, scheduler__params__total_num_steps=200,
                                    bf16__enabled=False), {}, 2, gpt2),
    ("only the product differs", explicit(train_micro_batch_size_per_gpu="auto", gradient_accumulation_steps="auto",
                                          train_batch_size=32), {}, 2, gpt2),
    ("fp16 on both sides", explicit(fp16__enabled=True, bf16__enabled=False), {"fp16": True, "bf16": False}, 2, gpt2),
]


def filled(config, run, world, model_config):
    ds = HfTrainerDeepSpeedConfig(copy.deepcopy(config))
    args = types.SimpleNamespace(**run, world_size=world, save_on_each_node=False, fp16_full_eval=False,
                                 bf16_full_eval=False, warmup_ratio=0)
    args.get_warmup_steps = types.MethodType(TrainingArguments.get_warmup_steps, args)
    ds.trainer_config_process(args)
    model = types.SimpleNamespace() if model_config is None else types.SimpleNamespace(config=model_config)
    complaint = None
    try:
        ds.trainer_config_finalize(args, model, run["max_steps"])
    except ValueError as error:
        if not ds.mismatches:
            complaint = str(error)
    return ds.config, ds.mismatches, complaint


cases = []
for name, config, changes, world, model_config in CASES:
    run = {**RUN, **changes}
    out, mismatches, complaint = filled(config, run, world, model_config)
    case = {"name": name, "config": config, "run": run, "world": world,
            "model": {"model_type": "none"} if model_config is None
            else json.loads(model_config.to_json_string(use_diff=False)),
            "filled": out, "mismatches": mismatches, "complaint": complaint}
    for key in list(case["model"]):  # only sizes matter
        if key not in ("hidden_size", "hidden_sizes", "text_config", "n_embd", "d_model", "dim", "model_type"):
            del case["model"][key]
    if "text_config" in case["model"]:
        case["model"]["text_config"] = {"hidden_size": model_config.text_config.hidden_size}
    # DeepSpeedConfig assumes one process if none is initialized
    if world == 1 and not mismatches and "train_batch_size" in out:
        ds = DeepSpeedConfig(copy.deepcopy({k: out[k] for k in ("train_batch_size", "train_micro_batch_size_per_gpu",
                                                                "gradient_accumulation_steps")}))
        case["triple"] = [ds.train_batch_size, ds.train_micro_batch_size_per_gpu, ds.gradient_accumulation_steps]
    cases.append(case)

with open(OUT, "w") as file:
    file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
print(len(cases), "cases,", os.path.getsize(OUT), "bytes")
