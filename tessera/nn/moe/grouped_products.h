#pragma once
/// \file
/// Matrix products of many sizes at once, on the CPU in fp32. Internal to nn/moe.

#include <cstdint>
#include <vector>

namespace tessera::nn {

/// c = a b, or c += a b. c [m, n] has a row every c_stride numbers. a is [m, k] with a row every a_stride, or the
/// transpose of [k, m]; b is [k, n], or the transpose of [n, k].
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

/// All of them, on at::get_num_threads() threads. A product is computed by one thread, so that however many there are
/// each runs at its full speed; threads take the largest that is left, and those that are too large for an even load
/// are cut into panels of rows first (never with one thread: then bits do not depend on what else is in the list).
/// Their results must not overlap.
void multiply_all(const std::vector<Product>& products);

}  // namespace tessera::nn
