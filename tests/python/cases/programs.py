"""Whole programs, each rank a process of its own that begins and ends as a user's does: by themselves or by
`tessera launch`."""
import atexit
import ctypes
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from harness import Skip, case, equal

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def program():
    """The program `tessera` beside the library that is tested."""
    path = os.path.join(os.path.dirname(os.environ.get("TESSERA_C_LIBRARY", "")), "tessera")
    if not os.path.exists(path):
        raise Skip("{} is not built".format(path))
    return path


def ranks_of(script, ranks, seconds=60):
    """Runs `script` (text) in that many processes with the variables of a launcher; (exit codes, outputs). They are
    forked, since importing torch takes seconds, but end as an interpreter does: with exit handlers of Python and C."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder, pids = tempfile.mkdtemp(prefix="tessera-case-"), []
    try:
        for r in range(ranks):
            pid = os.fork()
            if pid == 0:
                os.environ.update(RANK=str(r), LOCAL_RANK=str(r), FOLDER=folder, WORLD_SIZE=str(ranks),
                                  LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                _interpreter(script, os.path.join(folder, "output-{}".format(r)))
            pids.append(pid)
        codes, end = {}, time.monotonic() + seconds
        while len(codes) < ranks and time.monotonic() < end:
            for pid in set(pids) - set(codes):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    codes[pid] = os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        for pid in set(pids) - set(codes):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        outputs = []
        for r in range(ranks):
            with open(os.path.join(folder, "output-{}".format(r))) as file:
                outputs.append(file.read())
    finally:
        shutil.rmtree(folder)
    return [codes.get(pid) for pid in pids], outputs


def _interpreter(script, output):
    """The life of `python3 -c script` after its start; never returns."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    code = 0
    try:
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
    except BaseException as error:
        traceback.print_exc()
        sys.last_value, code = error, 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).exit(code)


def succeed(script, ranks):
    codes, outputs = ranks_of(script, ranks)
    assert codes == [0] * ranks, "codes {}:\n{}".format(codes, "\n".join(outputs))
    return outputs


@case("a rank that ends without shutdown does not break its peers (tcp)", 1, only="tessera")
def ends_over_tcp(rank):
    succeed("""
import ctypes, os, time
from tessera import _c
rank = int(os.environ["RANK"])
world = _c.handle("init_folder", (os.environ["FOLDER"] + "/store").encode(), rank, 3, b"end",
                  ctypes.byref(_c.options(transport="tcp", timeout_ms=20000)))
group = _c.handle("world_group", world)
numbers = (ctypes.c_float * 2000000)(*([7.0] if rank == 0 else [0.0]))
time.sleep(0.3 if rank else 0)
_c.call("broadcast", group, numbers, 2000000, _c.FLOAT32, 0, None, None)
assert numbers[0] == 7
if rank == 1:
    _c.call("recv", group, numbers, 9, _c.FLOAT32, 2, 0, None, None, None)
if rank == 2:
    time.sleep(0.7)
    _c.call("send", group, numbers, 9, _c.FLOAT32, 1, 0, None, None)
""", 3)


@case("a script that ends while its operation runs finishes it", 1, only="tessera")
def ends_while_it_runs(rank):
    succeed("""
import os, time
import torch, torch.distributed as dist
import tessera.torch
dist.init_process_group("tessera", init_method="file://" + os.environ["FOLDER"] + "/store",
                        rank=int(os.environ["RANK"]), world_size=2)
rank = dist.get_rank()
time.sleep(1.0 if rank else 0)
numbers = torch.full((1 << 20,), float(rank + 1))
work = dist.all_reduce(numbers, async_op=True)
if rank:
    work.wait()
    assert numbers[0] == 3 and numbers[-1] == 3, numbers
""", 2)


@case("a script that an exception ends tells its peers at once", 1, only="tessera")
def ends_by_exception(rank):
    codes, outputs = ranks_of("""
import os, time
import torch, torch.distributed as dist
import tessera.torch
dist.init_process_group("tessera", init_method="file://" + os.environ["FOLDER"] + "/store",
                        rank=int(os.environ["RANK"]), world_size=2)
if dist.get_rank() == 0:
    raise KeyError("a mistake")
begin = time.monotonic()
time.sleep(0.5)
try:
    dist.barrier()
except tessera.torch.PeerLost as error:
    print("told:", error, time.monotonic() - begin < 4)
""", 2)
    assert codes == [1, 0] and "KeyError" in outputs[0], (codes, outputs)
    assert "told: tessera: rank 0 (pid" in outputs[1] and outputs[1].strip().endswith("True"), outputs[1]


@case("hvd: a script that ends without shutdown finishes what it has handed in", 1, only="tessera")
def hvd_ends(rank):
    succeed("""
import os, time
import torch
import tessera.hvd.torch as hvd
hvd.init()
time.sleep(1.0 if hvd.rank() else 0)
handle = hvd.allreduce_async(torch.ones(5), name="last", op=hvd.Sum)
if hvd.rank():
    assert hvd.synchronize(handle).tolist() == [2.0] * 5
""", 2)


