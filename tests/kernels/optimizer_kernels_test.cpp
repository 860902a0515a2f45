#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>

#include "isa.h"
#include "reference.h"

using namespace tessera::kernels;
using reference::doubles;
using reference::Doubles;
using reference::Floats;

namespace {

struct OptimizerKernels : ::testing::TestWithParam<Isa> {
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

TEST_P(OptimizerKernels, AdamAddsDecayToTheGradient) {
  const std::int64_t n = 77;
  Floats p = reference::random(n, 1), m(n), v(n);
  auto p2 = doubles(p), m2 = doubles(m), v2 = doubles(v);
  for (int step = 1; step <= 5; ++step) {
    const Floats g = reference::random(n, 10 + step);
    const AdamwArgs a{
        .learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.7, .step = step, .decay_in_gradient = true};
    k.adamw(p.data(), g.data(), m.data(), v.data(), n, a);
    reference::adamw(p2, doubles(g), m2, v2, a);
  }
  EXPECT_LT(reference::error(p, p2), 1e-6);
  EXPECT_LT(reference::error(v, v2), 1e-6);
}

TEST_P(OptimizerKernels, LionAndAdagradFollowTheFormulasOverSteps) {
  for (const std::int64_t n : {1, 15, 16, 17, 1000}) {
    Floats p = reference::random(n, 3), m(n), q = p, s(n, 0.1f);
    auto p2 = doubles(p), m2 = doubles(m), q2 = doubles(q), s2 = doubles(s);
    for (int step = 1; step <= 5; ++step) {
      const Floats g = reference::random(n, 30 + step);
      const LionArgs l{.learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.7};
      k.lion(p.data(), g.data(), m.data(), n, l);
      reference::lion(p2, doubles(g), m2, l);
      const AdagradArgs a{.learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.7};
      k.adagrad(q.data(), g.data(), s.data(), n, a);
      reference::adagrad(q2, doubles(g), s2, a);
    }
    EXPECT_LT(reference::error(p, p2), 1e-6) << n;
    EXPECT_LT(reference::error(m, m2), 1e-6) << n;
    EXPECT_LT(reference::error(q, q2), 1e-6) << n;
    EXPECT_LT(reference::error(s, s2), 1e-6) << n;
  }
}

TEST_P(OptimizerKernels, RmspropFollowsTheFormulaOverSteps) {
  for (const std::int64_t n : {1, 15, 16, 17, 133})
    for (const bool centered : {false, true})
      for (const double momentum : {0.0, 0.9}) {
        Floats p = reference::random(n, 4), v(n), m(centered ? n : 0), b(momentum > 0 ? n : 0);
        auto p2 = doubles(p), v2 = doubles(v), m2 = doubles(m), b2 = doubles(b);
        for (int step = 1; step <= 5; ++step) {
          const Floats g = reference::random(n, 60 + step);
          const RmspropArgs a{.learning_rate = 1e-2,
                              .alpha = 0.9,
                              .epsilon = 1e-3,
                              .momentum = momentum,
                              .weight_decay = 0.1,
                              .gradient_scale = 0.7};
          k.rmsprop(p.data(), g.data(), v.data(), centered ? m.data() : nullptr, momentum > 0 ? b.data() : nullptr, n,
                    a);
          reference::rmsprop(p2, doubles(g), v2, m2, b2, a);
        }
        EXPECT_LT(reference::error(p, p2), 2e-6) << n << ", centered " << centered << ", momentum " << momentum;
        EXPECT_LT(reference::error(v, v2), 1e-6) << n;
        EXPECT_LT(reference::error(m, m2), 1e-6) << n;
        EXPECT_LT(reference::error(b, b2), 1e-5) << n;
      }
}

TEST_P(OptimizerKernels, LionKeepsSignsOfZeroAndNaN) {
  for (const std::int64_t n : {3, 37}) {  // in the tail, and in full vectors
    Floats p(n, 1.0f), m(n), g(n);
    g[0] = 0, g[1] = NAN, g[2] = -1e-40f;
    k.lion(p.data(), g.data(), m.data(), n, {.learning_rate = 0.5, .beta1 = 0});
    EXPECT_EQ(p[0], 1);
    EXPECT_TRUE(std::isnan(p[1]));
    EXPECT_EQ(p[2], 1.5f);
  }
}

TEST_P(OptimizerKernels, LambFollowsTheFormulaOverSteps) {
  for (const std::int64_t n : {1, 17, 64, 100, 1000})
    for (const bool correct : {false, true}) {
      Floats p = reference::random(n, 1), m(n), v(n);
      auto p2 = doubles(p), m2 = doubles(m), v2 = doubles(v);
      for (int step = 1; step <= 3; ++step) {
        const Floats g = reference::random(n, 40 + step);
        const AdamwArgs a{.learning_rate = 1e-2,
                          .beta2 = 0.99,
                          .epsilon = 1e-6,
                          .weight_decay = 0.1,
                          .gradient_scale = 0.7,
                          .step = correct ? step : 0};
        std::vector<double> p_squares((n + 63) / 64), u_squares(p_squares.size());
        const auto before = p2;
        const auto u = reference::lamb_direction(p2, doubles(g), m2, v2, a);
        k.lamb_moments(p.data(), g.data(), m.data(), v.data(), n, a, p_squares.data(), u_squares.data());
        k.lamb_apply(p.data(), m.data(), v.data(), n, a, 0.5);
        for (std::size_t i = 0; i < p2.size(); ++i) p2[i] -= a.learning_rate * 0.5 * u[i];
        for (std::size_t b = 0; b < p_squares.size(); ++b) {
          double of_p = 0, of_u = 0;
          for (std::size_t i = 64 * b; i < 64 * b + 64 && i < u.size(); ++i) {
            of_p += before[i] * before[i];
            of_u += u[i] * u[i];
          }
          EXPECT_NEAR(p_squares[b], of_p, 2e-6 * of_p) << n;
          EXPECT_NEAR(u_squares[b], of_u, 1e-5 * of_u) << n;
        }
      }
      EXPECT_LT(reference::error(p, p2), 1e-6) << n;
    }
}

TEST_P(OptimizerKernels, StatesInBfloat16FollowTheFormulasCoarsely) {
  const std::int64_t n = 533;
  for (const bool stochastic : {false, true}) {
    const auto widened = [](const std::vector<std::uint16_t>& words) {
      Doubles out;
      for (const std::uint16_t word : words) {
        const std::uint32_t bits = std::uint32_t{word} << 16;
        float x;
        std::memcpy(&x, &bits, sizeof x);
        out.push_back(x);
      }
      return out;
    };
    std::vector<std::uint16_t> m(n), v(n), b(n), c(n);
    Floats p = reference::random(n, 1), q = p, r = p;
    auto p2 = doubles(p), q2 = p2, r2 = p2;
    for (int step = 1; step <= 3; ++step) {  // each step starts from the rounded state
      const Floats g = reference::random(n, 50 + step);
      const Bf16Rounding rounding{.stochastic = stochastic, .key = static_cast<std::uint64_t>(step), .first = 64};
      Doubles m2 = widened(m), v2 = widened(v), b2 = widened(b), c2 = widened(c);
      const AdamwArgs a{.learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.7, .step = step};
      k.adamw_bf16(p.data(), g.data(), m.data(), v.data(), n, a, rounding);
      reference::adamw(p2, doubles(g), m2, v2, a);
      const SgdArgs s{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .gradient_scale = 0.5};
      k.sgd_bf16(q.data(), g.data(), b.data(), n, s, rounding);
      reference::sgd(q2, doubles(g), b2, s);
      const LionArgs l{.learning_rate = 1e-2, .weight_decay = 0.1};
      k.lion_bf16(r.data(), g.data(), c.data(), n, l, rounding);
      reference::lion(r2, doubles(g), c2, l);
      const double unit = stochastic ? 0x1p-7 : 0x1p-8;  // largest relative rounding error
      for (const auto& [got, exact] : {std::pair{&m, &m2}, {&v, &v2}, {&b, &b2}, {&c, &c2}}) {
        const Doubles rounded = widened(*got);
        for (std::size_t i = 0; i < rounded.size(); ++i)
          EXPECT_LE(std::abs(rounded[i] - (*exact)[i]), unit * 1.00001 * std::abs((*exact)[i])) << i;
      }
    }
    EXPECT_LT(reference::error(p, p2), 1e-6);  // the parameters use unrounded averages
    EXPECT_LT(reference::error(q, q2), 1e-6);
    EXPECT_LT(reference::error(r, r2), 1e-6);
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
    const LionArgs l{.learning_rate = 0.1, .weight_decay = 0.01};
    k.lion(p.data(), g.data(), m.data(), n, l);
    k.lion(p2.data(), g.data(), m2.data(), cut, l);
    k.lion(p2.data() + cut, g.data() + cut, m2.data() + cut, n - cut, l);
    k.adagrad(p.data(), g.data(), v.data(), n, {});
    k.adagrad(p2.data(), g.data(), v2.data(), cut, {});
    k.adagrad(p2.data() + cut, g.data() + cut, v2.data() + cut, n - cut, {});
    Floats mean(n, 0.1f), mean2 = mean;
    const RmspropArgs r{.momentum = 0.9, .weight_decay = 0.01};
    k.rmsprop(p.data(), g.data(), v.data(), mean.data(), m.data(), n, r);
    k.rmsprop(p2.data(), g.data(), v2.data(), mean2.data(), m2.data(), cut, r);
    k.rmsprop(p2.data() + cut, g.data() + cut, v2.data() + cut, mean2.data() + cut, m2.data() + cut, n - cut, r);
    RC_ASSERT(mean == mean2);
    RC_ASSERT(p == p2);
    std::vector<std::uint16_t> c(n), d(n), c2 = c, d2 = d;
    for (const bool stochastic : {false, true}) {
      const std::int64_t first = (std::int64_t{1} << 32) - 64;  // the index's upper half changes within the range
      k.adamw_bf16(p.data(), g.data(), c.data(), d.data(), n, {}, {stochastic, seed, first});
      k.adamw_bf16(p2.data(), g.data(), c2.data(), d2.data(), cut, {}, {stochastic, seed, first});
      k.adamw_bf16(p2.data() + cut, g.data() + cut, c2.data() + cut, d2.data() + cut, n - cut, {},
                   {stochastic, seed, first + cut});
      RC_ASSERT(p == p2);
      RC_ASSERT(c == c2);
      RC_ASSERT(d == d2);
    }
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

INSTANTIATE_TEST_SUITE_P(Isa, OptimizerKernels, ::testing::ValuesIn(runnable()), name_of);

}  // namespace
