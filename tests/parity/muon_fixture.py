"""Writes tests/optim/muon_fixture.inc: a matrix of 4 x 6 after ten steps of torch.optim.Muon.

    python tests/parity/muon_fixture.py > tests/optim/muon_fixture.inc

Start and gradients are those of optim_fixture.py; the learning rate is 1e-2 and falls by a tenth of itself each step.
torch orthogonalizes its updates in bfloat16, whose rounding depends on the matmul library; here that iteration runs in
float32, like ours, so that everything else can be compared closely.
"""
import torch
from torch.optim import _muon

half = torch.Tensor.bfloat16
original = _muon._zeropower_via_newtonschulz


def in_float32(*args, **kwargs):
    torch.Tensor.bfloat16 = torch.Tensor.float
    try:
        return original(*args, **kwargs)
    finally:
        torch.Tensor.bfloat16 = half


def trained():
    k = torch.arange(24)
    p = torch.nn.Parameter((((7 * k) % 16 - 8) / 8).view(4, 6))
    muon = torch.optim.Muon([p], lr=1e-2, weight_decay=0.1)
    for step in range(10):
        p.grad = (((5 * k + 3 * step) % 32 - 15) / 16).view(4, 6)
        muon.param_groups[0]["lr"] = 1e-2 * (1 - step / 10)
        muon.step()
    return p.detach()


rounded = trained()
_muon._zeropower_via_newtonschulz = in_float32
p = trained()
assert 0 < (p - rounded).abs().max() < 2e-3, (p - rounded).abs().max()  # learning rates add up to 0.055
print(f"// Made by tests/parity/muon_fixture.py with torch {torch.__version__}.")
numbers = [f"{number:.9g}f" for number in p.flatten().tolist()]
for row in range(0, 24, 6):
    print(", ".join(numbers[row:row + 6]) + ",")
