"""Training that goes back to its last commit when a collective fails, in Horovod's style.

    tessera launch -np 2 -H localhost:2 python3 hvd_elastic.py [--fail-at 12]
"""
import argparse
import json

import torch

import tessera.hvd.torch as hvd  # was: import horovod.torch as hvd


def batch_of(number, rank, size):
    """(inputs [16, 8], targets [16, 1]) of a rank in a step."""
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(number * size + rank))
    return x, x.sum(1, keepdim=True)


def main(arguments=None):
    """Trains; (steps that were run by this rank, loss at the end)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--fail-at", type=int, default=-1, help="a failure is made up at this batch, once")
    parser.add_argument("--losses", help="each rank writes its losses to this file, with .RANK behind its name")
    args = parser.parse_args(arguments)

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(8, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05),
                                         named_parameters=model.named_parameters())
    steps, losses = [], {}

    @hvd.elastic.run
    def train(state):
        while state.batch < args.batches:
            x, y = batch_of(state.batch, hvd.rank(), hvd.size())
            if state.batch == args.fail_at and args.fail_at not in steps:
                steps.append(state.batch)
                raise hvd.HorovodInternalError("made up")
            optimizer.zero_grad()
            state.loss = torch.nn.functional.mse_loss(model(x), y)
            state.loss.backward()
            optimizer.step()
            state.loss = state.loss.item()
            steps.append(state.batch)
            losses[state.batch] = state.loss
            state.batch += 1
            if state.batch % 5 == 0:
                state.commit()
        return state.loss

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0, loss=0.0)
    state.register_reset_callbacks([lambda: print("rank {} goes on at batch {}".format(hvd.rank(), state.batch))])
    loss = train(state)
    if hvd.rank() == 0:
        print("{} steps were run, loss {:.4f}".format(len(steps), loss), flush=True)
    if args.losses:
        with open("{}.{}".format(args.losses, hvd.rank()), "w") as file:
            json.dump([losses[batch] for batch in sorted(losses)], file)
    hvd.shutdown()
    return steps, loss


if __name__ == "__main__":
    main()
