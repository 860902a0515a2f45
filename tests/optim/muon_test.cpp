// Muon: its formula against plain loops in double precision and against torch.optim.Muon's numbers, whole and in
// pieces.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/config/core/overrides.h>
#include <tessera/optim/by_name.h>
#include <tessera/optim/optimizer.h>

#include <tests/error_of.h>

#include <algorithm>
#include <cmath>

#include "ranks.h"

namespace {

using namespace tessera;
using namespace tessera::optim;
using tessera::testing::error_of;

using Rows = std::vector<std::vector<double>>;

at::Tensor numbers(std::uint64_t seed, at::IntArrayRef shape, at::ScalarType dtype = at::kDouble) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(seed);
  return at::randn(shape, generator, at::kDouble).to(dtype);
}

Rows rows_of(const at::Tensor& x) {
  Rows rows(static_cast<std::size_t>(x.size(0)), std::vector<double>(static_cast<std::size_t>(x.size(1))));
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < rows[i].size(); ++j)
      rows[i][j] = x[static_cast<std::int64_t>(i)][static_cast<std::int64_t>(j)].item<double>();
  return rows;
}

Rows product(const Rows& a, const Rows& b) {
  Rows c(a.size(), std::vector<double>(b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < b.size(); ++k)
      for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}

Rows transposed(const Rows& a) {
  Rows t(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}

/// Five steps x <- a x + b (x x') x + c (x x') (x x') x, whichever side is longer.
Rows orthogonal(Rows x, const std::vector<std::vector<double>>& triples) {
  double squares = 0;
  for (const auto& row : x)
    for (const double number : row) squares += number * number;
  for (auto& row : x)
    for (double& number : row) number /= std::sqrt(squares);
  for (std::size_t step = 0; step < 5; ++step) {
    const auto& t = triples[step % triples.size()];
    const Rows square = product(x, transposed(x)), once = product(square, x), twice = product(square, once);
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = 0; j < x[0].size(); ++j) x[i][j] = t[0] * x[i][j] + t[1] * once[i][j] + t[2] * twice[i][j];
  }
  return x;
}

const std::vector<std::vector<double>> simple = {{3.4445, -4.7750, 2.0315}};
const std::vector<std::vector<double>> quintic = {{4.0848, -6.8946, 2.9270},
                                                  {3.9505, -6.3029, 2.6377},
                                                  {3.7418, -5.5913, 2.3037},
                                                  {2.8769, -3.1427, 1.2046},
                                                  {2.8366, -3.0525, 1.2012}};

std::vector<Slot> slots_of(const at::Tensor& matrix, const at::Tensor& vector) {
  std::vector<Slot> slots = {{"matrix", matrix, 0.1}, {"vector", vector, 0.2}};
  slots[0].orthogonal = true;
  return slots;
}

void expect_formula(std::int64_t rows, std::int64_t columns, const std::string& arguments, bool nesterov,
                    const std::vector<std::vector<double>>& triples, double scale) {
  const at::Tensor matrix = numbers(1, {rows, columns}), vector = numbers(2, {9});
  const at::Tensor other = vector.clone();
  Rows p = rows_of(matrix), m(p.size(), std::vector<double>(p[0].size()));
  OptimizerChoice choice{.kind = OptimizerKind::muon, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6};
  choice.parameters = config::parse_overrides(arguments, "--optim_args");
  const auto muon = make_optimizer(choice, slots_of(matrix, vector));
  const auto adamw = make_adamw({{"vector", other, 0.2}}, {0.8, 0.95, 1e-6});
  for (std::uint64_t step = 0; step < 4; ++step) {
    matrix.mutable_grad() = numbers(10 + step, {rows, columns});
    vector.mutable_grad() = numbers(20 + step, {9});
    other.mutable_grad() = vector.grad().clone();
    muon->step(0.01, 0.5);
    adamw->step(0.01, 0.5);
    Rows g = rows_of(matrix.grad() * 0.5), u = g;
    for (std::size_t i = 0; i < p.size(); ++i)
      for (std::size_t j = 0; j < p[0].size(); ++j) {
        m[i][j] = 0.9 * m[i][j] + 0.1 * g[i][j];
        u[i][j] = nesterov ? 0.1 * g[i][j] + 0.9 * m[i][j] : m[i][j];
      }
    u = orthogonal(u, triples);
    for (std::size_t i = 0; i < p.size(); ++i)
      for (std::size_t j = 0; j < p[0].size(); ++j) p[i][j] = p[i][j] * (1 - 0.01 * 0.1) - 0.01 * scale * u[i][j];
  }
  const Rows found = rows_of(matrix);
  for (std::size_t i = 0; i < p.size(); ++i)
    for (std::size_t j = 0; j < p[0].size(); ++j) EXPECT_NEAR(found[i][j], p[i][j], 1e-12) << i << ", " << j;
  EXPECT_TRUE(at::allclose(vector, other, 1e-13, 1e-13)) << vector << other;
}

TEST(Muon, is_its_formula) {
  expect_formula(6, 4, "momentum=0.9", true, simple, std::sqrt(1.5));
  expect_formula(4, 6, "momentum=0.9", true, simple, 1);
  expect_formula(4, 6, "momentum=0.9,nesterov=false,scale_mode=spectral,extra_scale_factor=0.2", false, simple,
                 0.2 * std::sqrt(6.0));
  expect_formula(6, 4, "momentum=0.9,ns_coefficients=quintic,scale_mode=unit_rms_norm", true, quintic, std::sqrt(1.5));
  expect_formula(4, 6, "momentum=0.9,ns_coefficients=quintic,scale_mode=unit_rms_norm", true, quintic,
                 std::sqrt(4.0 / 6));
}

TEST(Muon, makes_updates_nearly_orthogonal) {
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{24, 40}, {40, 24}, {32, 32}}) {
    const at::Tensor matrix = at::zeros(shape), vector = at::zeros({1});
    const auto muon = make_muon(slots_of(matrix, vector), {.scale = MuonScale::unit_rms_norm});
    matrix.mutable_grad() = numbers(3, shape, at::kFloat) * 1e3;
    muon->step(1);
    const double scale = std::sqrt(static_cast<double>(shape[0]) / static_cast<double>(shape[1]));
    const at::Tensor values = at::linalg_svdvals(matrix / scale);
    EXPECT_GT(values.min().item<float>(), shape[0] == shape[1] ? 0.02 : 0.6) << values;  // smaller for a square matrix
    EXPECT_LT(values.max().item<float>(), 1.25) << values;                               // can be arbitrarily small
  }
}

