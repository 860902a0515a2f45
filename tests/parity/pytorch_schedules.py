"""PyTorch's pipeline schedules as CSV: fixtures of tests/layout/schedule_files_test.cpp; and PyTorch's verdict on a
CSV of ours.

    python3 tests/parity/pytorch_schedules.py make tests/fixtures/pipeline_schedules [SCHEDULES.PY]
    python3 tests/parity/pytorch_schedules.py read FILE.csv FORMAT RANKS STAGES MICRO_BATCHES [SCHEDULES.PY]

SCHEDULES.PY is torch/distributed/pipelining/schedules.py, [.deps/torch's]. Its code runs with a stand-in for torch,
which schedules do not need, so that no working torch is required.
"""

import csv
import importlib.util
import os
import sys
from unittest.mock import MagicMock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = "torch.distributed.pipelining"
# Class, ranks, stages per rank, micro-batches.
MADE = [
    ("GPipe", 4, 1, 6),
    ("1F1B", 4, 1, 8),
    ("1F1B", 4, 1, 2),
    ("Interleaved1F1B", 4, 2, 8),
    ("Interleaved1F1B", 2, 3, 4),
    ("Interleaved1F1B", 4, 2, 3),
    ("LoopedBFS", 2, 2, 4),
    ("InterleavedZeroBubble", 4, 1, 8),
    ("InterleavedZeroBubble", 2, 2, 4),
    ("ZBVZeroBubble", 4, 2, 8),
    ("ZBVZeroBubble", 3, 2, 2),
    ("DualPipeV", 2, 2, 6),
    ("DualPipeV", 4, 2, 10),
]


def load(path):
    """The module schedules.py, loaded with stand-ins for torch."""
    for name in ("torch", "torch.distributed", "torch._dynamo", "torch.distributed.fsdp", "torch.nn", "torch.fx",
                 "torch.nn.modules", "torch.nn.modules.loss", "torch.profiler", FOLDER + ".microbatch",
                 FOLDER + ".stage"):
        sys.modules[name] = MagicMock()
    sys.modules["torch"].nn.Module = type("Module", (), {})
    for name in ("_utils", "schedules"):
        spec = importlib.util.spec_from_file_location(f"{FOLDER}.{name}",
                                                      os.path.join(os.path.dirname(path), name + ".py"))
        sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def stages_of(ranks, stages, local):
    return [MagicMock(num_stages=stages, group_size=ranks, group_rank=0, stage_index=i) for i in range(local)]


def make(schedules, folder):
    os.makedirs(folder, exist_ok=True)
    for name, p, v, m in MADE:
        stem = os.path.join(folder, f"{name}-p{p}-v{v}-m{m}")
        kind = schedules.get_schedule_class(name)
        if issubclass(kind, schedules.PipelineScheduleSingle):  # writes no file and has no messages
            single = kind.__new__(kind)
            single.pp_group_size = single._num_stages = p
            single._n_microbatches = m
            with open(stem + ".compute_only.csv", "w", newline="") as out:
                csv.writer(out).writerows(single._get_pipeline_order().values())
        else:
            made = kind(stages_of(p, p * v, v), m)
            for form in ("compute_only", "compute_comms"):
                made._dump_csv(f"{stem}.{form}.csv", form)


def read(schedules, path, form, ranks, stages, micro_batches):
    runtime = schedules._PipelineScheduleRuntime(stages_of(int(ranks), int(stages), 1), int(micro_batches))
    runtime.stage_index_to_group_rank = schedules.generate_stage_to_rank_mapping(int(ranks), int(stages))
    runtime._load_csv(path, form)
    order = runtime.pipeline_order_with_comms
    print("read", sum(map(len, order.values())), "actions of", len(order), "ranks")


def main():
    arguments = sys.argv[1:]
    path = os.path.join(ROOT, ".deps/torch", *FOLDER.split("."), "schedules.py")
    if arguments and arguments[-1].endswith("schedules.py"):
        path = arguments.pop()
    if len(arguments) == 2 and arguments[0] == "make":
        make(load(path), arguments[1])
    elif len(arguments) == 6 and arguments[0] == "read":
        read(load(path), *arguments[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
