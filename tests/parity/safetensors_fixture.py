"""Makes tests/fixtures/safetensors/ with the reference writer: every dtype that Tessera reads, a scalar,
empty tensors, a name that JSON must escape. Needs torch and safetensors (any recent version).

    python tests/parity/safetensors_fixture.py              writes the fixtures
    python tests/parity/safetensors_fixture.py --read FILE  prints what the reference reader finds in FILE
"""
import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
          torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def values(dtype):
    line = torch.arange(6).reshape(2, 3)
    if dtype == torch.bool:
        return line % 2 == 0
    return (line - 2 if dtype.is_signed else line).to(dtype)


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"{'ab'[i % 2] if d != torch.float32 else 'a'}.{str(d)[6:]}": values(d) for i, d in enumerate(DTYPES)}
    tensors["scalar"] = torch.tensor(1.5)
    tensors["empty"] = torch.zeros(0, 4)
    tensors["a.empty"] = torch.zeros(3, 0, dtype=torch.int8)
    tensors['quote " back \\ tab \t bell \x07 del \x7f \u00e9 \u4e2d \U0001f600'] = torch.tensor([7], dtype=torch.int32)
    save_file(tensors, folder / "mixed.safetensors", metadata={"format": "pt"})
    save_file({}, folder / "empty.safetensors")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        with safe_open(sys.argv[2], "pt") as file:
            print(file.metadata())
            for name in file.keys():
                tensor = file.get_tensor(name)
                print(repr(name), tensor.dtype, list(tensor.shape), tensor.flatten()[:3].tolist())
    else:
        write(pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "safetensors")
