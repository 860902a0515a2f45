# Long because: one case per test of that file of PyTorch, in its order.
"""PyTorch's DistributedTest (distributed_test.py) for backends on the CPU, written anew: the same names."""
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from harness import Skip, case, equal, raises


def group_of(rank, which):
    """(group, its ranks): all; all in a group of their own; ranks 1 and up (the group of the tests for subgroups)."""
    if which == "":
        return dist.group.WORLD, list(range(rank.size))
    ranks = list(range(rank.size)) if which == "full_group" else list(range(1, rank.size))
    return dist.new_group(ranks), ranks


WHICH = (("", ""), ("_group", "group"), ("_full_group", "full_group"))
REDUCTIONS = {"sum": (dist.ReduceOp.SUM, 2, 10), "product": (dist.ReduceOp.PRODUCT, 2, 10),
              "min": (dist.ReduceOp.MIN, 1010, 1), "max": (dist.ReduceOp.MAX, -1, 10)}


def total(name, values):
    """What the reduction gives of one value for each rank."""
    result = values[0]
    for v in values[1:]:
        result = {"sum": result + v, "product": result * v, "min": min(result, v), "max": max(result, v)}[name]
    return float(result)


def table(name, ranks=3, more=False):
    """For each kind of group: a case of the decorated function (rank, group, its ranks)."""
    def add(function):
        for suffix, which in WHICH:
            def run(rank, which=which):
                rank.start()
                group, members = group_of(rank, which)
                if rank.rank in members:
                    function(rank, group, members)
                dist.barrier()
            case(name.format(suffix), ranks, more=more or which == "full_group")(run)
        return function
    return add


def reduce_table():
    for name, (op, master, worker) in REDUCTIONS.items():
        def all_reduce(rank, group, members, name=name, op=op, master=master, worker=worker):
            for src in members:
                t = torch.full((3, 3, 3), float(master if rank.rank == src else worker))
                dist.all_reduce(t, op, group=group)
                equal(t, torch.full((3, 3, 3), total(name, [master] + [worker] * (len(members) - 1))))

        def reduce(rank, group, members, name=name, op=op, master=master, worker=worker):
            for src in members:
                t = torch.full((3, 3, 3), float(master if rank.rank == src else worker))
                dist.reduce(t, src, op, group=group)
                if rank.rank == src:
                    equal(t, torch.full((3, 3, 3), total(name, [master] + [worker] * (len(members) - 1))))

        def coalesced(rank, group, members, name=name, op=op, master=master, worker=worker):
            for src in members:
                ts = [torch.full((n, n), float(master if rank.rank == src else worker)) for n in (1, 2, 5)]
                dist.all_reduce_coalesced(ts, op, group=group)
                want = total(name, [master] + [worker] * (len(members) - 1))
                equal(ts, [torch.full((n, n), want) for n in (1, 2, 5)])
        table("test_all_reduce{}_" + name, more=name in ("product", "min"))(all_reduce)
        table("test_reduce{}_" + name, more=name in ("product", "min"))(reduce)
        table("test_all_reduce_coalesced{}_" + name, more=name in ("product", "min"))(coalesced)


reduce_table()


def values(rank, dtype):
    """A tensor of the dtype that tells the rank."""
    if dtype == torch.bool:
        return torch.tensor([rank % 2 == 0, True, False])
    return (torch.arange(27).reshape(3, 3, 3) % 5 + rank).to(dtype)


DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
          torch.int16, torch.int32,
          torch.int64, torch.bool, torch.complex64)


def dtypes_of(rank):
    """All dtypes; Gloo does not know some."""
    gloo = (torch.bfloat16, torch.int16, torch.bool)
    return tuple(d for d in DTYPES if rank.backend == "tessera" or d not in gloo)


@table("test_broadcast{}")
def broadcast(rank, group, members):
    for dtype in dtypes_of(rank) + ((torch.float8_e4m3fn,) if rank.backend == "tessera" else ()):
        for src in members:
            t = values(rank.rank, dtype)
            dist.broadcast(t, src, group=group)
            equal(t.float() if not t.is_complex() else t, values(src, dtype).float() if not t.is_complex()
                  else values(src, dtype))


