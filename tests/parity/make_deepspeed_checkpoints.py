"""Makes tests/fixtures/deepspeed_checkpoint: ZeRO checkpoints of two processes (CPU, Gloo) and their conversions by
DeepSpeed's own zero_to_fp32.

    python tests/parity/make_deepspeed_checkpoints.py tests/fixtures/deepspeed_checkpoint [CASE ...]

Each folder: latest, TAG/*_states.pt, expected.safetensors. Sizes are odd, so that every kind of padding occurs; two
groups of parameters (with and without weight decay), a tied weight, a frozen parameter, buffers in bf16, fp16 and
int64. Versions: DeepSpeed 0.19.8, PyTorch 2.11.

zero_to_fp32 rejects bf16_optimizer (stage 1 with gradients accumulated in fp32: BF16_Optimizer) as "not a zero
checkpoint", since no file contains the stage. The expected result is that of zero_to_fp32 after stage 1 was added to
each file, which ds_to_universal.py (_get_zero_stage) assumes too, and every trained parameter equals that of the
running engine (safe_get_full_fp32_param).
"""
import argparse
import datetime
import glob
import os
import shutil
import socket
import sys
import tempfile

os.environ["DS_ACCELERATOR"] = "cpu"

import torch
import torch.multiprocessing as mp

CASES = {"zero1": (1, "fp32", {}), "zero2": (2, "fp32", {}),
         "zero3": (3, "fp32", {"stage3_param_persistence_threshold": 0, "sub_group_size": 10}),
         "bf16_optimizer": (1, "bf16", {}), "zero1_bf16": (1, "bf16", {}), "zero2_bf16": (2, "bf16", {}),
         "zero3_bf16": (3, "bf16", {"stage3_param_persistence_threshold": 0})}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 5)
        self.first = torch.nn.Linear(5, 3)
        self.norm = torch.nn.LayerNorm(3)
        self.second = torch.nn.Linear(3, 5, bias=False)
        self.scale = torch.nn.Parameter(torch.tensor([1.5]))
        self.frozen = torch.nn.Parameter(torch.arange(7).reshape(7, 1) / 4, requires_grad=False)
        self.head = torch.nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mean", torch.tensor([0.25, -0.5, 3.0], dtype=torch.bfloat16))
        self.register_buffer("halves",
                             torch.tensor([0.1, -65504, 6e-8, 5e-5, float("inf"), -0.0, 1.0], dtype=torch.float16))
        self.register_buffer("count", torch.tensor(7))

    def forward(self, ids):
        hidden = self.norm(self.first(self.embed(ids))) + self.mean.to(self.norm.weight.dtype)
        return self.head(self.second(torch.tanh(hidden)) * self.scale) + self.frozen[:, 0]


def saying_stage_1(folder, copy):
    """A copy of a checkpoint whose optimizer files contain stage 1."""
    shutil.copytree(folder, copy)
    for path in glob.glob(os.path.join(copy, "*", "*_optim_states.pt")):
        state = torch.load(path, weights_only=False)
        assert "zero_stage" not in state["optimizer_state_dict"]
        state["optimizer_state_dict"]["zero_stage"] = 1
        torch.save(state, path)
    return copy


def living_parameters(engine):
    """The optimizer's fp32 parameters by name; a collective call of all ranks."""
    from deepspeed.utils import safe_get_full_fp32_param
    return {name: safe_get_full_fp32_param(p).cpu().clone() for name, p in engine.module.named_parameters()
            if p.requires_grad}


def train(rank, out, port, names):
    import deepspeed
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    from safetensors.torch import save_file

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank),
                      WORLD_SIZE="2")
    deepspeed.init_distributed("gloo")
    for name in names:
        stage, dtype, more = CASES[name]
        folder = os.path.join(out, name)
        torch.manual_seed(stage)
        model = Model()
        decayed = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
        others = [p for p in model.parameters() if p.requires_grad and p.dim() < 2]
        config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage, **more},
                  "zero_allow_untested_optimizer": True}
        if dtype == "bf16":
            config["bf16"] = {"enabled": True}
        if name == "bf16_optimizer":
            config["data_types"] = {"grad_accum_dtype": "fp32"}
        optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                       {"params": others, "weight_decay": 0.0}], lr=0.01)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        ids = torch.tensor([[1, 2, 3], [4, 5, 6]]) if rank == 0 else torch.tensor([[0, 0, 1], [6, 5, 4]])
        for _ in range(2):
            loss = torch.nn.functional.cross_entropy(engine(ids).float().flatten(0, 1), ids.flatten())
            engine.backward(loss)
            engine.step()
        shutil.rmtree(folder, ignore_errors=True)
        torch.distributed.barrier()
        engine.save_checkpoint(folder, client_state={"when": datetime.datetime(2025, 1, 2),
                                                     "arguments": argparse.Namespace(lr=0.01)})
        living = living_parameters(engine) if name == "bf16_optimizer" else {}
        torch.distributed.barrier()
        if rank == 0:
            for script in glob.glob(os.path.join(folder, "*.py")):
                os.remove(script)
            if living:
                assert type(engine.optimizer).__name__ == "BF16_Optimizer"
                with tempfile.TemporaryDirectory() as scratch:
                    state = get_fp32_state_dict_from_zero_checkpoint(saying_stage_1(folder,
                                                                                    os.path.join(scratch, "copy")))
                for key, value in living.items():
                    assert torch.equal(state[key], value), key
            else:
                state = get_fp32_state_dict_from_zero_checkpoint(folder)
            save_file({key: value.clone().contiguous() for key, value in state.items()},
                      os.path.join(folder, "expected.safetensors"))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    out, names = sys.argv[1], sys.argv[2:] or list(CASES)
    os.makedirs(out, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(train, (out, port, names), nprocs=2)
