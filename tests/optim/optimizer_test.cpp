// AdamW and SGD against torch.optim's numbers, against the same formulas in ATen, and against themselves with different
// cuts.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/optim/optimizer.h>

#include <tests/error_of.h>

#include <cmath>

#include "torch_optim_fixture.inc"

namespace {

using namespace tessera;
using namespace tessera::optim;
using tessera::testing::error_of;

using Make = std::function<std::unique_ptr<Optimizer>(std::vector<Slot>)>;

Make adamw(AdamWOptions options = {}) {
  return [options](std::vector<Slot> slots) { return make_adamw(std::move(slots), options); };
}
Make sgd(double momentum, bool nesterov = false) {
  return
      [=](std::vector<Slot> slots) { return make_sgd(std::move(slots), {.momentum = momentum, .nesterov = nesterov}); };
}

// The error of float32 values up to 5 over three updates: each rounds a few times by at most 2.4e-7.
constexpr double rounding = 2e-6;

double largest(const at::Tensor& t) { return t.numel() == 0 ? 0 : t.abs().max().item<double>(); }

// The initial values and gradients of tests/parity/optim_fixture.py.
at::Tensor fixture_start(int i) {
  std::vector<float> values;
  for (int k = 0; k < (i == 0 ? 5 : 3); ++k) values.push_back(static_cast<float>((7 * k + 3 * i) % 16 - 8) / 8);
  return at::tensor(values);
}
at::Tensor fixture_gradient(int i, int step, std::int64_t n) {
  std::vector<float> values;
  for (int k = 0; k < n; ++k) values.push_back(static_cast<float>((5 * k + 11 * i + 3 * step) % 32 - 15) / 16);
  return at::tensor(values);
}

void expect_fixture(const Make& make, const float (&expected)[8]) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {  // the kernels, and ATen's operators
    std::vector<Slot> slots;
    for (int i = 0; i < 2; ++i) slots.push_back({concat("p", i), fixture_start(i).to(dtype), i == 0 ? 0.1 : 0.0});
    const auto optimizer = make(slots);
    for (int step = 0; step < 10; ++step) {
      for (int i = 0; i < 2; ++i) {
        at::Tensor& p = slots[static_cast<std::size_t>(i)].parameter;
        p.mutable_grad() = fixture_gradient(i, step, p.numel()).to(dtype);
      }
      optimizer->step(1e-2 * (1 - step / 10.0));
    }
    const at::Tensor all = at::cat({slots[0].parameter, slots[1].parameter}).to(at::kFloat);
    for (int k = 0; k < 8; ++k)
      EXPECT_NEAR(all[k].item<float>(), expected[k], 2e-7) << "element " << k << ", " << c10::toString(dtype);
    EXPECT_EQ(optimizer->steps(), 10);
  }
}

TEST(Optimizer, adamw_is_torchs) {
  expect_fixture(adamw(), torch_adamw);
  expect_fixture(adamw({.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6}), torch_adamw_betas);
}

// BERT's Adam, as DeepSpeed's "bias_correction": false: p -= lr (m / (sqrt(v) + eps) + decay p).
TEST(Optimizer, adamw_without_bias_correction) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    std::vector<Slot> slots = {{"p", fixture_start(0).to(dtype), 0.1}};
    const auto optimizer = adamw({.bias_correction = false})(slots);
    at::Tensor p = fixture_start(0).to(at::kDouble), m = at::zeros_like(p), v = at::zeros_like(p);
    for (int step = 0; step < 5; ++step) {
      const at::Tensor gradient = fixture_gradient(0, step, p.numel());
      slots[0].parameter.mutable_grad() = gradient.to(dtype);
      optimizer->step(1e-2);
      const at::Tensor g = gradient.to(at::kDouble);
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      p = p - 1e-2 * (m / (v.sqrt() + 1e-8) + 0.1 * p);
    }
    EXPECT_LT(largest(slots[0].parameter.to(at::kDouble) - p), rounding) << c10::toString(dtype);
  }
}

TEST(Optimizer, sgd_is_torchs) {
  expect_fixture(sgd(0), torch_sgd);
  expect_fixture(sgd(0.9), torch_sgd_momentum);
  expect_fixture(sgd(0.9, true), torch_sgd_nesterov);
}

// Slots of awkward sizes, one larger than a block, with gradients of `dtype`.
std::vector<Slot> make_slots(at::ScalarType dtype, std::uint64_t seed) {
  at::manual_seed(seed);
  std::vector<Slot> slots;
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{7}, {3, 5}, {}, {70001}, {0}, {2, 3, 31}}) {
    at::Tensor p = at::randn(shape, dtype);
    p.mutable_grad() = at::randn(shape, dtype);
    slots.push_back({concat("p", slots.size()), p, slots.size() % 2 == 0 ? 0.1 : 0.0, slots.size() == 3 ? 0.5 : 1.0});
  }
  return slots;
}

