"""Checks the output of `tessera train --lora_r` with peft and transformers (not part of `make test`: needs both).

    python check_peft.py BUILD/tessera

For a small GPT-2 and a small Llama: tessera trains a base model, then adapters on it with --lora_merge. Then
- PeftModel.from_pretrained(base, OUT) must have the loss on the validation text that tessera reported after its last
  step,
- transformers' logits of OUT/merged must equal those of PEFT's unmerged model,
- tessera must read a folder that PEFT saves again: `generate --greedy` gives the same text as from OUT.
"""
import json, os, subprocess, sys, tempfile
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

T = 32
MODELS = {
    "gpt2": (["--config_name", "gpt2-tiny", "--config_overrides",
              "n_layer=2,n_embd=32,n_head=2,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256"], []),
    "llama": (["--config_name", "llama-tiny", "--config_overrides", "vocab_size=257,bos_token_id=256,eos_token_id=256"],
              ["--lora_target_modules", "all-linear"]),
}


def run(*arguments):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run([os.path.abspath(sys.argv[1]), *arguments], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check(name, work):
    shape, targets = MODELS[name]
    at = lambda *parts: os.path.join(work, name, *parts)
    os.makedirs(at())
    for file, first, count in (("train.txt", 0, 300), ("validation.txt", 300, 60)):
        with open(at(file), "w") as out:
            for i in range(first, first + count):
                out.write(f"the {i % 7} small stones of row {i % 11} form a mosaic.\n")
    common = ["--train_file", at("train.txt"), "--validation_file", at("validation.txt"), "--block_size", str(T),
              "--lr_scheduler_type", "constant", "--per_device_train_batch_size", "8", "--save_strategy", "no",
              "--tokenizer_name", "byte", "--seed", "3"]
    run("train", *shape, *common, "--learning_rate", "1e-2", "--max_steps", "40", "--output_dir", at("base"))
    run("train", "--model_name_or_path", at("base"), *common, "--learning_rate", "1e-2", "--max_steps", "20",
        "--eval_strategy", "steps", "--eval_steps", "20", "--lora_r", "4", "--lora_alpha", "32", *targets,
        "--lora_merge",
        "--output_dir", at("out"))
    lines = [json.loads(line) for line in open(at("out", "metrics.jsonl"))]
    reported = [line["eval_loss"] for line in lines if "eval_loss" in line][0]

    load = lambda folder: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    peft = PeftModel.from_pretrained(load(at("base")), at("out")).eval()
    tokens = list(open(at("validation.txt"), "rb").read())
    ids = torch.tensor(tokens[: len(tokens) // T * T]).view(-1, T)
    with torch.no_grad():
        theirs = peft(input_ids=ids, labels=ids)
        plain = load(at("base"))(input_ids=ids, labels=ids).loss.item()
        merged = load(at("out", "merged"))(input_ids=ids).logits
    loss_error = abs(theirs.loss.item() - reported) / reported
    logit_error = ((merged - theirs.logits).abs().max() / theirs.logits.abs().max()).item()
    print(f"{name}: loss of the base {plain:.6f}, with adapters {reported:.9g}; peft differs by {loss_error:.1e} "
          "relative; "
          f"merged logits by {logit_error:.1e}")
    assert loss_error < 1e-5 and logit_error < 1e-5 and reported < plain - 0.05

    peft.save_pretrained(at("again"))
    say = lambda folder: run("generate", "--model_name_or_path", folder, "--tokenizer_name", "byte",
                             "--prompt", "the 3 small", "--greedy", "--max_new_tokens", "20")
    assert say(at("again")) == say(at("out")), "saved by peft, read by tessera"


with tempfile.TemporaryDirectory() as work:
    for model in MODELS:
        check(model, work)
