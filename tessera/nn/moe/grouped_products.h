#pragma once
/// \file
/// Matrix products of many sizes at once, on the CPU in fp32. Internal to nn/moe.

#include <cstdint>
#include <vector>

namespace tessera::nn {

/// c = a b, or c += a b. c [m, n] with row stride c_stride. a is [m, k] with row stride a_stride, or the transpose of
/// [k, m]; b is [k, n], or the transpose of [n, k].
struct Product {
  const float* a;
  std::int64_t a_stride;
  bool a_transposed;
  const float* b;
  std::int64_t b_stride;
  bool b_transposed;
  float* c;
  std::int64_t c_stride;
  std::int64_t m, n, k;
  bool accumulate = false;
};

/// Computes all products on at::get_num_threads() threads. Each product is computed by one thread, so each runs at full
/// speed, however many there are; threads take the largest remaining product, and products that are too large for an
/// even load are first cut into panels of rows (never with one thread: then bits do not depend on what else is in the
/// list). Their results must not overlap.
void multiply_all(const std::vector<Product>& products);

}  // namespace tessera::nn
