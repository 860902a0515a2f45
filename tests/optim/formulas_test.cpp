// Adam, Adagrad and Adafactor against the numbers of torch.optim and transformers; RMSprop against torch::optim; Lion,
// LAMB and LARS against their papers' formulas in double precision.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/rmsprop.h>

#include <tessera/base/error.h>
#include <tessera/optim/optimizer.h>

#include <cmath>
#include <functional>

#include "torch_optim_fixture.inc"

namespace {

using namespace tessera;
using namespace tessera::optim;

using Make = std::function<std::unique_ptr<Optimizer>(std::vector<Slot>)>;
using Shapes = std::vector<std::vector<std::int64_t>>;

const Shapes vectors = {{5}, {3}}, matrices = {{4, 6}, {7}, {2, 3, 5}};

// The initial values and gradients of tests/parity/optim_fixture.py.
at::Tensor start(std::int64_t i, const std::vector<std::int64_t>& shape) {
  const at::Tensor k = at::arange(at::ones(shape).numel(), at::kLong);
  return ((7 * k + 3 * i).remainder(16) - 8).to(at::kFloat).div_(8).view(shape);
}
at::Tensor gradient(std::int64_t i, int step, const std::vector<std::int64_t>& shape) {
  const at::Tensor k = at::arange(at::ones(shape).numel(), at::kLong);
  return ((5 * k + 11 * i + 3 * step).remainder(32) - 15).to(at::kFloat).div_(16).view(shape);
}

at::Tensor train(const Make& make, const Shapes& shapes, const std::vector<double>& decays, at::ScalarType dtype) {
  std::vector<Slot> slots;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    slots.push_back({concat("p", i), start(static_cast<std::int64_t>(i), shapes[i]).to(dtype), decays[i]});
  const auto optimizer = make(slots);
  for (int step = 0; step < 10; ++step) {
    for (std::size_t i = 0; i < shapes.size(); ++i)
      slots[i].parameter.mutable_grad() = gradient(static_cast<std::int64_t>(i), step, shapes[i]).to(dtype);
    optimizer->step(1e-2 * (1 - step / 10.0));
  }
  std::vector<at::Tensor> all;
  for (const Slot& slot : slots) all.push_back(slot.parameter.flatten().to(at::kFloat));
  return at::cat(all);
}

template <std::size_t N>
void expect_fixture(const Make& make, const Shapes& shapes, const float (&expected)[N]) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {  // the kernels, and ATen's operators
    const at::Tensor all = train(make, shapes, {0.1, 0.0, 0.05}, dtype);
    ASSERT_EQ(all.numel(), static_cast<std::int64_t>(N));
    for (std::size_t k = 0; k < N; ++k)
      EXPECT_NEAR(all[static_cast<std::int64_t>(k)].item<float>(), expected[k], 3e-7)
          << "element " << k << ", " << c10::toString(dtype);
  }
}

TEST(Formulas, adam_is_torchs) {
  expect_fixture([](auto s) { return make_adam(std::move(s), {}); }, vectors, torch_adam);
}

TEST(Formulas, adagrad_is_torchs) {
  expect_fixture([](auto s) { return make_adagrad(std::move(s), {}); }, vectors, torch_adagrad);
  expect_fixture([](auto s) { return make_adagrad(std::move(s), {1e-3, 0.1, 0.5}); }, vectors, torch_adagrad_options);
}