@table("test_scatter{}")
def scatter(rank, group, members):
    for dest in members:
        out = torch.full((3, 3, 3), -1.0)
        dist.scatter(out, [torch.full((3, 3, 3), float(i)) for i in members] if rank.rank == dest else None, src=dest,
                     group=group)
        equal(out, torch.full((3, 3, 3), float(rank.rank)))


@table("test_gather{}")
def gather(rank, group, members):
    for dest in members:
        outs = [torch.full((3, 3, 3), -1.0) for _ in members] if rank.rank == dest else None
        dist.gather(torch.full((3, 3, 3), float(rank.rank)), outs, dst=dest, group=group)
        if outs:
            equal(outs, [torch.full((3, 3, 3), float(i)) for i in members])


@table("test_all_gather{}")
def all_gather(rank, group, members):
    for dtype in dtypes_of(rank):
        outs = [torch.zeros_like(values(0, dtype)) for _ in members]
        dist.all_gather(outs, values(rank.rank, dtype), group=group)
        equal(outs, [values(r, dtype) for r in members])


@table("test_all_gather_coalesced{}_simple")
def all_gather_coalesced(rank, group, members):
    inputs = [torch.full((n,), float(rank.rank)) for n in (1, 3, 0, 5)]
    outs = [[torch.full((n,), -1.0) for n in (1, 3, 0, 5)] for _ in members]
    dist.all_gather_coalesced(outs, inputs, group=group)
    equal(outs, [[torch.full((n,), float(r)) for n in (1, 3, 0, 5)] for r in members])


@table("test_all_gather_into_tensor{}")
def all_gather_into_tensor(rank, group, members):
    for dtype in dtypes_of(rank):
        x = values(rank.rank, dtype)
        out = torch.zeros((len(members) * x.shape[0],) + x.shape[1:], dtype=dtype)
        dist.all_gather_into_tensor(out, x, group=group)
        equal(out, torch.cat([values(r, dtype) for r in members]))


@table("test_all_to_all_single_equal_split{}")
def all_to_all_equal(rank, group, members):
    for dtype in (torch.float32, torch.complex64, torch.bool):
        n = len(members)
        x = torch.ones(n, n).mul(rank.rank + 1).to(dtype)
        out = torch.zeros(n, n).to(dtype)
        dist.all_to_all_single(out, x, group=group)
        equal(out, torch.cat([torch.ones(1, n).mul(r + 1).to(dtype) for r in members]))


@table("test_all_to_all_single_unequal_split{}")
def all_to_all_unequal(rank, group, members):
    n, me = len(members), members.index(rank.rank)
    for dtype in (torch.float32, torch.complex64, torch.int64):
        x = torch.ones(sum(i + 1 for i in range(n)), n).mul(rank.rank).to(dtype)
        out = torch.zeros((me + 1) * n, n).to(dtype)
        dist.all_to_all_single(out, x, [me + 1] * n, [i + 1 for i in range(n)], group=group)
        equal(out, torch.cat([torch.ones(me + 1, n).mul(r).to(dtype) for r in members]))


@case("test_all_to_all", 3, only="tessera")
def all_to_all(rank):
    """Gloo has all_to_all of lists in newer releases only."""
    rank.start()
    for dtype in (torch.float32, torch.complex64):
        ins = [torch.full((i + 1, 2), rank.rank + 1).to(dtype) for i in range(3)]
        outs = [torch.zeros(rank.rank + 1, 2).to(dtype) for _ in range(3)]
        dist.all_to_all(outs, ins)
        equal(outs, [torch.full((rank.rank + 1, 2), r + 1).to(dtype) for r in range(3)])