/// The output of tests/parity/muon_fixture.py: torch.optim.Muon with its iteration in float32.
TEST(Muon, is_torchs) {
  const at::Tensor matrix = (at::arange(24, at::kFloat).mul(7).remainder(16) - 8).div(8).view({4, 6});
  const at::Tensor vector = at::zeros({1});
  const auto muon = make_muon(slots_of(matrix, vector), {});
  for (int step = 0; step < 10; ++step) {
    matrix.mutable_grad() = ((at::arange(24, at::kFloat).mul(5) + 3 * step).remainder(32) - 15).div(16).view({4, 6});
    muon->step(1e-2 * (1 - step / 10.0));
  }
  const float expected[] = {
#include "muon_fixture.inc"
  };
  for (std::int64_t i = 0; i < 24; ++i) EXPECT_NEAR(matrix.view(-1)[i].item<float>(), expected[i], 2e-6) << i;
}

/// The same bits wherever a matrix is cut, even if a rank has nothing or all of it.
TEST(Muon, is_the_same_in_pieces) {
  const std::vector<std::int64_t> shape = {24, 16};
  const at::Tensor start = numbers(4, shape, at::kFloat), none = at::zeros({64});
  const auto gradient = [&](std::uint64_t step) { return numbers(30 + step, shape, at::kFloat); };
  at::set_num_threads(1);
  const at::Tensor whole = start.clone(), idle = none.clone();
  const auto alone = make_muon(slots_of(whole, idle), {});
  for (std::uint64_t step = 0; step < 3; ++step) {
    whole.mutable_grad() = gradient(step);
    alone->step(0.1);
  }
  for (const bool cut : {true, false}) {
    std::vector<at::Tensor> parts(3);
    ranks::run(3, [&](int rank, ranks::Meeting& meeting) {
      const auto [begin, end] = cut ? ranks::piece_of({128, 128}, 384, rank) : ranks::Piece{0, 384};
      at::Tensor part = start.view(-1).slice(0, begin, end).clone();
      std::vector<Slot> slots = slots_of(part, none.clone());
      slots[0].shape = shape;
      slots[0].begin = begin;
      const auto muon = make_muon(
          std::move(slots), {}, {.sum_over_shards = [&](std::vector<double>& values) { meeting.sum_doubles(values); }});
      for (std::uint64_t step = 0; step < 3; ++step) {
        part.mutable_grad() = gradient(step).view(-1).slice(0, begin, end).clone();
        muon->step(0.1);
      }
      parts[static_cast<std::size_t>(rank)] = part;
    });
    const at::Tensor all = cut ? at::cat(parts) : parts[1];
    EXPECT_TRUE(at::equal(all, whole.view(-1))) << cut;
  }
}

TEST(Muon, keeps_one_state_of_matrices_and_two_of_others) {
  const auto muon = make_muon(slots_of(at::zeros({4, 6}), at::zeros({9})), {});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : muon->state()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"momentum_buffer.matrix", "exp_avg.vector", "exp_avg_sq.vector"}));
}

TEST(Muon, says_what_is_wrong) {
  const auto made = [](const MuonOptions& options) {
    return error_of([&] { make_muon(slots_of(at::zeros({4, 6}), at::zeros({9})), options); });
  };
  EXPECT_EQ(made({}), "");
  EXPECT_NE(made({.momentum = 1}).find("momentum must be in [0, 1)"), std::string::npos);
  EXPECT_NE(made({.steps = 0}).find("ns_steps = 0"), std::string::npos);
  EXPECT_NE(made({.others = {.beta1 = 1}}).find("beta1 = 1"), std::string::npos);
  EXPECT_EQ(error_of([] { make_muon(slots_of(at::zeros({2, 3, 4}), at::zeros({9})), {}); }),
            "Muon: parameter 'matrix' has 3 dimensions; only matrices can be orthogonalized");
  OptimizerChoice choice{.kind = OptimizerKind::muon};
  choice.parameters = config::parse_overrides("scale_mode=other", "--optim_args");
  EXPECT_EQ(error_of([&] { check_optimizer(choice); }),
            "--optim_args: scale_mode of muon is 'other'; it must be one of shape_scaling, spectral, unit_rms_norm");
}

TEST(LearningRateScales, hold_from_the_next_step_on) {
  const at::Tensor a = at::ones({3}), b = at::ones({3});
  const auto sgd = make_sgd({{"a", a}, {"b", b}}, {});
  a.mutable_grad() = at::ones({3});
  b.mutable_grad() = at::ones({3});
  sgd->step(0.5);
  sgd->set_learning_rate_scales({0.25, 0});
  sgd->step(1);
  EXPECT_TRUE(at::equal(a, at::full({3}, 0.25f))) << a;
  EXPECT_TRUE(at::equal(b, at::full({3}, 0.5f))) << b;
}

}  // namespace
