// The reference for a run's speed.
#include <tessera/train/reporting/utilization.h>

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera::train {
namespace {

// LibTorch's own bf16 product is a hundred times slower on a CPU without bf16 instructions. No model uses it there.
TEST(Utilization, bf16_is_measured_as_models_multiply) {
  double best[2] = {};
  for (int turn = 0; turn < 5; ++turn)
    for (const bool bf16 : {false, true}) best[bf16] = std::max(best[bf16], measured_peak_flops(c10::kCPU, bf16));
  EXPECT_GT(best[0], 1e8);
  EXPECT_GT(best[1], best[0] / 10);
}

}  // namespace
}  // namespace tessera::train