@table("test_barrier{}")
def barrier(rank, group, members):
    for dest in members:
        end = torch.zeros(1, dtype=torch.float64)
        if rank.rank == dest:
            end.fill_(time.time() + 0.1)
        dist.broadcast(end, dest, group=group)
        if rank.rank == dest:
            time.sleep(0.12)
        dist.barrier(group=group)
        assert time.time() >= end.item()


@case("test_all_reduce_sum_async")
def all_reduce_async(rank):
    rank.start()
    t = torch.full((3,), rank.rank + 1.0)
    work = dist.all_reduce(t, async_op=True)
    work.wait()
    assert work.is_completed()
    equal(t, torch.full((3,), 3.0))


@case("test_reduce_sum_twice")
def reduce_twice(rank):
    rank.start()
    ts = [torch.full((3,), rank.rank + 1.0) for _ in range(2)]
    for t in ts:
        dist.reduce(t, 0)
    if rank.rank == 0:
        equal(ts, [torch.full((3,), 3.0)] * 2)


@case("test_all_reduce_sum_complex")
def all_reduce_complex(rank):
    rank.start()
    t = torch.full((3, 3), complex(rank.rank + 1, 2))
    dist.all_reduce(t)
    equal(t, torch.full((3, 3), complex(3, 4)))


@case("test_all_reduce_complex_unsupported_ops")
def complex_unsupported(rank):
    rank.start()
    for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT, dist.ReduceOp.BAND, dist.ReduceOp.BOR,
               dist.ReduceOp.BXOR):
        with raises("all_reduce does not support", ValueError):
            dist.all_reduce(torch.zeros(2, dtype=torch.complex64), op)


@case("test_all_reduce_coalesced_max_complex_unsupported")
def coalesced_complex_unsupported(rank):
    rank.start()
    with raises("all_reduce does not support", (ValueError, RuntimeError)):
        dist.all_reduce_coalesced([torch.zeros(2, dtype=torch.complex64)], dist.ReduceOp.MAX)


@case("test_sparse_all_reduce_sum")
def sparse_all_reduce(rank):
    rank.start()
    t = torch.sparse_coo_tensor(torch.tensor([[rank.rank, 2]]), torch.tensor([1.0, 2.0]), (4,))
    dist.all_reduce(t)
    equal(t.to_dense(), torch.tensor([1.0, 1.0, 4.0, 0.0]))


@case("test_scatter_checks")
def scatter_checks(rank):
    rank.start()
    one = torch.ones(1)
    out = one * -1
    if rank.rank == 0:
        dist.scatter(out, src=0, scatter_list=[one * i for i in range(2)])
    else:
        dist.scatter(out, src=0)
    equal(out, one * rank.rank)


@case("test_gather_checks")
def gather_checks(rank):
    rank.start()
    one = torch.ones(1) * rank.rank
    if rank.rank == 0:
        outs = [torch.zeros(1) for _ in range(2)]
        dist.gather(one, dst=0, gather_list=outs)
        equal(outs, [torch.tensor([0.0]), torch.tensor([1.0])])
    else:
        dist.gather(one, dst=0)


@case("test_get_rank", 3)
def get_rank(rank):
    rank.start()
    equal((dist.get_rank(), dist.get_world_size()), (rank.rank, 3))


@case("test_get_backend", 3)
def get_backend(rank):
    rank.start()
    equal(dist.get_backend(), rank.backend)
    group = dist.new_group([1, 2])
    if rank.rank:
        equal(dist.get_backend(group), rank.backend)
    else:
        with raises("(?i)invalid process group", ValueError):
            dist.get_backend(group)


@case("test_Backend_enum_class", 1)
def backend_enum(rank):
    equal(dist.Backend(rank.backend.upper()), rank.backend)
    with raises(".*", ValueError):
        dist.Backend(None)
    with raises(".*", ValueError):
        dist.Backend(3)


@case("test_destroy_group", 3)
def destroy_group(rank):
    rank.start()
    for ranks in ([1, 2], [0, 1, 2]):
        group = dist.new_group(ranks)
        if rank.rank in ranks:
            dist.barrier(group)
            dist.destroy_process_group(group)
    dist.barrier()


