// Optimizers by name.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/config/core/overrides.h>
#include <tessera/config/rules/named_parameters.h>
#include <tessera/optim/by_name.h>

#include <cmath>
#include <map>

namespace {

using namespace tessera;
using namespace tessera::optim;

OptimizerChoice choice_of(OptimizerKind kind, const std::string& parameters = "") {
  OptimizerChoice choice{.kind = kind};
  choice.parameters = config::parse_overrides(parameters, "--optim_args");
  return choice;
}

at::Tensor stepped(const std::function<std::unique_ptr<Optimizer>(std::vector<Slot>)>& make) {
  const at::Tensor p = at::arange(12, at::kFloat).view({3, 4}).clone();
  const auto optimizer = make({{"p", p, 0.1}});
  for (int step = 0; step < 3; ++step) {
    p.mutable_grad() = p * 0.5 + step - 1;
    optimizer->step(0.1);
  }
  return p;
}

TEST(ByName, is_the_factory_of_that_name) {
  const auto expect = [](const OptimizerChoice& choice, const auto& make) {
    EXPECT_TRUE(at::equal(stepped([&](auto s) { return make_optimizer(choice, std::move(s)); }), stepped(make)))
        << choice.kind;
  };
  OptimizerChoice tuned = choice_of(OptimizerKind::adamw);
  tuned.beta1 = 0.5, tuned.beta2 = 0.6, tuned.epsilon = 0.1;
  expect(tuned, [](auto s) { return make_adamw(std::move(s), {0.5, 0.6, 0.1}); });
  tuned.kind = OptimizerKind::adam;
  expect(tuned, [](auto s) { return make_adam(std::move(s), {0.5, 0.6, 0.1}); });
  tuned.kind = OptimizerKind::lion;
  expect(tuned, [](auto s) { return make_lion(std::move(s), {0.5, 0.6}); });
  tuned.kind = OptimizerKind::lamb;
  expect(tuned, [](auto s) { return make_lamb(std::move(s), {.beta1 = 0.5, .beta2 = 0.6}); });
  expect(choice_of(OptimizerKind::sgd, "momentum=0.9,nesterov=true"),
         [](auto s) { return make_sgd(std::move(s), {.momentum = 0.9, .nesterov = true}); });
  expect(choice_of(OptimizerKind::adagrad, "lr_decay=0.5,eps=0.1"),
         [](auto s) { return make_adagrad(std::move(s), {.epsilon = 0.1, .learning_rate_decay = 0.5}); });
  expect(choice_of(OptimizerKind::rmsprop, "alpha=0.5,eps=0.1,momentum=0.9,centered=true"), [](auto s) {
    return make_rmsprop(std::move(s), {.alpha = 0.5, .epsilon = 0.1, .momentum = 0.9, .centered = true});
  });
  expect(choice_of(OptimizerKind::rmsprop), [](auto s) { return make_rmsprop(std::move(s), {}); });
  expect(choice_of(OptimizerKind::adafactor, "scale_parameter=true,relative_step=true,warmup_init=true,beta1=0.9"),
         [](auto s) {
           return make_adafactor(std::move(s),
                                 {.beta1 = 0.9, .scale_parameter = true, .relative_step = true, .warmup_init = true});
         });
  expect(choice_of(OptimizerKind::lars, "momentum=0.5,trust_coefficient=0.1"),
         [](auto s) { return make_lars(std::move(s), {.momentum = 0.5, .trust_coefficient = 0.1}); });
}

TEST(ByName, every_kind_is_made_and_unknown_parameters_are_refused_with_the_nearest) {
  const auto refused = [](const OptimizerChoice& choice) -> std::string {
    try {
      check_optimizer(choice);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  for (std::size_t kind = 0; kind < words_of(OptimizerKind()).words.size(); ++kind)
    EXPECT_EQ(refused(choice_of(static_cast<OptimizerKind>(kind))), "");
  EXPECT_NE(refused(choice_of(OptimizerKind::adagrad, "lr_decai=1"))
                .find("parameter of adagrad 'lr_decai' is unknown; did you mean "
                      "'lr_decay'?"),
            std::string::npos);
  EXPECT_NE(refused(choice_of(OptimizerKind::sgd, "nesterov=true")).find("nesterov needs a momentum"),
            std::string::npos);
  EXPECT_NE(refused(choice_of(OptimizerKind::lion, "beta1=high")).find("expected a number"), std::string::npos);
}

/// Optimizers accept every number that the settings accept; otherwise the error would come only after the data has been
/// read.
TEST(ByName, NumbersThatPassTheCheckAreTaken) {
  const std::map<OptimizerKind, std::vector<std::string>> numbers = {
      {OptimizerKind::adamw, {"beta1", "beta2", "epsilon", "eps"}},
      {OptimizerKind::lion, {"beta1", "beta2"}},
      {OptimizerKind::sgd, {"momentum"}},
      {OptimizerKind::adagrad, {"lr_decay", "initial_accumulator_value", "eps"}},
      {OptimizerKind::rmsprop, {"alpha", "eps", "momentum"}},
      {OptimizerKind::adafactor, {"eps1", "eps2", "clip_threshold", "decay_rate", "beta1"}},
      {OptimizerKind::lamb, {"beta1", "beta2", "eps", "min_trust_ratio", "max_trust_ratio"}},
      {OptimizerKind::lars, {"momentum", "trust_coefficient", "eps"}},
      {OptimizerKind::muon, {"momentum", "extra_scale_factor", "ns_eps", "ns_steps"}}};
  for (const auto& [kind, names] : numbers) {
    for (const std::string& name : names) {
      int taken = 0;
      for (const char* number : {"-2", "-1", "0", "1", "2", "100", "101"}) {
        SCOPED_TRACE(concat(kind, " ", name, "=", number));
        const OptimizerChoice choice = choice_of(kind, concat(name, "=", number));
        try {
          config::check_parameters(kind, choice.parameters);
        } catch (const InputError&) {
          continue;
        }
        ++taken;
        if (name == "min_trust_ratio" && std::stoi(number) > 10) continue;  // exceeds the largest ratio
        EXPECT_NO_THROW(check_optimizer(choice));
      }
      EXPECT_GT(taken, 0) << name;
      EXPECT_LT(taken, 7) << name << " has no range";
    }
  }
}

}  // namespace
