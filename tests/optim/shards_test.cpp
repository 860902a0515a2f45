// Optimizers and norms over pieces of parameters on 1 to 4 ranks, compared with whole parameters.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/optim/optimizer.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#include "ranks.h"

namespace {

using namespace tessera;
using namespace tessera::optim;

using Make = std::function<std::unique_ptr<Optimizer>(std::vector<Slot>, const CommonOptions&)>;

const std::vector<std::vector<std::int64_t>> shapes = {{7}, {33, 40}, {}, {300}, {3, 5}, {0}, {64, 64}, {5, 7, 9}};

/// Initial values (step 0) and gradients of parameter i.
at::Tensor numbers(std::size_t i, int step, at::ScalarType dtype) {
  static std::mutex mutex;
  static std::map<std::tuple<std::size_t, int, at::ScalarType>, at::Tensor> made;
  const std::lock_guard lock(mutex);
  at::Tensor& result = made[{i, step, dtype}];
  if (!result.defined()) {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
    generator.set_current_seed(1000 * i + static_cast<std::size_t>(step));
    const at::Tensor scale = at::rand(shapes[i], generator, at::kDouble).mul_(12).sub_(6).exp_();  // e^-6 ... e^6
    result = at::randn(shapes[i], generator, at::kDouble).mul_(scale).to(dtype);
  }
  return result.clone();
}

double decay_of(std::size_t i) { return i % 2 == 0 ? 0.1 : 0.0; }
double scale_of(std::size_t i) { return i == 3 ? 0.5 : 1.0; }
constexpr int steps = 4;

struct Result {
  std::vector<at::Tensor> parameters;                     // whole, flat
  std::vector<std::pair<std::string, at::Tensor>> state;  // whole, flat
  double norm = 0;                                        // norm of the last gradients
};

Result whole_run(const Make& make, const CommonOptions& common, at::ScalarType dtype) {
  at::set_num_threads(1);
  std::vector<Slot> slots;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    slots.push_back({concat("p", i), numbers(i, 0, dtype), decay_of(i), scale_of(i)});
  const auto optimizer = make(slots, common);
  Result result;
  for (int step = 1; step <= steps; ++step) {
    std::vector<at::Tensor> gradients;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      gradients.push_back(numbers(i, step, dtype));
      slots[i].parameter.mutable_grad() = gradients.back();
    }
    result.norm = gradient_norm(gradients);
    optimizer->step(1e-2, 0.7);
  }
  for (const Slot& slot : slots) result.parameters.push_back(slot.parameter.flatten());
  for (const auto& [name, tensor] : optimizer->state()) result.state.emplace_back(name, tensor.flatten());
  return result;
}

using Cuts = std::vector<std::vector<std::int64_t>>;  // by parameter

Result sharded_run(const Make& make, const CommonOptions& common, at::ScalarType dtype, int ranks, const Cuts& cuts) {
  std::vector<std::vector<Slot>> slots(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<Optimizer>> optimizers(static_cast<std::size_t>(ranks));
  std::vector<double> norms(static_cast<std::size_t>(ranks));
  ranks::run(ranks, [&](int rank, ranks::Meeting& meeting) {
    const auto r = static_cast<std::size_t>(rank);
    const auto piece = [&](std::size_t i, int step) {
      const at::Tensor all = numbers(i, step, dtype).flatten();
      const auto [begin, end] = ranks::piece_of(cuts[i], all.numel(), rank);
      return all.narrow(0, begin, end - begin).clone();
    };
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const at::Tensor p = piece(i, 0);
      std::int64_t numel = 1;
      for (const std::int64_t size : shapes[i]) numel *= size;
      slots[r].push_back(
          {concat("p", i), p, decay_of(i), scale_of(i), shapes[i], ranks::piece_of(cuts[i], numel, rank).begin});
    }
    CommonOptions own = common;
    own.sum_over_shards = [&meeting](std::vector<double>& values) { meeting.sum_doubles(values); };
    optimizers[r] = make(slots[r], own);
    for (int step = 1; step <= steps; ++step) {
      std::vector<GradientPiece> pieces;
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        slots[r][i].parameter.mutable_grad() = piece(i, step);
        pieces.push_back({slots[r][i].parameter.grad(), slots[r][i].begin});
      }
      norms[r] = gradient_norm(pieces, [&meeting](std::vector<std::int64_t>& words) { meeting.sum_words(words); });
      optimizers[r]->step(1e-2, 0.7);
    }
  });
  Result result;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    std::vector<at::Tensor> pieces;
    for (const auto& of_rank : slots) pieces.push_back(of_rank[i].parameter);
    result.parameters.push_back(at::cat(pieces));
  }
  const auto first = optimizers[0]->state();
  for (std::size_t k = 0; k < first.size(); ++k) {
    std::vector<at::Tensor> pieces;
    for (const auto& optimizer : optimizers) pieces.push_back(optimizer->state()[k].second.flatten());
    const bool replicated = optimizers[0]->is_replicated(first[k].first);
    if (replicated) {
      for (const at::Tensor& copy : pieces) EXPECT_TRUE(at::equal(copy, pieces[0])) << first[k].first;
    }
    result.state.emplace_back(first[k].first, replicated ? pieces[0] : at::cat(pieces));
  }
  for (const double norm : norms) EXPECT_EQ(norm, norms[0]);
  result.norm = norms[0];
  return result;
}