TEST(Formulas, rmsprop_is_torchs) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble})  // the kernel, and ATen's operators
    for (const bool centered : {false, true})
      for (const double momentum : {0.0, 0.9}) {
        std::vector<at::Tensor> parameters;
        std::vector<torch::optim::OptimizerParamGroup> groups;
        for (std::size_t i = 0; i < vectors.size(); ++i) {
          parameters.push_back(start(static_cast<std::int64_t>(i), vectors[i]).to(dtype).requires_grad_());
          groups.emplace_back(std::vector<at::Tensor>{parameters[i]},
                              std::make_unique<torch::optim::RMSpropOptions>(torch::optim::RMSpropOptions(1)
                                                                                 .alpha(0.9)
                                                                                 .eps(1e-6)
                                                                                 .momentum(momentum)
                                                                                 .centered(centered)
                                                                                 .weight_decay(i == 0 ? 0.1 : 0)));
        }
        torch::optim::RMSprop torchs(groups, torch::optim::RMSpropOptions(1));
        for (int step = 0; step < 10; ++step) {
          for (std::size_t i = 0; i < vectors.size(); ++i)
            parameters[i].mutable_grad() = gradient(static_cast<std::int64_t>(i), step, vectors[i]).to(dtype);
          for (auto& group : torchs.param_groups()) group.options().set_lr(1e-2 * (1 - step / 10.0));
          torchs.step();
        }
        const at::Tensor all = train(
            [&](auto s) {
              return make_rmsprop(std::move(s),
                                  {.alpha = 0.9, .epsilon = 1e-6, .momentum = momentum, .centered = centered});
            },
            vectors, {0.1, 0}, dtype);
        const at::Tensor expected = at::cat({parameters[0].detach(), parameters[1].detach()}).to(at::kFloat);
        EXPECT_LT((all - expected).abs().max().item<double>(), 5e-7)
            << c10::toString(dtype) << ", centered " << centered << ", momentum " << momentum;
      }
}

TEST(Formulas, adafactor_is_transformers) {
  expect_fixture([](auto s) { return make_adafactor(std::move(s), {}); }, matrices, adafactor);
  expect_fixture(
      [](auto s) {
        return make_adafactor(std::move(s), {.epsilon1 = 1e-20,
                                             .epsilon2 = 0.1,
                                             .clip_threshold = 0.7,
                                             .decay_rate = -0.6,
                                             .beta1 = 0.9,
                                             .scale_parameter = true});
      },
      matrices, adafactor_options);
}

TEST(Formulas, adafactor_relative_steps_are_transformers) {
  expect_fixture([](auto s) { return make_adafactor(std::move(s), {.scale_parameter = true, .relative_step = true}); },
                 matrices, adafactor_relative);
  expect_fixture([](auto s) { return make_adafactor(std::move(s), {.relative_step = true, .warmup_init = true}); },
                 matrices, adafactor_warmup);
}

TEST(Formulas, adafactor_factors_true_shapes) {
  const auto optimizer = make_adafactor({{"matrix", at::ones({4, 6})},
                                         {"vector", at::ones({7})},
                                         {"batch", at::ones({2, 3, 5})},
                                         {"piece", at::ones({64}), 0, 1, {32, 4}, 64}},
                                        {.beta1 = 0.9});
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> found;
  for (const auto& [name, state] : optimizer->state()) found.emplace_back(name, state.sizes().vec());
  const decltype(found) expected = {
      {"exp_avg_sq_row.matrix", {4}}, {"exp_avg_sq_row.batch", {2, 3}}, {"exp_avg_sq_row.piece", {32}},
      {"exp_avg_sq_col.matrix", {6}}, {"exp_avg_sq_col.batch", {2, 5}}, {"exp_avg_sq_col.piece", {4}},
      {"exp_avg_sq.vector", {7}},     {"exp_avg.matrix", {4, 6}},       {"exp_avg.vector", {7}},
      {"exp_avg.batch", {2, 3, 5}},   {"exp_avg.piece", {64}}};
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(optimizer->is_replicated("exp_avg_sq_row.matrix"));
  EXPECT_TRUE(optimizer->is_replicated("exp_avg_sq_col.batch"));
  EXPECT_FALSE(optimizer->is_replicated("exp_avg_sq.vector"));
  EXPECT_FALSE(optimizer->is_replicated("exp_avg.exp_avg_sq_row"));
}

/// Updates one parameter in double precision by `rule` over the fixture's ten steps.
using Rule = std::function<void(at::Tensor& p, const at::Tensor& g, double learning_rate, double decay, int step)>;

