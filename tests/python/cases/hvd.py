"""Horovod's names: one table of operations x ranks x dtypes x sets x join, and what scripts rely on besides."""
import random
import threading
import time

import torch

import tessera.hvd.torch as hvd
from harness import case, equal, raises

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def data(rank, dtype, rows=6):
    """Small whole numbers that tell the rank, exact in every dtype."""
    return ((torch.arange(rows * 3).view(rows, 3) % 5) + rank + 1).to(dtype)


def reduced(op, ranks, dtype, rows=6):
    parts = torch.stack([data(r, dtype, rows).double() for r in ranks])
    return {"Sum": parts.sum(0), "Average": parts.sum(0) / len(ranks), "Min": parts.min(0).values,
            "Max": parts.max(0).values, "Product": parts.prod(0)}[op]


def rounded(op, value, dtype):
    return value.floor().to(dtype) if op == "Average" and not dtype.is_floating_point else value.to(dtype)


def near(got, want):
    equal(got, want, 0.01 if got.dtype in (torch.bfloat16, torch.float16) else 1e-6 if got.dtype.is_floating_point
          else 0.0)


def allreduce(rank, members, chosen):
    for dtype in FLOATS + INTEGERS:
        for op in ("Sum", "Average", "Min", "Max", "Product"):
            want = rounded(op, reduced(op, members, dtype), dtype)
            x = data(rank, dtype)
            near(hvd.allreduce(x, op=op, process_set=chosen), want)
            near(x, data(rank, dtype))
            near(hvd.allreduce_(x, op=op, name="n", process_set=chosen), want)
            near(x, want)
    near(hvd.allreduce(data(rank, torch.float32), op="Sum", prescale_factor=0.5, postscale_factor=3.0,
                       process_set=chosen), reduced("Sum", members, torch.float32).float() * 1.5)
    near(hvd.allreduce(data(rank, torch.float32), compression=hvd.Compression.fp16, process_set=chosen),
         reduced("Average", members, torch.float32).float())
    near(hvd.allreduce(data(rank, torch.float32).t(), op="Sum", process_set=chosen),
         reduced("Sum", members, torch.float32).float().t())


def grouped_allreduce(rank, members, chosen):
    for dtype in FLOATS + INTEGERS:
        xs = [data(rank, dtype, n) for n in (1, 4, 7)]
        near_all(hvd.grouped_allreduce(xs, op="Sum", process_set=chosen),
                 [reduced("Sum", members, dtype, n).to(dtype) for n in (1, 4, 7)])
        hvd.grouped_allreduce_(xs, op="Max", process_set=chosen)
        near_all(xs, [reduced("Max", members, dtype, n).to(dtype) for n in (1, 4, 7)])