/// "" or the first difference.
std::string difference(const Result& a, const Result& b) {
  for (std::size_t i = 0; i < a.parameters.size(); ++i)
    if (!at::equal(a.parameters[i], b.parameters[i]))
      return concat("p", i, " by up to ", (a.parameters[i] - b.parameters[i]).abs().max().item<double>());
  if (a.state.size() != b.state.size()) return "the number of states";
  for (std::size_t i = 0; i < a.state.size(); ++i) {
    if (a.state[i].first != b.state[i].first) return "the names of states";
    if (!at::equal(a.state[i].second, b.state[i].second)) return a.state[i].first;
  }
  return a.norm == b.norm ? "" : "the norm";
}

/// Cuts every parameter at random multiples of 64, as in a flat buffer of aligned parameters.
Cuts random_cuts(int ranks) {
  Cuts cuts;
  for (const auto& shape : shapes) {
    std::int64_t numel = 1;
    for (const std::int64_t size : shape) numel *= size;
    std::vector<std::int64_t> own;
    for (int r = 1; r < ranks; ++r) own.push_back(64 * *rc::gen::inRange<std::int64_t>(0, numel / 64 + 2));
    std::sort(own.begin(), own.end());
    cuts.push_back(own);
  }
  return cuts;
}

struct Case {
  const char* name;
  Make make;
  bool bf16 = false;       // has bf16 states
  bool exact_wide = true;  // its float64 update is also the same bit for bit for every cut
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"adamw", [](auto s, const auto& c) { return make_adamw(std::move(s), {}, c); }, true},
      {"adam", [](auto s, const auto& c) { return make_adam(std::move(s), {.beta2 = 0.9}, c); }, true},
      {"sgd", [](auto s, const auto& c) { return make_sgd(std::move(s), {}, c); }, true},
      {"sgd momentum", [](auto s, const auto& c) { return make_sgd(std::move(s), {.momentum = 0.9}, c); }, true},
      {"sgd nesterov",
       [](auto s, const auto& c) { return make_sgd(std::move(s), {.momentum = 0.9, .nesterov = true}, c); }, true},
      {"adagrad",
       [](auto s, const auto& c) {
         return make_adagrad(std::move(s), {.learning_rate_decay = 0.1, .initial_accumulator_value = 0.1}, c);
       }},
      {"rmsprop", [](auto s, const auto& c) { return make_rmsprop(std::move(s), {}, c); }},
      {"rmsprop, all on",
       [](auto s, const auto& c) { return make_rmsprop(std::move(s), {.momentum = 0.9, .centered = true}, c); }},
      {"lion", [](auto s, const auto& c) { return make_lion(std::move(s), {}, c); }, true},
      {"adafactor", [](auto s, const auto& c) { return make_adafactor(std::move(s), {}, c); }, false, false},
      {"adafactor, all on",
       [](auto s, const auto& c) {
         return make_adafactor(
             std::move(s),
             {.clip_threshold = 0.5, .beta1 = 0.9, .scale_parameter = true, .relative_step = true, .warmup_init = true},
             c);
       },
       false, false},
      {"lamb", [](auto s, const auto& c) { return make_lamb(std::move(s), {.adapt_undecayed = true}, c); }, false,
       false},
      {"lamb, plain",
       [](auto s, const auto& c) {
         return make_lamb(std::move(s), {.bias_correction = false, .max_trust_ratio = 0.8}, c);
       },
       false, false},
      {"lars", [](auto s, const auto& c) { return make_lars(std::move(s), {.adapt_undecayed = true}, c); }, false,
       false},
      {"lars nesterov", [](auto s, const auto& c) { return make_lars(std::move(s), {.nesterov = true}, c); }, false,
       false},
  };
  return all;
}