@case("test_get_rank_size_group", 3)
def rank_size_group(rank):
    rank.start()
    group = dist.new_group([1, 2])
    if rank.rank:
        equal((dist.get_rank(group), dist.get_world_size(group)), (rank.rank - 1, 2))
    else:
        equal((dist.get_rank(group), dist.get_world_size(group)), (-1, -1))


@case("test_barrier_timeout_global", 2)
def barrier_timeout_global(rank):
    rank.start(timeout=1.0)
    if rank.rank == 0:
        begin = time.monotonic()
        with raises("(?i)time.?d? ?out|connection closed"):
            dist.barrier()
        assert 0.5 < time.monotonic() - begin < 8
    rank.meet("end")


@case("test_barrier_timeout_group", 3)
def barrier_timeout_group(rank):
    rank.start()
    group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    if rank.rank == 0:
        with raises("(?i)time.?d? ?out|connection closed"):
            dist.barrier(group)
    rank.meet("end")


@case("test_barrier_timeout_full_group", 2)
def barrier_timeout_full_group(rank):
    rank.start()
    group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    if rank.rank == 0:
        with raises("(?i)time.?d? ?out|connection closed"):
            dist.barrier(group)
    rank.meet("end")


@case("test_new_subgroups", 4)
def new_subgroups(rank):
    rank.start()
    mine, groups = dist.new_subgroups(2)
    equal((dist.get_world_size(mine), len(groups)), (2, 2))
    equal(dist.get_process_group_ranks(mine), [[0, 1], [2, 3]][rank.rank // 2])
    dist.barrier(mine)


@case("test_new_subgroups_by_enumeration", 4)
def new_subgroups_by_enumeration(rank):
    rank.start()
    mine, groups = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    t = torch.full((2,), float(rank.rank))
    dist.all_reduce(t, group=mine)
    equal(t, torch.full((2,), 2.0 if rank.rank % 2 == 0 else 4.0))


@case("test_new_subgroups_overlap_not_allowed", 4)
def subgroups_overlap(rank):
    rank.start()
    with raises("", ValueError):
        dist.new_subgroups_by_enumeration([[0], [1, 2], [1, 3]])


@case("test_batch_isend_irecv_gloo", 3)
def batch_isend_irecv(rank):
    rank.start()
    batch_of_messages(rank, None)


@case("test_batch_isend_irecv_gloo_tags", 3)
def batch_isend_irecv_tags(rank):
    rank.start()
    batch_of_messages(rank, lambda a, b: a)


def batch_of_messages(rank, tag):
    ops, got = [], {}
    for other in range(rank.size):
        got[other] = torch.full((3, other + 1), -1.0)
        if other == rank.rank:
            continue
        ops.append(dist.P2POp(dist.isend, torch.full((3, rank.rank + 1), float(rank.rank)), other,
                              tag=tag(rank.rank, other) if tag else 0))
        ops.append(dist.P2POp(dist.irecv, got[other], other, tag=tag(other, rank.rank) if tag else 0))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for other in range(rank.size):
        if other != rank.rank:
            equal(got[other], torch.full((3, other + 1), float(other)))


@case("test_batch_isend_irecv_self / op_err / list_err", 2)
def batch_errors(rank):
    rank.start()
    with raises("Invalid ``op``", ValueError):
        dist.batch_isend_irecv([dist.P2POp(dist.broadcast, torch.ones(1), 1)])
    with raises("", (ValueError, RuntimeError)):
        dist.batch_isend_irecv([1, 2])


@case("test_send_recv", 3)
def send_recv(rank):
    rank.start()
    for src in range(rank.size):
        if src == rank.rank:
            for dst in range(rank.size):
                if dst != src:
                    dist.send(torch.full((10,), float(src)), dst)
        else:
            t = torch.full((10,), -1.0)
            equal(dist.recv(t, src), src)
            equal(t, torch.full((10,), float(src)))


@case("test_send_recv_any_source", 3)
def send_recv_any_source(rank):
    rank.start()
    for dst in range(rank.size):
        if dst == rank.rank:
            seen = []
            for _ in range(rank.size - 1):
                t = torch.full((10,), -1.0)
                src = dist.recv(t, None)
                equal(t, torch.full((10,), float(src)))
                seen.append(src)
            equal(sorted(seen), [r for r in range(rank.size) if r != dst])
        else:
            dist.send(torch.full((10,), float(rank.rank)), dst)
        dist.barrier()


@case("test_send_recv_with_tag", 3)
def send_recv_with_tag(rank):
    rank.start()
    for dst in range(rank.size):
        if dst == rank.rank:
            for src in range(rank.size):
                if src != dst:
                    t = torch.full((10,), -1.0)
                    dist.recv(t, src, tag=src)
                    equal(t, torch.full((10,), float(src)))
        else:
            dist.send(torch.full((10,), float(rank.rank)), dst, tag=rank.rank)


@case("test_send_recv_with_tag (out of order)", 2)
def tags_out_of_order(rank):
    rank.start()
    if rank.rank == 0:
        works = [dist.isend(torch.full((4,), float(tag)), 1, tag=tag) for tag in (1, 2, 3)]
    else:
        got = {tag: torch.zeros(4) for tag in (3, 1, 2)}
        works = [dist.irecv(got[tag], 0, tag=tag) for tag in (3, 1, 2)]
    for work in works:
        work.wait()
    if rank.rank == 1:
        equal([got[tag] for tag in (1, 2, 3)], [torch.full((4,), float(tag)) for tag in (1, 2, 3)])


@case("test_isend / test_irecv", 3)
def isend_irecv(rank):
    rank.start()
    if rank.rank == 0:
        works = [dist.isend(torch.full((10,), float(dst)), dst) for dst in range(1, rank.size)]
        for work in works:
            work.wait()
            assert work.is_completed()
    else:
        t = torch.full((10,), -1.0)
        work = dist.irecv(t, 0)
        work.wait()
        equal(t, torch.full((10,), float(rank.rank)))


@case("test_monitored_barrier_gloo", 3)
def monitored_barrier(rank):
    rank.start()
    for _ in range(3):
        dist.monitored_barrier(timeout=timedelta(seconds=2))
    if rank.rank != 1:
        begin = time.monotonic()
        with raises("Rank 1 failed to pass monitoredBarrier" if rank.rank == 0 else "(?i)rank 0|rank 1 failed"):
            dist.monitored_barrier(timeout=timedelta(seconds=0.5))
        assert time.monotonic() - begin < 5
    rank.meet("end")


@case("test_monitored_barrier_gloo_subgroup", 4)
def monitored_barrier_subgroup(rank):
    rank.start()
    group = dist.new_group([0, 1])
    if rank.rank == 0:
        with raises("failed to pass monitoredBarrier"):
            dist.monitored_barrier(group, timeout=timedelta(seconds=0.3))
    rank.meet("end")


@case("test_monitored_barrier_gloo_rank_0_timeout", 2)
def monitored_barrier_rank_0(rank):
    rank.start()
    dist.monitored_barrier(timeout=timedelta(seconds=2))
    if rank.rank == 1:
        with raises("(?i)rank 0"):
            dist.monitored_barrier(timeout=timedelta(seconds=0.3))
    rank.meet("end")


@case("test_monitored_barrier_failure_order", 4)
def monitored_barrier_order(rank):
    rank.start()
    if rank.rank == 0:
        with raises("Rank 1 failed to pass monitoredBarrier"):
            dist.monitored_barrier(timeout=timedelta(seconds=0.5))
    elif rank.rank == 3:
        with raises("(?i)rank 1 failed|rank 0|monitored|closed"):
            dist.monitored_barrier(timeout=timedelta(seconds=0.5))
    rank.meet("end")


@case("test_monitored_barrier_wait_all_ranks", 4)
def monitored_barrier_wait_all(rank):
    rank.start()
    if rank.rank == 0:
        with raises("Ranks 1, 2, 3 failed to pass monitoredBarrier"):
            dist.monitored_barrier(timeout=timedelta(seconds=0.3), wait_all_ranks=True)
    rank.meet("end")


@case("test_all_gather_object_default_pg / subgroup", 3)
def all_gather_object(rank):
    rank.start()
    things = [{"a": 1, "r": rank.rank}, "x" * 1000 * (rank.rank + 1), None, [torch.arange(rank.rank + 1)]]
    for thing in things:
        got = [None] * rank.size
        dist.all_gather_object(got, thing)
        assert type(got[0]) is type(thing) and len(got) == 3
        if isinstance(thing, dict):
            equal(got, [{"a": 1, "r": r} for r in range(3)])
    group = dist.new_group([0, 2])
    if rank.rank != 1:
        got = [None, None]
        dist.all_gather_object(got, rank.rank, group=group)
        equal(got, [0, 2])


@case("test_gather_object / subgroup", 3)
def gather_object(rank):
    rank.start()
    got = [None] * 3 if rank.rank == 1 else None
    dist.gather_object(("from", rank.rank), got, dst=1)
    if got:
        equal(got, [("from", r) for r in range(3)])


@case("test_broadcast_object_list", 3)
def broadcast_object_list(rank):
    rank.start()
    box = [{"a": 1}, "x" * 100000, 3.5] if rank.rank == 2 else [None] * 3
    dist.broadcast_object_list(box, 2)
    equal(box, [{"a": 1}, "x" * 100000, 3.5])


@case("test_scatter_object_list", 3)
def scatter_object_list(rank):
    rank.start()
    out = [None]
    dist.scatter_object_list(out, [{"r": r} for r in range(3)] if rank.rank == 0 else None, 0)
    equal(out, [{"r": rank.rank}])


@case("test_send_recv_object_list", 2)
def send_recv_object_list(rank):
    rank.start()
    if rank.rank == 0:
        dist.send_object_list([1, "b", [2]], 1)
    else:
        box = [None] * 3
        dist.recv_object_list(box, 0)
        equal(box, [1, "b", [2]])


@case("test_dump_DDP_relevant_env_vars / init by the environment", 2)
def init_by_environment(rank):
    rank.environment()
    dist.init_process_group(rank.backend, timeout=timedelta(seconds=20))
    t = torch.ones(3)
    dist.all_reduce(t)
    equal(t, torch.full((3,), 2.0))
    dist.destroy_process_group()


@case("test_all_reduce_sum (every dtype)", 3)
def all_reduce_dtypes(rank):
    rank.start()
    out = []
    for dtype in dtypes_of(rank):
        for shape in ((1,), (7,), (70001,)):
            g = torch.Generator().manual_seed(rank.rank)
            t = torch.randint(0, 9, shape, generator=g).to(dtype)
            want = sum(torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(r)) for r in range(1, 3))
            want = want + torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(0))
            if dtype == torch.bool:
                want = want.clamp(max=1)
            dist.all_reduce(t)
            equal(t, want.to(dtype))
            if dtype in (torch.float32, torch.int64):
                out.append(t)
    return out


