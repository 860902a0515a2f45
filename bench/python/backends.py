#!/usr/bin/env python3
"""The backend "tessera" of torch.distributed against Gloo, interleaved in one run: how many times as fast.

    python3 bench/python/backends.py [-n 2] [--rounds 9]

Each row is a comparison: the two backends take turns, the median of the rounds counts. Steps run on one thread per
rank.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests", "python")]
BACKENDS = ("gloo", "tessera")


def seconds(function, count):
    begin = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - begin) / count


def rank_main(rank, size, rounds, only):
    import torch
    import torch.distributed as dist
    import tessera.torch  # noqa: F401
    from models import batch, build, loss_of
    from torch.nn.parallel import DistributedDataParallel
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.environ["FOLDER"] + "/store", rank=rank, world_size=size)
    groups = {b: dist.new_group(list(range(size)), backend=b) for b in BACKENDS}
    if rank == 0:
        print("torch {}, {} ranks; medians".format(torch.__version__, size), flush=True)

    def compare(what, make, count, unit=1e6, name="us", more=1):
        if only and only not in what:
            return
        functions = {b: make(groups[b]) for b in BACKENDS}
        took = {b: [] for b in BACKENDS}
        for i in range(rounds + 1):
            for b in BACKENDS:
                dist.barrier(groups[b])
                one = seconds(functions[b], count)
                if i:
                    took[b].append(one * unit / more)
        if rank == 0:
            gloo, ours = (statistics.median(took[b]) for b in BACKENDS)
            print("{:44s} gloo {:9.1f} {n}   tessera {:9.1f} {n}   {:5.2f} times as fast".format(
                what, gloo, ours, gloo / ours, n=name), flush=True)

    small, large = torch.ones(1024), torch.ones(16 << 20)
    compare("all_reduce, 4 KB", lambda g: lambda: dist.all_reduce(small, group=g), 200)
    compare("all_reduce, 4 KB, async and wait", lambda g: lambda: dist.all_reduce(small, group=g, async_op=True).wait(),
            200)
    compare("barrier", lambda g: lambda: dist.barrier(g), 200)
    compare("all_reduce, 1 MB", lambda g: lambda: dist.all_reduce(large[:1 << 18], group=g), 20)
    compare("all_reduce, 64 MB", lambda g: lambda: dist.all_reduce(large, group=g), 2, 1e3, "ms")
    shared = tessera.torch.empty_shared(16 << 20).fill_(1)
    compare("all_reduce, 64 MB of empty_shared()", lambda g: lambda: dist.all_reduce(shared, group=g), 2, 1e3, "ms")

    def burst(g):
        def run():
            for work in [dist.all_reduce(small, group=g, async_op=True) for _ in range(32)]:
                work.wait()
        return run
    compare("32 all_reduces of 4 KB in flight, each", burst, 10, more=32)

    def ddp(cap, **model):
        def make(g):
            module = DistributedDataParallel(build(batch_norm=False, **model), process_group=g, bucket_cap_mb=cap)
            opt, (x, y) = torch.optim.SGD(module.parameters(), lr=0.01), batch(0, rank)

            def run():
                loss_of(module(x), y).backward()
                opt.step()
                opt.zero_grad()
            return run
        return make
    compare("DDP step, 30 k parameters", ddp(25), 5, 1e3, "ms")
    compare("DDP step, 30 k parameters, 10 buckets", ddp(0.01), 5, 1e3, "ms")
    compare("DDP step, 3.3 M parameters", ddp(25, width=256, hidden=1024, layers=4), 2, 1e3, "ms")

    def wide_ddp(g):
        """A table of 4 M numbers and nearly nothing to compute: communication is the step."""
        table = torch.nn.Embedding(65536, 64)
        module = DistributedDataParallel(table, process_group=g)
        opt, ids = torch.optim.SGD(module.parameters(), lr=0.01), torch.arange(64)

        def run():
            module(ids).sum().backward()
            opt.step()
            opt.zero_grad()
        return run
    compare("DDP step, embedding of 4 M numbers", wide_ddp, 2, 1e3, "ms")
    if not torch.__version__.startswith("2.6"):
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        def fsdp2(**model):
            def make(g):
                mesh = DeviceMesh.from_group(g, "cpu")
                module = build(batch_norm=False, **model)
                for block in module.blocks:
                    fully_shard(block, mesh=mesh)
                fully_shard(module, mesh=mesh)
                opt, (x, y) = torch.optim.SGD(module.parameters(), lr=0.01), batch(0, rank)

                def run():
                    loss_of(module(x), y).backward()
                    opt.step()
                    opt.zero_grad()
                return run
            return make
        compare("FSDP2 step, 30 k parameters", fsdp2(), 3, 1e3, "ms")
        compare("FSDP2 step, 3.3 M parameters", fsdp2(width=256, hidden=1024, layers=4), 2, 1e3, "ms")
    import tessera.hvd.torch as hvd
    hvd.init()
    import random
    order = random.Random(rank).sample(range(1000), 1000)
    tensors = [torch.ones(1024) for _ in range(1000)]

    def named():
        for handle in [hvd.allreduce_async_(tensors[i], name=str(i), op=hvd.Sum) for i in order]:
            hvd.synchronize(handle)

    def one_by_one():
        for t in tensors:
            dist.all_reduce(t, group=groups["gloo"])
    compare("1000 tensors of 4 KB by name, random order", lambda g: one_by_one if g is groups["gloo"] else named, 1,
            1e3, "ms")
    dist.barrier(groups["gloo"])
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-k", default="", help="only rows with this text")
    args = parser.parse_args()
    if "BENCH_RANK" in os.environ:
        return rank_main(int(os.environ["BENCH_RANK"]), args.n, args.rounds, args.k)
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, "-W", "ignore"] + sys.argv, env=dict(
            os.environ, BENCH_RANK=str(r), RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(args.n),
            LOCAL_WORLD_SIZE=str(args.n), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), FOLDER=folder,
            GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")) for r in range(args.n)]
        try:
            return max(r.wait(timeout=900) for r in ranks)
        finally:
            for r in ranks:
                r.kill()


if __name__ == "__main__":
    sys.exit(main())
