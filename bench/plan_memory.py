"""Memory as predicted by `tessera plan check` and as measured by `tessera train`: families x strategies x axes.

    bench/plan_memory.py build [--only WORD] [--part I/N] [--json FILE] [--measured FILE] [--plan PROGRAM] [--fits]

Measured is the peak of the memory requested by tensors (`peak_allocated_bytes` in metrics), by kind from the report of
two steps, on the rank that needs most; predicted is the same. The table's last lines are mean and worst error, in total
and by kind (kinds of at least 5 % of a configuration).

--fits: each configuration is run twice in a memory cgroup (version 1, root), with a limit 10 % above the predicted
resident memory, and 10 % below: the prediction is right if the first run finishes and the second is killed. All
processes of a job are in one group, whose pages count once however many of them map them (`host_bytes`). The needs of
the program's processes themselves (their files' pages do not count in the group) are measured first: the smallest limit
with which a tiny model is trained.
--json writes both sides; --measured takes the measured side from such a file instead of training again; --part
2/8 takes the second eighth of the configurations."""
import argparse, json, os, random, re, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

LLAMA = {"model_type": "llama", "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6,
         "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 4096, "max_position_embeddings": 2048}
GPT2 = {"model_type": "gpt2", "n_layer": 6, "n_embd": 384, "n_head": 6, "n_positions": 1024, "vocab_size": 4096,
        "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}
QWEN = dict(LLAMA, model_type="qwen3", head_dim=64)
MIXTRAL = dict(LLAMA, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2, intermediate_size=512)
GEMMA2 = dict(LLAMA, model_type="gemma2", head_dim=64, sliding_window=128)
CLIP = {"model_type": "clip_vision_model", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 6,
        "num_attention_heads": 4, "image_size": 224, "patch_size": 14}
LLAVA = {"model_type": "llava", "text_config": LLAMA, "vision_config": CLIP, "image_token_index": 4096}
FAMILIES = {
    "llama": LLAMA, "gpt2": GPT2, "qwen3": QWEN, "mixtral": MIXTRAL, "gemma2": GEMMA2,
    "llama-tied": dict(LLAMA, vocab_size=16000, tie_word_embeddings=True),
    "llama-words": dict(LLAMA, vocab_size=16000),
    "llama-deep": dict(LLAMA, hidden_size=256, intermediate_size=688, num_hidden_layers=12, num_attention_heads=4),
    "phi3": dict(LLAMA, model_type="phi3", num_key_value_heads=6),
    "gpt_neox": dict(LLAMA, model_type="gpt_neox", num_key_value_heads=6),
    "qwen3_moe": dict(QWEN, model_type="qwen3_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=512),
    "deepseek_v3": dict(LLAMA, model_type="deepseek_v3", num_key_value_heads=6, n_routed_experts=8, n_shared_experts=1,
                        num_experts_per_tok=2, moe_intermediate_size=384, first_k_dense_replace=1, n_group=1,
                        topk_group=1, q_lora_rank=192, kv_lora_rank=128, qk_nope_head_dim=48, qk_rope_head_dim=16,
                        v_head_dim=64),
    "bert": {"model_type": "bert", "hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6,
             "num_attention_heads": 6, "vocab_size": 4096, "max_position_embeddings": 512, "type_vocab_size": 2,
             "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "llava": LLAVA,
    "llava-tower": dict(LLAVA, text_config=dict(LLAMA, num_hidden_layers=2, vocab_size=512), image_token_index=512,
                        vision_config=dict(CLIP, hidden_size=512, intermediate_size=2048, num_hidden_layers=10,
                                           num_attention_heads=8)),
}
BASE = "--block_size 256 --per_device_train_batch_size 4"
# Adapters are added to a base model, which is trained for a step first.
LORA = BASE + " --lora_r 16"
IMAGES = "--block_size 512 --per_device_train_batch_size 4"
# family: settings in addition to BASE (IMAGES, LORA), or instead of it if they start with "=". "FAMILY lora" uses that
# family's base.
CONFIGURATIONS = {
    "llama": """

        --bf16
        --gradient_checkpointing
        --gradient_accumulation_steps 2
        --optim sgd
        --optim lion
        =--block_size 256 --per_device_train_batch_size 8
        =--block_size 512 --per_device_train_batch_size 2
        =--block_size 1024 --per_device_train_batch_size 1
        =--block_size 64 --per_device_train_batch_size 16 --bf16
        --num_processes 2 --strategy ddp
        --num_processes 2 --strategy zero1
        --num_processes 2 --strategy zero2
        --num_processes 2 --strategy full_shard
        --num_processes 2 --strategy shard_grad_op
        --num_processes 2 --strategy full_shard --gradient_checkpointing
        --num_processes 2 --strategy full_shard --gradient_accumulation_steps 2
        --num_processes 2 --strategy full_shard --bf16
        --num_processes 2 --strategy zero1 --bf16
        --num_processes 2 --strategy zero1 --gradient_accumulation_steps 2
        --num_processes 4 --strategy full_shard
        --num_processes 2 --tp_size 2
        --num_processes 2 --tp_size 2 --sequence_parallel
        --num_processes 2 --tp_size 2 --bf16
        --num_processes 2 --cp_size 2
        --num_processes 2 --pp_size 2 --gradient_accumulation_steps 4
        --num_processes 2 --pp_size 2 --gradient_accumulation_steps 4 --pipeline_schedule gpipe
        --num_processes 2 --pp_size 2 --gradient_accumulation_steps 4 --pipeline_schedule zbv
        --num_processes 4 --tp_size 2 --strategy zero1
        --num_processes 2 --strategy zero2 --cpu_offload optimizer""",
    "llama-tied": """

        --num_processes 2 --strategy zero1""",
    "llama-words": """

        --bf16""",
    "llama-deep": """
        --gradient_checkpointing
        --num_processes 4 --pp_size 4 --gradient_accumulation_steps 8""",
    "gpt2": """

        --bf16
        --gradient_checkpointing
        --num_processes 2 --strategy ddp
        --num_processes 2 --strategy full_shard
        --num_processes 2 --tp_size 2
        --num_processes 2 --cp_size 2
        --num_processes 2 --pp_size 2 --gradient_accumulation_steps 4""",
    "mixtral": """

        --bf16
        --gradient_checkpointing
        --num_processes 2 --strategy zero1
        --num_processes 2 --strategy full_shard
        --num_processes 2 --ep_size 2""",
    "qwen3": """

        --num_processes 2 --strategy ddp --gradient_accumulation_steps 2""",
    "qwen3_moe": """
        --gradient_accumulation_steps 2""",
    "deepseek_v3": """

        --num_processes 2 --ep_size 2""",
    "gemma2": """
""",
    "phi3": """
""",
    "gpt_neox": """
""",
    "bert": """

        --num_processes 2 --strategy zero2""",
    "llama lora": """

        --lora_target_modules all-linear
        --lora_target_modules all-linear --lora_dropout 0.1
        --lora_target_modules all-linear --bf16
        --lora_target_modules all-linear --gradient_checkpointing
        --lora_target_modules all-linear --gradient_accumulation_steps 2
        --lora_target_modules all-linear --load_in_4bit
        --lora_target_modules all-linear --load_in_4bit --bnb_4bit_use_double_quant --bf16 --gradient_checkpointing
        --lora_target_modules all-linear --load_in_8bit
        --lora_modules_to_save lm_head
        --num_processes 2 --strategy ddp --lora_target_modules all-linear
        --num_processes 2 --strategy zero1 --lora_target_modules all-linear
        --num_processes 2 --strategy full_shard --lora_target_modules all-linear
        --num_processes 2 --strategy full_shard --lora_target_modules all-linear --load_in_4bit --bf16""",
    "gpt2 lora": """

        --lora_target_modules all-linear
        --lora_target_modules all-linear --load_in_8bit --gradient_checkpointing
        --num_processes 2 --strategy full_shard""",
    "llava": """

        --tune_mm_mlp_adapter
        --freeze_mm_mlp_adapter
        --bf16
        --bf16 --tune_mm_mlp_adapter
        --gradient_checkpointing
        --gradient_checkpointing --tune_mm_mlp_adapter
        --gradient_accumulation_steps 2
        =--block_size 1024 --per_device_train_batch_size 1
        --num_processes 2 --strategy ddp
        --num_processes 2 --strategy zero1
        --num_processes 2 --strategy zero2
        --num_processes 2 --strategy full_shard
        --num_processes 2 --strategy full_shard --gradient_checkpointing
        --num_processes 2 --strategy shard_grad_op
        --num_processes 2 --strategy full_shard --tune_mm_mlp_adapter
        --num_processes 2 --strategy zero1 --tune_mm_mlp_adapter""",
    "llava-tower": """
        =--block_size 300 --per_device_train_batch_size 4
        =--block_size 300 --per_device_train_batch_size 4 --gradient_checkpointing --tune_mm_mlp_adapter
        =--block_size 300 --per_device_train_batch_size 4 --num_processes 2 --strategy full_shard""",
}
STATES = ("parameters", "gradients", "optimizer", "buffers")
KINDS = (*STATES, "activations")


def configurations():
    for family, lines in CONFIGURATIONS.items():
        for line in lines.split("\n")[1:]:
            line = line.strip()
            base = IMAGES if family == "llava" else LORA if family.endswith(" lora") else BASE
            yield family, line[1:] if line.startswith("=") else f"{base} {line}".strip()


def by_kind(memory):
    """The memory requested by tensors: a plan's kinds as a run reports them."""
    kinds = {k: memory[k] for k in STATES}
    kinds["activations"] = sum(memory.get(k, 0) for k in ("activations", "head", "communication"))
    return kinds


def model_of(config, settings):
    """The setting that selects the model: a config.json, or the adapters' base model next to it."""
    return ["--model_name_or_path", config[:-len(".json")]] if "--lora_r" in settings else ["--config_name", config]


def training(build, folder, config, settings):
    kind = open(config).read()
    bert, sees = '"bert"' in kind, '"llava"' in kind
    pictures = ["--image_folder", f"{ROOT}/tests/fixtures/llava", "--version", "plain"]
    return [f"{build}/tessera", "train", *model_of(config, settings),
            "--train_file", f"{folder}/{'images.json' if sees else 'text.txt'}", *(pictures if sees else []),
            "--output_dir", f"{folder}/out", "--overwrite_output_dir", "--max_steps", "2", "--logging_steps", "1",
            "--save_strategy", "no", "--report_to", "none", "--disable_tqdm", "--memory_check", "off",
            "--threads_per_process", "1", *(["--tokenizer_name", f"{folder}/words"] if bert else []), *settings.split()]


ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="PASSIVE")


def measured(build, folder, config, settings):
    done = subprocess.run(training(build, folder, config, settings), capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        return None, done.stderr[-300:]
    report = open(f"{folder}/out/report.html").read()
    kinds = json.loads(re.search(r'"memory":(\[\{"process".*?\}\])', report).group(1))
    return max(kinds, key=lambda k: sum(by_kind(k).values())), ""


def predicted(program, config, settings):
    command = [program, "plan", "check", "--json", *model_of(config, settings), *settings.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        return None, done.stderr[-300:]
    return json.loads(done.stdout), ""


def make_base(build, folder, config):
    """Makes the folder of the adapters' base model, unless it exists."""
    base = config[:-len(".json")]
    if os.path.isdir(base):
        return
    command = training(build, folder, config, f"{BASE} --output_dir {base} --max_steps 1")
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        sys.exit(f"{config}: the base of adapters could not be trained: {done.stderr[-300:]}")


def ends_within(limit, build, folder, config, settings):
    """Whether the run succeeds when all its processes together may use `limit` bytes, and their peak."""
    group = f"/sys/fs/cgroup/memory/plan_memory_{os.getpid()}"
    os.mkdir(group)
    try:
        open(f"{group}/memory.limit_in_bytes", "w").write(str(int(limit)))
        enter = lambda: open(f"{group}/cgroup.procs", "w").write(str(os.getpid()))
        done = subprocess.run(training(build, folder, config, settings), capture_output=True, text=True,
                              env=ENVIRONMENT, preexec_fn=enter)
        return done.returncode == 0, int(open(f"{group}/memory.max_usage_in_bytes").read())
    finally:
        os.rmdir(group)


def least_limit(build, folder, config, settings):
    """The smallest limit in bytes with which the run succeeds, within two per cent."""
    low, high = 2e7, 4e9
    if not ends_within(high, build, folder, config, settings)[0]:
        sys.exit(f"{config} {settings}: does not end in {high / 1e6:.0f} MB; run it by hand to see why")
    while high / low > 1.02:
        middle = (low * high) ** 0.5
        ends = ends_within(middle, build, folder, config, settings)[0]
        low, high = (low, middle) if ends else (middle, high)
    return high


def check_fits(options, folder, chosen):
    program = options.plan or f"{options.build}/tessera"
    with open(f"{folder}/tiny.json", "w") as file:
        json.dump(dict(LLAMA, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                       vocab_size=272), file)
    tiny = "--block_size 64 --per_device_train_batch_size 1"
    processes = lambda settings: int(re.search(r"--num_processes (\d+)|$", settings).group(1) or 1)
    without = lambda plan, count: plan["host_bytes"] - count * plan["memory"]["process"]
    bases = {}
    right = count = 0
    for family, settings, config in chosen:
        number = processes(settings)
        if number not in bases:
            small = f"{tiny} --num_processes {number}"
            base = least_limit(options.build, folder, f"{folder}/tiny.json", small)
            bases[number] = base - without(predicted(program, f"{folder}/tiny.json", small)[0], number)
            print(f"the program, {number} x: {bases[number] / 1e6:.1f} MB")
        base = bases[number]
        plan, problem = predicted(program, config, settings)
        if plan is None:
            print(f"{family:11} {settings}: {problem}", file=sys.stderr)
            continue
        need = base + without(plan, number)
        above, most = ends_within(1.1 * need, options.build, folder, config, settings)
        below, _ = ends_within(0.9 * need, options.build, folder, config, settings)
        count += 1
        right += above and not below
        print(f"{family:11} {settings[:90]:90} {need / 1e6:7.1f} MB; + 10 % {'ends' if above else 'KILLED':6} "
              f"({most / 1e6:7.1f}), - 10 % {'ENDS' if below else 'killed'}", flush=True)
    print(f"fits / does not fit: right in {right} of {count}")


def error(a, b):
    return b / a - 1 if a else 0


def summary(rows):
    def line(name, errors):
        if errors:
            print(f"{name:12} {len(errors):3} configurations: mean {100 * sum(map(abs, errors)) / len(errors):5.1f} %, "
                  f"worst {100 * max(map(abs, errors)):5.1f} %")
    line("in all", [row["error"] for row in rows])
    for kind in KINDS:
        line(kind, [error(r["measured"][kind], r["predicted"][kind]) for r in rows
                    if r["measured"][kind] >= 0.05 * sum(r["measured"][k] for k in KINDS)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--json")
    parser.add_argument("--measured")
    parser.add_argument("--plan")
    parser.add_argument("--fits", action="store_true")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    rows, random_text, known = [], random.Random(1), {}
    if options.measured:
        known = {(r["family"], r["settings"]): r["measured"] for r in json.load(open(options.measured))}
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text.txt", "w") as text:
            text.write("".join(random_text.choice("abcdefgh ijklmnop\n") for _ in range(120000)))
        with open(f"{folder}/images.json", "w") as records:  # captions longer than any row
            json.dump([{"image": name, "conversations": [{"from": "human", "value": "<image>"},
                                                         {"from": "gpt", "value": "a square " * 300}]}
                       for name in ["red.png", "green.png", "blue.png", "white.png"] * 8], records)
        os.mkdir(f"{folder}/words")
        with open(f"{folder}/words/vocab.txt", "w") as words:
            words.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop",
                                   *(f"##{c}" for c in "abcdefghijklmnop")]) + "\n")
        chosen = [(f, s) for f, s in configurations() if options.only in f"{f} {s}"]
        chosen = chosen[(part - 1) * len(chosen) // parts:part * len(chosen) // parts]
        for i, (family, settings) in enumerate(chosen):
            config = f"{folder}/{family.replace(' ', '-')}.json"
            with open(config, "w") as file:
                json.dump(FAMILIES[family.removesuffix(" lora")], file)
            if family.endswith(" lora"):
                make_base(options.build, folder, config)
            chosen[i] = (family, settings, config)
        if options.fits:
            return check_fits(options, folder, chosen)
        for family, settings, config in chosen:
            real, problem = known.get((family, settings)), ""
            if real is None:
                if options.measured:
                    continue
                real, problem = measured(options.build, folder, config, settings)
            plan, other = predicted(options.plan or f"{options.build}/tessera", config, settings)
            if real is None or plan is None:
                print(f"{family:11} {settings}: {problem or other}", file=sys.stderr)
                continue
            a, b = by_kind(real), by_kind(plan["memory"])
            sum_a, sum_b = sum(a.values()), sum(b.values())
            rows.append({"family": family, "settings": settings, "measured": dict(a, reserve=real.get("reserve", 0),
                         process=real["process"]), "predicted": b, "error": error(sum_a, sum_b)})
            wrong = " ".join(f"{k[:3]} {a[k] / 1e6:.1f} {b[k] / 1e6:.1f}" for k in KINDS
                             if abs(a[k] - b[k]) > 0.005 * sum_a)
            shown = settings.replace(LORA, "").replace(BASE, "")[:70]
            print(f"{family:11} {shown:70} {sum_a / 1e6:7.1f} {sum_b / 1e6:7.1f} MB "
                  f"{100 * error(sum_a, sum_b):+6.1f} %  {wrong}", flush=True)
            if options.json:  # written after each run, because this program may be stopped
                with open(options.json, "w") as file:
                    json.dump(rows, file, indent=1)
    summary(rows)


main()
