"""Writes tests/optim/deepspeed_fixture.inc: the steps of DeepSpeed's learning-rate schedules and dynamic loss scale,
and of torch's ReduceLROnPlateau, for tests/optim.

    python tests/parity/deepspeed_optim_fixture.py > tests/optim/deepspeed_fixture.inc

The learning rate of step s is that of the optimizer's group when step s is taken: the schedule's constructor sets the
rate of step 0, and its step() after each optimizer step sets the next one. There is one parameter group, so that
WarmupCosineLR's first step is 0 for all parameters.
"""
import contextlib
import io
import json
import logging
import sys

with contextlib.redirect_stdout(io.StringIO()):
    import deepspeed
    import torch
    from deepspeed.runtime import lr_schedules
    from deepspeed.runtime.fp16 import loss_scaler

    logging.disable(logging.CRITICAL)

LR = 1e-3
STEPS = 24
ONE_CYCLE = {"cycle_min_lr": 1e-4, "cycle_max_lr": 2e-3, "cycle_first_step_size": 5, "cycle_second_step_size": 8}
SCHEDULES = [
    ("WarmupLR", {}),
    ("WarmupLR", {"warmup_num_steps": 7}),
    ("WarmupLR", {"warmup_num_steps": 7, "warmup_min_lr": 1e-5, "warmup_max_lr": 3e-3, "warmup_type": "linear"}),
    ("WarmupLR", {"warmup_num_steps": 0, "warmup_min_lr": 1e-4}),
    ("WarmupDecayLR", {"total_num_steps": 20, "warmup_num_steps": 6}),
    ("WarmupDecayLR", {"total_num_steps": 20, "warmup_num_steps": 6, "warmup_max_lr": 5e-4, "warmup_min_lr": 1e-5,
                       "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 4, "warmup_num_steps": 10}),
    ("WarmupCosineLR", {"total_num_steps": 20, "warmup_num_steps": 6}),
    ("WarmupCosineLR", {"total_num_steps": 20, "warmup_num_steps": 6, "warmup_min_ratio": 0.1, "cos_min_ratio": 0.05,
                        "warmup_type": "linear"}),
    ("OneCycle", ONE_CYCLE),
    ("OneCycle", {**ONE_CYCLE, "decay_step_size": 3, "decay_lr_rate": 0.5, "decay_mom_rate": 0.01, "cycle_min_mom": 0.7,
                  "cycle_max_mom": 0.95}),
    ("OneCycle", {"cycle_min_lr": 1e-4, "cycle_max_lr": 2e-3, "cycle_first_step_size": 6, "cycle_momentum": False,
                  "decay_step_size": 2}),
    ("LRRangeTest", {}),
    ("LRRangeTest", {"lr_range_test_min_lr": 1e-5, "lr_range_test_step_size": 4, "lr_range_test_step_rate": 2.5}),
    ("LRRangeTest", {"lr_range_test_min_lr": 1e-5, "lr_range_test_step_size": 4, "lr_range_test_staircase": True}),
]

# window, initial scale, minimum, hysteresis, consecutive, and for each step overflow ("x") or not (".")
SCALES = [
    (3, 64, 1, 1, False, "....x......xx........."),
    (3, 64, 1, 2, False, "....x......xx...x....x.x...."),
    (3, 64, 1, 2, True, "....x.x.x..xx...x....xx...."),
    (2, 64, 1, 3, False, "xxxx.....x..x...xx......"),
    (2, 8, 4, 2, True, "xx.x....x..xx..."),
]

METRICS = [3.0, 2.5, 2.5, 2.499, 2.6, 2.4, 2.4, 2.4, 2.4, 2.39999, 2.5, 2.3, 2.31, 2.32, 2.33, 2.3, 2.3, 2.3, 2.3, 2.3,
           2.3, 2.3]
PLATEAUS = [{}, {"patience": 2}, {"patience": 1, "factor": 0.5, "cooldown": 2, "min_lr": 2e-4},
            {"patience": 1, "mode": "max"}, {"patience": 1, "threshold": 0.05, "threshold_mode": "abs"},
            {"patience": 0, "factor": 0.3, "eps": 1e-4}]


def optimizer():
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=LR, betas=(0.9, 0.999))


def row(values):
    return "{" + ", ".join(repr(float(v)) for v in values) + "}"


def quoted(parameters):
    return json.dumps(json.dumps(parameters))


def schedules():
    print("struct DeepspeedSchedule { const char *type, *parameters; double rates[%d], beta1[%d]; };" % (STEPS, STEPS))
    print("constexpr DeepspeedSchedule deepspeed_schedules[] = {")
    for name, parameters in SCHEDULES:
        adam = optimizer()
        schedule = getattr(lr_schedules, name)(adam, **parameters)
        rates, momenta = [], []
        for _ in range(STEPS):
            rates.append(adam.param_groups[0]["lr"])
            momenta.append(adam.param_groups[0]["betas"][0])
            schedule.step()
        print(f'    {{"{name}", {quoted(parameters)}, {row(rates)}, {row(momenta)}}},')
    print("};")


def scales():
    print("struct DeepspeedScale { std::int64_t window; double initial, minimum; std::int64_t hysteresis; bool "
          "consecutive; const char* steps; double scales[32]; };")
    print("constexpr DeepspeedScale deepspeed_scales[] = {")
    loss_scaler.dist.get_rank = lambda: 0
    for window, initial, minimum, hysteresis, consecutive, steps in SCALES:
        scaler = loss_scaler.DynamicLossScaler(init_scale=initial, scale_window=window, min_scale=minimum,
                                               delayed_shift=hysteresis, consecutive_hysteresis=consecutive)
        values = []
        for step in steps:
            scaler.update_scale(step == "x")
            values.append(scaler.cur_scale)
        print(f'    {{{window}, {float(initial)}, {float(minimum)}, {hysteresis}, '
              f'{"true" if consecutive else "false"}, "{steps}", {row(values)}}},')
    print("};")


def plateaus():
    print(f"constexpr double plateau_metrics[{len(METRICS)}] = {row(METRICS)};")
    print("struct TorchPlateau { const char* parameters; double rates[%d]; };" % len(METRICS))
    print("constexpr TorchPlateau torch_plateaus[] = {")
    for parameters in PLATEAUS:
        adam = optimizer()
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(adam, **parameters)
        rates = []
        for metric in METRICS:
            plateau.step(metric)
            rates.append(adam.param_groups[0]["lr"])
        print(f"    {{{quoted(parameters)}, {row(rates)}}},")
    print("};")


def main():
    print(f"// Made by tests/parity/deepspeed_optim_fixture.py with deepspeed {deepspeed.__version__}, torch "
          f"{torch.__version__}.")
    print(f"constexpr double deepspeed_learning_rate = {LR};")
    schedules()
    scales()
    plateaus()


if __name__ == "__main__":
    sys.exit(main())
