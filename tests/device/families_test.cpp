// Every family of tests/fixtures on the simulated device, compared with the same steps on the CPU: plain rows,
// packed documents, and two ranks that share the parameters.
#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <tessera/base/file.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/data/to_device.h>
#include <tessera/models/load.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/device/send.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/fully_shard.h>
#include <tests/device/on_the_double.h>
#include <tests/distributed/harness.h>
#include <tests/double/findings.h>
#include <tests/paths.h>

#include <cmath>

namespace tessera::testing {
namespace {

constexpr std::int64_t vocabulary = 97, length = 20, ignored = -100;

std::shared_ptr<models::CausalLm> load(const std::string& family, c10::Device device) {
  ModelConfig config;
  if (family == "gpt2") {  // its fixtures have too few positions: draw the weights from the seed
    config.config_name = "gpt2-tiny";
    config.config_overrides =
        "n_layer=2,n_embd=32,n_head=2,vocab_size=97,n_positions=20,bos_token_id=96,eos_token_id=96";
  } else {
    config.model_name_or_path = source_path("tests/fixtures/llama/" + family);
  }
  auto model = models::load_model(config, 0);
  model->to(device);
  model->train();
  return model;
}

/// Two rows; `packed`: three documents in each.
data::Batch batch(std::int64_t step, bool packed) {
  data::Batch data;
  data.ids = (at::arange(2 * length).view({2, length}) * 37 + step * 11).remainder(vocabulary);
  data.labels = data.ids.clone();
  data.labels[0][5] = ignored;
  if (packed) {
    for (std::int64_t row = 0; row < 2; ++row) {
      for (const std::int64_t start : {0, 6, 13}) {
        data.document_starts.push_back(row * length + start);
        data.labels[row][start] = ignored;
      }
    }
  }
  data.scored_tokens = data.labels.slice(1, 1).ne(ignored).sum().item<std::int64_t>();
  return data;
}

/// Losses and gradient norms of four steps of AdamW: two with plain rows, two with packed ones. `bf16`: by autocast.
std::vector<double> train(models::CausalLm& model, c10::Device device, Sharded* sharded, bool bf16 = false) {
  std::vector<optim::Slot> slots;
  if (sharded != nullptr) {
    slots = sharded->slots();
  } else {
    for (const auto& p : model.named_parameters()) {
      if (p.value().requires_grad()) slots.push_back({.name = p.key(), .parameter = p.value()});
    }
  }
  const auto optimizer = optim::make_adamw(slots, {});
  std::vector<double> numbers;
  for (std::int64_t step = 0; step < 4; ++step) {
    const data::Batch data = batch(step, step >= 2);
    at::Tensor loss;
    {
      const nn::Autocast autocast(bf16, device.type());
      loss = model.loss(data::to_device(data, device), 1.0 / static_cast<double>(data.scored_tokens));
    }
    loss.backward();
    std::vector<at::Tensor> gradients;
    for (const optim::Slot& slot : slots) gradients.push_back(slot.parameter.grad());
    const double norm = sharded != nullptr ? sharded->grad_norm() : optim::gradient_norm(gradients);
    numbers.push_back(loss.item<double>());
    numbers.push_back(norm);
    optimizer->step(1e-3, optim::clip_coefficient(norm, 1.0));
    if (sharded != nullptr) sharded->zero_grad();
    for (const optim::Slot& slot : slots) slot.parameter.mutable_grad().reset();
  }
  return numbers;
}

void expect_equal(const std::vector<double>& cuda, const std::vector<double>& cpu) {
  ASSERT_EQ(cuda.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_LE(std::abs(cuda[i] - cpu[i]), (i % 2 == 0 ? 1e-6 : 2e-6) * std::abs(cpu[i]))
        << (i % 2 == 0 ? "loss" : "norm") << " of step " << i / 2 << ": " << cuda[i] << " instead of " << cpu[i];
  }
}

const std::vector<std::string> families = list_folder(source_path("tests/fixtures/llama"));

class DeviceFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceFamilies, OneRank) {
  run_ranks(
      1,
      [&](comm::World& world) {
        const auto cpu = load(GetParam(), c10::Device(c10::kCPU)), cuda = load(GetParam(), world.device());
        expect_equal(train(*cuda, world.device(), nullptr), train(*cpu, c10::Device(c10::kCPU), nullptr));
        EXPECT_EQ(cuda_double::all_findings(), 0U);
      },
      on_device());
}

TEST_P(DeviceFamilies, FullShardOverTwoRanks) {
  run_ranks(
      2,
      [&](comm::World& world) {
        const auto cpu = load(GetParam(), c10::Device(c10::kCPU)), cuda = load(GetParam(), world.device());
        ShardingOptions options;
        options.strategy = "full_shard";
        Sharded sharded(*cuda, options);
        // Both ranks have the same rows, so the mean is that of one rank.
        expect_equal(train(*cuda, world.device(), &sharded), train(*cpu, c10::Device(c10::kCPU), nullptr));
        EXPECT_EQ(cuda_double::all_findings(), 0U);
      },
      on_device());
}

/// A device rounds values that the CPU keeps in fp32 between its products, and vice versa.
TEST(DeviceFamiliesInBf16, AsOnTheCpu) {
  run_ranks(
      1,
      [&](comm::World& world) {
        for (const std::string family :
             {"gpt2", "llama", "qwen3", "gemma2", "opt", "cohere", "gpt_neox", "mixtral", "qwen2_moe", "deepseek_v3"}) {
          const auto cpu = load(family, c10::Device(c10::kCPU)), cuda = load(family, world.device());
          const auto expected = train(*cpu, c10::Device(c10::kCPU), nullptr, true),
                     numbers = train(*cuda, world.device(), nullptr, true);
          for (std::size_t i = 0; i < expected.size(); ++i) {
            EXPECT_LE(std::abs(numbers[i] - expected[i]), (i % 2 == 0 ? 2e-3 : 2e-2) * std::abs(expected[i]))
                << family << ", " << (i % 2 == 0 ? "loss" : "norm") << " of step " << i / 2;
          }
          EXPECT_EQ(cuda_double::all_findings(), 0U);
        }
      },
      on_device());
}

INSTANTIATE_TEST_SUITE_P(Fixtures, DeviceFamilies, ::testing::ValuesIn(families),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::testing
