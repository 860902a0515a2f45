# Long because: one case per test of that file of PyTorch, in its order.
"""PyTorch's test_c10d_gloo.py, ProcessGroupGlooTest and CommTest, written anew: the same names on any backend."""
import math

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (AllgatherOptions, AllreduceCoalescedOptions, AllreduceOptions, BroadcastOptions,
                                        GatherOptions, ReduceOptions, ScatterOptions)

from harness import Skip, case, equal, raises

STRESS = 300  # operations in flight; PyTorch's own tests have 1000


def options(kind, **values):
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def value(work):
    """The result of a work's future."""
    future = work.get_future()
    future.wait()
    return future.value()


def reductions(rank, size):
    """(operation, input, expected output) for every reduction."""
    one = torch.tensor
    rows = [(dist.ReduceOp.SUM, one([rank + 1.0]), one([size * (size + 1) / 2])),
            (dist.ReduceOp.PRODUCT, one([rank + 1.0]), one([float(math.factorial(size))])),
            (dist.ReduceOp.MIN, one([rank + 1.0]), one([1.0])),
            (dist.ReduceOp.MAX, one([rank + 1.0]), one([float(size)]))]
    for bit in range(4):
        rows.append((dist.ReduceOp.BAND, one([rank | 1 << bit], dtype=torch.int32), None))
        rows.append((dist.ReduceOp.BOR, one([rank * 5 + bit], dtype=torch.int32), None))
        rows.append((dist.ReduceOp.BXOR, one([rank * 3 + bit], dtype=torch.int32), None))
    return rows


def bitwise(op, rank_input, size):
    """What a bitwise reduction of `rank_input(rank)` over the ranks is."""
    total = rank_input(0)
    for r in range(1, size):
        total = {dist.ReduceOp.BAND: total & rank_input(r), dist.ReduceOp.BOR: total | rank_input(r),
                 dist.ReduceOp.BXOR: total ^ rank_input(r)}[op]
    return total


def expected(row, size):
    op, _, output = reductions(0, size)[row]
    if output is not None:
        return output
    return bitwise(op, lambda r: reductions(r, size)[row][1], size)


@case("test_empty_tensors", 4)
def empty_tensors(rank):
    pg = rank.start()
    output = value(pg.broadcast([torch.empty(0)], options(BroadcastOptions, rootRank=0)))
    equal(output[0].numel(), 0)
    value(pg.allreduce([torch.empty(0)]))
    out = torch.empty(0)
    dist.all_gather_into_tensor(out, torch.empty(0))
    dist.all_gather([torch.empty(0, 3) for _ in range(rank.size)], torch.empty(0, 3))


@case("test_broadcast_checks", 4)
def broadcast_checks(rank):
    pg = rank.start()
    t1, t2, t3 = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
    for text, tensors, root, tensor in (("invalid root rank", [t1], -1, 0), ("invalid root rank", [t1], rank.size, 0),
                                        ("invalid root tensor", [t1], rank.rank, -1),
                                        ("invalid root tensor", [t1], rank.rank, 1),
                                        ("invalid root tensor", [], rank.rank, 0),
                                        ("invalid tensor type", [t1, t2], rank.rank, 0),
                                        ("invalid tensor size", [t1, t3], rank.rank, 0)):
        with raises(text):
            pg.broadcast(tensors, options(BroadcastOptions, rootRank=root, rootTensor=tensor))


@case("test_broadcast_basics", 4)
def broadcast_basics(rank):
    pg = rank.start()
    for root in range(rank.size):
        out = value(pg.broadcast([torch.tensor([rank.rank])], options(BroadcastOptions, rootRank=root)))
        equal(out[0], torch.tensor([root]))
        for j in range(2):
            xs = [torch.tensor([rank.rank * 2 + 0.0]), torch.tensor([rank.rank * 2 + 1.0])]
            out = value(pg.broadcast(xs, options(BroadcastOptions, rootRank=root, rootTensor=j)))
            equal(out, [torch.tensor([root * 2.0 + j])] * 2)
    equal(value(pg.broadcast(torch.tensor([rank.rank + 1.0]), root=0))[0], torch.tensor([1.0]))


