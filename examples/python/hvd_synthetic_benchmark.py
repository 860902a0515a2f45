"""How many images of random numbers a second are trained, in Horovod's style.

    tessera launch -np 2 -H localhost:2 python3 hvd_synthetic_benchmark.py [--num-iters 5]
"""
import argparse
import json
import timeit

import torch
import torch.nn.functional as F

import tessera.hvd.torch as hvd  # was: import horovod.torch as hvd


def build():
    """Images [rows, 3, 64, 64] -> scores [rows, 1000]."""
    return torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, 2), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, 2),
                               torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32 * 15 * 15, 1000))


def fake_data(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, 3, 64, 64, generator=generator),
            torch.randint(0, 1000, (rows,), generator=generator))


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--num-warmup-batches", type=int, default=2)
    parser.add_argument("--num-batches-per-iter", type=int, default=5)
    parser.add_argument("--num-iters", type=int, default=3)
    parser.add_argument("--fp16-allreduce", action="store_true")
    parser.add_argument("--use-adasum", action="store_true")
    parser.add_argument("--losses", help="each rank writes its losses to this file, with .RANK behind its name")
    args = parser.parse_args(arguments)

    hvd.init()
    torch.manual_seed(hvd.rank())  # rank 0's weights are sent to the others
    torch.set_num_threads(1)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * (1 if args.use_adasum else hvd.size()))
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    data, target = fake_data(args.batch_size, hvd.rank())
    losses = []

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    timeit.timeit(step, number=args.num_warmup_batches)
    speeds = []
    for _ in range(args.num_iters):
        took = timeit.timeit(step, number=args.num_batches_per_iter)
        speeds.append(args.batch_size * args.num_batches_per_iter / took)
    mean = sum(speeds) / len(speeds)
    if hvd.rank() == 0:
        total = mean * hvd.size()
        print("{:.1f} images/s on each of {} ranks, {:.1f} on all".format(mean, hvd.size(), total), flush=True)
    if args.losses:
        with open("{}.{}".format(args.losses, hvd.rank()), "w") as file:
            json.dump(losses, file)
    hvd.shutdown()
    return mean


if __name__ == "__main__":
    main()
