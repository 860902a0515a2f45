#pragma once
// Ten classes of noisy 28 x 28 "images" around ten fixed patterns: the examples' replacement for MNIST.

#include <tessera/faces/loader.h>

#include <ATen/ATen.h>

#include <cstdint>

/// Returns the same rows on every rank: images [rows, 784] and labels [rows].
inline tessera::RowSource synthetic_digits(std::int64_t rows, std::uint64_t seed = 1) {
  at::manual_seed(0);
  const at::Tensor patterns = at::randn({10, 784});
  at::manual_seed(seed);
  const at::Tensor labels = at::randint(10, {rows}, at::kLong);
  return tessera::tensor_rows({patterns.index_select(0, labels) + 2 * at::randn({rows, 784}), labels});
}
