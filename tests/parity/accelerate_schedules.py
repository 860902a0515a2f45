"""Learning rates of Accelerate's schedules: reference numbers for tests/faces/schedule_steps_test.cpp.

    pip install accelerate torch
    torchrun --nproc_per_node N tests/parity/accelerate_schedules.py      # N = 1, 2, 3; prints one line per case

Two passes over 5 batches; LambdaLR of transformers' get_linear_schedule_with_warmup (2 of 42 steps of warm-up),
learning rate 0.4; the rate after every micro-batch, in thousandths.
"""

import itertools

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DataLoaderConfiguration


def linear(step: int, warmup: int = 2, total: int = 42) -> float:
    return step / max(1, warmup) if step < warmup else max(0.0, (total - step) / max(1, total - warmup))


def rates(accumulation: int, split: bool, with_optimizer: bool) -> list:
    AcceleratorState._reset_state()
    GradientState._reset_state()
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=accumulation,
        step_scheduler_with_optimizer=with_optimizer,
        dataloader_config=DataLoaderConfiguration(split_batches=split),
    )
    ranks = accelerator.num_processes
    data = torch.utils.data.TensorDataset(torch.ones(60 if split else 20 * ranks, 3))
    loader = torch.utils.data.DataLoader(data, batch_size=12 if split else 4)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, linear)
    net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
    seen = []
    for _ in range(2):
        for (batch,) in loader:
            with accelerator.accumulate(net):
                accelerator.backward(net(batch).square().mean())
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            seen.append(round(1000 * schedule.get_last_lr()[0]))
    return seen


for accumulation, split, with_optimizer in itertools.product((1, 2), (False, True), (True, False)):
    seen = rates(accumulation, split, with_optimizer)
    if PartialState().is_main_process:
        print(PartialState().num_processes, accumulation, split, with_optimizer, seen, flush=True)