std::vector<at::Tensor> values(const std::vector<Slot>& slots) {
  std::vector<at::Tensor> result;
  for (const Slot& slot : slots) result.push_back(slot.parameter.clone());
  return result;
}

// Three steps, each with new gradients.
std::vector<at::Tensor> train(const Make& make, at::ScalarType dtype, double gradient_scale = 1) {
  const auto slots = make_slots(dtype, 1);
  const auto optimizer = make(slots);
  for (int step = 0; step < 3; ++step) {
    for (const Slot& slot : slots) at::Tensor(slot.parameter).mutable_grad().add_(0.1);
    optimizer->step(1e-2, gradient_scale);
  }
  return values(slots);
}

// The update written with ATen in double: one line per line of the paper.
std::vector<at::Tensor> adamw_reference(double gradient_scale) {
  auto slots = make_slots(at::kFloat, 1);
  std::vector<at::Tensor> result;
  for (const Slot& slot : slots) {
    at::Tensor p = slot.parameter.to(at::kDouble), g = slot.parameter.grad().to(at::kDouble);
    at::Tensor m = at::zeros_like(p), v = at::zeros_like(p);
    const double lr = 1e-2 * slot.learning_rate_scale;
    for (int t = 1; t <= 3; ++t) {
      g = g + 0.1;
      const at::Tensor scaled = g * gradient_scale;
      p = p - lr * slot.weight_decay * p;
      m = 0.9 * m + 0.1 * scaled;
      v = 0.999 * v + 0.001 * scaled * scaled;
      p = p - lr * (m / (1 - std::pow(0.9, t))) / ((v / (1 - std::pow(0.999, t))).sqrt() + 1e-8);
    }
    result.push_back(p);
  }
  return result;
}

TEST(Optimizer, adamw_is_the_papers_formula) {
  for (const double scale : {1.0, 0.3}) {
    const auto expected = adamw_reference(scale);
    const auto narrow = train(adamw(), at::kFloat, scale);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_LT(largest(narrow[i].to(at::kDouble) - expected[i]), rounding) << "slot " << i << ", scale " << scale;
  }
}

TEST(Optimizer, kernels_and_operators_agree) {
  for (const Make& make : {adamw(), sgd(0), sgd(0.9), sgd(0.9, true)}) {
    // The float64 run draws different random numbers, so copy the float32 ones.
    auto wide = make_slots(at::kFloat, 1);
    for (Slot& slot : wide) {
      const at::Tensor gradient = slot.parameter.grad().to(at::kDouble);
      slot.parameter = slot.parameter.to(at::kDouble);
      slot.parameter.mutable_grad() = gradient;
    }
    const auto optimizer = make(wide);
    for (int step = 0; step < 3; ++step) {
      for (Slot& slot : wide) slot.parameter.mutable_grad().add_(0.1);
      optimizer->step(1e-2, 0.3);
    }
    const auto narrow = train(make, at::kFloat, 0.3);
    for (std::size_t i = 0; i < narrow.size(); ++i)
      EXPECT_LT(largest(narrow[i].to(at::kDouble) - wide[i].parameter), rounding) << i;
  }
}

TEST(Optimizer, bits_do_not_depend_on_threads) {
  for (const Make& make : {adamw(), sgd(0.9, true)}) {
    at::set_num_threads(1);
    const auto one = train(make, at::kFloat);
    at::set_num_threads(3);
    const auto three = train(make, at::kFloat);
    at::set_num_threads(1);
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], three[i])) << "slot " << i;
  }
}

RC_GTEST_PROP(OptimizerProperty, bits_do_not_depend_on_where_a_parameter_is_cut, ()) {
  const std::int64_t n = *rc::gen::inRange<std::int64_t>(1, 300);
  const std::int64_t cut = *rc::gen::inRange<std::int64_t>(0, n + 1);
  const int kind = *rc::gen::inRange(0, 3);
  at::manual_seed(static_cast<std::uint64_t>(n));
  const at::Tensor start = at::randn({n}), gradient = at::randn({n});
  const auto run = [&](const std::vector<std::int64_t>& parts) {
    const at::Tensor p = start.clone();
    std::vector<Slot> slots;
    const auto pieces = at::split_with_sizes(p, parts), gradients = at::split_with_sizes(gradient, parts);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      at::Tensor piece = pieces[i];
      piece.mutable_grad() = gradients[i];
      slots.push_back({concat(i), piece, 0.1});
    }
    const auto optimizer =
        kind == 0 ? make_adamw(slots, {}) : make_sgd(slots, {.momentum = 0.9, .nesterov = kind == 2});
    for (int step = 0; step < 2; ++step) optimizer->step(0.01, 0.7);
    return p;
  };
  RC_ASSERT(at::equal(run({n}), run({cut, n - cut})));
}

