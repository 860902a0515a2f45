"""DistributedDataParallel, unmodified: the DDP and Reducer tests of test_c10d_gloo.py, and training equal to Gloo's."""
import contextlib
import copy
import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from harness import Skip, case, equal, raises
from models import batch, build, loss_of


def train(rank, model, steps=6, opt=None, synchronize=lambda step: True):
    """The losses and the parameters at the end."""
    opt = opt or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        x, y = batch(step, rank.rank)
        with contextlib.nullcontext() if synchronize(step) else model.no_sync():
            loss = loss_of(model(x), y)
            loss.backward()
        if synchronize(step):
            opt.step()
            opt.zero_grad()
        losses.append(loss.detach())
    return losses + [p.detach().clone() for p in model.parameters()]


def training(name, ranks=2, build_with=None, hook=None, opt=None, synchronize=lambda step: True, only=None, **settings):
    """A case that trains with these settings of DDP."""
    def run(rank):
        rank.start()
        model = DistributedDataParallel(build(**(build_with or {})), **settings)
        if hook:
            hook(model)
        return train(rank, model, opt=opt(model) if opt else None, synchronize=synchronize)
    case(name, ranks, only=only)(run)


def fp16_hook(model):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    model.register_comm_hook(None, fp16_compress_hook)


def bf16_hook(model):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    model.register_comm_hook(None, bf16_compress_hook)


def powersgd_hook(model):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    model.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2),
                             powerSGD_hook.powerSGD_hook)


def zero_redundancy(model):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    return ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)


training("test_DistributedDataParallelCPU")
training("test_DistributedDataParallelCPU (4 ranks)", 4)
training("test_DistributedDataParallelCPU_grad_is_view", gradient_as_bucket_view=True)
training("small buckets", bucket_cap_mb=0.01)
training("test_grads_same_across_ranks_with_no_sync", synchronize=lambda step: step % 3 == 2)
training("find_unused_parameters", build_with={"unused": True}, find_unused_parameters=True)
training("test_static_graph_api_cpu", static_graph=True)
training("fp16_compress_hook", hook=fp16_hook)
training("bf16_compress_hook", hook=bf16_hook, only="tessera")
training("powerSGD_hook", hook=powersgd_hook)
training("ZeroRedundancyOptimizer", opt=zero_redundancy)


@case("test_ddp_join (uneven inputs)")
def join(rank):
    rank.start()
    model = DistributedDataParallel(build(batch_norm=False))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for step in range(3 + 2 * rank.rank):
            x, y = batch(step, rank.rank)
            loss_of(model(x), y).backward()
            opt.step()
            opt.zero_grad()
    return [p.detach().clone() for p in model.parameters()]


@case("test_optimizer_in_backward")
def optimizer_in_backward(rank):
    if torch.version.cuda and not torch.cuda.is_available():
        raise Skip("torch asks CUDA for a stream although the model is on the CPU; with Gloo, too")
    from torch.distributed.optim import _apply_optimizer_in_backward
    rank.start()
    model = DistributedDataParallel(build())
    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    return train(rank, model, opt=torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1))


class Net(nn.Module):
    """Two layers, softmax."""

    def __init__(self, third=False):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(2, 10, bias=False), nn.Linear(10, 4, bias=False)
        self.fc3 = nn.Linear(4, 4, bias=False) if third else None

    def forward(self, x, use_third=False):
        x = torch.relu(self.fc2(torch.relu(self.fc1(x).to(self.fc2.weight.dtype))))
        if use_third:
            x = self.fc3(x)
        return torch.softmax(x, 1)


def whole_against_parts(rank, **settings):
    """DDP with a part of the batch on each rank gives the gradients of one process with all of it."""
    rank.start()
    torch.manual_seed(0)
    plain = Net()
    model = DistributedDataParallel(copy.deepcopy(plain), **settings)
    x, y = torch.randn(4 * rank.size, 2), torch.randint(0, 4, (4 * rank.size,))
    nn.functional.cross_entropy(plain(x), y).backward()
    mine = slice(4 * rank.rank, 4 * rank.rank + 4)
    nn.functional.cross_entropy(model(x[mine]), y[mine]).backward()
    for a, b in zip(plain.parameters(), model.parameters()):
        equal(b.grad, a.grad, 1e-6)


