"""Writes tests/optim/muon_fixture.inc: a matrix of 4 x 6 after ten steps of torch.optim.Muon.

    python tests/parity/muon_fixture.py > tests/optim/muon_fixture.inc

Start and gradients are those of optim_fixture.py; the learning rate is 1e-2 and falls by a tenth of itself each step.
"""
import torch

k = torch.arange(24)
p = torch.nn.Parameter((((7 * k) % 16 - 8) / 8).view(4, 6))
muon = torch.optim.Muon([p], lr=1e-2, weight_decay=0.1)
for step in range(10):
    p.grad = (((5 * k + 3 * step) % 32 - 15) / 16).view(4, 6)
    muon.param_groups[0]["lr"] = 1e-2 * (1 - step / 10)
    muon.step()
print(f"// Made by tests/parity/muon_fixture.py with torch {torch.__version__}.")
numbers = [f"{number:.9g}f" for number in p.detach().flatten().tolist()]
for row in range(0, 24, 6):
    print(", ".join(numbers[row:row + 6]) + ",")
