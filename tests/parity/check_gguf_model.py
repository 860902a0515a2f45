"""Compares a model that `tessera checkpoint convert` made from a GGUF file with transformers' own import of that file:
the logits of five prompts (largest difference relative to the largest logit) and forty greedy tokens for each.

  python3 tests/parity/check_gguf_model.py FILE.gguf FOLDER [BUILD_FOLDER]      needs torch, transformers, gguf,
  safetensors
"""
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

PROMPTS = [
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time, in a small village by the sea,",
    "To bake bread you need flour,",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
]


def main(gguf, folder, build="build"):
    model = AutoModelForCausalLM.from_pretrained(os.path.dirname(gguf) or ".", gguf_file=os.path.basename(gguf),
                                                 dtype=torch.float32).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"))
    worst, different = 0.0, 0
    for prompt in PROMPTS:
        with tempfile.TemporaryDirectory() as scratch:
            file = os.path.join(scratch, "logits.safetensors")
            subprocess.run([f"{build}/examples/next_token", folder, prompt, "--logits", file], check=True,
                           stdout=subprocess.DEVNULL)
            ours = load_file(file)
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        assert torch.equal(ids, ours["ids"]), (prompt, ids, ours["ids"])
        with torch.no_grad():
            theirs = model(ids).logits
            greedy = model.generate(ids, max_new_tokens=40, do_sample=False, pad_token_id=0)[0, ids.shape[1]:]
        difference = ((ours["logits"] - theirs).abs().max() / theirs.abs().max()).item()
        worst = max(worst, difference)
        text = tokenizer.decode(greedy, skip_special_tokens=True)
        command = [f"{build}/tessera", "generate", "--model_name_or_path", folder, "--prompt", prompt,
                   "--max_new_tokens", "40", "--greedy"]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
        same = output.rstrip("\n") == (prompt + text).rstrip("\n")
        different += not same
        print(f"{difference:.2e}  greedy {'same' if same else 'DIFFERENT'}  {prompt!r} -> {text!r}")
        if not same:
            print(f"    tessera: {output!r}")
    print(f"logits: {worst:.2e} of the largest (bound 1e-4); greedy texts that differ: {different} of {len(PROMPTS)}")
    return 0 if worst <= 1e-4 and different == 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