case("test_gloo_backend_cpu_module")(whole_against_parts)
case("test_gloo_backend_cpu_module_grad_is_view")(lambda rank: whole_against_parts(rank, gradient_as_bucket_view=True))


class Task(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.ones(2, 2))

    def forward(self, x):
        return self.p + x


class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.t0, self.t1, self.unused = Task(), Task(), Task()

    def forward(self, x, rank):
        return self.t0(x) if rank == 0 else self.t1(x)


def unused_parameters(rank, **settings):
    rank.start()
    model = DistributedDataParallel(Tasks(), find_unused_parameters=True, **settings)
    model(8, rank.rank).mean().backward()
    module = model.module
    assert module.t0.p.grad is not None and module.t1.p.grad is not None
    assert module.unused.p.grad is None or settings.get("static_graph")
    return [module.t0.p.grad, module.t1.p.grad]


case("test_global_local_unused_params_grad")(unused_parameters)
case("test_global_local_unused_params_grad_with_grad_is_view")(
    lambda rank: unused_parameters(rank, gradient_as_bucket_view=True))


@case("test_find_unused_parameters_when_unused_parameters_empty")
def unused_empty(rank):
    class Both(Tasks):
        def forward(self, x, rank):
            return self.t1(self.t0(x)) if rank == 0 else self.t1(x)
    rank.start()
    module = Both()
    del module.unused
    model = DistributedDataParallel(module, find_unused_parameters=True)
    model(8, rank.rank).mean().backward()
    assert module.t0.p.grad is not None and module.t1.p.grad is not None


def ignored_output(rank, third):
    rank.start()
    model = DistributedDataParallel(Net(third), find_unused_parameters=third)
    x, y = torch.rand(4, 2), torch.randint(0, 4, (4,))
    for _ in range(4):
        model(x)
    for _ in range(4):
        nn.functional.cross_entropy(model(x), y).backward()


case("test_ignored_output")(lambda rank: ignored_output(rank, False))
case("test_ignored_output_with_unused_parameters")(lambda rank: ignored_output(rank, True))


@case("test_save_load_checkpoint")
def save_load(rank):
    rank.start()
    torch.manual_seed(0)
    x, y = torch.rand(4, 2), torch.randint(0, 4, (4,))

    def steps(model, count):
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(count):
            opt.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            opt.step()
    net = Net()
    whole, halves = (DistributedDataParallel(copy.deepcopy(net)) for _ in range(2))
    steps(whole, 6)
    steps(halves, 3)
    path = rank.folder + "/checkpoint"
    if rank.rank == 0:
        torch.save(halves.state_dict(), path)
    dist.barrier()
    again = DistributedDataParallel(Net())
    again.load_state_dict(torch.load(path))
    steps(again, 3)
    equal(list(again.parameters()), list(whole.parameters()))


def sparse_gradients(rank, hook=None, **settings):
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.EmbeddingBag(10, 10, sparse=True)

        def forward(self, x):
            return torch.softmax(self.embedding(x), 1)
    rank.start()
    torch.manual_seed(1337)
    plain = Sparse()
    model = DistributedDataParallel(copy.deepcopy(plain), **settings)
    if hook:
        hook(model)
    x, y = torch.randint(0, 10, (4, 2)), torch.randint(0, 10, (4,))
    nn.functional.cross_entropy(plain(x), y).backward()
    mine = slice(2 * rank.rank, 2 * rank.rank + 2)
    nn.functional.cross_entropy(model(x[mine]), y[mine]).backward()
    equal(model.module.embedding.weight.grad.coalesce(), plain.embedding.weight.grad.coalesce(), 1e-6)


def sparse_hook(model):
    group = dist.group.WORLD
    model.register_comm_hook(None, lambda state, bucket: group.allreduce([bucket.buffer()]).get_future().then(
        lambda future: future.wait()[0] / group.size()))


case("test_sparse_gradients")(sparse_gradients)
case("test_sparse_gradients_grad_is_view")(lambda rank: sparse_gradients(rank, gradient_as_bucket_view=True))
case("test_ddp_comm_hook_sparse_gradients")(lambda rank: sparse_gradients(rank, sparse_hook))


@case("test_ddp_comm_hook_future_passing_cpu")
def future_passing(rank):
    rank.start()
    model = DistributedDataParallel(Task())

    def hook(state, bucket):
        future = torch.futures.Future()
        future.set_result(torch.ones_like(bucket.buffer()))
        return future.then(lambda f: f.value() * 2)
    model.register_comm_hook(None, hook)
    model(8).mean().backward()
    equal(model.module.p.grad, torch.full((2, 2), 2.0))


