#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/models/registry.h>
#include <tessera/xla/step/compiled_training.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <tests/error_of.h>
#include <tests/models/decoder_fixture.h>
#include <tests/xla/plugin_for_tests.h>

namespace tessera {
namespace {

using testing::cpu_devices;

constexpr std::int64_t rows = 2, tokens = 12;
/// Exceeds the rounding errors of gradients that are 0 in theory (of key biases), which AdamW would turn into steps.
constexpr double epsilon = 1e-5;

struct Family {
  std::string name;
  Value config;
};

std::vector<Family> families() {
  return {{"gpt2", models::with_overrides(models::preset("gpt2-tiny"),
                                          "n_layer=2,n_embd=16,n_head=2,vocab_size=31,n_positions=12,resid_pdrop=0,"
                                          "embd_pdrop=0,attn_pdrop=0")},
          {"bert", read_json(testing::source_path("tests/fixtures/bert_tiny/config.json"))},
          {"llama", testing::decoder_fixture("llama")},
          {"qwen3", testing::decoder_fixture("qwen3")}};
}

using Batches = std::vector<xla::CompiledStep::MicroBatch>;

Batches some_batches(std::int64_t count, std::int64_t vocabulary) {
  Batches batches;
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor ids = at::randint(0, vocabulary, {rows, tokens}, at::kLong);
    batches.push_back({{ids, ids.clone()}, 0, 0});
  }
  return batches;
}

at::Tensor mean_loss(models::LanguageModel& model, const std::vector<at::Tensor>& batch) {
  data::Batch given;
  given.ids = batch[0];
  given.labels = batch[1];
  return model.loss(given, 1.0 / static_cast<double>(rows * (tokens - 1)));
}

/// Runs the same steps with LibTorch on the CPU.
std::vector<double> steps_on_cpu(models::LanguageModel& model, const std::vector<Batches>& steps, double rate,
                                 double decay, double max_norm) {
  std::vector<at::Tensor> parameters = model.parameters();
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(rate).weight_decay(decay).eps(epsilon));
  std::vector<double> losses;
  for (const Batches& batches : steps) {
    optimizer.zero_grad();
    double sum = 0;
    for (const auto& batch : batches) {
      const at::Tensor loss = mean_loss(model, batch.tensors) / static_cast<double>(batches.size());
      loss.backward();
      sum += loss.item<double>();
    }
    if (max_norm > 0) {
      double squares = 0;
      for (const at::Tensor& p : parameters)
        if (p.grad().defined()) squares += p.grad().square().sum().item<double>();
      const double share = std::min(1.0, max_norm / (std::sqrt(squares) + 1e-6));
      for (const at::Tensor& p : parameters)
        if (p.grad().defined()) p.grad().mul_(share);
    }
    optimizer.step();
    losses.push_back(sum);
  }
  return losses;
}

struct Case {
  int devices = 1;
  std::int64_t accumulated = 1;
  bool shard = true;
  bool recompute = false;
  bool global = false;
};

void expect_same_training(const Family& family, const Case& c) {
  SCOPED_TRACE(concat(family.name, ", ", c.devices, " devices, ", c.accumulated, " micro-batches",
                      c.shard ? "" : ", not sharded", c.recompute ? ", recomputed" : "", c.global ? ", global" : ""));
  constexpr double rate = 5e-3, decay = 0.1, norm = 1;
  const auto reference = models::make_language_model(family.config, 5);
  const auto model = models::make_language_model(family.config, 5);
  reference->train();
  model->train();
  at::manual_seed(11);
  std::vector<Batches> steps;
  for (int s = 0; s < 10; ++s) steps.push_back(some_batches(c.devices * c.accumulated, model->vocab_size()));

  xla::TrainingOptions options;
  options.units = {.kind = layout::WrapPolicy::Kind::by_regex, .pattern = R"((.*\.)?(h|layers|layer)\.\d+)"};
  options.shard = c.shard;
  options.recompute = c.recompute;
  options.global = c.global;
  options.optimizer = optim::AdamWOptions{.epsilon = epsilon};
  options.weight_decay = decay;
  xla::CompiledTraining training(
      cpu_devices(c.devices), *model, [&](const auto& batch) { return mean_loss(*model, batch); }, options);
  const std::vector<double> expected = steps_on_cpu(*reference, steps, rate, decay, norm);
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const double share = 1.0 / static_cast<double>(steps[s].size());
    const double loss = training.accumulate(steps[s]) * share;
    EXPECT_NEAR(loss, expected[s], 1e-5 * expected[s]) << "step " << s;
    const double measured = training.gradient_norm() * share;
    training.update(rate, share * std::min(1.0, norm / (measured + 1e-6)));
  }
  training.write_back();
  const auto trained = model->named_parameters();
  for (const auto& p : reference->named_parameters())
    EXPECT_LT((p.value() - trained[p.key()]).abs().max().item<double>(), 1e-4) << p.key();
}

class XlaTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::cpu_plugin().empty()) GTEST_SKIP() << "no PJRT plug-in: tools/deps_pjrt.sh installs one";
  }
};

