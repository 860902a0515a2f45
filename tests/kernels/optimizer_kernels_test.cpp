#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "isa.h"
#include "reference.h"

using namespace tessera::kernels;
using reference::doubles;
using reference::Floats;

namespace {

struct OptimizerKernels : testing::TestWithParam<Isa> {
  const Table& k = table(GetParam());
};

TEST_P(OptimizerKernels, AdamwFollowsTheFormulaOverSteps) {
  for (const std::int64_t n : {1, 15, 16, 17, 1000}) {
    Floats p = reference::random(n, 1), m(n), v(n);
    auto p2 = doubles(p), m2 = doubles(m), v2 = doubles(v);
    for (int step = 1; step <= 5; ++step) {
      const Floats g = reference::random(n, 10 + step);
      const AdamwArgs a{.learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.7, .step = step};
      k.adamw(p.data(), g.data(), m.data(), v.data(), n, a);
      reference::adamw(p2, doubles(g), m2, v2, a);
    }
    EXPECT_LT(reference::error(p, p2), 1e-6) << n;
    EXPECT_LT(reference::error(m, m2), 1e-6) << n;
    EXPECT_LT(reference::error(v, v2), 1e-6) << n;
  }
}

TEST_P(OptimizerKernels, SgdFollowsTheFormulaOverSteps) {
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true}) {
      if (nesterov && momentum == 0) continue;
      const std::int64_t n = 133;
      Floats p = reference::random(n, 2), b(n, 0.0f);
      auto p2 = doubles(p), b2 = doubles(b);
      for (int step = 1; step <= 4; ++step) {
        const Floats g = reference::random(n, 20 + step);
        const SgdArgs a{.learning_rate = 0.1,
                        .momentum = momentum,
                        .nesterov = nesterov,
                        .weight_decay = 0.01,
                        .gradient_scale = 0.5};
        k.sgd(p.data(), g.data(), momentum == 0 ? nullptr : b.data(), n, a);
        reference::sgd(p2, doubles(g), b2, a);
      }
      EXPECT_LT(reference::error(p, p2), 2e-6) << momentum << nesterov;
    }
}

TEST_P(OptimizerKernels, SameBitsWhereverTheRangeIsCut) {
  rc::check([&] {
    const auto n = *rc::gen::inRange<std::int64_t>(1, 200), cut = *rc::gen::inRange<std::int64_t>(0, n + 1);
    const unsigned seed = *rc::gen::inRange(0u, 1000u);
    const Floats g = reference::random(n, seed);
    Floats p = reference::random(n, seed + 1), m = reference::random(n, seed + 2), v = Floats(n, 0.3f), p2 = p, m2 = m,
           v2 = v;
    const AdamwArgs a{.learning_rate = 1e-3, .weight_decay = 0.1, .gradient_scale = 0.9, .step = 3};
    k.adamw(p.data(), g.data(), m.data(), v.data(), n, a);
    k.adamw(p2.data(), g.data(), m2.data(), v2.data(), cut, a);
    k.adamw(p2.data() + cut, g.data() + cut, m2.data() + cut, v2.data() + cut, n - cut, a);
    RC_ASSERT(p == p2);
    RC_ASSERT(m == m2);
    RC_ASSERT(v == v2);
    const SgdArgs s{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
    k.sgd(p.data(), g.data(), m.data(), n, s);
    k.sgd(p2.data(), g.data(), m2.data(), cut, s);
    k.sgd(p2.data() + cut, g.data() + cut, m2.data() + cut, n - cut, s);
    RC_ASSERT(p == p2);
  });
}

TEST_P(OptimizerKernels, BlockSquaresHaveTheSameBitsOnEveryInstructionSet) {
  for (const std::int64_t n : {0, 1, 7, 8, 31, 32, 33, 63, 64, 65, 127, 4096, 4101}) {
    const Floats x = reference::random(n, 5, 3);
    std::vector<double> sums((n + 63) / 64), baseline(sums.size());
    k.block_squares(x.data(), n, sums.data());
    table(Isa::baseline).block_squares(x.data(), n, baseline.data());
    EXPECT_EQ(sums, baseline) << n;
    for (std::size_t b = 0; b < sums.size(); ++b) {
      long double exact = 0;
      for (std::size_t i = 64 * b; i < 64 * b + 64 && i < x.size(); ++i) exact += static_cast<long double>(x[i]) * x[i];
      EXPECT_NEAR(sums[b], static_cast<double>(exact), 1e-15 * static_cast<double>(exact)) << n << ", block " << b;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, OptimizerKernels, testing::ValuesIn(runnable()), name_of);

}  // namespace
