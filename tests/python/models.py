"""A small transformer and its data, for the cases that train."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attention = torch.softmax(q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5, -1) @ v
        x = x + self.proj(attention.transpose(1, 2).reshape(b, s, d))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Tiny(nn.Module):
    """ids [batch, length] -> logits [batch, length, words]."""

    def __init__(self, words=64, width=32, layers=2, heads=4, hidden=64, unused=False, batch_norm=True):
        super().__init__()
        self.emb = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden) for _ in range(layers))
        self.head = nn.Linear(width, words)
        self.unused = nn.Linear(width, width) if unused else None
        self.bn = nn.BatchNorm1d(width) if batch_norm else None

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        if self.bn is not None:
            x = self.bn(x.transpose(1, 2)).transpose(1, 2)
        return self.head(x)


def batch(step, rank, words=64, rows=4, length=16):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    ids = torch.randint(0, words, (rows, length + 1), generator=generator)
    return ids[:, :-1], ids[:, 1:]


def loss_of(logits, target):
    return nn.functional.cross_entropy(logits.float().reshape(-1, logits.shape[-1]), target.reshape(-1))


def build(seed=0, **settings):
    torch.manual_seed(seed)
    return Tiny(**settings)