void expect_rule(const Make& make, const std::function<Rule()>& new_rule, double tolerance = 1e-6) {
  const std::vector<double> decays = {0.1, 0.0, 0.05};
  std::vector<at::Tensor> expected;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    at::Tensor p = start(static_cast<std::int64_t>(i), matrices[i]).to(at::kDouble);
    const Rule rule = new_rule();
    for (int step = 0; step < 10; ++step)
      rule(p, gradient(static_cast<std::int64_t>(i), step, matrices[i]).to(at::kDouble), 1e-2 * (1 - step / 10.0),
           decays[i], step + 1);
    expected.push_back(p.flatten());
  }
  const at::Tensor narrow = train(make, matrices, decays, at::kFloat),
                   wide = train(make, matrices, decays, at::kDouble);
  EXPECT_LT((narrow - at::cat(expected)).abs().max().item<double>(), tolerance);
  EXPECT_LT((wide - at::cat(expected)).abs().max().item<double>(), 1e-7);  // rounded to float by train()
}

TEST(Formulas, lion_is_the_papers) {
  expect_rule([](auto s) { return make_lion(std::move(s), {0.8, 0.95}); },
              []() -> Rule {
                return [m = at::Tensor()](at::Tensor& p, const at::Tensor& g, double lr, double decay, int) mutable {
                  if (!m.defined()) m = at::zeros_like(p);
                  p = p - lr * ((0.8 * m + 0.2 * g).sign() + decay * p);
                  m = 0.95 * m + 0.05 * g;
                };
              });
}

Rule lamb_rule(bool correct, double least, double most, bool always) {
  return [=, m = at::Tensor(), v = at::Tensor()](at::Tensor& p, const at::Tensor& g, double lr, double decay,
                                                 int step) mutable {
    if (!m.defined()) m = at::zeros_like(p), v = at::zeros_like(p);
    m = 0.9 * m + 0.1 * g;
    v = 0.99 * v + 0.01 * g * g;
    const double c1 = correct ? 1 - std::pow(0.9, step) : 1, c2 = correct ? 1 - std::pow(0.99, step) : 1;
    const at::Tensor u = (m / c1) / ((v / c2).sqrt() + 1e-6) + decay * p;
    double ratio = p.norm().item<double>() / u.norm().item<double>();
    if (most > 0) ratio = std::min(ratio, most);
    ratio = decay == 0 && !always ? 1 : std::max(ratio, least);
    p = p - lr * ratio * u;
  };
}

TEST(Formulas, lamb_is_the_papers) {
  expect_rule([](auto s) { return make_lamb(std::move(s), {.beta2 = 0.99}); },
              [] { return lamb_rule(true, 0, 0, false); });
  expect_rule(
      [](auto s) {
        return make_lamb(std::move(s),
                         {.beta2 = 0.99, .bias_correction = false, .max_trust_ratio = 0.6, .adapt_undecayed = true});
      },
      [] { return lamb_rule(false, 0, 0.6, true); });
  expect_rule(
      [](auto s) {
        return make_lamb(std::move(s),
                         {.beta2 = 0.99, .min_trust_ratio = 0.9, .max_trust_ratio = 1.5, .adapt_undecayed = true});
      },
      [] { return lamb_rule(true, 0.9, 1.5, true); });
}

Rule lars_rule(bool nesterov, bool always) {
  return [=, b = at::Tensor()](at::Tensor& p, const at::Tensor& g, double lr, double decay, int) mutable {
    if (!b.defined()) b = at::zeros_like(p);
    double trust = 0.02 * p.norm().item<double>() / (g.norm().item<double>() + decay * p.norm().item<double>() + 1e-8);
    if (decay == 0 && !always) trust = 1;
    const at::Tensor scaled = trust * (g + decay * p);
    b = 0.9 * b + scaled;
    p = p - lr * (nesterov ? scaled + 0.9 * b : b);
  };
}

TEST(Formulas, lars_is_larc_without_clipping) {
  for (const bool nesterov : {false, true})
    for (const bool always : {false, true})
      expect_rule(
          [=](auto s) {
            return make_lars(std::move(s),
                             {.nesterov = nesterov, .trust_coefficient = 0.02, .adapt_undecayed = always});
          },
          [=] { return lars_rule(nesterov, always); });
}