TEST(Optimizer, the_scale_multiplies_every_gradient) {
  for (const Make& make : {adamw(), sgd(0.9)}) {
    auto slots = make_slots(at::kFloat, 2), scaled = make_slots(at::kFloat, 2);
    for (Slot& slot : scaled) slot.parameter.mutable_grad().mul_(0.5);  // a power of two: exact
    make(slots)->step(1e-2, 0.5);
    make(scaled)->step(1e-2);
    for (std::size_t i = 0; i < slots.size(); ++i) EXPECT_TRUE(at::equal(slots[i].parameter, scaled[i].parameter)) << i;
  }
}

TEST(Optimizer, slots_without_gradient_are_left_alone) {
  for (const Make& make : {adamw(), sgd(0.9)}) {
    auto slots = make_slots(at::kFloat, 3);
    slots[1].parameter.mutable_grad().reset();
    const auto before = values(slots);
    const auto optimizer = make(slots);
    optimizer->step(1e-2);
    EXPECT_TRUE(at::equal(slots[1].parameter, before[1]));
    EXPECT_FALSE(at::equal(slots[0].parameter, before[0]));
    for (const auto& [name, state] : optimizer->state()) {
      if (!name.ends_with(".p1")) continue;
      EXPECT_EQ(largest(state), 0) << name;
    }
  }
}

TEST(Optimizer, state_is_named_aliased_and_enough_to_go_on) {
  const auto run = [](bool interrupted) {
    auto slots = make_slots(at::kFloat, 4);
    auto optimizer = make_adamw(slots, {});
    optimizer->step(1e-2);
    if (interrupted) {  // a new optimizer takes over from the saved state
      auto next = make_adamw(slots, {});
      const auto from = optimizer->state(), to = next->state();
      EXPECT_EQ(to.size(), 2 * slots.size());
      for (std::size_t i = 0; i < to.size(); ++i) {
        EXPECT_EQ(to[i].first, from[i].first);
        EXPECT_EQ(to[i].second.sizes(), slots[i % slots.size()].parameter.sizes());
        at::Tensor(to[i].second).copy_(from[i].second);
      }
      next->set_steps(optimizer->steps());
      optimizer = std::move(next);
    }
    optimizer->step(1e-2);
    return values(slots);
  };
  const auto whole = run(false), resumed = run(true);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(at::equal(whole[i], resumed[i])) << i;
  const auto optimizer = make_adamw(make_slots(at::kFloat, 4), {});
  EXPECT_EQ(optimizer->state()[0].first, "exp_avg.p0");
  EXPECT_EQ(optimizer->state()[6].first, "exp_avg_sq.p0");
  EXPECT_EQ(make_sgd(make_slots(at::kFloat, 4), {})->state().size(), 0u);
  EXPECT_EQ(make_sgd(make_slots(at::kFloat, 4), {.momentum = 0.9})->state()[0].first, "momentum_buffer.p0");
}

TEST(Optimizer, parameters_that_require_grad_are_fine) {
  at::Tensor p = at::ones({4}).requires_grad_(true);
  p.mutable_grad() = at::ones({4});
  make_sgd({{"p", p}}, {})->step(0.5);
  EXPECT_TRUE(at::equal(p.detach(), at::full({4}, 0.5)));
}

TEST(Optimizer, what_cannot_be_optimised_is_refused_by_name) {
  const auto refused = [](at::Tensor t) {
    return error_of<InputError>([&] { make_adamw({{"good", at::ones({2})}, {"bad", t}}, {}); });
  };
  EXPECT_NE(refused(at::ones({2}, at::kBFloat16)).find("'bad' is BFloat16"), std::string::npos);
  EXPECT_NE(refused(at::ones({2, 3}).t()).find("'bad' is not contiguous"), std::string::npos);
  EXPECT_NE(refused(at::ones({2}, at::kDouble)).find("'bad' is Double on cpu but 'good' is Float"), std::string::npos);
  EXPECT_NE(refused({}).find("'bad' is undefined"), std::string::npos);
  EXPECT_THROW(make_adamw({}, {.beta1 = 1}), InputError);
  EXPECT_THROW(make_adamw({}, {.beta2 = -0.1}), InputError);
  EXPECT_THROW(make_adamw({}, {.epsilon = std::nan("")}), InputError);
  EXPECT_THROW(make_sgd({}, {.momentum = -1}), InputError);
  EXPECT_THROW(make_sgd({}, {.nesterov = true}), InputError);

  at::Tensor p = at::ones({2});
  const auto optimizer = make_adamw({{"weight", p}}, {});
  p.mutable_grad() = at::ones({2}, at::kDouble);
  EXPECT_NE(error_of<Error>([&] { optimizer->step(1); }).find("gradient of 'weight' is Double"), std::string::npos);
  EXPECT_EQ(optimizer->steps(), 0);
  EXPECT_TRUE(at::equal(p, at::ones({2})));
}

TEST(Optimizer, no_slots_is_a_step_of_nothing) {
  const auto optimizer = make_adamw({}, {});
  optimizer->step(1);
  EXPECT_EQ(optimizer->steps(), 1);
  EXPECT_TRUE(optimizer->state().empty());
}

}  // namespace
