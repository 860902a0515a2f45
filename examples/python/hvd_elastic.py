"""Training that goes back to its last commit when a collective fails, in Horovod's style.

    tessera launch --num_processes 2 -- python3 hvd_elastic.py [--fail-at 12]
"""
import argparse

import torch

import tessera.hvd.torch as hvd  # was: import horovod.torch as hvd


def main(arguments=None):
    """Trains; (steps that were run by this rank, loss at the end)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--fail-at", type=int, default=-1, help="a failure is made up at this batch, once")
    args = parser.parse_args(arguments)

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(8, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05),
                                         named_parameters=model.named_parameters())
    steps = []

    @hvd.elastic.run
    def train(state):
        while state.batch < args.batches:
            x = torch.randn(16, 8, generator=torch.Generator().manual_seed(state.batch * hvd.size() + hvd.rank()))
            if state.batch == args.fail_at and args.fail_at not in steps:
                steps.append(state.batch)
                raise hvd.HorovodInternalError("made up")
            optimizer.zero_grad()
            state.loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
            state.loss.backward()
            optimizer.step()
            state.loss = state.loss.item()
            steps.append(state.batch)
            state.batch += 1
            if state.batch % 5 == 0:
                state.commit()
        return state.loss

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0, loss=0.0)
    state.register_reset_callbacks([lambda: print("rank {} goes on at batch {}".format(hvd.rank(), state.batch))])
    loss = train(state)
    if hvd.rank() == 0:
        print("{} steps were run, loss {:.4f}".format(len(steps), loss), flush=True)
    hvd.shutdown()
    return steps, loss


if __name__ == "__main__":
    main()
