// Routers give experts different numbers of rows in every step: the caches that products keep per number of rows must
// not grow without bound.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/nn/gemm.h>
#include <tessera/nn/moe/grouped.h>

#include <vector>

#include <unistd.h>

namespace {

using namespace tessera;

double resident_megabytes() {
  const std::string pages = split(read_file("/proc/self/statm"), ' ').at(1);
  return std::stod(pages) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

/// Both products of a step: rows by weights, and the gradients of both, with groups of `rows` and of 700 - `rows` rows.
void step(std::int64_t rows, const std::vector<at::Tensor>& weights) {
  const at::Tensor x = at::ones({700, 384}).requires_grad_(true), counts = at::tensor({rows, 700 - rows}, at::kLong);
  const at::Tensor y = nn::grouped_linear(x, counts, weights);
  const std::vector<at::Tensor> all{x, weights[0], weights[1]};
  torch::autograd::grad({y.sum()}, all);
}

TEST(MoeKernels, NumbersOfRowsDoNotPileUp) {
  std::vector<at::Tensor> weights;
  for (int e = 0; e < 2; ++e) weights.push_back(at::ones({512, 384}).requires_grad_(true));
  // First covers the row counts that have kernels, and fills the allocator's cache.
  for (std::int64_t rows = 1; rows < 700; rows += 50) step(rows, weights);
  const double before = resident_megabytes();
  for (std::int64_t rows = 2; rows < 350; rows += 3) step(rows, weights);
  EXPECT_LT(resident_megabytes() - before, 50) << "oneDNN: " << nn::multiplies_with_onednn();
}

// Groups of all sizes around the row counts with a kernel, compared with one product each.
TEST(MoeKernels, EveryNumberOfRowsIsRight) {
  at::manual_seed(3);
  const at::Tensor weight = at::randn({40, 24}).requires_grad_(true);
  for (const std::int64_t rows : {1, 15, 16, 17, 31, 63, 64, 79, 80, 81, 127, 129, 150, 255, 257, 383, 385}) {
    const at::Tensor x = at::randn({rows, 24}).requires_grad_(true), dy = at::randn({rows, 40});
    const at::Tensor y = nn::grouped_linear(x, at::tensor({rows}, at::kLong), {weight});
    const auto gradients = torch::autograd::grad({y}, {x, weight}, {dy});
    EXPECT_TRUE(at::allclose(y, at::mm(x, weight.t()), 1e-5, 1e-4)) << rows;
    EXPECT_TRUE(at::allclose(gradients[0], at::mm(dy, weight), 1e-5, 1e-4)) << rows;
    EXPECT_TRUE(at::allclose(gradients[1], at::mm(dy.t(), x), 1e-5, 1e-4)) << rows;
  }
}

}  // namespace