@case("test_all_reduce (AVG, PREMUL_SUM)", 3, only="tessera")
def average_and_premultiplied(rank):
    rank.start()
    t = torch.full((5000,), rank.rank + 1.0)
    dist.all_reduce(t, dist.ReduceOp.AVG)
    equal(t, torch.full((5000,), 2.0))
    make = getattr(dist, "_make_nccl_premul_sum", None) or dist.distributed_c10d._make_nccl_premul_sum
    t = torch.full((5000,), rank.rank + 1.0)
    dist.all_reduce(t, make(0.25))
    equal(t, torch.full((5000,), 1.5))
    x, out = torch.full((6,), rank.rank + 1.0), torch.empty(2)
    dist.reduce_scatter_tensor(out, x, make(0.5))
    equal(out, torch.full((2,), 3.0))


@case("test_nn_functional (all)", 3)
def nn_functional(rank):
    import torch.distributed.nn.functional as functional
    rank.start()
    world, n = dist.group.WORLD, rank.size
    x = torch.full((6, 4), rank.rank + 1.0, requires_grad=True)
    gathered = torch.stack(functional.all_gather(x, world))
    (functional.all_reduce(x * 2, group=world).sum() + gathered.pow(2).sum()).backward()
    y = torch.full((4,), rank.rank + 1.0, requires_grad=True)
    functional.broadcast(y, 1, group=world).pow(2).sum().backward()
    z = torch.full((4,), rank.rank + 1.0, requires_grad=True)
    functional.reduce(z, 0, group=world).pow(2).sum().backward()
    s = [torch.full((4,), r + 1.0, requires_grad=True) for r in range(n)]
    functional.scatter(s, 0, group=world).pow(2).sum().backward()
    return [x.grad, y.grad, z.grad] + ([t.grad for t in s] if rank.rank == 0 else [])