TEST(Formulas, norms_of_zero_leave_the_update_as_it_is) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const auto moved = [&](const Make& make, double value, double slope) {
      const at::Tensor p = at::full({9}, value, dtype);
      p.mutable_grad() = at::full({9}, slope, dtype);
      make({{"p", p, 0.1}})->step(0.5);
      return p[0].item<double>();
    };
    const Make lamb = [](auto s) { return make_lamb(std::move(s), {}); };
    const Make lars = [](auto s) { return make_lars(std::move(s), {.momentum = 0}); };
    EXPECT_NEAR(moved(lamb, 0, 3), -0.5, 1e-6);  // p = 0: Adam's first step, for any bounds
    EXPECT_NEAR(moved([](auto s) { return make_lamb(std::move(s), {.max_trust_ratio = 0.3}); }, 0, 3), -0.5, 1e-6);
    EXPECT_NEAR(moved(lars, 0, 3), -1.5, 1e-6);           // p = 0: plain SGD
    EXPECT_NEAR(moved(lars, 2, 0), 2 - 0.5 * 0.2, 1e-6);  // g = 0: plain decay
  }
}

TEST(Formulas, not_a_number_is_not_hidden) {
  const std::vector<Make> all = {
      [](auto s) { return make_adam(std::move(s), {}); }, [](auto s) { return make_adagrad(std::move(s), {}); },
      [](auto s) { return make_lion(std::move(s), {}); }, [](auto s) { return make_adafactor(std::move(s), {}); },
      [](auto s) { return make_lamb(std::move(s), {}); }, [](auto s) { return make_lars(std::move(s), {}); }};
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const at::Tensor p = at::ones({8, 9}, dtype);
      at::Tensor g = at::ones({8, 9}, dtype);
      g[3][4] = std::nan("");
      p.mutable_grad() = g;
      all[i]({{"p", p, 0.1}})->step(0.1);
      EXPECT_TRUE(std::isnan(p[3][4].item<double>())) << i << " " << c10::toString(dtype);
    }
}

TEST(Formulas, numbers_out_of_range_are_refused) {
  EXPECT_THROW(make_adam({}, {.beta1 = 1}), InputError);
  EXPECT_THROW(make_adagrad({}, {.epsilon = -1}), InputError);
  EXPECT_THROW(make_rmsprop({}, {.alpha = 1}), InputError);
  EXPECT_THROW(make_rmsprop({}, {.epsilon = -1}), InputError);
  EXPECT_THROW(make_rmsprop({}, {.momentum = std::nan("")}), InputError);
  EXPECT_THROW(make_adagrad({}, {.learning_rate_decay = std::nan("")}), InputError);
  EXPECT_THROW(make_lion({}, {.beta2 = 1}), InputError);
  EXPECT_THROW(make_adafactor({}, {.epsilon1 = 0}), InputError);
  EXPECT_THROW(make_adafactor({}, {.decay_rate = 0.8}), InputError);
  EXPECT_THROW(make_adafactor({}, {.beta1 = 1}), InputError);
  EXPECT_THROW(make_adafactor({}, {.warmup_init = true}), InputError);
  EXPECT_THROW(make_lamb({}, {.max_trust_ratio = -1}), InputError);
  EXPECT_THROW(make_lamb({}, {.min_trust_ratio = 2, .max_trust_ratio = 1}), InputError);
  EXPECT_THROW(make_lars({}, {.trust_coefficient = 0}), InputError);
  EXPECT_THROW(make_lars({}, {.momentum = 0, .nesterov = true}), InputError);
  const CommonOptions bf16{.bf16_state = true};
  EXPECT_THROW(make_adagrad({}, {}, bf16), InputError);
  EXPECT_THROW(make_rmsprop({}, {}, bf16), InputError);
  EXPECT_THROW(make_adafactor({}, {}, bf16), InputError);
  EXPECT_THROW(make_lamb({}, {}, bf16), InputError);
  EXPECT_THROW(make_lars({}, {}, bf16), InputError);
  EXPECT_THROW(make_adamw({{"p", at::ones({2}, at::kDouble)}}, {}, bf16), InputError);
}

}  // namespace
