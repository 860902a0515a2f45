"""Makes tests/fixtures/lora/{gpt2,llama,whole}/: adapter folders as peft saves them for the tiny model fixtures, and
peft's results.

    python lora_fixture.py            (torch 2.11, transformers, peft 0.21.2; not needed by `make test`)

expected.json: logits of tokens(99) with random adapters, PEFT's line about trainable parameters, mean losses and
gradient norms (before clipping) of 20 AdamW steps of the adapters, each on the ids of tokens(step). One thread, fp32.
"""
import json, os, shutil
import torch
from transformers import AutoModelForCausalLM
from peft import LoraConfig, get_peft_model

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "fixtures")
B, T, V, STEPS = 2, 12, 97, 20
CASES = {
    "gpt2": ("gpt2_tiny", dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj", "mlp.c_fc"])),
    "llama": ("llama/llama", dict(r=3, lora_alpha=6, target_modules="all-linear", use_rslora=True)),
    "whole": ("llama/llama", dict(r=2, lora_alpha=8, target_modules=["q_proj", "up_proj"],
                                  modules_to_save=["lm_head", "embed_tokens"])),
}


def tokens(step):
    """31-bit linear congruential generator, restarted per step: x0 = step + 1; token = (x >> 8) mod V, row by row."""
    x, rows = step + 1, []
    for _ in range(B):
        row = []
        for _ in range(T):
            x = (1103515245 * x + 12345) & 0x7FFFFFFF
            row.append((x >> 8) % V)
        rows.append(row)
    return rows


def make(name, base, options):
    out = os.path.join(FIXTURES, "lora", name)
    shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_pretrained(os.path.join(FIXTURES, base), attn_implementation="eager",
                                                 dtype=torch.float32)
    assert model.config.vocab_size >= V
    peft = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **options)).train()
    with torch.no_grad():
        for parameter_name, p in peft.named_parameters():
            if p.requires_grad:
                p.copy_(0.1 * torch.randn_like(p))
    peft.save_pretrained(out)
    os.remove(os.path.join(out, "README.md"))
    path = os.path.join(out, "adapter_config.json")
    config = json.load(open(path))
    config["base_model_name_or_path"] = "../../" + base
    config["target_modules"] = sorted(config["target_modules"])
    json.dump(config, open(path, "w"), indent=2, sort_keys=True)

    with torch.no_grad():
        logits = peft(input_ids=torch.tensor(tokens(99))).logits
    trained = [p for p in peft.parameters() if p.requires_grad]
    counts = list(peft.get_nb_trainable_parameters())
    # PEFT trains copies of the modules to be saved, and also counts the originals.
    counts[1] -= sum(p.numel() for n, p in peft.named_parameters() if ".modules_to_save." in n)
    share = 100 * counts[0] / counts[1]
    line = f"trainable params: {counts[0]:,d} || all params: {counts[1]:,d} || trainable%: {share:.4f}"
    optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    losses, norms = [], []
    for step in range(STEPS):
        batch = torch.tensor(tokens(step))
        labels = batch.clone()
        labels[0, 5] = -100  # one position that is not scored
        loss = peft(input_ids=batch, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
        losses.append(float(loss.detach()))
        optimizer.step()
    expected = {"trainable": line, "losses": losses, "grad_norms": norms,
                "logits": [[[float(f"{x:.8g}") for x in t] for t in r] for r in logits.tolist()]}
    json.dump(expected, open(os.path.join(out, "expected.json"), "w"))


torch.set_num_threads(1)
for name, (base, options) in CASES.items():
    make(name, base, options)