TEST_F(XlaTraining, OneDeviceEqualsLibTorch) {
  for (const Family& family : families()) expect_same_training(family, {});
}
TEST_F(XlaTraining, ShardedDevicesEqualLibTorch) {
  for (const Family& family : families())
    for (const int devices : {2, 4, 8}) expect_same_training(family, {.devices = devices});
}
TEST_F(XlaTraining, MicroBatchesAddUp) {
  for (const Family& family : families()) expect_same_training(family, {.devices = 2, .accumulated = 3});
}
TEST_F(XlaTraining, DataParallelEqualsLibTorch) {
  for (const Family& family : families()) expect_same_training(family, {.devices = 4, .shard = false});
}
TEST_F(XlaTraining, RecomputedEqualsLibTorch) {
  for (const Family& family : families()) {
    expect_same_training(family, {.devices = 1, .recompute = true});
    expect_same_training(family, {.devices = 2, .recompute = true});
  }
}

/// One program over the rows of all devices. Most sizes of these models are not multiples of 4 or 8.
class XlaGlobalTraining : public XlaTraining, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Devices, XlaGlobalTraining, ::testing::Values(1, 2, 4, 8));

TEST_P(XlaGlobalTraining, EqualsLibTorch) {
  for (const Family& family : families()) expect_same_training(family, {.devices = GetParam(), .global = true});
}
TEST_P(XlaGlobalTraining, MicroBatchesAddUpAndLayersAreRecomputed) {
  expect_same_training(families()[0], {.devices = GetParam(), .accumulated = 3, .recompute = true, .global = true});
}

/// Sizes that nothing divides, a scalar, a parameter without a gradient, and a loss that is a mean.
struct OwnImpl : torch::nn::Module {
  OwnImpl() {
    at::manual_seed(3);
    first = register_module("first", torch::nn::Linear(5, 7));
    second = register_module("second", torch::nn::Linear(7, 3));
    scale = register_parameter("scale", at::scalar_tensor(0.5));
    unused = register_parameter("unused", at::ones({3, 2}));
  }
  at::Tensor forward(const at::Tensor& x) { return second(at::gelu(first(x))) * scale; }
  torch::nn::Linear first{nullptr}, second{nullptr};
  at::Tensor scale, unused;
};
TORCH_MODULE(Own);

TEST_P(XlaGlobalTraining, AUsersModuleHasTheMeanOverAllRows) {
  const int devices = GetParam();
  Own reference, model;
  const auto loss_of = [](Own& own, const std::vector<at::Tensor>& batch) {
    return (own(batch[0]) - batch[1]).square().mean();
  };
  xla::TrainingOptions options;
  options.units = {.kind = layout::WrapPolicy::Kind::by_class, .classes = {"Linear"}};
  options.global = true;
  xla::CompiledTraining training(
      cpu_devices(devices), *model, [&](const auto& batch) { return loss_of(model, batch); }, options);
  std::vector<at::Tensor> trained = {reference->first->weight, reference->first->bias, reference->second->weight,
                                     reference->second->bias, reference->scale};
  torch::optim::AdamW optimizer(trained, torch::optim::AdamWOptions(1e-2).weight_decay(0));
  for (int s = 0; s < 10; ++s) {
    const at::Tensor x = at::randn({3 * devices, 5}), y = at::randn({3 * devices, 3});
    Batches batches;
    for (int d = 0; d < devices; ++d) batches.push_back({{x.narrow(0, 3 * d, 3), y.narrow(0, 3 * d, 3)}, 0, 0});
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(reference, {x, y});
    loss.backward();
    EXPECT_NEAR(training.accumulate(batches), loss.item<double>(), 1e-5 * loss.item<double>());
    double squares = 0;
    for (const at::Tensor& p : trained) squares += p.grad().square().sum().item<double>();
    EXPECT_NEAR(training.gradient_norm(), std::sqrt(squares), 1e-5 * std::sqrt(squares));
    optimizer.step();
    training.update(1e-2, 1);
  }
  training.write_back();
  const auto expected = reference->named_parameters();
  for (const auto& p : model->named_parameters())
    EXPECT_LT((p.value() - expected[p.key()]).abs().max().item<double>(), 1e-5) << p.key();
  // States leave and come back in the parameters' sizes.
  const auto states = training.states();
  for (const auto& state : states) {
    if (state.name == "exp_avg.first.weight") {
      EXPECT_EQ(state.tensor.sizes(), at::IntArrayRef({7, 5}));
    }
  }
  training.set_states(states, training.steps_taken());
  const auto again = training.states();
  ASSERT_EQ(states.size(), again.size());
  for (std::size_t i = 0; i < states.size(); ++i) EXPECT_TRUE(states[i].tensor.equal(again[i].tensor));
}

TEST_F(XlaTraining, AGlobalProgramHasOneOfEachScalar) {
  Own model;
  xla::TrainingOptions options;
  options.global = true;
  xla::CompiledTraining training(
      cpu_devices(2), *model, [&](const auto& batch) { return (model(batch[0]) * batch[1]).sum(); }, options);
  const at::Tensor x = at::ones({3, 5});
  const auto given = [&](double a, double b) {
    return Batches{{{x, at::scalar_tensor(a, at::kFloat)}, 0, 0}, {{x, at::scalar_tensor(b, at::kFloat)}, 0, 0}};
  };
  training.accumulate(given(1, 1));
  EXPECT_EQ(testing::error_of([&] { training.accumulate(given(1, 2)); }),
            "device xla: argument 1 of the loss, a scalar, differs between devices: 1 and 2; a global program has one");
}

}  // namespace
}  // namespace tessera
