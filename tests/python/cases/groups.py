"""Groups, ways to start, and what happens when things go wrong."""
import os
import signal
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from harness import Skip, case, equal, raises

VERSION = tuple(int(x) for x in torch.__version__.split("+")[0].split(".")[:2])


@case("device map cpu:tessera", 2)
def device_map(rank):
    dist.init_process_group("cpu:" + rank.backend, store=rank.store(), rank=rank.rank, world_size=2)
    t = torch.ones(3)
    dist.all_reduce(t)
    equal(t, torch.full((3,), 2.0))


@case("a group again in the same store", 2)
def again(rank):
    store = rank.store()
    for number in range(3):
        dist.init_process_group(rank.backend, store=store, rank=rank.rank, world_size=2)
        t = torch.full((3,), 1.0 + number)
        dist.all_reduce(t)
        equal(t, torch.full((3,), 2.0 + 2 * number))
        dist.destroy_process_group()


@case("new groups of many kinds", 4)
def new_groups(rank):
    rank.start()
    for ranks in ([0], [0, 1, 2, 3], [0, 2], [1, 3], [3, 1, 2]):
        group = dist.new_group(ranks)
        if rank.rank in ranks:
            t = torch.full((5,), 1.0 + rank.rank)
            dist.all_reduce(t, group=group)
            equal(t, torch.full((5,), float(sum(r + 1 for r in ranks))))
            t = torch.full((5,), 1.0 + rank.rank)
            dist.broadcast(t, max(ranks), group=group)
            equal(t, torch.full((5,), 1.0 + max(ranks)))
            dist.destroy_process_group(group)


@case("new_group of Gloo beside it", 2, only="tessera")
def beside_gloo(rank):
    rank.start()
    group = dist.new_group(backend="gloo")
    t = torch.ones(3)
    dist.all_reduce(t, group=group)
    dist.all_reduce(t)
    equal(t, torch.full((3,), 4.0))


@case("new_group of it beside Gloo", 2, only="tessera")
def inside_gloo(rank):
    dist.init_process_group("gloo", store=rank.store(), rank=rank.rank, world_size=2)
    for _ in range(2):
        group = dist.new_group([0, 1], backend="tessera")
        t = torch.ones(3)
        dist.all_reduce(t, group=group)
        equal(t, torch.full((3,), 2.0))