@case("functional collectives and their gradients", 2)
def functional_collectives(rank):
    import torch.distributed._functional_collectives as f
    rank.start()
    g, n = dist.group.WORLD, rank.size
    x = torch.randn(n * 6, 4, generator=torch.Generator().manual_seed(rank.rank))
    out = [f.all_reduce(x, "sum", g), f.all_gather_tensor(x, 0, g), f.all_gather_tensor(x, 1, g),
           f.reduce_scatter_tensor(x, "sum", 0, g), f.all_to_all_single(x, None, None, g), f.broadcast(x, 1, g)]
    out += f.all_reduce_coalesced([x, x + 1], "sum", g)
    out += f.all_gather_into_tensor_coalesced([x, x + 1], g)
    out += f.reduce_scatter_tensor_coalesced([x, x + 1], "sum", [0, 0], g)
    y, w, u = (x.clone().requires_grad_() for _ in range(3))
    (f.all_to_all_single_autograd(y, [6] * n, [6] * n, g) ** 2).sum().backward()
    (f.all_gather_tensor_autograd(w, 0, g) ** 2).sum().backward()
    (f.reduce_scatter_tensor_autograd(u, "sum", 0, g) ** 2).sum().backward()
    return [t + 0 for t in out] + [y.grad, w.grad, u.grad]


