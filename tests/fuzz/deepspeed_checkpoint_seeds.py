"""Writes seed inputs for deepspeed_checkpoint_fuzz: small checkpoints of two ranks, as DeepSpeed describes them.

    python tests/fuzz/deepspeed_checkpoint_seeds.py DIR          (DIR/deepspeed_checkpoint gets them: the --corpora of
    campaign.py)

They contain only the parts that the reader uses, written by torch.save; reading takes about a microsecond per byte.
Needs torch and deepspeed.
"""
import io, os, sys, zipfile
from collections import OrderedDict

os.environ["DS_ACCELERATOR"] = "cpu"

import torch
from deepspeed.runtime.zero.config import ZeroStageEnum
from torch import Size

MARK = b"\xff\xfe=="


def description(state):
    """Storages in units of 4 bytes, then the pickle."""
    out = io.BytesIO()
    torch.save(state, out)
    archive = zipfile.ZipFile(out)
    entries = {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}
    sizes = [-(-len(entries[f"data/{i}"]) // 4) for i in range(sum(name.startswith("data/") for name in entries))]
    return bytes([len(sizes), *sizes]) + entries["data.pkl"]


def optimizer(**state):
    return description({"optimizer_state_dict": state})


def model(shapes, module, **more):
    """`module`: buffers, and parameters that stage 1 does not list."""
    return description({"module": OrderedDict(module), "buffer_names": ["mean"],
                        "param_shapes": [OrderedDict(group) for group in shapes], **more})


def folder(files, tied=False):
    """`files`: [(name, description)]; a description equal to the previous one is not repeated."""
    out, last = bytes([tied]), b""
    for name, file in files:
        out += MARK + name.encode() + b"\n" + (b"" if file == last else file)
        last = file
    return out


def ranks(what, files, prefix=""):
    return [(f"{prefix}zero_pp_rank_{rank}_mp_rank_00_{what}_states.pt", file) for rank, file in enumerate(files)]


def flat(count):
    return torch.arange(float(count))


def checkpoints():
    """{name: input}"""
    mean = {"mean": torch.ones(2, dtype=torch.bfloat16)}
    module = {"a": torch.ones(2, 2), "frozen": torch.ones(3), **mean}
    two, ties = [{"a": Size([2, 2]), "b": Size([3])}, {"c": Size([1])}], {"head": "a"}
    whole = "mp_rank_00_model_states.pt"
    flats = {"single_partition_of_fp32_groups": [flat(4), flat(2)], "partition_count": [2, 2]}
    one = optimizer(zero_stage=ZeroStageEnum.optimizer_states, param_alignment_paddings=[[1, 0], [0]], **flats)
    bf16 = optimizer(group_paddings=[1, 3], **flats)
    parts = {"frozen_param_shapes": {"f": Size([3])}, "frozen_param_fragments": {"f": torch.ones(3)}}
    lean = [optimizer(zero_stage=2, partition_count=2, single_partition_of_fp32_groups=[flat(n)]) for n in (2, 1)]
    three = optimizer(zero_stage=ZeroStageEnum.weights, partition_count=2, fp32_flat_groups=[flat(3), flat(2)])
    halves = {"frozen_param_shapes": {"f": Size([3])}, "frozen_param_fragments": {"f": torch.ones(2)}}
    return {
        "stage1": folder([(whole, model(two, module, shared_params=ties)), *ranks("optim", [one, one])]),
        "bf16_optimizer": folder([(whole, model(two, module, shared_params=ties)),
                                  *ranks("optim", [bf16, bf16], "bf16_")], True),
        "stage2": folder([(whole, model([{"a": Size([3])}], mean, **parts)), *ranks("optim", lean)]),
        "stage3": folder([*ranks("model", 2 * [model(two, mean, shared_params=ties, **halves)]),
                          *ranks("optim", [three, three])], True),
    }


if __name__ == "__main__":
    target = os.path.join(sys.argv[1], "deepspeed_checkpoint")
    os.makedirs(target, exist_ok=True)
    for name, data in checkpoints().items():
        print(name, len(data))
        with open(os.path.join(target, name), "wb") as out:
            out.write(data)
