// Attention of one head and its gradients against plain sums in double precision, for every instruction set.

#include "isa.h"
#include "reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace tessera::kernels {
namespace {

using reference::Doubles;
using reference::Floats;

struct Expected {
  Doubles out, log_sums, dq, dk, dv;  ///< dense [tokens, size]
};

/// softmax(scale q k^T) v, and the gradients of sum(out * dout); all dense.
Expected expected(const Floats& q, const Floats& k, const Floats& v, const Floats& dout, std::int64_t queries,
                  std::int64_t keys, std::int64_t size, double scale, bool causal, std::int64_t window) {
  Expected e{Doubles(queries * size), Doubles(queries), Doubles(queries * size), Doubles(keys * size),
             Doubles(keys * size)};
  for (std::int64_t t = 0; t < queries; ++t) {
    const std::int64_t seen = causal ? t + 1 : keys, from = window > 0 ? std::max<std::int64_t>(0, t - window + 1) : 0;
    Doubles p(seen), dp(seen);
    double sum = 0, mean = 0;
    for (std::int64_t j = from; j < seen; ++j) {
      for (std::int64_t i = 0; i < size; ++i) {
        p[j] += scale * q[t * size + i] * k[j * size + i];
        dp[j] += static_cast<double>(dout[t * size + i]) * v[j * size + i];
      }
      sum += std::exp(p[j]);
    }
    e.log_sums[t] = std::log(sum);
    for (std::int64_t j = from; j < seen; ++j) p[j] = std::exp(p[j]) / sum, mean += p[j] * dp[j];
    for (std::int64_t j = from; j < seen; ++j)
      for (std::int64_t i = 0; i < size; ++i) {
        const double ds = scale * p[j] * (dp[j] - mean);
        e.out[t * size + i] += p[j] * v[j * size + i];
        e.dq[t * size + i] += ds * k[j * size + i];
        e.dk[j * size + i] += ds * q[t * size + i];
        e.dv[j * size + i] += p[j] * dout[t * size + i];
      }
  }
  return e;
}

/// Rows of `size` numbers, `stride` apart; the gaps must remain untouched.
Floats spread(const Floats& dense, std::int64_t size, std::int64_t stride) {
  Floats all(dense.size() / size * stride, 7.0f);
  for (std::size_t t = 0; t < dense.size() / size; ++t)
    std::copy_n(dense.begin() + t * size, size, all.begin() + t * stride);
  return all;
}
Floats gathered(const Floats& all, std::int64_t size, std::int64_t stride) {
  Floats dense;
  for (std::size_t t = 0; t < all.size() / stride; ++t) {
    dense.insert(dense.end(), all.begin() + t * stride, all.begin() + t * stride + size);
    for (std::int64_t i = size; i < stride; ++i) EXPECT_EQ(all[t * stride + i], 7.0f);
  }
  return dense;
}

class AttentionKernel : public ::testing::TestWithParam<Isa> {
 protected:
  const Table& k = table(GetParam());
};

TEST_P(AttentionKernel, IsTheSumOverKeysAndItsGradients) {
  struct Case {
    std::int64_t queries, keys, size;
    bool causal;
    std::int64_t window = 0;
  };
  for (const Case& c : {Case{1, 1, 16, true},
                        {63, 63, 64, true},
                        {64, 64, 32, true},
                        {65, 65, 80, true},
                        {200, 200, 64, true},
                        {200, 200, 16, true, 1},
                        {200, 200, 32, true, 7},
                        {130, 130, 64, true, 64},
                        {333, 333, 16, true, 100},
                        {70, 70, 16, true, 69},
                        {5, 130, 48, false},
                        {130, 5, 64, false},
                        {128, 64, 128, false}}) {
    const std::int64_t n = c.queries, m = c.keys, size = c.size, q_row = size + 3, k_row = 2 * size;
    const Floats q = reference::random(n * size, 1), keys = reference::random(m * size, 2),
                 v = reference::random(m * size, 3), dout = reference::random(n * size, 4);
    const float scale = 0.25f;
    const Expected e = expected(q, keys, v, dout, n, m, size, scale, c.causal, c.window);
    const Floats all_q = spread(q, size, q_row), all_k = spread(keys, size, k_row), all_v = spread(v, size, k_row),
                 all_dout = spread(dout, size, q_row);
    Floats out(n * q_row, 7.0f), log_sums(n), dq(n * q_row, 7.0f), dk(m * k_row, 7.0f), dv(m * k_row, 7.0f);
    // Old contents of the scratch memory must not matter.
    Floats scratch(attention_scratch(m, size), std::numeric_limits<float>::quiet_NaN());
    const AttentionHead head{all_q.data(), all_k.data(), all_v.data(), q_row,   k_row, k_row, n, m,
                             size,         scale,        c.causal,     c.window};
    k.attention(head, 0, n, out.data(), q_row, log_sums.data(), scratch.data());
    std::fill(scratch.begin(), scratch.end(), std::numeric_limits<float>::quiet_NaN());
    k.attention_backward(head,
                         {out.data(), all_dout.data(), q_row, q_row, log_sums.data(), dq.data(), dk.data(), dv.data(),
                          q_row, k_row, k_row},
                         scratch.data());
    const std::string what = std::to_string(n) + " x " + std::to_string(m) + " x " + std::to_string(size) +
                             ", window " + std::to_string(c.window);
    EXPECT_LT(reference::error(gathered(out, size, q_row), e.out), 4e-6) << what;
    EXPECT_LT(reference::error(log_sums, e.log_sums), 1e-6) << what;
    EXPECT_LT(reference::error(gathered(dq, size, q_row), e.dq), 1e-5) << what;
    EXPECT_LT(reference::error(gathered(dk, size, k_row), e.dk), 1e-5) << what;
    EXPECT_LT(reference::error(gathered(dv, size, k_row), e.dv), 1e-5) << what;
    // In ranges, as threads process them: the same bits.
    Floats parts(n * q_row, 7.0f), part_sums(n);
    for (std::int64_t first = 0; first < n; first += attention_tile)
      k.attention(head, first, std::min(n, first + attention_tile), parts.data(), q_row, part_sums.data(),
                  scratch.data());
    EXPECT_EQ(parts, out) << what;
    EXPECT_EQ(part_sums, log_sums) << what;
  }
}

// Scores far apart: the running maximum keeps every exponential finite, and scores far below it contribute nothing.
TEST_P(AttentionKernel, LargeScoresStayFinite) {
  const std::int64_t n = 150, size = 16;
  Floats q(n * size, 0.0f), keys(n * size, 0.0f), v(n * size, 0.0f), out(n * size), log_sums(n);
  for (std::int64_t t = 0; t < n; ++t) {
    q[t * size] = 100;
    keys[t * size] = static_cast<float>(t % 2 == 0 ? -t : t);
    v[t * size + 1] = static_cast<float>(t);
  }
  Floats scratch(attention_scratch(n, size));
  const AttentionHead head{q.data(), keys.data(), v.data(), size, size, size, n, n, size, 1, true};
  k.attention(head, 0, n, out.data(), size, log_sums.data(), scratch.data());
  for (std::int64_t t = 0; t < n; ++t) {
    const std::int64_t best = t % 2 == 0 ? std::max<std::int64_t>(t - 1, 0) : t;
    EXPECT_FLOAT_EQ(out[t * size + 1], static_cast<float>(best)) << t;
    EXPECT_FLOAT_EQ(log_sums[t], 100.0f * static_cast<float>(best)) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, AttentionKernel, ::testing::ValuesIn(runnable()), name_of);

}  // namespace
}  // namespace tessera::kernels