@case("sums of sparse tensors print no warnings", 1, only="tessera")
def sparse_is_quiet(rank):
    outputs = succeed("""
import os
import torch, torch.distributed as dist
import tessera.torch
dist.init_process_group("tessera", init_method="file://" + os.environ["FOLDER"] + "/store",
                        rank=int(os.environ["RANK"]), world_size=2)
table = torch.tensor([1.0, 0.0, 1.0]).to_sparse()
dist.all_reduce(table)
assert table.to_dense().tolist() == [2.0, 0.0, 2.0]
dist.destroy_process_group()
""", 2)
    assert not any("Warning" in o for o in outputs), outputs


def example(name):
    """(The module of examples/python, its file.)"""
    path = os.path.join(ROOT, "examples", "python", name + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, path


def launched_as_by_horovodrun(rank, script, *arguments):
    """Has rank 0 run the script on 2 processes with horovodrun's options; this rank's losses there."""
    losses = os.path.join(rank.folder, "losses")
    if rank.rank == 0:
        command = [program(), "launch", "-np", "2", "-H", "localhost:2", "--gloo", "--start-timeout", "100",
                   "--timeline-filename", os.path.join(rank.folder, "timeline"), sys.executable, script,
                   *arguments, "--losses", losses]
        done = subprocess.run(command, capture_output=True, text=True, timeout=450)
        assert done.returncode == 0, done.stdout + done.stderr
        with open(os.path.join(rank.folder, "timeline.1")) as file:
            assert "all_reduce" in file.read()
    else:
        program()
    rank.meet("launched")
    with open("{}.{}".format(losses, rank.rank)) as file:
        return torch.tensor(json.load(file))


def ddp_losses(rank, model, rate, loss_of, batches, momentum=0.0):
    """Losses of torch's DDP on Gloo, which sends rank 0's weights to the others."""
    dist.init_process_group("gloo", store=rank.store(), rank=rank.rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum), []
    for x, y in batches:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def mnist_losses_of_ddp(rank, module):
    torch.manual_seed(42)
    data = module.digits(1024, 1)
    sampler = DistributedSampler(data, num_replicas=2, rank=rank.rank)
    sampler.set_epoch(1)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    return ddp_losses(rank, module.Net(), 0.06, torch.nn.functional.nll_loss, loader, 0.9)


@case("the MNIST example in this process: its losses are DDP's", 2, only="tessera")
def mnist_here(rank):
    rank.environment()
    module, _ = example("hvd_mnist")
    ours = torch.tensor(module.main(["--epochs", "1", "--gradient-predivide-factor", "2"]))
    assert len(ours) == 16 and ours[-1] < ours[0], ours
    equal(ours, mnist_losses_of_ddp(rank, module), 1e-5)


@case("horovodrun's command starts the ranks", 1, seconds=60, only="tessera")
def horovodrun_command(rank):
    script = os.path.join(rank.folder, "script.py")
    with open(script, "w") as file:
        file.write("""
import ctypes, os
from tessera import _c
world = _c.handle("init_environment", b"script", None)
group = _c.handle("world_group", world)
number = ctypes.c_int64(_c.number("rank", world) + 1)
_c.call("all_reduce", group, ctypes.byref(number), ctypes.byref(number), 1, _c.INT64, _c.SUM, None, None)
print("sum", number.value, os.environ["HOROVOD_TIMELINE"], os.environ["HOROVOD_FUSION_THRESHOLD"])
""")
    done = subprocess.run([program(), "launch", "-np", "3", "-H", "localhost:4", "--timeline-filename", "t.json",
                           "--fusion-threshold-mb", "0", "--cycle-time-ms", "2", sys.executable, script],
                          capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("sum 6 t.json 0") == 3, done.stdout
    assert "--cycle-time-ms has no effect" in done.stderr, done.stderr


@case("horovodrun's command with the MNIST example: its losses are DDP's", 2, seconds=500, only="tessera", more=True)
def mnist(rank):
    module, path = example("hvd_mnist")
    ours = launched_as_by_horovodrun(rank, path, "--epochs", "1", "--gradient-predivide-factor", "2")
    equal(ours, mnist_losses_of_ddp(rank, module), 1e-5)


@case("horovodrun's command with the synthetic benchmark: its losses are DDP's", 2, seconds=500, only="tessera",
      more=True)
def synthetic_benchmark(rank):
    module, path = example("hvd_synthetic_benchmark")
    ours = launched_as_by_horovodrun(rank, path, "--num-iters", "1")
    torch.manual_seed(rank.rank)
    theirs = ddp_losses(rank, module.build(), 0.02, torch.nn.functional.cross_entropy,
                        [module.fake_data(16, rank.rank)] * 7)
    equal(ours, theirs, 1e-5)


@case("horovodrun's command with the elastic example: its losses are DDP's", 2, seconds=500, only="tessera",
      more=True)
def elastic(rank):
    module, path = example("hvd_elastic")
    ours = launched_as_by_horovodrun(rank, path, "--fail-at", "12")
    torch.manual_seed(rank.rank)
    theirs = ddp_losses(rank, torch.nn.Linear(8, 1), 0.05, torch.nn.functional.mse_loss,
                        [module.batch_of(i, rank.rank, 2) for i in range(30)])
    equal(ours, theirs, 1e-5)