RC_GTEST_PROP(Shards, bits_do_not_depend_on_the_cuts, ()) {
  const Case& c = cases()[*rc::gen::inRange<std::size_t>(0, cases().size())];
  CommonOptions common;
  common.bf16_state = c.bf16 && *rc::gen::arbitrary<bool>();
  common.stochastic_rounding = *rc::gen::arbitrary<bool>();
  common.seed = *rc::gen::arbitrary<std::uint64_t>();
  const int ranks = *rc::gen::inRange(1, 5);
  const Cuts cuts = random_cuts(ranks);
  RC_LOG() << c.name << ", bf16 " << common.bf16_state << ", stochastic " << common.stochastic_rounding;
  RC_ASSERT(difference(whole_run(c.make, common, at::kFloat), sharded_run(c.make, common, at::kFloat, ranks, cuts)) ==
            "");
}

TEST(Shards, every_optimizer_is_the_same_on_three_ranks) {  // the property test draws only some of them
  const Cuts cuts = {{0, 64}, {64, 640}, {0, 0}, {64, 256}, {0, 0}, {0, 0}, {1984, 1984}, {128, 256}};
  for (const Case& c : cases())
    for (const bool bf16 : {false, true}) {
      if (bf16 && !c.bf16) continue;
      CommonOptions common;
      common.bf16_state = bf16;
      EXPECT_EQ(difference(whole_run(c.make, common, at::kFloat), sharded_run(c.make, common, at::kFloat, 3, cuts)), "")
          << c.name << ", bf16 " << bf16;
    }
}

TEST(Shards, float64_agrees_to_rounding) {
  const Cuts cuts = {{0}, {704}, {64}, {192}, {64}, {0}, {1600}, {64}};
  for (const Case& c : cases()) {
    const Result whole = whole_run(c.make, {}, at::kDouble), cut = sharded_run(c.make, {}, at::kDouble, 2, cuts);
    EXPECT_EQ(whole.norm, cut.norm);
    for (std::size_t i = 0; i < whole.parameters.size(); ++i)
      EXPECT_TRUE(at::allclose(whole.parameters[i], cut.parameters[i], 1e-11, 1e-13)) << c.name << ", p" << i;
  }
}

TEST(Shards, float32_agrees_with_float64) {
  for (const Case& c : cases()) {
    if (std::string(c.name).find("lion") != std::string::npos) continue;  // a sign may flip
    const Result narrow = whole_run(c.make, {}, at::kFloat), wide = whole_run(c.make, {}, at::kDouble);
    for (std::size_t i = 0; i < narrow.parameters.size(); ++i)
      EXPECT_TRUE(at::allclose(narrow.parameters[i].to(at::kDouble), wide.parameters[i], 1e-5, 1e-5))
          << c.name << ", p" << i;
  }
}

TEST(Shards, a_parameter_without_gradient_on_every_rank_is_left_alone) {
  for (const Case& c : cases()) {
    ranks::run(2, [&](int rank, ranks::Meeting& meeting) {
      const at::Tensor p = at::ones({rank == 0 ? 128 : 22}), q = at::ones({rank == 0 ? 64 : 0});
      q.mutable_grad() = at::ones_like(q);
      CommonOptions common;
      common.sum_over_shards = [&](std::vector<double>& values) { meeting.sum_doubles(values); };
      const auto optimizer =
          c.make({{"p", p, 0.1, 1, {150}, rank == 0 ? 0 : 128}, {"q", q, 0.1, 1, {8, 8}, 64 * rank}}, common);
      optimizer->step(0.1);
      EXPECT_TRUE(at::equal(p, at::ones_like(p))) << c.name;
      if (rank == 0) {
        EXPECT_FALSE(at::equal(q, at::ones_like(q))) << c.name;
      }
    });
  }
}

