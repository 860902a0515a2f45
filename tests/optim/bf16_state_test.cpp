// States in bfloat16, rounded to nearest and stochastically.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/kernels/cpu/dispatch.h>
#include <tessera/optim/optimizer.h>
#include <tessera/optim/stochastic_rounding.h>

#include <cmath>
#include <functional>
#include <limits>

namespace {

using namespace tessera;
using namespace tessera::optim;

TEST(Bf16State, takes_half_the_memory) {
  const CommonOptions bf16{.bf16_state = true};
  for (const auto& optimizer :
       {make_adamw({{"p", at::ones({5})}}, {}, bf16), make_sgd({{"p", at::ones({5})}}, {.momentum = 0.9}, bf16)})
    for (const auto& [name, state] : optimizer->state()) EXPECT_EQ(state.scalar_type(), at::kBFloat16) << name;
  EXPECT_EQ(make_lion({{"p", at::ones({5})}}, {})->state()[0].second.scalar_type(), at::kFloat);
}

TEST(Bf16State, random_rounding_keeps_the_mean) {
  // A quarter of the way from 1 to the next bfloat16, 1 + 2^-7.
  const at::Tensor exact = at::full({1 << 16}, 1 + 0x1p-9), rounded = at::empty({1 << 16}, at::kBFloat16);
  for (const int which : {0, 1})
    for (const std::uint64_t key : {std::uint64_t{1}, std::uint64_t{2}, rounding_key(7, 1, "w")}) {
      round_to_bf16(exact, rounded, {.stochastic = true, .key = key}, which);
      const at::Tensor up = rounded.to(at::kFloat).gt(1).to(at::kDouble);
      const double deviation = std::sqrt(0.25 * 0.75 / (1 << 16));
      EXPECT_NEAR(up.mean().item<double>(), 0.25, 5 * deviation);
      // Neighbours, and elements a power of two apart, are rounded independently.
      for (const int apart : {1, 2, 16, 1024}) {
        const at::Tensor both = up.narrow(0, 0, (1 << 16) - apart) * up.narrow(0, apart, (1 << 16) - apart);
        EXPECT_NEAR(both.mean().item<double>(), 0.0625, 5 * 0.25 / 256) << apart;
      }
    }
}

TEST(Bf16State, keys_depend_on_seed_step_and_name) {
  const at::Tensor exact = at::rand({4096}), first = at::empty({4096}, at::kBFloat16), second = first.clone();
  round_to_bf16(exact, first, {.stochastic = true, .key = rounding_key(1, 1, "w")}, 0);
  round_to_bf16(exact, second, {.stochastic = true, .key = rounding_key(1, 1, "w")}, 0);
  EXPECT_TRUE(at::equal(first, second));
  for (const std::uint64_t key : {rounding_key(2, 1, "w"), rounding_key(1, 2, "w"), rounding_key(1, 1, "v")}) {
    round_to_bf16(exact, second, {.stochastic = true, .key = key}, 0);
    const double same = first.eq(second).to(at::kDouble).mean().item<double>();
    EXPECT_LT(same, 0.8);  // two independent roundings agree in 2/3 of the cases on average
  }
}

TEST(Bf16State, special_numbers_survive) {
  const float infinity = std::numeric_limits<float>::infinity();
  const at::Tensor from = at::tensor({0.0f, -0.0f, 1.0f, -2.5f, infinity, -infinity, std::nanf("")});
  for (const bool stochastic : {false, true}) {
    const at::Tensor to = at::empty({7}, at::kBFloat16);
    round_to_bf16(from, to, {.stochastic = stochastic, .key = 5}, 0);
    EXPECT_TRUE(at::equal(to.to(at::kFloat).narrow(0, 0, 6), from.narrow(0, 0, 6)));
    EXPECT_TRUE(std::isnan(to[6].item<float>()));
  }
}

TEST(Bf16State, kernels_round_as_the_operators_do) {
  // SGD without decay, momentum 1, from a state of zero: the new state is the gradient, rounded.
  const at::Tensor g = at::randn({1000}), expected = at::empty({1000}, at::kBFloat16);
  for (const auto isa : kernels::supported_isas()) {
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{64}, (std::int64_t{1} << 32) - 64})
      for (const bool stochastic : {false, true}) {
        const kernels::Bf16Rounding rounding{.stochastic = stochastic, .key = 99, .first = first};
        const at::Tensor p = at::zeros({1000}), state = at::zeros({1000}, at::kBFloat16);
        kernels::table(isa).sgd_bf16(p.data_ptr<float>(), g.data_ptr<float>(),
                                     static_cast<std::uint16_t*>(state.data_ptr()), 1000, {.momentum = 1}, rounding);
        round_to_bf16(g, expected, rounding, 0);
        EXPECT_TRUE(at::equal(state, expected)) << kernels::isa_name(isa) << " " << first << " " << stochastic;
      }
  }
}

/// exp_avg_sq after many steps of equal gradients, divided by its limit.
double second_moment(bool stochastic) {
  const at::Tensor p = at::zeros({4096});
  p.mutable_grad() = at::ones({4096});
  const auto optimizer = make_adamw({{"p", p}}, {}, {.bf16_state = true, .stochastic_rounding = stochastic, .seed = 3});
  for (int step = 0; step < 2000; ++step) optimizer->step(1e-3);
  const at::Tensor v = optimizer->state()[1].second.to(at::kDouble);
  return v.mean().item<double>() / (1 - std::pow(0.999, 2000));
}

TEST(Bf16State, random_rounding_does_not_lose_small_changes) {
  EXPECT_NEAR(second_moment(true), 1, 0.01);
  EXPECT_LT(second_moment(false), 0.5);  // a step of 0.001 of the distance is less than half a unit, so it stops early
}

TEST(Bf16State, trains_nearly_as_float32_does) {
  at::manual_seed(1);
  const at::Tensor target = at::randn({500}), begin = at::randn({500});
  const auto distance = [&](const CommonOptions& common, const char* which) {
    const at::Tensor p = begin.clone();
    const std::string name = which;
    const std::vector<Slot> slots = {{"p", p}};
    const auto optimizer = name == "adamw"  ? make_adamw(slots, {}, common)
                           : name == "lion" ? make_lion(slots, {}, common)
                                            : make_sgd(slots, {.momentum = 0.9}, common);
    for (int step = 0; step < 300; ++step) {
      p.mutable_grad() = p - target;
      optimizer->step((name == "lion" ? 0.02 : 0.05) * (1 - step / 300.0));
    }
    return (p - target).norm().item<double>() / (begin - target).norm().item<double>();
  };
  for (const char* which : {"adamw", "lion", "sgd"})
    for (const bool stochastic : {false, true}) {
      const double narrow = distance({.bf16_state = true, .stochastic_rounding = stochastic}, which);
      EXPECT_LT(narrow, distance({}, which) + 0.01) << which << stochastic;
    }
}

}  // namespace
