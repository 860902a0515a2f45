"""Checks that Python's transformers reads a folder that Tessera wrote and generates the same greedy text.

    python tests/parity/check_folder.py build/tessera out/train "And it came to pass"      (needs torch and
    transformers)
"""
import subprocess, sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

program, folder, prompt = sys.argv[1:4]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder).eval()
with torch.no_grad():
    ids = model.generate(**tokenizer(prompt, return_tensors="pt"), max_new_tokens=24, do_sample=False)
theirs = tokenizer.decode(ids[0])
ours = subprocess.run([program, "generate", "--model_name_or_path", folder, "--prompt", prompt,
                       "--max_new_tokens", "24", "--greedy"],
                      capture_output=True, text=True, check=True).stdout.rstrip("\n")
print("python: ", theirs, "\ntessera:", ours)
sys.exit(theirs != ours)
