#!/usr/bin/env python3
"""Plants faults in a copy of the sources and shows whether and where the double of the device finds them.

usage: mutations.py [--work FOLDER] [NUMBER...]

All faults are built at once, each enabled by its number in the environment (PLANTED), so one build serves all runs.
Every run is also made without a fault and must then find nothing. A fault counts as found if the double reports the
table's text at a place in the table's file. Not part of .ci/run: takes a build and some twenty runs. Exit code 1 if a
fault is missed. --work keeps the copy and its build for the next time.
"""
import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

GPT2 = ["--config_name", "gpt2-tiny", "--config_overrides",
        "n_layer=2,n_embd=32,n_head=2,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256"]
FULL_SHARD = ["--fsdp", "full_shard"]
MIXTRAL = """{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 320, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false}"""

# `changes`: (file, before, after); PLANTED in `after` is true in runs with the fault. `run`: ranks and flags of a
# training run, or a filter of device_tests. `report`: expected text of a finding or a host wait; `place`: its expected
# location.
Fault = collections.namedtuple("Fault", "what changes run report place")

FAULTS = [
    Fault("parameters are read before their gather is waited for",
          [("tessera/parallel/sharding/flat_group.cpp", "void FlatGroup::finish_gather() {\n  work_.wait();",
            "void FlatGroup::finish_gather() {\n  if (!PLANTED) work_.wait();")],
          (2, GPT2 + FULL_SHARD), r"FINDING (race|uninitialized)", "tessera/"),
    Fault("gradients are read before their reduction is waited for",
          [("tessera/parallel/sharding/gradient_reduction.cpp", "::wait() {\n  work_.wait();",
            "::wait() {\n  if (!PLANTED) work_.wait();")],
          (2, GPT2 + FULL_SHARD), r"FINDING (race|uninitialized)", "tessera/"),
    Fault("a tensor-parallel sum is read before it is waited for",
          [("tessera/parallel/tensor/exchange.cpp", "  group.all_reduce(sum).wait();\n  return sum;",
            "  comm::Work work = group.all_reduce(sum);\n  if (!PLANTED) work.wait();\n  return sum;")],
          (2, GPT2 + ["--tp_size", "2"]), r"FINDING (race|uninitialized)", "tessera/"),
    Fault("a pipeline's message is read before it has come",
          [("tessera/parallel/pipeline/messages.cpp", "  next.work.wait();\n  Received",
            "  if (!PLANTED) next.work.wait();\n  Received")],
          (2, GPT2 + ["--pp_size", "2", "--gradient_accumulation_steps", "2"]), r"FINDING (race|uninitialized)",
          "tessera/"),
    Fault("keys of another rank are read before they have come",
          [("tessera/parallel/context/block_attention.cpp", "    receiving.wait();\n    const at::Tensor block",
            "    if (!PLANTED) receiving.wait();\n    const at::Tensor block")],
          (2, GPT2 + ["--cp_size", "2"]), r"FINDING (race|uninitialized)", "tessera/"),
    Fault("a device guard is left out",
          [("tessera/nn/device/norm.cpp", "  const c10::DeviceGuard guard(a.x.device());",
            "  const c10::OptionalDeviceGuard guard(PLANTED ? std::nullopt : std::optional(a.x.device()));")],
          "DeviceRows.OnAnotherDeviceThanTheCurrentOne", r"FINDING wrong_device.*norm", "nn/device/norm.cpp"),
    Fault("the host reads device memory",
          [("tessera/nn/device/head_loss.cpp", "  const std::int64_t columns = padded_vocabulary(v);",
            "  const bool ignored = PLANTED && targets.const_data_ptr<std::int64_t>()[0] < 0;\n"
            "  const std::int64_t columns = padded_vocabulary(v + ignored);")],
          (1, GPT2), r"FINDING host_access", "nn/device/head_loss.cpp"),
    Fault("a kernel gets memory of the host",
          [("tessera/nn/moe/permute.cpp", "slot_scratch(slots, experts)}, ids.options().dtype(at::kInt));",
            "slot_scratch(slots, experts)}, PLANTED ? at::TensorOptions(at::kInt) : ids.options().dtype(at::kInt));")],
          (1, ["mixtral"]), r"FINDING mixed_devices.*sort_slots", "nn/moe/permute.cpp"),
    Fault("scratch that must begin as zeros is not set",
          [("tessera/nn/moe/permute.cpp", "const at::Tensor scratch = at::zeros({kernels",
            "const at::Tensor scratch = (PLANTED ? &made_empty : &made_zero)({kernels"),
           ("tessera/nn/moe/permute.cpp", "/// By kernels of the device.\n",
            "at::Tensor made_empty(at::IntArrayRef n, at::TensorOptions options) { return at::empty(n, options); }\n"
            "at::Tensor made_zero(at::IntArrayRef n, at::TensorOptions options) { return at::zeros(n, options); }\n"
            "/// By kernels of the device.\n")],
          (1, ["mixtral"]), r"FINDING uninitialized.*sort_slots", "nn/moe/permute.cpp"),
    Fault("the host waits for a number",
          [("tessera/nn/linear_cross_entropy.cpp", "const bool is_one = factor.is_cpu() && factor",
            "const bool is_one = (factor.is_cpu() || PLANTED) && factor")],
          (1, GPT2), r"WAIT .*item", "nn/linear_cross_entropy.cpp"),
    Fault("a batch is uploaded from memory that is not pinned",
          [("tessera/nn/device/send.cpp", "return tensor.pin_memory().to(device",
            "return (PLANTED ? tensor : tensor.pin_memory()).to(device")],
          (1, GPT2), r"WAIT .*to_device", "nn/device/send.cpp"),
    Fault("a kernel goes to a stream of its own",
          [("tessera/optim/norm.cpp", "  add_squares(gradients, words);\n  const c10::DeviceGuard guard(device);",
            "  c10::OptionalStreamGuard side;\n"
            "  if (PLANTED) side.reset_stream(c10::impl::VirtualGuardImpl(device.type()).getNewStream(device));\n"
            "  add_squares(gradients, words);\n  const c10::DeviceGuard guard(device);"),
           ("tessera/optim/norm.cpp", "#include <c10/core/DeviceGuard.h>",
            "#include <c10/core/DeviceGuard.h>\n#include <c10/core/StreamGuard.h>\n"
            "#include <c10/core/impl/VirtualGuardImpl.h>")],
          (1, GPT2), r"FINDING race", "tessera/optim/"),
    Fault("another stream reads what is freed, and record_stream is left out",
          [("tessera/nn/device/send.cpp", "  host.copy_(number_.squeeze(), /*non_blocking=*/true);",
            "  c10::OptionalStreamGuard side;\n"
            "  if (PLANTED) {\n"
            "    const c10::impl::VirtualGuardImpl streams(device.type());\n"
            "    const c10::Stream other = streams.getNewStream(device);\n"
            "    c10::Event before(device.type());\n"
            "    before.record(streams.getStream(device));\n"
            "    before.block(other);\n"
            "    side.reset_stream(other);\n"
            "  }\n"
            "  host.copy_(number_.squeeze(), /*non_blocking=*/true);"),
           ("tessera/nn/device/send.cpp", "#include <ATen/ATen.h>",
            "#include <ATen/ATen.h>\n#include <c10/core/StreamGuard.h>")],
          (1, GPT2), r"FINDING freed_in_use", "tessera/"),
    Fault("an operator gets tensors of the host and of the device",
          [("tessera/nn/embedding.cpp", "places = positions.slice(0, first_position, end);",
            "places = (PLANTED ? positions.cpu() : positions).slice(0, first_position, end);")],
          (1, GPT2), r"FINDING mixed_devices", "nn/embedding.cpp"),
]


