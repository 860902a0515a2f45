"""Adasum: gradients that point the same way are averaged, orthogonal ones are added.

Of two vectors: a (1 - a.b / 2|a|^2) + b (1 - a.b / 2|b|^2); of 2^k ranks: pairs of neighbours, then pairs of those.
Sums
are in fp64. Source: Maleki et al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021.
"""
import torch

from tessera import _c
from tessera.torch._arguments import CODES


def combine(a, b):
    """Adasum of two fp64 vectors. If one vector is zero, the result is the other one."""
    dot, aa, bb = torch.dot(a, b), torch.dot(a, a), torch.dot(b, b)
    left = 1.0 - (dot / (2 * aa) if aa > 0 else 0.0)
    right = 1.0 - (dot / (2 * bb) if bb > 0 else 0.0)
    return left * a + right * b


def adasum(group, size, tensor):
    """The Adasum of `tensor` over the ranks of a C group, equal on all. ValueError if `size` is not a power of two."""
    if size & (size - 1):
        raise ValueError("tessera: Adasum takes a power of two of ranks, not {}".format(size))
    own = tensor.contiguous()
    rows = torch.empty((size, own.numel()), dtype=own.dtype)
    _c.call("all_gather", group, own.data_ptr(), rows.data_ptr(), own.numel(), CODES[own.dtype], None, None)
    vectors = [row.to(torch.float64) for row in rows]
    while len(vectors) > 1:
        vectors = [combine(vectors[i], vectors[i + 1]) for i in range(0, len(vectors), 2)]
    return vectors[0].to(own.dtype).view(tensor.shape)