@case("test_broadcast_stress", 4)
def broadcast_stress(rank):
    pg = rank.start()
    inputs = [torch.tensor([i * rank.size + rank.rank]) for i in range(STRESS)]
    works = [pg.broadcast(inputs[i], root=i % rank.size) for i in range(STRESS)]
    for i, work in enumerate(works):
        work.wait()
        equal(inputs[i], torch.tensor([i * rank.size + i % rank.size]))


@case("test_allreduce_checks", 4)
def allreduce_checks(rank):
    pg = rank.start()
    t1, t2, t3 = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
    for text, tensors in (("requires non-empty tensor list", []), ("invalid tensor type", [t1, t2]),
                          ("invalid tensor size", [t1, t3])):
        with raises(text):
            pg.allreduce(tensors, AllreduceOptions())


def allreduce_all(rank, copy):
    pg = rank.start()
    for i, (op, x, _) in enumerate(reductions(rank.rank, rank.size)):
        tensor = copy(x)
        equal(value(pg.allreduce([tensor], options(AllreduceOptions, reduceOp=op)))[0], expected(i, rank.size))
        equal(tensor, expected(i, rank.size))
    n = rank.size
    for op, want in ((dist.ReduceOp.SUM, n * (2 * n - 1.0)), (dist.ReduceOp.MIN, 0.0),
                     (dist.ReduceOp.MAX, 2.0 * n - 1)):
        tensors = [copy(torch.tensor([2.0 * rank.rank])), copy(torch.tensor([2.0 * rank.rank + 1]))]
        equal(value(pg.allreduce(tensors, options(AllreduceOptions, reduceOp=op))), [torch.tensor([want])] * 2)
    equal(value(pg.allreduce(copy(torch.tensor([rank.rank + 1.0]))))[0], torch.tensor([n * (n + 1) / 2]))


@case("test_allreduce_basics", 4)
def allreduce_basics(rank):
    allreduce_all(rank, lambda t: t.clone())


@case("test_allreduce_noncontiguous", 4)
def allreduce_noncontiguous(rank):
    allreduce_all(rank, lambda t: t.expand(2, 2).contiguous()[:, 0][:1])
    wide = torch.full((40, 50), float(rank.rank)).t()
    dist.all_reduce(wide)
    equal(wide, torch.full((50, 40), rank.size * (rank.size - 1) / 2.0))


@case("test_allreduce_basics (fp16)", 4)
def allreduce_fp16(rank):
    pg = rank.start()
    torch.manual_seed(rank.rank)
    tensor = ((torch.rand(10, 1) * 2 - 1) * 65504 / rank.size).to(torch.float16)
    parts = value(pg.allgather([[torch.zeros_like(tensor) for _ in range(rank.size)]], [tensor]))
    total = torch.stack([p.float() for p in parts]).sum(0)
    got = value(pg.allreduce([tensor]))[0]
    assert (got.float() - total).abs().max() <= 0.002 * total.abs().max(), (got, total)