@case("split_group", 4, only="tessera")
def split_group(rank):
    if VERSION < (2, 7):
        raise Skip("split_group of torch 2.6 asks for CUDA and NCCL")
    pg = rank.start()
    if VERSION >= (2, 15):
        group = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    else:
        group = pg.split_group([rank.rank // 2 * 2, rank.rank // 2 * 2 + 1])
    t = torch.full((5,), float(rank.rank))
    group.allreduce([t]).wait()
    equal(t, torch.full((5,), rank.rank // 2 * 4 + 1.0))


@case("device mesh of two dimensions", 4)
def mesh(rank):
    from torch.distributed.device_mesh import init_device_mesh
    rank.start()
    made, out = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b")), []
    for name in ("a", "b"):
        t = torch.full((3,), float(rank.rank))
        dist.all_reduce(t, group=made.get_group(name))
        out.append(t)
    t = torch.full((3,), float(rank.rank))
    dist.all_reduce(t, group=made["a", "b"]._flatten().get_group())
    return out + [t]


@case("debug level DETAIL", 2)
def debug_detail(rank):
    from torch.nn.parallel import DistributedDataParallel
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    rank.start()
    t = torch.ones(3)
    dist.all_reduce(t)
    equal(t, torch.full((3,), 2.0))
    DistributedDataParallel(torch.nn.Linear(3, 3))(t).sum().backward()


@case("two threads, each with its own group", 2)
def two_threads(rank):
    rank.start()
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    tensors = [torch.ones(200000) for _ in range(2)]

    def go(i):
        for _ in range(20):
            dist.all_reduce(tensors[i], group=groups[i])
            tensors[i] /= 2
    threads = [threading.Thread(target=go, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(tensors, [torch.ones(200000)] * 2)


@case("works waited for in another order", 3)
def waited_backwards(rank):
    rank.start()
    tensors = [torch.full((1000 * (i + 1),), rank.rank + i + 0.0) for i in range(40)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in reversed(works):
        work.wait()
    total = dist.all_reduce(tensors[0], async_op=True).get_future().then(lambda f: f.value()[0].sum()).wait()
    return tensors + [total]


@case("works that nobody waits for", 2)
def dropped_works(rank):
    rank.start()
    for _ in range(300):
        dist.all_reduce(torch.ones(3000), async_op=True)
    t = torch.ones(4)
    dist.all_reduce(t)
    equal(t, torch.full((4,), 2.0))


@case("strided tensors in flight, and a barrier", 2)
def strided_in_flight(rank):
    rank.start()
    tensors = [torch.full((64, 32), float(i)).t() for i in range(20)]
    for t in tensors:
        dist.all_reduce(t, async_op=True)
    dist.barrier()
    equal(tensors, [torch.full((32, 64), 2.0 * i) for i in range(20)])


@case("large tensors", 2)
def large(rank):
    rank.start()
    t = torch.arange(5_000_000, dtype=torch.float32) + rank.rank
    dist.all_reduce(t)
    equal(t, 2 * torch.arange(5_000_000, dtype=torch.float32) + 1, 1e-7)
    return [t.sum().item()]


@case("wait with a time-out, and then without", 2, only="tessera")
def wait_with_timeout(rank):
    rank.start()
    if rank.rank == 0:
        t = torch.ones(4)
        work = dist.all_reduce(t, async_op=True)
        with raises("timed out|has not ended"):
            work.wait(timedelta(seconds=0.2))
        rank.meet("go")
        work.wait()
        equal(t, torch.full((4,), 2.0))
    else:
        rank.meet("go")
        dist.all_reduce(torch.ones(4))


@case("a time-out names the rank that is missing", 3, only="tessera")
def timeout_names_rank(rank):
    rank.start(timeout=1.0)
    if rank.rank != 1:
        begin = time.monotonic()
        with raises("(?i)rank 1"):
            dist.all_reduce(torch.ones(4))
        assert 0.5 < time.monotonic() - begin < 6
    rank.meet("end")


@case("a killed rank is named at once", 3, only="tessera")
def killed_rank(rank):
    rank.start(timeout=60.0)
    dist.barrier()
    if rank.rank == 1:
        rank.die()
    begin = time.monotonic()
    with raises("(?i)rank 1"):
        dist.all_reduce(torch.ones(4))
    took = time.monotonic() - begin
    assert took < 1.5, took


@case("ranks that start different operations", 2, only="tessera")
def different_operations(rank):
    rank.start(timeout=20.0)
    begin = time.monotonic()
    with raises("(?i)all_reduce|allreduce|broadcast"):
        if rank.rank == 0:
            dist.all_reduce(torch.ones(4))
        else:
            dist.broadcast(torch.ones(4), 0)
    assert time.monotonic() - begin < 3
    rank.meet("end")


@case("ranks that start different counts", 2, only="tessera")
def different_counts(rank):
    rank.start(timeout=20.0)
    begin = time.monotonic()
    with raises("4|5"):
        dist.all_reduce(torch.ones(4 + rank.rank))
    assert time.monotonic() - begin < 3
    rank.meet("end")


@case("receives are posted on both sides long before the sends", 2, more=True)
def early_receives(rank):
    """As pipelines do: a stage posts the receive of gradients before it has computed what the other waits for."""
    rank.start()
    t = torch.zeros(4)
    work = dist.irecv(t, 1 - rank.rank)
    time.sleep(8)
    dist.isend(torch.full((4,), 1.0 + rank.rank), 1 - rank.rank)
    work.wait()
    equal(t, torch.full((4,), 2.0 - rank.rank))
    rank.meet("end")


@case("abort wakes all", 2, only="tessera")
def abort(rank):
    rank.start()
    if rank.rank == 0:
        time.sleep(0.5)
        dist.group.WORLD.abort()
    else:
        begin = time.monotonic()
        with raises("(?i)abort"):
            dist.all_reduce(torch.ones(4))
        assert time.monotonic() - begin < 5
    rank.meet("end")


@case("destroy while an operation is pending", 2, only="tessera")
def destroy_pending(rank):
    rank.start()
    if rank.rank == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        time.sleep(0.2)
        dist.destroy_process_group()
        with raises("(?i)shut|destroyed|ended"):
            work.wait()
    rank.meet("end")


@case("init, destroy, init again", 2)
def again(rank):
    for i in range(3):
        dist.init_process_group(rank.backend, store=rank.store("store{}".format(i)), rank=rank.rank, world_size=2)
        t = torch.ones(2)
        dist.all_reduce(t)
        equal(t, torch.full((2,), 2.0))
        dist.destroy_process_group()


@case("a forked child that does not communicate", 2)
def fork(rank):
    rank.start()
    dist.all_reduce(torch.ones(4))
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    equal(os.waitpid(pid, 0)[1], 0)
    dist.all_reduce(torch.ones(4))


@case("tensors of another device are refused", 1, only="tessera")
def other_device(rank):
    rank.start()
    with raises("CPU"):
        dist.all_reduce(torch.ones(4, device="meta"))


@case("a dtype that cannot be added", 2, only="tessera")
def no_reduction(rank):
    rank.start()
    with raises("no reduction of"):
        dist.all_reduce(torch.ones(4, dtype=torch.float8_e4m3fn))
    t = torch.full((4,), float(rank.rank)).to(torch.float8_e4m3fn)
    dist.broadcast(t, 1)
    equal(t.float(), torch.ones(4))


@case("a second backend in one description is refused", 1, only="tessera")
def two_backends(rank):
    with raises("gloo in the same group"):
        dist.init_process_group("cpu:tessera,cuda:gloo", store=rank.store(), rank=0, world_size=1)


@case("a rank that is stopped (SIGSTOP) is named within 5 s", 3, seconds=40, only="tessera")
def stopped(rank):
    rank.start(timeout=60)
    dist.barrier()
    if rank.rank == 2:
        pid = os.getpid()
        if os.fork() == 0:  # resumes it when the others have named it
            time.sleep(9)
            os.kill(pid, signal.SIGCONT)
            os._exit(0)
        os.kill(pid, signal.SIGSTOP)
        return
    for start in (lambda: dist.all_reduce(torch.ones(1 << 20)), lambda: dist.barrier()):
        begin = time.monotonic()
        with raises(r"rank 2 \(pid \d+\).* is stopped \(SIGSTOP\)", tessera_torch().PeerLost):
            start()
        assert time.monotonic() - begin < 5, time.monotonic() - begin


@case("reduce_scatter_tensor into a part of its input", 2, only="tessera")
def reduce_scatter_in_place(rank):
    rank.start()
    x = torch.arange(8.0) + rank.rank
    own = x.chunk(2)[rank.rank]
    dist.reduce_scatter_tensor(own, x)
    equal(own, (2 * torch.arange(8.0) + 1).chunk(2)[rank.rank])


def tessera_torch():
    import tessera.torch
    return tessera.torch


@case("tensors of empty_shared()", 2, only="tessera")
def shared_tensors(rank):
    rank.start()
    make = tessera_torch().empty_shared
    for shape, dtype in (((3, 5), torch.float32), ((1 << 20,), torch.bfloat16), ((), torch.int64),
                         ((0, 4), torch.uint8)):
        t = make(*shape, dtype=dtype)
        assert t.shape == shape and t.dtype == dtype and t.is_contiguous()
        t.fill_(rank.rank + 1)
        dist.all_reduce(t)
        equal(t, torch.full(shape, 3, dtype=dtype))
    assert make(2, 3).dtype == torch.get_default_dtype() and make([2, 3]).shape == (2, 3)
    assert make(torch.tensor(4)).shape == (4,)  # as numpy's integers: not an int, but an index
    with raises("cannot be negative", ValueError):
        make(-2, -3)
    # Memory is freed with the last view of a tensor, and used again.
    seen = set()
    for _ in range(50):
        t = make(1 << 18)
        row = t[5:]
        del t
        row.fill_(1)
        seen.add(row.data_ptr())
        del row
    assert len(seen) < 5, len(seen)