TEST(Shards, wrong_pieces_are_refused) {
  const auto refusal = [](Slot slot) -> std::string {
    try {
      make_adamw({std::move(slot)}, {});
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal({"w", at::ones({64}), 0, 1, {200}, 63}).find("begins at element 63"), std::string::npos);
  EXPECT_NE(refusal({"w", at::ones({64}), 0, 1, {100}, 64})
                .find("'w' has shape [64] from element 64, but the parameter "
                      "has 100"),
            std::string::npos);
  EXPECT_NE(refusal({"w", at::ones({8, 8}), 0, 1, {100}, 0}).find("1-D"), std::string::npos);
  EXPECT_EQ(refusal({"w", at::ones({0}), 0, 1, {100}, 100}), "");
  EXPECT_EQ(refusal({"w", at::ones({36}), 0, 1, {100}, 64}), "");
  EXPECT_THROW(squares_of({{at::ones({64}), 32}}), Error);
  EXPECT_NO_THROW(squares_of({{at::ones({0}), 32}}));
}

TEST(Shards, versions_grow_with_every_update) {
  for (const Case& c : cases()) {
    const at::Tensor p = at::ones({70}), idle = at::ones({3});
    p.mutable_grad() = at::ones({70});
    const auto optimizer = c.make({{"p", p}, {"idle", idle}}, {});
    const auto before = p._version(), idle_before = idle._version();
    optimizer->step(0.1);
    EXPECT_GT(p._version(), before) << c.name;
    EXPECT_EQ(idle._version(), idle_before) << c.name;
  }
}

TEST(Shards, states_live_where_the_allocator_says) {
  for (const Case& c : cases()) {
    std::vector<at::Tensor> made;
    CommonOptions common;
    common.allocate = [&](at::IntArrayRef sizes, at::TensorOptions options) {
      made.push_back(at::zeros(sizes, options));
      return made.back();
    };
    const at::Tensor p = at::ones({10, 10});
    const auto optimizer = c.make({{"p", p}}, common);
    ASSERT_EQ(made.size(), optimizer->state().empty() ? 0u : 1u) << c.name;
    for (const auto& [name, state] : optimizer->state())
      EXPECT_TRUE(state.is_alias_of(made[0])) << c.name << ": " << name;
    common.allocate = [](at::IntArrayRef, at::TensorOptions options) { return at::zeros({1}, options); };
    if (!optimizer->state().empty()) {
      EXPECT_THROW(c.make({{"p", p}}, common), Error) << c.name;
    }
  }
}

RC_GTEST_PROP(ShardedNorm, bits_do_not_depend_on_the_cuts_or_on_extremes, ()) {
  const int ranks = *rc::gen::inRange(1, 5);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto dtype = *rc::gen::element(at::kFloat, at::kDouble, at::kBFloat16);
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(seed);
  std::vector<at::Tensor> gradients;
  for (int i = *rc::gen::inRange(1, 6); i > 0; --i) {
    const auto n = *rc::gen::inRange<std::int64_t>(0, 700);
    const at::Tensor scale = at::rand({n}, generator, at::kDouble).mul_(80).sub_(60).exp_();
    gradients.push_back(at::randn({n}, generator, at::kDouble).mul_(scale).to(dtype));
  }
  Cuts cuts;
  for (const at::Tensor& g : gradients) {
    std::vector<std::int64_t> own;
    for (int r = 1; r < ranks; ++r) own.push_back(64 * *rc::gen::inRange<std::int64_t>(0, g.numel() / 64 + 2));
    std::sort(own.begin(), own.end());
    cuts.push_back(own);
  }
  const double whole = gradient_norm(gradients);
  ranks::run(ranks, [&](int rank, ranks::Meeting& meeting) {
    std::vector<GradientPiece> pieces;
    for (std::size_t i = gradients.size(); i-- > 0;) {  // in another order
      const auto [begin, end] = ranks::piece_of(cuts[i], gradients[i].numel(), rank);
      pieces.push_back({gradients[i].narrow(0, begin, end - begin), begin});
    }
    const double norm = gradient_norm(pieces, [&](std::vector<std::int64_t>& words) { meeting.sum_words(words); });
    RC_ASSERT(norm == whole);
  });
}

TEST(ShardedNorm, one_ranks_nan_is_everyones) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()})
    ranks::run(3, [&](int rank, ranks::Meeting& meeting) {
      const at::Tensor g = at::ones({100});
      if (rank == 1) g[77] = bad;
      const double norm = gradient_norm({{g, 0}}, [&](std::vector<std::int64_t>& words) { meeting.sum_words(words); });
      EXPECT_FALSE(std::isfinite(norm));
    });
}

}  // namespace
