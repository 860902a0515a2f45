// Eight-bit states: which slots have them, how much memory they take, and that they neither depend on cuts nor change
// when saved and restored.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/optim/by_name.h>
#include <tessera/optim/optimizer.h>

#include <functional>
#include <map>

namespace {

using namespace tessera;
using namespace tessera::optim;

using Make = std::function<std::unique_ptr<Optimizer>(std::vector<Slot>)>;

Make maker(OptimizerKind kind) {
  return [kind](std::vector<Slot> slots) {
    return make_optimizer({.kind = kind, .beta1 = 0.9, .beta2 = 0.99}, std::move(slots));
  };
}

std::map<std::string, at::Tensor> decoded(const Optimizer& optimizer) {
  std::map<std::string, at::Tensor> states;
  for (const EncodedState& state : optimizer.encoded_states()) states[state.name] = state.decode();
  return states;
}

at::Tensor gradient(int step, std::int64_t numel) {
  at::manual_seed(100 + step);
  return at::randn({numel}) * at::exp(2 * at::randn({numel}));
}

TEST(EightBitState, TakesASmallShareOfTheMemory) {
  const auto adamw = maker(OptimizerKind::adamw_8bit)({{"p", at::ones({100, 640})}});
  ASSERT_EQ(adamw->encoded_states().size(), 2u);
  EXPECT_TRUE(adamw->state().empty());
  std::int64_t bytes = 0;
  for (const EncodedState& state : adamw->encoded_states()) bytes += state.bytes;
  EXPECT_EQ(bytes, 64000 * 2 + 1000 * 2 * 4);  // 2.125 bytes for each element instead of 8
  const auto lion = maker(OptimizerKind::lion_8bit)({{"p", at::ones({100, 640})}});
  ASSERT_EQ(lion->encoded_states().size(), 1u);
  EXPECT_EQ(lion->encoded_states()[0].bytes, 68000);
}

TEST(EightBitState, SmallParametersAndEmbeddingsStayWide) {
  const auto has = [](Slot slot) {
    const auto optimizer = maker(OptimizerKind::adamw_8bit)({std::move(slot)});
    EXPECT_EQ(optimizer->state().size() + optimizer->encoded_states().size(), 2u);
    return !optimizer->encoded_states().empty();
  };
  EXPECT_FALSE(has({"p", at::ones({4095})}));
  EXPECT_TRUE(has({"p", at::ones({4096})}));
  EXPECT_FALSE(has({.name = "p", .parameter = at::ones({8192}), .wide_states = true}));
  // Decided by the whole parameter, not the local part, even if that part is empty.
  EXPECT_TRUE(has({.name = "p", .parameter = at::ones({64}), .shape = {64, 64}, .begin = 64}));
  EXPECT_FALSE(has({.name = "p", .parameter = at::ones({64}), .shape = {63, 64}, .begin = 64}));
  EXPECT_TRUE(has({.name = "p", .parameter = at::ones({0}), .shape = {64, 64}}));
}

TEST(EightBitState, UpdatesAreNearThoseOfFloat32) {
  for (const auto& [narrow, wide] : {std::pair(OptimizerKind::adamw_8bit, OptimizerKind::adamw),
                                     std::pair(OptimizerKind::lion_8bit, OptimizerKind::lion)}) {
    at::manual_seed(4);
    const at::Tensor target = at::randn({6400}), p = at::zeros({6400}), q = at::zeros({6400});
    const auto a = maker(narrow)({{"p", p}}), b = maker(wide)({{"p", q}});
    for (int step = 0; step < 300; ++step) {
      p.mutable_grad() = p - target;
      q.mutable_grad() = q - target;
      const double rate = 0.03 * (1 - step / 300.0);
      a->step(rate);
      b->step(rate);
      // In the first step both start from zero states.
      if (step == 0) {
        EXPECT_TRUE(at::equal(p, q));
      }
    }
    EXPECT_FALSE(at::equal(p, q));
    const double far = (q - target).norm().item<double>();
    EXPECT_NEAR((p - target).norm().item<double>(), far, 0.02 * target.norm().item<double>());
  }
}

TEST(EightBitState, BitsDoNotDependOnCuts) {
  const std::int64_t n = 6400 + 13;
  for (const OptimizerKind kind : {OptimizerKind::adamw_8bit, OptimizerKind::lion_8bit}) {
    const at::Tensor whole = gradient(0, n), first = whole.narrow(0, 0, 2048).clone(),
                     second = whole.narrow(0, 2048, n - 2048).clone();
    const auto one = maker(kind)({{"p", whole}});
    const auto a = maker(kind)({{.name = "p", .parameter = first, .shape = {n}}});
    const auto b = maker(kind)({{.name = "p", .parameter = second, .shape = {n}, .begin = 2048}});
    for (int step = 1; step < 5; ++step) {
      const at::Tensor g = gradient(step, n);
      whole.mutable_grad() = g;
      first.mutable_grad() = g.narrow(0, 0, 2048);
      second.mutable_grad() = g.narrow(0, 2048, n - 2048);
      for (const auto& optimizer : {one.get(), a.get(), b.get()}) optimizer->step(0.01);
    }
    EXPECT_TRUE(at::equal(whole, at::cat({first, second})));
    const auto all = decoded(*one), left = decoded(*a), right = decoded(*b);
    EXPECT_EQ(all.size(), kind == OptimizerKind::adamw_8bit ? 2u : 1u);
    for (const auto& [name, values] : all)
      EXPECT_TRUE(at::equal(values, at::cat({left.at(name), right.at(name)}))) << name;
  }
}

// Restores as from a checkpoint: float32 values, cut differently.
TEST(EightBitState, RestoredStatesGoOnExactly) {
  const std::int64_t n = 12800;
  for (const OptimizerKind kind : {OptimizerKind::adamw_8bit, OptimizerKind::lion_8bit}) {
    const at::Tensor p = gradient(0, n);
    const auto original = maker(kind)({{"p", p}});
    for (int step = 1; step < 4; ++step) {
      p.mutable_grad() = gradient(step, n);
      original->step(0.01);
    }
    const auto saved = decoded(*original);
    const at::Tensor first = p.narrow(0, 0, 6464).clone(), second = p.narrow(0, 6464, n - 6464).clone();
    const auto a = maker(kind)({{.name = "p", .parameter = first, .shape = {n}}});
    const auto b = maker(kind)({{.name = "p", .parameter = second, .shape = {n}, .begin = 6464}});
    for (const auto& [optimizer, begin, count] : {std::tuple(a.get(), std::int64_t{0}, std::int64_t{6464}),
                                                  std::tuple(b.get(), std::int64_t{6464}, n - 6464)}) {
      for (const EncodedState& state : optimizer->encoded_states())
        state.encode(saved.at(state.name).narrow(0, begin, count));
      optimizer->set_steps(original->steps());
    }
    for (int step = 4; step < 8; ++step) {
      const at::Tensor g = gradient(step, n);
      p.mutable_grad() = g;
      first.mutable_grad() = g.narrow(0, 0, 6464);
      second.mutable_grad() = g.narrow(0, 6464, n - 6464);
      for (const auto& optimizer : {original.get(), a.get(), b.get()}) optimizer->step(0.01);
    }
    EXPECT_TRUE(at::equal(p, at::cat({first, second})));
  }
}

TEST(EightBitState, UsesTheAllocator) {
  std::int64_t bytes = 0;
  const CommonOptions common{.eight_bit_state = true,
                             .allocate = [&](at::IntArrayRef sizes, at::TensorOptions options) {
                               at::Tensor made = at::zeros(sizes, options);
                               bytes += static_cast<std::int64_t>(made.nbytes());
                               return made;
                             }};
  make_adamw({{"p", at::ones({64000})}}, {}, common);
  EXPECT_EQ(bytes, 64000 * 2 + 1024 * 2 * 4);  // segments begin at multiples of 64
}

std::string refusal(const std::function<void()>& make) {
  try {
    make();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(EightBitState, IsRefusedWhereItIsNotBuilt) {
  const CommonOptions eight{.eight_bit_state = true};
  EXPECT_EQ(refusal([&] { make_sgd({}, {.momentum = 0.9}, eight); }),
            "SGD: states of 8 bits are available only for AdamW, Adam and Lion; turn them off");
  EXPECT_EQ(refusal([&] { make_lamb({}, {}, eight); }),
            "LAMB: states of 8 bits are available only for AdamW, Adam and Lion; turn them off");
  EXPECT_EQ(refusal([&] { make_adamw({{"p", at::ones({9}, at::kDouble)}}, {}, eight); }),
            "optimizer: parameter 'p' is Double on cpu; states of 8 bits are for float32 parameters on the CPU: use "
            "adamw or lion with --bf16_optimizer_states, or --device cpu");
  EXPECT_EQ(
      refusal([&] { make_adamw({}, {}, {.bf16_state = true, .eight_bit_state = true}); }),
      "optimizer: states cannot be stored both in bfloat16 (--bf16_optimizer_states) and in 8 bits (--optim); remove "
      "one of them");
  EXPECT_EQ(refusal([&] { make_adam({{"p", at::ones({9})}}, {}, eight); }), "");
}

}  // namespace