def near_all(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        near(a, b)


def allgather(rank, members, chosen):
    for dtype in FLOATS + INTEGERS + (torch.bool, torch.float8_e4m3fn):
        got = hvd.allgather(data(rank, dtype, rank + 1), process_set=chosen)
        equal(got.float(), torch.cat([data(r, dtype, r + 1) for r in members]).float())
    equal(hvd.allgather(torch.zeros(0, 3) if rank == members[0] else data(rank, torch.float32), process_set=chosen),
          torch.cat([data(r, torch.float32) for r in members[1:]]))
    near_all(hvd.grouped_allgather([data(rank, torch.float32), data(rank, torch.int64)], process_set=chosen),
             [torch.cat([data(r, d) for r in members]) for d in (torch.float32, torch.int64)])


def broadcast(rank, members, chosen):
    for dtype in FLOATS + INTEGERS + (torch.bool, torch.float8_e4m3fn):
        for root in members:
            x = data(rank, dtype)
            equal(hvd.broadcast(x, root, process_set=chosen).float(), data(root, dtype).float())
            equal(x.float(), data(rank, dtype).float())
            hvd.broadcast_(x, root, name="b", process_set=chosen)
            equal(x.float(), data(root, dtype).float())


def alltoall(rank, members, chosen):
    n, me = len(members), members.index(rank)
    for dtype in FLOATS + INTEGERS + (torch.bool,):
        x = data(rank, dtype, 2 * n)
        parts = [data(r, dtype, 2 * n)[2 * me:2 * me + 2] for r in members]
        equal(hvd.alltoall(x, process_set=chosen), torch.cat(parts))
        splits = [i + 1 for i in range(n)]
        got, counts = hvd.alltoall(data(rank, dtype, sum(splits)), torch.tensor(splits), process_set=chosen)
        start = sum(splits[:me])
        equal(got, torch.cat([data(r, dtype, sum(splits))[start:start + me + 1] for r in members]))
        equal(counts, torch.tensor([me + 1] * n))


def reducescatter(rank, members, chosen):
    n, me = len(members), members.index(rank)
    for dtype in FLOATS + INTEGERS:
        for op in ("Sum", "Average"):
            rows = 2 * n + 1
            want = rounded(op, reduced(op, members, dtype, rows), dtype)
            parts = want.split([rows // n + (r < rows % n) for r in range(n)])
            near(hvd.reducescatter(data(rank, dtype, rows), op=op, process_set=chosen), parts[me])
    got = hvd.grouped_reducescatter([data(rank, torch.float32, n), data(rank, torch.float32, 2 * n)], op="Sum",
                                    process_set=chosen)
    near_all(got, [reduced("Sum", members, torch.float32, k * n).float()[k * me:k * me + k] for k in (1, 2)])


def objects(rank, members, chosen):
    equal(hvd.broadcast_object({"r": rank, "x": "y" * 9000}, members[0], process_set=chosen),
          {"r": members[0], "x": "y" * 9000})
    equal(hvd.allgather_object([rank] * (rank + 1), process_set=chosen), [[r] * (r + 1) for r in members])


def barriers(rank, members, chosen):
    for _ in range(5):
        hvd.barrier(process_set=chosen)


def adasum(rank, members, chosen):
    """Orthogonal vectors are added, parallel ones averaged, others as the formula says."""
    n, me = len(members), members.index(rank)
    if n & (n - 1):
        with raises("power of two", ValueError):
            hvd.allreduce(torch.ones(3), op=hvd.Adasum, process_set=chosen)
        return
    for dtype in (torch.float32, torch.float64):
        unit = torch.zeros(n, dtype=dtype)
        unit[me] = me + 1.0
        equal(hvd.allreduce(unit, op=hvd.Adasum, process_set=chosen), torch.arange(1, n + 1).to(dtype), 1e-6)
        equal(hvd.allreduce(torch.full((5,), 2.0, dtype=dtype), op=hvd.Adasum, process_set=chosen),
              torch.full((5,), 2.0, dtype=dtype), 1e-6)
        vectors = [torch.randn(50, generator=torch.Generator().manual_seed(r), dtype=torch.float64) for r in range(n)]
        want = list(vectors)
        while len(want) > 1:
            want = [a * (1 - a @ b / (2 * a @ a)) + b * (1 - a @ b / (2 * b @ b))
                    for a, b in zip(want[::2], want[1::2])]
        equal(hvd.allreduce(vectors[me].to(dtype), op=hvd.Adasum, process_set=chosen), want[0].to(dtype), 1e-5)


def run_row(rank, operation, sets):
    rank.environment()
    hvd.init()
    equal((hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()), (rank.rank, rank.size, rank.rank, rank.size))
    if sets == "all":
        operation(rank.rank, list(range(rank.size)), hvd.global_process_set)
    else:
        chosen = [hvd.add_process_set([0, rank.size - 1]), hvd.add_process_set(list(range(rank.size - 1)))]
        for one in chosen:
            if one.included():
                operation(rank.rank, one.ranks, one)
        for one in chosen:
            assert hvd.remove_process_set(one)
    hvd.shutdown()


for _operation in (allreduce, grouped_allreduce, allgather, broadcast, alltoall, reducescatter, objects, barriers,
                   adasum):
    for _ranks in (2, 3, 4):
        for _sets in ("all", "process sets") if _ranks > 2 else ("all",):
            case("{} ({})".format(_operation.__name__, _sets), _ranks, only="tessera", more=_ranks == 3,
                 arguments=(_operation, _sets))(run_row)


def join_row(rank, operation):
    """Ranks end one after the other; those who are left go on with zeros of those who have ended."""
    rank.environment()
    hvd.init()
    steps = 3
    for step in range(steps * (rank.rank + 1)):
        left = [r for r in range(rank.size) if step < steps * (r + 1)]
        if operation == "allreduce":
            near(hvd.allreduce(data(rank.rank, torch.float32), op="Sum", name="x"), reduced("Sum", left, torch.float32)
                 .float())
            near(hvd.allreduce(data(rank.rank, torch.float32), name="y"),
                 reduced("Sum", left, torch.float32).float() / rank.size)
        elif operation == "grouped_allreduce":
            near_all(hvd.grouped_allreduce([data(rank.rank, torch.float64, k) for k in (1, 2)], op="Sum", name="x"),
                     [reduced("Sum", left, torch.float64, k) for k in (1, 2)])
        elif operation == "allgather":
            equal(hvd.allgather(data(rank.rank, torch.int32), name="x"),
                  torch.cat([data(r, torch.int32) for r in left]))
        else:
            near(hvd.reducescatter(data(rank.rank, torch.float32, rank.size), op="Sum", name="x"),
                 reduced("Sum", left, torch.float32, rank.size).float()[rank.rank:rank.rank + 1])
    equal(hvd.join(), rank.size - 1)
    near(hvd.allreduce(data(rank.rank, torch.float32), op="Sum"),
         reduced("Sum", range(rank.size), torch.float32).float())
    hvd.shutdown()


for _operation in ("allreduce", "grouped_allreduce", "allgather", "reducescatter"):
    for _ranks in (2, 3, 4):
        case("join during {}".format(_operation), _ranks, only="tessera", more=_ranks != 3,
             arguments=(_operation,))(join_row)


@case("broadcast while a rank has joined is refused", 2, only="tessera")
def join_broadcast(rank):
    rank.environment()
    hvd.init()
    if rank.rank == 1:
        time.sleep(0.1)
        with raises("joined", ValueError):
            hvd.broadcast(torch.ones(3), 1)
    hvd.join()


@case("names in another order on each rank", 4, only="tessera")
def random_order(rank):
    rank.environment()
    hvd.init()
    for _ in range(3):
        order = list(range(200))
        random.Random(rank.rank).shuffle(order)
        handles = {i: hvd.allreduce_async(torch.full((100,), float(i + rank.rank)), op="Sum", name="t{}".format(i))
                   for i in order}
        for i in range(200):
            equal(hvd.synchronize(handles[i]), torch.full((100,), 4.0 * i + 6))
            assert hvd.poll(handles[i])
    hvd.shutdown()


@case("several threads", 3, only="tessera")
def several_threads(rank):
    rank.environment()
    hvd.init()
    wrong = []

    def go(k):
        for i in range(20):
            got = hvd.allreduce(torch.full((50,), float(k)), op="Sum", name="{}.{}".format(k, i))
            if not torch.equal(got, torch.full((50,), 3.0 * k)):
                wrong.append(k)
    threads = [threading.Thread(target=go, args=(k,)) for k in random.Random(rank.rank).sample(range(4), 4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(wrong, [])
    hvd.shutdown()


@case("nothing to say for some seconds", 2, only="tessera", more=True)
def idle(rank):
    rank.environment()
    hvd.init()
    for _ in range(2):
        time.sleep(6)
        near(hvd.allreduce(torch.ones(3), op="Sum"), torch.full((3,), 2.0))
    hvd.shutdown()


@case("what is refused", 2, only="tessera")
def refused(rank):
    rank.environment()
    with raises("init", ValueError):
        hvd.rank()
    hvd.init()
    if rank.rank == 0:
        first = hvd.allreduce_async(torch.ones(3), name="twice")
        with raises("in flight", ValueError):
            hvd.allreduce_async(torch.ones(3), name="twice")
        rank.meet("handed in")
        hvd.synchronize(first)
    else:
        rank.meet("handed in")
        hvd.allreduce(torch.ones(3), name="twice")
    with raises("3.*4|4.*3", ValueError):
        hvd.allreduce(torch.ones(3 + rank.rank), name="shapes")
    with raises("float32", ValueError):
        hvd.allreduce(torch.ones(3, dtype=(torch.float32, torch.float64)[rank.rank]), name="dtypes")
    with raises("splits", ValueError):
        hvd.alltoall(torch.ones(3), torch.tensor([1, 1]))
    with raises("not in|root", ValueError):
        hvd.broadcast(torch.ones(3), 7)
    near(hvd.allreduce(torch.ones(3), op="Sum"), torch.full((3,), 2.0))
    hvd.shutdown()


@case("a rank that dies is named", 3, only="tessera")
def dead_rank(rank):
    rank.environment()
    hvd.init()
    hvd.allreduce(torch.ones(3))
    if rank.rank == 2:
        rank.die()
    begin = time.monotonic()
    with raises("(?i)rank 2", hvd.HorovodInternalError):
        hvd.allreduce(torch.ones(3))
    assert time.monotonic() - begin < 3


def optimizer_row(rank, settings, passes=1):
    """Training with DistributedOptimizer gives the parameters of torch's DDP (over Gloo)."""
    import torch.distributed as dist
    from models import batch, build, loss_of
    rank.environment()
    hvd.init()

    def steps(model, opt, loss):
        for step in range(4):
            for part in range(passes):
                x, y = batch(step * passes + part, rank.rank)
                loss(model, x, y, part).backward()
            opt.step()
            opt.zero_grad()
        return list(model.parameters())

    model = build(seed=rank.rank, batch_norm=False)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if settings.get("groups") == "lists":
        settings = dict(settings, groups=[list(model.blocks.parameters())])
        settings["groups"].append([p for p in model.parameters() if all(p is not q for q in settings["groups"][0])])
    opt = hvd.DistributedOptimizer(opt, named_parameters=model.named_parameters(), backward_passes_per_step=passes,
                                   **settings)
    hvd.broadcast_optimizer_state(opt, root_rank=0)
    ours = steps(model, opt, lambda m, x, y, part: loss_of(m(x), y))
    dist.init_process_group("gloo", store=rank.store(), rank=rank.rank, world_size=rank.size)
    plain = torch.nn.parallel.DistributedDataParallel(build(seed=0, batch_norm=False))

    def ddp_loss(m, x, y, part):
        m.require_backward_grad_sync = part == passes - 1
        return loss_of(m(x), y) / passes
    theirs = steps(plain, torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9), ddp_loss)
    for a, b in zip(ours, theirs):
        equal(a.detach(), b.detach(), 2e-3 if settings.get("compression") else 1e-5)
    hvd.shutdown()


for _name, _settings, _passes in (
        ("plain", {}, 1), ("two backward passes", {}, 2), ("predivided", {"gradient_predivide_factor": 2.0}, 1),
        ("in 3 groups", {"num_groups": 3}, 1), ("in lists", {"groups": "lists"}, 1),
        ("fp16", {"compression": hvd.Compression.fp16}, 1)):
    case("DistributedOptimizer equals DDP ({})".format(_name), 2, only="tessera",
         arguments=(_settings, _passes))(optimizer_row)


@case("DistributedOptimizer: clipping, sparse gradients, Adasum", 2, only="tessera")
def optimizer_more(rank):
    rank.environment()
    hvd.init()
    for dense in (True, False):
        table = torch.nn.EmbeddingBag(10, 4, sparse=True)
        torch.nn.init.ones_(table.weight)
        opt = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), table.named_parameters(),
                                       sparse_as_dense=dense)
        table(torch.tensor([[rank.rank, 5]])).sum().backward()
        opt.step()
        want = torch.ones(10, 4)
        want[0] -= 0.25
        want[1] -= 0.25
        want[5] -= 0.5
        equal(table.weight.detach(), want, 1e-6)
    line = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(line.weight)
    opt = hvd.DistributedOptimizer(torch.optim.SGD(line.parameters(), lr=1.0), line.named_parameters())
    (line(torch.ones(1, 3)) * (rank.rank + 1) * 10).sum().backward()
    opt.synchronize()
    torch.nn.utils.clip_grad_norm_(line.parameters(), 1.0)
    with opt.skip_synchronize():
        opt.step()
    equal(line.weight.detach().norm(), torch.tensor(1.0), 1e-5)
    line = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(line.weight)
    opt = hvd.DistributedOptimizer(torch.optim.SGD(line.parameters(), lr=1.0), line.named_parameters(), op=hvd.Adasum)
    x = torch.zeros(1, 3)
    x[0, rank.rank] = 1.0
    line(x).sum().backward()
    opt.step()
    equal(line.weight.detach(), torch.tensor([[-1.0, -1.0, 0.0]]), 1e-6)
    hvd.shutdown()


@case("elastic.run goes on after a failure", 2, only="tessera")
def elastic(rank):
    rank.environment()
    hvd.init()
    model = torch.nn.Linear(2, 2)
    opt = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=opt, step=0)
    resets, failed = [], []
    state.register_reset_callbacks([lambda: resets.append(state.step)])

    @hvd.elastic.run
    def train(state):
        while state.step < 6:
            model(torch.ones(1, 2)).sum().backward()
            opt.step()
            opt.zero_grad()
            state.step += 1
            if state.step % 2 == 0:
                state.commit()
            if state.step == 5 and not failed:
                failed.append(1)
                raise hvd.HorovodInternalError("an injected failure")
            if state.step == 5 and len(resets) == 1:
                state.on_hosts_updated()
        return state.step
    equal(train(state), 6)
    equal(resets, [4, 6])  # the failure rolls back to the commit of step 4; a change of hosts loses nothing
    weights = hvd.allgather(model.weight.detach().view(1, -1))
    equal(weights[0], weights[1])
    hvd.shutdown()


def example(name):
    """The module of examples/python."""
    import importlib.util
    import os
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    spec = importlib.util.spec_from_file_location(name, os.path.join(root, "examples", "python", name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@case("the example hvd_mnist: its losses are DDP's", 2, only="tessera")
def example_mnist(rank):
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler
    rank.environment()
    mnist = example("hvd_mnist")
    losses = mnist.main(["--epochs", "1"])
    assert losses[-1] < 0.9 * losses[0], losses
    dist.init_process_group("gloo", store=rank.store(), rank=rank.rank, world_size=2)
    torch.manual_seed(42)
    data = mnist.digits(1024, 1)
    sampler = DistributedSampler(data)
    model = torch.nn.parallel.DistributedDataParallel(mnist.Net())
    opt, theirs = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9), []
    for x, y in DataLoader(data, batch_size=32, sampler=sampler):
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        theirs.append(loss.item())
    equal(torch.tensor(losses), torch.tensor(theirs), 1e-5)


@case("the examples hvd_synthetic_benchmark and hvd_elastic", 2, only="tessera")
def example_others(rank):
    rank.environment()
    assert example("hvd_synthetic_benchmark").main(["--num-iters", "1", "--fp16-allreduce"]) > 0
    elastic_example = example("hvd_elastic")
    steps, loss = elastic_example.main([])
    equal(steps, list(range(30)))
    again, loss_again = elastic_example.main(["--fail-at", "12"])
    equal(again, list(range(12)) + [12] + list(range(10, 12)) + list(range(12, 30)))
    equal(loss_again, loss)
