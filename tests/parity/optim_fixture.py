"""Writes tests/optim/torch_optim_fixture.inc: results of torch.optim and transformers for tests/optim.

    python tests/parity/optim_fixture.py > tests/optim/torch_optim_fixture.inc

Two parameters of 5 and 3 elements (for Adafactor three of 4 x 6, 7 and 2 x 3 x 5), ten steps. Start and gradients come
from small formulas with exact float32 results, so that the test can repeat them; the learning rate is 1e-2 and falls by
a tenth of itself each step.
"""
import math

import torch
import transformers

LR = 1e-3
STEPS = (0, 1, 2, 3, 5, 7, 9, 10, 12)
sizes = ((0, 10), (3, 10), (5, 5), (0, 0))
long_enough = ((0, 10), (3, 10), (5, 12))  # transformers divides by zero if no steps follow the warm-up
SCHEDULES = [("linear", {}, sizes), ("cosine", {}, sizes), ("constant", {}, sizes), ("constant_with_warmup", {}, sizes),
             ("cosine", {"num_cycles": 1.25}, sizes),
             ("polynomial", {}, long_enough), ("polynomial", {"lr_end": 1e-5, "power": 2.5}, long_enough),
             ("inverse_sqrt", {}, sizes), ("inverse_sqrt", {"timescale": 7}, sizes),
             ("cosine_with_restarts", {}, sizes), ("cosine_with_restarts", {"num_cycles": 3}, sizes),
             ("cosine_with_min_lr", {"min_lr": 2e-4}, sizes),
             ("cosine_with_min_lr", {"min_lr_rate": 0.1, "num_cycles": 0.75}, sizes),
             ("warmup_stable_decay", {"num_decay_steps": 4}, long_enough),
             ("warmup_stable_decay",
              {"num_decay_steps": 3, "num_stable_steps": 2, "warmup_type": "cosine", "decay_type": "linear",
                                      "min_lr_ratio": 0.1}, long_enough),
             ("warmup_stable_decay",
              {"num_decay_steps": 5, "warmup_type": "1-sqrt", "decay_type": "1-sqrt", "min_lr_ratio": 0.05},
              long_enough),
             ("warmup_stable_decay", {"num_decay_steps": 6, "num_cycles": 0.25}, long_enough),
             ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1}, sizes),
             ("cosine_warmup_with_min_lr", {"min_lr": 2e-4, "warmup_lr_rate": 0.25, "num_cycles": 0.75}, sizes)]


VECTORS = ((5,), (3,))
MATRICES = ((4, 6), (7,), (2, 3, 5))


def start(i, shape):
    values = [((7 * k + 3 * i) % 16 - 8) / 8 for k in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float32).view(shape)


def gradient(i, step, shape):
    values = [((5 * k + 11 * i + 3 * step) % 32 - 15) / 16 for k in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float32).view(shape)


def train(make, decays, shapes=VECTORS):
    parameters = [torch.nn.Parameter(start(i, shape)) for i, shape in enumerate(shapes)]
    optimizer = make([{"params": [p], "weight_decay": d} for p, d in zip(parameters, decays)])
    for step in range(10):
        for i, p in enumerate(parameters):
            p.grad = gradient(i, step, p.shape)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (1 - step / 10)
        optimizer.step()
    return [p.detach() for p in parameters]


def show(name, parameters):
    flat = [v for p in parameters for v in p.flatten().tolist()]
    values = ", ".join(f"{v:.9g}f" if "." in f"{v:.9g}" or "e" in f"{v:.9g}" else f"{v:.9g}.0f" for v in flat)
    print(f"constexpr float {name}[{len(flat)}] = {{{values}}};")


def main():
    print(f"// Made by tests/parity/optim_fixture.py with torch {torch.__version__}, transformers "
          f"{transformers.__version__}.")
    torch.set_num_threads(1)
    one = dict(foreach=False)
    show("torch_adamw", train(lambda g: torch.optim.AdamW(g, lr=1, **one), [0.1, 0.0]))
    show("torch_adamw_betas",
         train(lambda g: torch.optim.AdamW(g, lr=1, betas=(0.8, 0.95), eps=1e-6, **one), [0.1, 0.0]))
    show("torch_sgd", train(lambda g: torch.optim.SGD(g, lr=1, **one), [0.1, 0.0]))
    show("torch_sgd_momentum", train(lambda g: torch.optim.SGD(g, lr=1, momentum=0.9, **one), [0.1, 0.0]))
    show("torch_sgd_nesterov",
         train(lambda g: torch.optim.SGD(g, lr=1, momentum=0.9, nesterov=True, **one), [0.1, 0.0]))
    show("torch_adam", train(lambda g: torch.optim.Adam(g, lr=1, **one), [0.1, 0.0]))
    show("torch_adagrad", train(lambda g: torch.optim.Adagrad(g, lr=1, **one), [0.1, 0.0]))
    show("torch_adagrad_options",
         train(lambda g: torch.optim.Adagrad(g, lr=1, lr_decay=0.1, initial_accumulator_value=0.5, eps=1e-3, **one),
               [0.1, 0.0]))
    decays = [0.1, 0.0, 0.05]
    plain = dict(lr=1, scale_parameter=False, relative_step=False)
    show("adafactor", train(lambda g: transformers.Adafactor(g, **plain), decays, MATRICES))
    show("adafactor_options",
         train(lambda g: transformers.Adafactor(g, **{**plain, "scale_parameter": True}, clip_threshold=0.7, beta1=0.9,
                                                decay_rate=-0.6, eps=(1e-20, 0.1)), decays, MATRICES))
    show("adafactor_relative", train(lambda g: transformers.Adafactor(g), decays, MATRICES))
    show("adafactor_warmup",
         train(lambda g: transformers.Adafactor(g, warmup_init=True, scale_parameter=False), decays, MATRICES))
    print("struct ScheduleValues { const char *type, *parameters; std::int64_t warmup, total; double factors[9]; };")
    print(f"constexpr std::int64_t schedule_steps[9] = {{{', '.join(map(str, STEPS))}}};")
    print(f"constexpr double schedule_learning_rate = {LR};")
    print("constexpr ScheduleValues transformers_schedules[] = {")
    for kind, parameters, sizes in SCHEDULES:
        for warmup, total in sizes:
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
            scheduler = transformers.get_scheduler(kind, optimizer, num_warmup_steps=warmup, num_training_steps=total,
                                                   scheduler_specific_kwargs=parameters)
            factors = ", ".join(repr(float(scheduler.lr_lambdas[0](step))) for step in STEPS)
            text = ",".join(f"{k}={v}" for k, v in parameters.items())
            print(f'    {{"{kind}", "{text}", {warmup}, {total}, {{{factors}}}}},')
    print("};")


if __name__ == "__main__":
    main()
