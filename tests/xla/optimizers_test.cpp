// Every compiled update compared with the CPU's.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <tessera/optim/by_name.h>
#include <tessera/xla/step/compiled_training.h>
#include <tessera/xla/step/update_program.h>
#include <torch/nn/module.h>

#include <tests/xla/plugin_for_tests.h>

namespace tessera {
namespace {

/// The loss is the sum of the parameters times given values, which are thus the gradients.
struct Given : torch::nn::Module {
  Given() {
    matrix = register_parameter("matrix", at::randn({3, 5}));
    bias = register_parameter("bias", at::randn({4}));
  }
  at::Tensor loss(const std::vector<at::Tensor>& batch) const {
    return (matrix * batch[0]).sum() + (bias * batch[1]).sum();
  }
  at::Tensor matrix, bias;
};

struct Case {
  std::string name;
  optim::OptimizerChoice choice;
};

std::vector<Case> cases() {
  using K = OptimizerKind;
  const auto yes = Value::of(true);
  const auto number = [](double x) { return Value::of(x); };
  return {{"AdamW", {.kind = K::adamw}},
          {"AdamW without correction", {.kind = K::adamw, .parameters = {{"bias_correction", Value::of(false)}}}},
          {"Adam", {.kind = K::adam, .beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-4}},
          {"SGD", {.kind = K::sgd}},
          {"SGD with momentum", {.kind = K::sgd, .momentum = 0.9}},
          {"SGD with Nesterov's momentum", {.kind = K::sgd, .momentum = 0.9, .nesterov = true}},
          {"Adagrad", {.kind = K::adagrad}},
          {"Adagrad with numbers",
           {.kind = K::adagrad, .parameters = {{"lr_decay", number(0.1)}, {"initial_accumulator_value", number(0.2)}}}},
          {"RMSprop", {.kind = K::rmsprop}},
          {"RMSprop, centered", {.kind = K::rmsprop, .parameters = {{"centered", yes}}}},
          {"RMSprop, centered, with momentum",
           {.kind = K::rmsprop, .parameters = {{"centered", yes}, {"momentum", number(0.9)}}}},
          {"Lion", {.kind = K::lion, .beta2 = 0.99}}};
}

constexpr double rate = 0.05, decay = 0.3;

void expect_same(const Case& c, int devices, bool shard) {
  SCOPED_TRACE(concat(c.name, ", ", devices, " devices", shard ? "" : ", not sharded"));
  at::manual_seed(2);
  Given module, reference;
  std::vector<optim::Slot> slots;
  {
    const at::NoGradGuard no_grad;
    reference.matrix.copy_(module.matrix);
    reference.bias.copy_(module.bias);
  }
  slots.push_back({.name = "matrix", .parameter = reference.matrix, .weight_decay = decay});
  slots.push_back({.name = "bias", .parameter = reference.bias});
  const auto optimizer = optim::make_optimizer(c.choice, slots);

  xla::TrainingOptions options;
  options.shard = shard;
  options.optimizer = optim::elementwise_options(c.choice).value();
  options.weight_decay = decay;
  options.has_decay = [](const std::string& name) { return name == "matrix"; };
  xla::CompiledTraining training(
      testing::cpu_devices(devices), module, [&](const auto& batch) { return module.loss(batch); }, options);
  const auto expect_equal = [&](const at::Tensor& a, const at::Tensor& b, const std::string& what) {
    EXPECT_LT((a - b).abs().max().item<double>(), 2e-6) << what;
  };
  for (int step = 0; step < 6; ++step) {
    std::vector<xla::CompiledStep::MicroBatch> batches;
    at::Tensor matrix = at::zeros({3, 5}), bias = at::zeros({4});
    for (int d = 0; d < devices; ++d) {
      batches.push_back({{at::randn({3, 5}), at::randn({4})}, 0, 0});
      matrix += batches.back().tensors[0];
      bias += batches.back().tensors[1];
    }
    reference.matrix.mutable_grad() = matrix;
    reference.bias.mutable_grad() = bias;
    optimizer->step(rate, 0.7);
    training.accumulate(batches);
    training.update(rate, 0.7);
    training.write_back();
    expect_equal(module.matrix, reference.matrix, concat("matrix, step ", step));
    expect_equal(module.bias, reference.bias, concat("bias, step ", step));
    if (step != 2) continue;
    // Copies the states to the host and back: the next steps are unchanged.
    std::vector<xla::CompiledStep::State> states = training.states();
    const auto of_cpu = optimizer->state();
    ASSERT_EQ(states.size(), of_cpu.size());
    for (const auto& [name, tensor] : of_cpu) {
      const auto found = std::ranges::find(states, name, &xla::CompiledStep::State::name);
      ASSERT_NE(found, states.end()) << name;
      expect_equal(found->tensor.flatten(), tensor.flatten(), name);
    }
    std::vector<xla::CompiledStep::State> spoilt;
    for (const auto& [name, tensor] : states) spoilt.push_back({name, tensor + 1});
    training.set_states(spoilt, 100);
    training.set_states(states, step + 1);
  }
}

TEST(XlaOptimizers, EachIsTheCpus) {
  if (testing::cpu_plugin().empty()) GTEST_SKIP() << "no PJRT plug-in: tools/deps_pjrt.sh installs one";
  for (const Case& c : cases()) {
    expect_same(c, 1, true);
    expect_same(c, 4, true);  // 19 elements: the last part is padded, and weight decay ends inside a part
  }
  expect_same(cases().front(), 2, false);
}

TEST(XlaOptimizers, OthersHaveNoCompiledUpdate) {
  using K = OptimizerKind;
  for (const K kind : {K::adafactor, K::lamb, K::lars, K::muon, K::adamw_8bit, K::lion_8bit})
    EXPECT_FALSE(optim::elementwise_options({.kind = kind}).has_value()) << static_cast<int>(kind);
}

}  // namespace
}  // namespace tessera