@case("comm hook that starts collectives in callbacks", 3)
def hook_with_collectives(rank):
    rank.start()
    model = DistributedDataParallel(build(batch_norm=False), bucket_cap_mb=0.01)

    def hook(state, bucket):
        def again(future):
            t = future.value()[0] / rank.size
            dist.broadcast(t, 0)  # blocking, in the callback
            return dist.all_reduce(t, async_op=True).get_future().wait()[0] / rank.size
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(again)
    model.register_comm_hook(None, hook)
    return train(rank, model, 4)


@case("test_ddp_invalid_comm_hook_init")
def invalid_hook(rank):
    rank.start()
    model = DistributedDataParallel(Task())
    with raises("Communication hook must be callable", TypeError):
        model.register_comm_hook(None, 1)


@case("test_ddp_invalid_comm_hook_return_type")
def invalid_hook_return(rank):
    rank.start()
    model = DistributedDataParallel(Task())
    model.register_comm_hook(None, lambda state, bucket: 1)
    with raises("callback must return a torch.futures.Future"):
        model(8).mean().backward()


@case("test_ddp_comm_hook_register_just_once")
def register_once(rank):
    rank.start()
    model = DistributedDataParallel(Task())
    model.register_comm_hook(None, lambda state, bucket: None)
    with raises("can only be called once"):
        model.register_comm_hook(None, lambda state, bucket: None)


def reducer(rank, model, buckets, **settings):
    rank.start()
    return dist.Reducer(list(model.parameters()), buckets, [dist._DEFAULT_FIRST_BUCKET_BYTES] * len(buckets),
                        dist.group.WORLD, **settings)


def mixed():
    model = Net(third=True)
    model.fc1.double()
    return model


def by_dtype(model):
    parameters = list(model.parameters())
    return [list(rows) for _, rows in itertools.groupby(range(len(parameters)), key=lambda i: parameters[i].dtype)]


@case("ReducerTest.test_single_dtype_single_bucket", 1)
def single_bucket(rank):
    model = Net()
    reducer(rank, model, [list(range(len(list(model.parameters()))))])


@case("ReducerTest.test_multi_dtype_single_bucket", 1)
def multi_dtype(rank):
    model = mixed()
    with raises(""):
        reducer(rank, model, [list(range(len(list(model.parameters()))))])


@case("ReducerTest.test_multi_dtype_multi_bucket", 1)
def multi_bucket(rank):
    model = mixed()
    reducer(rank, model, by_dtype(model))


def forward_backward(rank, steps, **settings):
    model = mixed()
    made = reducer(rank, model, by_dtype(model), **settings)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)  # Adam queries CUDA if torch was built with it
    made.prepare_for_forward()
    for step in range(steps):
        opt.zero_grad()
        x, y = torch.rand(10, 2, dtype=torch.double), torch.randint(0, 4, (10,))
        loss = nn.functional.cross_entropy(model(x, step > 0 or not settings), y)
        made.prepare_for_backward(loss)
        loss.backward()
        if step == 0 and settings:
            equal(model.fc3.weight.grad, None)
        opt.step()


case("ReducerTest.test_forward_backward", 1)(lambda rank: forward_backward(rank, 1))
case("ReducerTest.test_forward_backward_unused_parameters", 1)(
    lambda rank: forward_backward(rank, 1, find_unused_parameters=True))
case("ReducerTest.test_forward_backward_optimizer", 1)(
    lambda rank: forward_backward(rank, 3, find_unused_parameters=True))


@case("DistributedSampler")
def sampler(rank):
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
    rank.start()
    data = TensorDataset(torch.arange(103))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=True), num_workers=1)
    seen = torch.cat([rows for rows, in loader])
    everything = [torch.zeros_like(seen) for _ in range(2)]
    dist.all_gather(everything, seen)
    equal(torch.cat(everything).unique(), torch.arange(103))


@case("an error inside of DDP's backward reaches the user", 2, only="tessera")
def error_in_backward(rank):
    rank.start(timeout=1.0)
    model = DistributedDataParallel(nn.Linear(4, 4))
    if rank.rank == 0:
        with raises("(?i)rank 1|timed out"):
            model(torch.ones(2, 4)).sum().backward()
    rank.meet("end")
