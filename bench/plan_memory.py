"""Memory as `tessera plan check` predicts it beside what `tessera train` measures: families x strategies x axes.

    bench/plan_memory.py build [--only WORD] [--json FILE] [--measured FILE] [--plan PROGRAM]

--json writes both sides; --measured takes the measured side from such a file instead of training again.

Measured is the peak of resident memory of the rank that needs most, by kind, from metrics and report of two steps;
predicted the same without the process. The program's own reserve and small buffers are in `activations`, as in the
report. Every configuration runs alone; the table's last lines are mean and worst error."""
import argparse, json, os, random, re, subprocess, sys, tempfile

LLAMA = {"model_type": "llama", "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6,
         "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 4096, "max_position_embeddings": 2048}
GPT2 = {"model_type": "gpt2", "n_layer": 6, "n_embd": 384, "n_head": 6, "n_positions": 1024, "vocab_size": 4096,
        "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}
MOE = dict(LLAMA, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2, intermediate_size=512)
QWEN = dict(LLAMA, model_type="qwen3", head_dim=64)
GEMMA = dict(LLAMA, model_type="gemma", head_dim=64)
GEMMA2 = dict(GEMMA, model_type="gemma2", sliding_window=128)
PHI3 = dict(LLAMA, model_type="phi3", num_key_value_heads=6)
NEOX = dict(LLAMA, model_type="gpt_neox", num_key_value_heads=6)
QWEN_MOE = dict(LLAMA, model_type="qwen3_moe", head_dim=64, num_experts=8, num_experts_per_tok=2,
                moe_intermediate_size=512)
FAMILIES = {"llama": LLAMA, "gpt2": GPT2, "qwen3": QWEN, "mixtral": MOE, "gemma": GEMMA, "gemma2": GEMMA2, "phi3": PHI3,
            "gpt_neox": NEOX, "qwen3_moe": QWEN_MOE}


def configurations():
    base = "--block_size 256 --per_device_train_batch_size 4"
    for family in ("llama", "gpt2", "qwen3", "mixtral"):
        yield family, base
        yield family, base + " --bf16"
        yield family, base + " --gradient_checkpointing"
        yield family, base + " --gradient_accumulation_steps 2"
        yield family, "--block_size 256 --per_device_train_batch_size 8"
        yield family, "--block_size 512 --per_device_train_batch_size 2"
        for strategy in ("ddp", "zero1", "zero2", "full_shard", "shard_grad_op"):
            yield family, base + f" --num_processes 2 --strategy {strategy}"
        yield family, base + " --num_processes 2 --strategy full_shard --gradient_checkpointing"
        yield family, base + " --num_processes 2 --cp_size 2"
        yield family, base + " --num_processes 2 --pp_size 2 --gradient_accumulation_steps 4"
        if family != "mixtral":
            yield family, base + " --num_processes 2 --tp_size 2"
            yield family, base + " --num_processes 2 --tp_size 2 --sequence_parallel"
        else:
            yield family, base + " --num_processes 2 --ep_size 2"
    for family in ("gemma", "gemma2", "phi3", "gpt_neox", "qwen3_moe"):
        yield family, base
        yield family, base + " --bf16"
        yield family, base + " --num_processes 2 --strategy ddp"
        yield family, base + " --num_processes 2 --strategy full_shard"
    for family in ("llama", "gpt2"):
        yield family, base + " --num_processes 2 --pp_size 2 --gradient_accumulation_steps 4 --pipeline_schedule zbv"
        yield family, base + " --num_processes 2 --strategy full_shard --gradient_accumulation_steps 2"
        yield family, base + " --num_processes 2 --strategy full_shard --bf16"


def measured(build, folder, config, settings):
    out = os.path.join(folder, "out")
    command = [f"{build}/tessera", "train", "--config_name", config, "--train_file", f"{folder}/text.txt",
               "--output_dir", out, "--overwrite_output_dir", "--max_steps", "2", "--logging_steps", "1",
               "--save_strategy", "no", "--report_to", "none", "--disable_tqdm", *settings.split()]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_WAIT_POLICY="PASSIVE"))
    if done.returncode:
        return None, done.stderr[-300:]
    report = open(f"{out}/report.html").read()
    kinds = json.loads(re.search(r'"memory":(\[\{"process".*?\}\])', report).group(1))
    return max(kinds, key=lambda k: sum(k.values()) - k["process"]), ""


def predicted(program, config, settings):
    command = [program, "plan", "check", "--json", "--config_name", config, *settings.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        return None, done.stderr[-300:]
    return json.loads(done.stdout)["memory"], ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    parser.add_argument("--measured")
    parser.add_argument("--plan")
    options = parser.parse_args()
    rows, random_text, known = [], random.Random(1), {}
    if options.measured:
        known = {(r["family"], r["settings"]): r["measured"] for r in json.load(open(options.measured))}
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text.txt", "w") as text:
            text.write("".join(random_text.choice("abcdefgh ijklmnop\n") for _ in range(120000)))
        for family, settings in configurations():
            if options.only not in f"{family} {settings}":
                continue
            config = f"{folder}/{family}.json"
            with open(config, "w") as file:
                json.dump(FAMILIES[family], file)
            if options.measured and (family, settings) not in known:
                continue
            real, problem = known.get((family, settings)), ""
            if real is None:
                real, problem = measured(options.build, folder, config, settings)
            plan, other = predicted(options.plan or f"{options.build}/tessera", config, settings)
            if real is None or plan is None:
                print(f"{family:8} {settings}: {problem or other}", file=sys.stderr)
                continue
            states = ("parameters", "gradients", "optimizer", "buffers")
            a = sum(v for k, v in real.items() if k != "process")
            b = sum(v for k, v in plan.items() if k != "process")
            rest_a, rest_b = a - sum(real[k] for k in states), b - sum(plan[k] for k in states)
            state_a, state_b = sum(real[k] for k in states), sum(plan[k] for k in states)
            if options.json:  # a run may be stopped
                with open(options.json, "w") as file:
                    json.dump(rows, file, indent=1)
            rows.append({"family": family, "settings": settings, "measured": real, "predicted": plan,
                         "error": b / a - 1})
            print(f"{family:8} {settings[:78]:78} {a / 1e6:7.1f} {b / 1e6:7.1f} MB {100 * (b / a - 1):+6.1f} %  "
                  f"states {100 * (state_b / state_a - 1):+6.1f} %  rest {rest_a / 1e6:6.1f} {rest_b / 1e6:6.1f} "
                  f"{100 * (rest_b / rest_a - 1):+6.1f} %", flush=True)
    errors = [abs(row["error"]) for row in rows]
    if errors:
        print(f"{len(errors)} configurations: mean {100 * sum(errors) / len(errors):.1f} %, "
              f"worst {100 * max(errors):.1f} %")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


main()
