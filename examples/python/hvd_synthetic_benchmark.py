"""How many images of random numbers a second are trained, in Horovod's style.

    tessera launch --num_processes 2 -- python3 hvd_synthetic_benchmark.py [--num-iters 5]
"""
import argparse
import timeit

import torch
import torch.nn.functional as F

import tessera.hvd.torch as hvd  # was: import horovod.torch as hvd


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--num-warmup-batches", type=int, default=2)
    parser.add_argument("--num-batches-per-iter", type=int, default=5)
    parser.add_argument("--num-iters", type=int, default=3)
    parser.add_argument("--fp16-allreduce", action="store_true")
    args = parser.parse_args(arguments)

    hvd.init()
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, 2), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, 2),
                                torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32 * 15 * 15, 1000))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    data, target = torch.randn(args.batch_size, 3, 64, 64), torch.randint(0, 1000, (args.batch_size,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(data), target).backward()
        optimizer.step()

    timeit.timeit(step, number=args.num_warmup_batches)
    speeds = []
    for _ in range(args.num_iters):
        took = timeit.timeit(step, number=args.num_batches_per_iter)
        speeds.append(args.batch_size * args.num_batches_per_iter / took)
    mean = sum(speeds) / len(speeds)
    if hvd.rank() == 0:
        total = mean * hvd.size()
        print("{:.1f} images/s on each of {} ranks, {:.1f} on all".format(mean, hvd.size(), total), flush=True)
    hvd.shutdown()
    return mean


if __name__ == "__main__":
    main()