@case("test_allreduce_stress", 4)
def allreduce_stress(rank):
    pg = rank.start()
    futures = [pg.allreduce(torch.tensor([i + rank.rank])).get_future() for i in range(STRESS)]
    for i, future in enumerate(futures):
        future.wait()
        equal(future.value()[0], torch.tensor([i * rank.size + rank.size * (rank.size - 1) // 2]))


@case("test_allreduce_coalesced_checks", 4)
def allreduce_coalesced_checks(rank):
    pg = rank.start()
    t1, t2 = torch.zeros(1), torch.zeros(1, dtype=torch.float64)
    t3 = torch.sparse_coo_tensor([[0]], [1], size=(1,))
    for text, tensors in (("requires non-empty tensor list", []), ("tensors must all have the same type", [t1, t2]),
                          ("invalid tensor layout at index", [t1, t3]), ("unsupported layout", [t3, t3.clone()])):
        with raises(text):
            pg.allreduce_coalesced(tensors, AllreduceCoalescedOptions())


@case("test_allreduce_coalesced_basics", 4)
def allreduce_coalesced_basics(rank):
    pg, n = rank.start(), rank.size
    for op, xs, ys in ((dist.ReduceOp.SUM, [rank.rank + 1.0, (rank.rank + 1.0) ** 2],
                        [n * (n + 1) / 2, n * (n + 1) * (2 * n + 1) / 6]),
                       (dist.ReduceOp.PRODUCT, [rank.rank + 1.0, rank.rank + 2.0],
                        [float(math.factorial(n)), float(math.factorial(n + 1))]),
                       (dist.ReduceOp.MIN, [rank.rank + 0.0, rank.rank + 1.0], [0.0, 1.0]),
                       (dist.ReduceOp.MAX, [rank.rank + 1.0, rank.rank + 2.0], [float(n), n + 1.0])):
        out = value(pg.allreduce_coalesced([torch.tensor([x]) for x in xs],
                                           options(AllreduceCoalescedOptions, reduceOp=op)))
        equal(out, [torch.tensor([y]) for y in ys])


@case("test_allreduce_coalesced_stress", 4)
def allreduce_coalesced_stress(rank):
    pg = rank.start()
    futures = [pg.allreduce_coalesced([torch.tensor([i + rank.rank]) for _ in range(2)]).get_future()
               for i in range(STRESS)]
    for i, future in enumerate(futures):
        future.wait()
        equal(future.value(), [torch.tensor([i * rank.size + rank.size * (rank.size - 1) // 2])] * 2)


@case("test_allreduce_coalesced_async", 4)
def allreduce_coalesced_async(rank):
    rank.start()
    xs = [[torch.tensor([i + rank.rank]) for _ in range(2)] for i in range(2)]
    futures = [dist.all_reduce_coalesced(x, async_op=True) for x in xs]
    torch.futures.wait_all(futures)
    for i, future in enumerate(futures):
        equal(future.wait(), [torch.tensor([i * rank.size + rank.size * (rank.size - 1) // 2])] * 2)


@case("test_sparse_allreduce_checks", 4)
def sparse_allreduce_checks(rank):
    pg = rank.start()
    t1 = torch.zeros(1)
    t2, t3 = (torch.sparse_coo_tensor([[0]], [1], size=(n,)) for n in (2, 4))
    with raises("requires non-empty tensor list"):
        pg.allreduce([], AllreduceOptions())
    with raises("invalid tensor layout"):
        pg.allreduce([t1, t2], AllreduceOptions())
    with raises("invalid tensor size"):
        pg.allreduce([t2, t3], AllreduceOptions())
    for op in (dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        with raises("unsupported reduction operation"):
            pg.allreduce([t3], options(AllreduceOptions, reduceOp=op))


def sparse(rank, size, count, dense_dims):
    indices = torch.arange(rank * count, (rank + 1) * count).reshape(1, -1) % (size + 1)
    shape = [size + 1] + [2] * dense_dims
    return torch.sparse_coo_tensor(indices, torch.ones([count] + [2] * dense_dims) * (rank + 1), shape)


@case("test_sparse_allreduce_basics", 4)
def sparse_allreduce_basics(rank):
    pg = rank.start()
    for count in (1, 2, 3):
        for dense_dims in (0, 1, 2):
            t = sparse(rank.rank, rank.size, count, dense_dims)
            want = sum((sparse(r, rank.size, count, dense_dims) for r in range(1, rank.size)),
                       sparse(0, rank.size, count, dense_dims))
            out = value(pg.allreduce([t]))
            equal(t.to_dense(), want.to_dense())
            equal(out[0].to_dense(), want.to_dense())


@case("test_allgather_into_tensor_coalesced", 4)
def allgather_into_tensor_coalesced(rank):
    rank.start()
    pg = dist.group.WORLD
    torch.manual_seed(42)
    inputs = [torch.rand(n, n) for n in (5, 10, 15)]
    outputs = [torch.empty(n * rank.size, n) for n in (5, 10, 15)]
    pg.allgather_into_tensor_coalesced(outputs, inputs).wait()
    equal(outputs, [torch.cat([t] * rank.size) for t in inputs])


@case("test_reduce_scatter", 4)
def reduce_scatter_uneven(rank):
    rank.start()
    torch.manual_seed(42)
    inputs = [torch.rand(i) for i in range(rank.size)]
    output = torch.empty(rank.rank)
    dist.reduce_scatter(output, inputs, async_op=True).wait()
    equal(output, inputs[rank.rank] * rank.size, 1e-6)


@case("test_reduce_scatter_tensor", 4)
def reduce_scatter_tensor(rank):
    rank.start()
    torch.manual_seed(42)
    x, out = torch.rand(20 * rank.size, 20), torch.empty(20, 20)
    dist.reduce_scatter_tensor(out, x, async_op=True).wait()
    equal(out, x.view(rank.size, 20, 20)[rank.rank] * rank.size, 1e-6)


@case("test_reduce_scatter_tensor_coalesced", 4)
def reduce_scatter_tensor_coalesced(rank):
    rank.start()
    pg = dist.group.WORLD
    torch.manual_seed(42)
    inputs = [torch.rand(n * rank.size, n) for n in (5, 10, 15)]
    outputs = [torch.empty(n, n) for n in (5, 10, 15)]
    pg.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
    equal(outputs, [x.view(rank.size, n, n)[rank.rank] * rank.size for x, n in zip(inputs, (5, 10, 15))], 1e-6)


@case("test_scatter_checks", 4)
def scatter_checks(rank):
    pg, n, me = rank.start(), rank.size, rank.rank
    t1, t2, t3 = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
    sizes = "Incorrect input list size {}. Input list size should be {}"
    for text, outputs, inputs, root in (
            ("invalid root rank", [t1], [], -1), ("invalid root rank", [t1], [], n),
            ("requires a single-element output tensor list", [], [], 0),
            ("requires a single-element output tensor list", [t1, t1], [], 0),
            ("requires a single-element input list", [t1], [], me),
            ("requires a single-element input list", [t1], [[t1] * n, [t1] * n], me),
            (sizes.format(n - 1, n), [t1], [[t1] * (n - 1)], me), (sizes.format(n + 1, n), [t1], [[t1] * (n + 1)], me),
            ("invalid tensor type", [t1], [[t2] * n], me), ("invalid tensor size", [t1], [[t3] * n], me),
            ("requires empty input on non-root", [t1], [[t1] * n], (me + 1) % n)):
        with raises(text):
            pg.scatter(outputs, inputs, options(ScatterOptions, rootRank=root))


def scatter_each_root(rank, copy, rounds):
    pg, n, works = rank.start(), rank.size, []
    outputs = [[copy(torch.tensor([-1])) for _ in range(n)] for _ in range(rounds)]
    for i in range(rounds):
        for root in range(n):
            inputs = [[copy(torch.tensor([i + rank.rank])) for _ in range(n)]] if root == rank.rank else []
            works.append(pg.scatter([outputs[i][root]], inputs, options(ScatterOptions, rootRank=root)))
    for i, work in enumerate(works):
        equal(value(work)[0], torch.tensor([i // n + i % n]))


case("test_scatter_basics", 4)(lambda rank: scatter_each_root(rank, lambda t: t.clone(), 1))
case("test_scatter_stress", 4)(lambda rank: scatter_each_root(rank, lambda t: t.clone(), STRESS // 4))


@case("test_gather_checks", 4)
def gather_checks(rank):
    pg, n, me = rank.start(), rank.size, rank.rank
    t1, t2, t3 = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
    sizes = "Incorrect output list size {}. Output list size should be {}"
    for text, outputs, inputs, root in (
            ("invalid root rank", [], [t1], -1), ("invalid root rank", [], [t1], n),
            ("requires a single-element input tensor list", [], [], 0),
            ("requires a single-element input tensor list", [], [t1, t1], 0),
            ("requires a single-element output list", [], [t1], me),
            ("requires a single-element output list", [[t1] * n, [t1] * n], [t1], me),
            (sizes.format(n - 1, n), [[t1] * (n - 1)], [t1], me), (sizes.format(n + 1, n), [[t1] * (n + 1)], [t1], me),
            ("invalid tensor type", [[t2] * n], [t1], me), ("invalid tensor size", [[t3] * n], [t1], me),
            ("requires empty output on non-root", [[t1] * n], [t1], (me + 1) % n)):
        with raises(text):
            pg.gather(outputs, inputs, options(GatherOptions, rootRank=root))


def gather_each_root(rank, copy, rounds):
    pg, n, works = rank.start(), rank.size, []
    for i in range(rounds):
        for root in range(n):
            outputs = [[copy(torch.tensor([-1])) for _ in range(n)]] if root == rank.rank else []
            works.append(pg.gather(outputs, [copy(torch.tensor([i + rank.rank]))],
                                   options(GatherOptions, rootRank=root)))
    for i, work in enumerate(works):
        result = value(work)
        if i % n == rank.rank:
            equal(result, [torch.tensor([i // n + r]) for r in range(n)])


def column(t):
    """The same values in memory that is not dense."""
    return t.expand(2, 2).contiguous()[:, 0][:1]


case("test_gather_basics", 4)(lambda rank: gather_each_root(rank, lambda t: t.clone(), 1))
case("test_gather_noncontiguous_input", 4)(lambda rank: gather_each_root(rank, column, 1))
case("test_gather_stress", 4)(lambda rank: gather_each_root(rank, lambda t: t.clone(), STRESS // 4))


@case("test_allgather_checks", 4)
def allgather_checks(rank):
    pg, n = rank.start(), rank.size
    t1, t2, t3 = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
    length = "requires input/output tensor lists to have the same length"
    for text, outputs, inputs in (
            ("requires non-empty input tensor list", [], []), (length, [], [t1]), (length, [[t1] * n, [t1] * n], [t1]),
            ("invalid output tensor list", [[t1] * (n - 1)], [t1]),
            ("invalid output tensor list", [[t1] * (n + 1)], [t1]),
            ("invalid tensor type", [[t1, t1] * n, [t1, t1] * n], [t1, t2]),
            ("invalid tensor size", [[t1, t1] * n, [t1, t1] * n], [t1, t3]),
            ("invalid tensor type", [([t1, t2] * n)[:n]], [t1]), ("invalid tensor size", [([t1, t3] * n)[:n]], [t1])):
        with raises(text):
            pg.allgather(outputs, inputs, AllgatherOptions())


def allgather_all(rank, copy):
    pg = rank.start()
    for n in (1, 2, 3):
        inputs = [copy(torch.tensor([n * rank.rank + i])) for i in range(n)]
        outputs = [[copy(torch.tensor([-1])) for _ in range(n * rank.size)] for _ in range(n)]
        value(pg.allgather(outputs, inputs))
        equal(outputs, [[torch.tensor([i]) for i in range(n * rank.size)]] * n)


@case("test_allgather_basics", 4)
def allgather_basics(rank):
    allgather_all(rank, lambda t: t.clone())


@case("test_allgather_noncontiguous_input", 4)
def allgather_noncontiguous_input(rank):
    allgather_all(rank, column)


@case("test_allgather_inference_mode", 4)
def allgather_inference_mode(rank):
    with torch.inference_mode():
        allgather_all(rank, lambda t: t.clone())


@case("test_allgather_stress", 4)
def allgather_stress(rank):
    pg, n = rank.start(), rank.size
    outputs = [[[torch.tensor([-1]) for _ in range(n)]] for _ in range(STRESS)]
    futures = [pg.allgather(outputs[i], [torch.tensor([i + rank.rank])]).get_future() for i in range(STRESS)]
    for i, future in enumerate(futures):
        future.wait()
        equal(outputs[i][0], [torch.tensor([i + r]) for r in range(n)])


@case("test_allgather_coalesced_checks", 4)
def allgather_coalesced_checks(rank):
    rank.start()
    x = [torch.zeros(1)]
    for text, first in (("invalid size of output tensor at index 0", torch.zeros(0)),
                        ("invalid tensor type at index 0", torch.zeros(1, dtype=torch.float64))):
        with raises(text):
            dist.all_gather_coalesced([[first]] + [[torch.zeros(1)] for _ in range(rank.size - 1)], x)
    with raises("output lists should be equal to world size"):
        dist.all_gather_coalesced([[torch.zeros(1)] for _ in range(rank.size + 1)], x)
    with raises("Invalid function argument.*output_tensor_lists", TypeError):
        dist.all_gather_coalesced([torch.zeros(0)], x)


@case("test_allgather_coalesced_async", 4)
def allgather_coalesced_async(rank):
    rank.start()
    xss = [[torch.tensor([i + rank.rank]) for _ in range(2)] for i in range(2)]
    yss = [[[torch.zeros_like(x) for x in xs] for _ in range(rank.size)] for xs in xss]
    torch.futures.wait_all([dist.all_gather_coalesced(ys, xs, async_op=True) for xs, ys in zip(xss, yss)])
    for i in range(2):
        equal(yss[i], [[torch.tensor([i + r])] * 2 for r in range(rank.size)])


@case("test_reduce_checks", 4)
def reduce_checks(rank):
    pg, t1 = rank.start(), torch.zeros(1)
    for text, tensors, root, tensor in (("invalid root rank", [t1], -1, 0), ("invalid root rank", [t1], rank.size, 0),
                                        ("invalid root tensor", [t1], rank.rank, 1),
                                        ("requires a single-element tensor list", [t1, t1], rank.rank, 0)):
        with raises(text):
            pg.reduce(tensors, options(ReduceOptions, rootRank=root, rootTensor=tensor))


@case("test_reduce_basics", 4)
def reduce_basics(rank):
    pg = rank.start()
    for i, (op, x, _) in enumerate(reductions(rank.rank, rank.size)):
        for root in range(rank.size):
            result = value(pg.reduce([x.clone()], options(ReduceOptions, reduceOp=op, rootRank=root)))
            if root == rank.rank:
                equal(result[0], expected(i, rank.size))


@case("test_reduce_stress", 4)
def reduce_stress(rank):
    pg, n, works = rank.start(), rank.size, []
    for i in range(STRESS // 4):
        for root in range(n):
            works.append(pg.reduce([torch.tensor([i + rank.rank])], options(ReduceOptions, rootRank=root)))
    for i, work in enumerate(works):
        result = value(work)
        if i % n == rank.rank:
            equal(result[0], torch.tensor([i // n * n + n * (n - 1) // 2]))


@case("test_send_recv_all_to_all", 4)
def send_recv_all_to_all(rank):
    pg = rank.start()
    others = [r for r in range(rank.size) if r != rank.rank]
    outputs = [torch.tensor([-1]) for _ in range(rank.size)]
    works = [pg.send([torch.tensor([rank.rank])], r, 0) for r in others]
    works += [pg.recv([outputs[r]], r, 0) for r in others]
    for work in works:
        work.wait()
        assert work.is_completed()
    equal([outputs[r] for r in others], [torch.tensor([r]) for r in others])


@case("test_barrier_implies_wait", 4)
def barrier_implies_wait(rank):
    pg = rank.start()
    tensors = [torch.full((100, 100), float(i)) for i in range(16)]
    for tensor in tensors:
        pg.allreduce(tensor)  # discards the work
    value(pg.barrier())
    equal(tensors, [torch.full((100, 100), float(i * rank.size)) for i in range(16)])


@case("test_set_gloo_pg_timeout", 2)
def set_timeout(rank):
    from datetime import timedelta
    pg = rank.start(timeout=50.0)
    dist.all_reduce(torch.rand(10))
    pg._set_default_timeout(timedelta(seconds=1))
    if rank.rank == 0:
        with raises("(?i)time.?d? ?out|connection closed"):
            dist.all_reduce(torch.ones(1))
    else:
        import time
        time.sleep(2.5)


@case("test_default_store_timeout_gloo", 1, seconds=20)
def default_store_timeout(rank):
    import time
    from datetime import timedelta
    begin = time.monotonic()
    with raises("(?i)time|waiting", (RuntimeError, ValueError)):
        dist.init_process_group(rank.backend, init_method="tcp://127.0.0.1:29771", rank=0, world_size=2,
                                timeout=timedelta(seconds=1))
    assert time.monotonic() - begin < 10


@case("test_logging_init", 1)
def logging_init(rank):
    import logging
    before = list(logging.root.handlers)
    rank.start()
    equal(list(logging.root.handlers), before)


# CommTest and GlooProcessGroupWithDispatchedCollectivesTests

@case("test_broadcast_coalesced_gloo_cpu", 2)
def broadcast_coalesced(rank):
    rank.start()
    pg = dist.group.WORLD
    types = (torch.float32, torch.float32, torch.float32, torch.float64, torch.float16, torch.float32)
    for root in range(rank.size):
        target = [t for d in types for t in torch.arange(60, dtype=d).chunk(5)]
        tensors = [t.clone() if rank.rank == root else torch.zeros_like(t) for t in target]
        dist._broadcast_coalesced(pg, tensors, 256, root)
        equal(tensors, target)


@case("test_bool_tensors", 2)
def bool_tensors(rank):
    rank.start()
    x = torch.tensor([True, False, True, rank.rank == 0])
    mine = x.clone() if rank.rank == 0 else torch.zeros(4, dtype=torch.bool)
    dist.broadcast(mine, 0)
    equal(mine, torch.tensor([True, False, True, True]))
    parts = [torch.zeros(4, dtype=torch.bool) for _ in range(rank.size)]
    dist.all_gather(parts, x)
    equal(parts, [torch.tensor([True, False, True, r == 0]) for r in range(rank.size)])


@case("test_tensor_dtype_mismatch", 2)
def dtype_mismatch(rank):
    rank.start()
    a, b = torch.ones(7), torch.ones(7, dtype=torch.float16)
    for call in (lambda: dist.all_gather([b, b], a), lambda: dist.all_to_all([b, b], [a, a]),
                 lambda: dist.all_gather_coalesced([[b], [b]], [a]), lambda: dist.all_reduce_coalesced([a, b])):
        with raises("(?i)dtype|same type|invalid tensor type|mixed", (RuntimeError, ValueError)):
            call()


@case("test_tensor_dtype_complex", 2)
def dtype_complex(rank):
    rank.start()
    x = torch.rand(2, dtype=torch.complex64)
    parts = [torch.empty_like(x) for _ in range(rank.size)]
    dist.all_gather(parts, x)
    equal(parts[rank.rank], x)
    dist.scatter(x, parts if rank.rank == 0 else None, src=0)
    out = [torch.empty_like(x) for _ in range(rank.size)]
    dist.all_gather_coalesced([[o] for o in out], [x])
    equal(out[rank.rank], x)
    y = torch.full((3,), 1 + 2j)
    dist.all_reduce(y)
    equal(y, torch.full((3,), (1 + 2j) * rank.size))


@case("test_gloo_warn_not_in_group", 2)
def warn_not_in_group(rank):
    import warnings
    rank.start()
    group = dist.new_group([0])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        x = torch.zeros(2)
        dist.all_gather([x] * 1, x, group=group)
        dist.all_reduce(x, group=group)
        dist.broadcast(x, src=0, group=group)
    texts = [str(w.message) for w in seen if "group" in str(w.message)]
    assert rank.rank == 0 and not texts or rank.rank == 1 and len(texts) == 3, texts


@case("test_gloo_rank_membership", 2)
def rank_membership(rank):
    rank.start()
    group = dist.new_group([1])
    equal(dist.get_group_rank(group, 1), 0)
    with raises("not part of group", ValueError):
        dist.get_group_rank(group, 0)
    equal(dist.get_process_group_ranks(group), [1])


@case("test_sequence_num_set_default_pg_gloo", 2)
def sequence_num_set(rank):
    rank.start()
    pg = dist.group.WORLD
    numbers = [None] * rank.size
    dist.all_gather_object(numbers, pg._get_sequence_number_for_group())
    assert len(set(numbers)) == 1, numbers


@case("test_sequence_num_set_gloo_new_group", 2)
def sequence_num_set_new_group(rank):
    rank.start()
    sub = dist.new_group([0, 1])
    numbers = [None] * rank.size
    dist.all_gather_object(numbers, sub._get_sequence_number_for_group(), group=sub)
    assert len(set(numbers)) == 1, numbers


def sequence_increments(rank, group, members):
    if rank.rank not in members:
        return
    before = group._get_sequence_number_for_group()
    for _ in range(10):
        dist.all_reduce(torch.ones(1), group=group)
    equal(group._get_sequence_number_for_group() - before, 10)


@case("test_sequence_num_incremented_gloo_default", 2)
def sequence_num_incremented(rank):
    rank.start()
    sequence_increments(rank, dist.group.WORLD, range(2))


@case("test_sequence_num_incremented_gloo_subgroup", 4)
def sequence_num_incremented_subgroup(rank):
    rank.start()
    sequence_increments(rank, dist.new_group([0, 2]), (0, 2))


@case("GlooProcessGroupWithDispatchedCollectivesTests.test_collectives", 1)
def dispatched_collectives(rank):
    pg = rank.start()
    x = torch.ones(10, 10)
    for call in (lambda: dist.broadcast(x, 0), lambda: dist.all_reduce(x), lambda: dist.reduce(x, 0),
                 lambda: dist.all_gather([x], x), lambda: dist.gather(x, [x]), lambda: dist.scatter(x, [x]),
                 lambda: dist.barrier(), lambda: dist.all_to_all_single(torch.empty_like(x), x)):
        call()
    equal(x, torch.ones(10, 10))
    equal(pg.size(), 1)


@case("GlooProcessGroupWithDispatchedCollectivesTests.test_allreduce_coalesced", 1)
def dispatched_allreduce_coalesced(rank):
    rank.start()
    x = torch.ones(10, 10)
    dist.all_reduce_coalesced([x])
    equal(x, torch.ones(10, 10))


@case("GlooProcessGroupWithDispatchedCollectivesTests.test_all_to_all_single", 1)
def dispatched_all_to_all_single(rank):
    rank.start()
    x, y = torch.ones(10, 10), torch.zeros(10, 10)
    dist.all_to_all_single(y, x)
    equal(y, x)


@case("GlooProcessGroupWithDispatchedCollectivesTests.test_allgather_coalesced", 1)
def dispatched_allgather_coalesced(rank):
    rank.start()
    x, out = torch.ones(10, 10), [torch.zeros(10, 10)]
    dist.all_gather_coalesced([out], [x])
    equal(out, [x])


@case("GlooProcessGroupWithDispatchedCollectivesTests.test_monitored_barrier", 1)
def dispatched_monitored_barrier(rank):
    rank.start()
    dist.monitored_barrier()


@case("test_new_group_local_sync", 4)
def new_group_local_sync(rank):
    if torch.__version__.startswith("2.6"):
        raise Skip("new_group(use_local_synchronization) of torch 2.6 hangs with Gloo too")
    rank.start()
    mine = [0, 2] if rank.rank % 2 == 0 else [1, 3]
    group = dist.new_group(mine, use_local_synchronization=True)
    equal(dist.get_process_group_ranks(group), mine)
    x = torch.full((3,), float(rank.rank))
    dist.all_reduce(x, group=group)
    equal(x, torch.full((3,), float(sum(mine))))


@case("test_new_group_local_sync_sanity_check", 4)
def new_group_local_sync_sanity_check(rank):
    if torch.__version__.startswith("2.6"):
        raise Skip("new_group(use_local_synchronization) of torch 2.6 hangs with Gloo too")
    rank.start()
    mine = [[0, 1], [2, 3]][rank.rank // 2]
    group = dist.new_group(mine, use_local_synchronization=True)
    got = [None, None]
    dist.all_gather_object(got, rank.rank, group=group)
    equal(got, mine)


@case("test_new_group_local_sync_duplicate_pg", 4)
def new_group_local_sync_duplicate(rank):
    if torch.__version__.startswith("2.6"):
        raise Skip("new_group(use_local_synchronization) of torch 2.6 hangs with Gloo too")
    rank.start()
    mine = [0, 2] if rank.rank % 2 == 0 else [1, 3]
    groups = [dist.new_group(mine, use_local_synchronization=True) for _ in range(2)]
    for i, group in enumerate(groups):
        x = torch.full((3,), float(rank.rank + i))
        dist.all_reduce(x, group=group)
        equal(x, torch.full((3,), float(sum(mine) + 2 * i)))
