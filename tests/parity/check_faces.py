"""Opens the output of tessera::Accelerator and the DeepSpeed engine with Python's transformers, unchanged: save_model
(one file, or several with an index) and checkpoints written in part by every rank (bound: 1e-5 of the largest logit).

    python tests/parity/check_faces.py [build]        (needs torch, transformers, safetensors)
"""
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

BOUND = 1e-5
disable_progress_bar()
build = sys.argv[1] if len(sys.argv) > 1 else "build"
failed = False
with tempfile.TemporaryDirectory() as scratch:
    subprocess.run([f"{build}/tests/faces_tests",
                    "--gtest_filter=FaceSaves.a_model_of_hugging_face_is_opened_as_it_is"], check=True,
                   stdout=subprocess.DEVNULL, env=dict(os.environ, TESSERA_SAVES=scratch))
    for face in ("accelerator", "deepspeed"):
        for name in ("", "state"):
            folder = os.path.join(scratch, face, name)
            model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
            problems = [f"{what}: {names}" for what, names in info.items() if names]
            ours = load_file(os.path.join(folder, "expected"))
            with torch.no_grad():
                theirs = model.eval()(ours["ids"]).logits
            difference = ((ours["logits"] - theirs).abs().max() / theirs.abs().max()).item()
            if difference > BOUND:
                problems.append("the logits differ")
            failed |= bool(problems)
            print(f"{face}, {name or 'save_model'}: logits within {difference:.1e}", *problems)
sys.exit(failed)