def shell(command, **more):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)


def copy_sources(work):
    """The tracked files as they are now, with the faults; files that did not change keep their times."""
    os.makedirs(work, exist_ok=True)
    files = shell(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                  check=True).stdout.split("\0")
    wanted = collections.defaultdict(list)
    for number, fault in enumerate(FAULTS, 1):
        for file, before, after in fault.changes:
            condition = f'(::getenv("PLANTED") != nullptr && ::atoi(::getenv("PLANTED")) == {number})'
            wanted[file].append((before, after.replace("PLANTED", condition)))
    for file in filter(None, files):
        source, target = os.path.join(ROOT, file), os.path.join(work, file)
        if not os.path.isfile(source):
            continue
        with open(source, "rb") as opened:
            content = opened.read()
        for before, after in wanted[file]:
            text = content.decode()
            if text.count(before) != 1:
                sys.exit(f"{file}: the place of a fault is there {text.count(before)} times: {before!r}")
            content = text.replace(before, after).encode()
        if os.path.exists(target):
            with open(target, "rb") as opened:
                if opened.read() == content:
                    continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as opened:
            opened.write(content)
        os.chmod(target, os.stat(source).st_mode)
    if not os.path.exists(os.path.join(work, ".deps")):
        os.symlink(os.path.join(ROOT, ".deps"), os.path.join(work, ".deps"))


