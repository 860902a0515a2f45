#include <tessera/optim/block_sums.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/kernels/cpu/block_squares.h>

#include <algorithm>

namespace tessera::optim {

using kernels::square_block;

void block_squares(const double* x, std::int64_t n, double* sums) {
  for (std::int64_t i = 0; i < n; i += square_block) {
    double lanes[square_block / 2] = {};
    const std::int64_t count = std::min(square_block, n - i);
    for (std::int64_t k = 0; k < count; ++k) lanes[k % (square_block / 2)] += x[i + k] * x[i + k];
    for (std::int64_t half = square_block / 4; half > 0; half /= 2)
      for (std::int64_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
    *sums++ = lanes[0];
  }
}

at::Tensor block_squares_of(const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  constexpr std::int64_t at_once = std::int64_t{1} << 23;
  const at::Tensor flat = x.view({-1});
  std::vector<at::Tensor> sums;
  for (std::int64_t begin = 0; begin < flat.numel(); begin += at_once) {
    const std::int64_t n = std::min(at_once, flat.numel() - begin), blocks = (n + square_block - 1) / square_block;
    at::Tensor squares = at::zeros({blocks * square_block}, x.options().dtype(at::kDouble).requires_grad(false));
    squares.narrow(0, 0, n).copy_(flat.narrow(0, begin, n)).square_();
    squares = squares.view({blocks, square_block});
    for (std::int64_t half = square_block / 2; half > 0; half /= 2)
      squares = squares.narrow(1, 0, half) + squares.narrow(1, half, half);
    sums.push_back(squares.view({-1}));
  }
  return sums.empty() ? at::empty({0}, x.options().dtype(at::kDouble)) : at::cat(sums);
}

}  // namespace tessera::optim