@case("functional all_gather_into_tensor_out", 2)
def functional_out(rank):
    rank.start()
    if rank.backend == "tessera" and not hasattr(dist.group.WORLD, "_backend_for_cpp"):
        raise Skip("C++ of this torch asks its own backends for it, and none can be made in Python (torch 2.15 can)")
    x, out = torch.full((6, 4), float(rank.rank)), torch.empty(12, 4)
    ops = torch.ops._c10d_functional
    return [ops.wait_tensor(ops.all_gather_into_tensor_out(x, 2, dist.group.WORLD.group_name, out=out))]


@case("test_coalescing_manager", 2)
def coalescing_manager(rank):
    rank.start()
    a, b = torch.full((100,), rank.rank + 1.0), torch.full((50,), rank.rank + 2.0)
    with dist._coalescing_manager():
        dist.all_reduce(a)
        dist.all_reduce(b)
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(a)
        dist.all_reduce(b)
    manager.wait()
    equal([a, b], [torch.full((100,), 6.0), torch.full((50,), 10.0)])
    xs, outs = [torch.ones(4), torch.ones(6)], [torch.zeros(2), torch.zeros(3)]
    with dist._coalescing_manager():
        for o, x in zip(outs, xs):
            dist.reduce_scatter_tensor(o, x)
    equal(outs, [torch.full((2,), 2.0), torch.full((3,), 2.0)])
    gathered = [torch.zeros(4), torch.zeros(6)]
    with dist._coalescing_manager():
        for g, o in zip(gathered, outs):
            dist.all_gather_into_tensor(g, o)
    equal(gathered, [torch.full((4,), 2.0), torch.full((6,), 2.0)])
