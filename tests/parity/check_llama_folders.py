"""Checks that Python's transformers reads the folders that Tessera writes: every fixture of tests/fixtures/llama goes
through one step of `tessera train` with learning rate 0, and the output must contain bit-identical weights and give the
same logits. The models: Llama and its relatives, Gemma 1 to 3, Phi-3, mixtures of experts.

    python tests/parity/check_llama_folders.py build/tessera        (needs torch, transformers, safetensors)
    python tests/parity/check_llama_folders.py build/tessera --only mixtral,phi3 --num_processes 2 --tp_size 2

Flags after the program go to `tessera train`, such as the mesh that writes the folder. --only: only these fixtures.
"""
import os, subprocess, sys, tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "fixtures", "llama")
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench"))
from make_llama_fixtures import tokens
from runs import write_rows


def main(program, flags):
    disable_progress_bar()
    wrong = 0
    names = sorted(os.listdir(FIXTURES))
    if flags[:1] == ["--only"]:
        names, flags = flags[1].split(","), flags[2:]
    for name in names:
        before = os.path.join(FIXTURES, name)
        with tempfile.TemporaryDirectory() as folder:
            write_rows(f"{folder}/rows", tokens(1).tolist())
            done = subprocess.run(
                [program, "train", "--model_name_or_path", before, "--train_file", f"{folder}/rows.bin",
                 "--block_size", "12", "--validation_split_percentage", "0", "--output_dir", f"{folder}/out",
                 "--max_steps", "1", "--per_device_train_batch_size", "2", "--learning_rate", "0",
                 *(flags or ["--num_processes", "1"])], capture_output=True, text=True)
            if done.returncode:
                print(f"{name}: {done.stderr[-2000:]}")
                wrong += 1
                continue
            model, info = AutoModelForCausalLM.from_pretrained(f"{folder}/out", dtype=torch.float32,
                                                               output_loading_info=True)
            original = AutoModelForCausalLM.from_pretrained(before, dtype=torch.float32)
            with torch.no_grad():
                logits = model.eval()(input_ids=tokens(99)).logits
            problems = [f"{k}: {v}" for k, v in info.items() if v]
            theirs, ours = original.state_dict(), model.state_dict()
            problems += [f"{k} differs" for k in theirs if k not in ours or not torch.equal(theirs[k], ours[k])]
            expected = load_file(os.path.join(before, "expected.safetensors"))["logits"]
            relative = float((logits - expected).abs().max() / expected.abs().max())
            if relative > 1e-5:
                problems.append(f"logits differ by {relative:.1e}")
            kind = f"{type(model).__name__}, {len(ours)} tensors, logits within {relative:.1e}"
            print(f"{name:18s} {kind}: {'; '.join(problems) or 'as before'}")
            wrong += bool(problems)
    sys.exit(wrong > 0)


main(sys.argv[1], sys.argv[2:])