def build(work):
    log = os.path.join(work, "build.log")
    with open(log, "w") as out:
        for command in (["cmake", "--preset", "default", "-B", "build"],
                        ["ninja", "-C", "build", "-j", os.environ.get("JOBS", "2"), "tessera_tool", "device_tests"]):
            if subprocess.run(command, cwd=work, stdout=out, stderr=subprocess.STDOUT).returncode != 0:
                sys.exit(f"the copy with the faults does not build: {log}")


def run(work, fault, number):
    """(the run's end, [(what the double says, its place)])"""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report")
        environment = dict(os.environ, PLANTED=str(number), DOUBLE_REPORT=report,
                           LD_LIBRARY_PATH=os.path.join(work, "build", "double"))
        if isinstance(fault.run, str):
            command = [os.path.join(work, "build", "tests", "device_tests"), "--gtest_filter=" + fault.run]
        else:
            ranks, flags = fault.run
            if flags == ["mixtral"]:
                with open(os.path.join(folder, "mixtral.json"), "w") as out:
                    out.write(MIXTRAL)
                flags = ["--config_name", os.path.join(folder, "mixtral.json")]
            program = os.path.join(work, "build", "tessera")
            command = ([program, "launch", "--nproc_per_node", str(ranks)] if ranks > 1 else []) + [
                program, "train", "--device", "cuda", "--mock_data", "--block_size", "32", "--max_steps", "4",
                "--per_device_train_batch_size", "2", "--save_strategy", "no", "--report_to", "none", "--logging_steps",
                "100", "--output_dir", os.path.join(folder, "out")] + flags
        try:
            done = shell(command, env=environment, timeout=240)
        except subprocess.TimeoutExpired:
            return "did not end", []
        said = []
        reports = [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f.startswith("report")]
        if reports:
            text = shell([sys.executable, os.path.join(ROOT, "tests", "double", "call_sites.py"), *reports]).stdout
            lines = text.splitlines()
            for i, line in enumerate(lines):
                if line.startswith("FINDING"):
                    said.append((line, lines[i + 1].strip() if i + 1 < len(lines) else ""))
                elif wait := re.match(r" +([\d.]+)  (.*?) +((?:tessera/|\(no frame).*)", line):
                    said.append((f"WAIT x{float(wait[1]):.0f} {wait[2]}", wait[3]))
        return f"exit code {done.returncode}", said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work")
    parser.add_argument("numbers", nargs="*", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = os.path.abspath(options.work or os.path.join(scratch, "tessera"))
        copy_sources(work)
        build(work)
        missed = 0
        clean = set()
        for number, fault in enumerate(FAULTS, 1):
            if options.numbers and number not in options.numbers:
                continue
            if str(fault.run) not in clean:  # the same run without a fault
                end, said = run(work, fault, 0)
                if end != "exit code 0" or any(re.search(fault.report, text) and fault.place in place
                                               for text, place in said):
                    sys.exit(f"without a fault the run of number {number} gives {end}, {said}")
                clean.add(str(fault.run))
            end, said = run(work, fault, number)
            matching = [(text, place) for text, place in said if re.search(fault.report, text) and fault.place in place]
            missed += not matching
            print(f"{number:2d} {'found ' if matching else 'MISSED'} {fault.what} ({fault.changes[0][0]})")
            for text, place in (matching or said)[:1]:
                print(f"     {text[:200]}\n     at {place}")
            if not matching:
                print(f"     {end}")
            sys.stdout.flush()
        print(f"{missed} missed")
        return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
