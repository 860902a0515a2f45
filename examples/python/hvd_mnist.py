"""A classifier of digits in Horovod's style; the digits are drawn, so nothing is downloaded. A script for Horovod
changes one import.

    tessera launch -np 2 -H localhost:2 python3 hvd_mnist.py [--epochs 2] [--fp16-allreduce] [--use-adasum]
"""
import argparse
import json

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import tessera.hvd.torch as hvd  # was: import horovod.torch as hvd


class Net(torch.nn.Module):
    """[rows, 1, 28, 28] -> log-probabilities [rows, 10]."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(1, 10, 5), torch.nn.Conv2d(10, 20, 5)
        self.conv2_drop = torch.nn.Dropout2d()
        self.fc1, self.fc2 = torch.nn.Linear(320, 50), torch.nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = F.dropout(F.relu(self.fc1(x.flatten(1))), training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def digits(count, seed):
    """Images of ten fixed patterns with noise, and which pattern each one is."""
    patterns = 2 * torch.randn(10, 1, 28, 28, generator=torch.Generator().manual_seed(7))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (count,), generator=generator)
    return TensorDataset(patterns[labels] + 0.5 * torch.randn(count, 1, 28, 28, generator=generator), labels)


def main(arguments=None):
    """Trains; the losses of this rank, step by step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--fp16-allreduce", action="store_true")
    parser.add_argument("--use-adasum", action="store_true")
    parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
    parser.add_argument("--losses", help="each rank writes its losses to this file, with .RANK behind its name")
    args = parser.parse_args(arguments)

    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    train, test = digits(1024, 1), digits(512, 2)
    sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler)
    test_sampler = DistributedSampler(test, num_replicas=hvd.size(), rank=hvd.rank())
    test_loader = DataLoader(test, batch_size=128, sampler=test_sampler)
    model = Net()
    # Adasum needs no larger learning rate for more ranks.
    scale = hvd.size() if not args.use_adasum else 1
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * scale, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
        gradient_predivide_factor=args.gradient_predivide_factor)
    losses = []

    def train_epoch(epoch):
        model.train()
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    def average(value, name):
        return hvd.allreduce(torch.tensor(value), name=name).item()

    def test_epoch(epoch):
        model.eval()
        loss, hits = 0.0, 0.0
        with torch.no_grad():
            for x, y in test_loader:
                out = model(x)
                loss += F.nll_loss(out, y, reduction="sum").item()
                hits += out.argmax(1).eq(y).float().sum().item()
        loss = average(loss / len(test_sampler), "avg_loss")
        hits = average(hits / len(test_sampler), "avg_accuracy")
        if hvd.rank() == 0:
            print("epoch {}: loss {:.4f}, accuracy {:.3f}".format(epoch, loss, hits), flush=True)

    for epoch in range(1, args.epochs + 1):
        train_epoch(epoch)
        test_epoch(epoch)
    if args.losses:
        with open("{}.{}".format(args.losses, hvd.rank()), "w") as file:
            json.dump(losses, file)
    hvd.shutdown()
    return losses


if __name__ == "__main__":
    main()
