// Models whose frozen weights are kept in few bits, combined with adapters.
#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/models/frozen/quantize.h>
#include <tessera/models/layers.h>
#include <tessera/models/load.h>
#include <tessera/models/lora.h>

#include <tests/error_of.h>
#include <tests/paths.h>

#include <limits>
#include <map>

using namespace tessera;

namespace {

using tessera::testing::error_of;

const std::string fixtures = tessera::testing::source_path("tests/fixtures");

ModelConfig from(const std::string& name) {
  ModelConfig config;
  config.model_name_or_path = fixtures + "/" + name;
  return config;
}

models::LoraConfig everywhere() {
  models::LoraConfig config;
  config.r = 4;
  config.target_modules = {"all-linear"};
  return config;
}

std::shared_ptr<models::CausalLm> adapted(const std::string& name) {
  auto model = models::load_model(from(name), 0);
  models::apply_lora(*model, everywhere(), 1);
  return model;
}

std::map<std::string, models::Linear*> maps_in(const torch::nn::Module& model) {
  std::map<std::string, models::Linear*> found;
  for (const auto& item : model.named_modules("", false))
    if (auto* const map = dynamic_cast<models::Linear*>(item.value().get())) found.emplace(item.key(), map);
  return found;
}

std::map<std::string, at::Tensor> parameters_of(const torch::nn::Module& model) {
  std::map<std::string, at::Tensor> found;
  for (const auto& item : model.named_parameters()) found.emplace(item.key(), item.value());
  return found;
}

const at::Tensor ids = at::tensor({3, 9, 27, 81, 50, 7, 1, 2}, at::kLong).view({1, 8});

/// Logits, and gradients of the adapters.
std::vector<at::Tensor> passes(models::CausalLm& model) {
  model.eval();
  const at::Tensor logits = model.logits(ids);
  logits.square().mean().backward();
  std::vector<at::Tensor> found = {logits.detach()};
  for (auto& [name, tensor] : models::lora_state(model)) {
    found.push_back(tensor.grad().clone());
    tensor.mutable_grad().reset();
  }
  return found;
}

/// GPT-2 stores its weights transposed, so products are summed in a different order.
bool stores_out_first(const torch::nn::Module& model) {
  return maps_in(model).begin()->second->layout == nn::WeightLayout::out_in;
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, bool bits = true) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double off = (a[i] - b[i]).norm().item<double>(), size = b[i].norm().item<double>();
    EXPECT_LE(off, bits ? 0 : 2e-6 * size) << i;
  }
}

class QuantizedModel : public ::testing::TestWithParam<const char*> {};

TEST_P(QuantizedModel, ComputesAsOneWithTheWidenedWeights) {
  for (const nn::QuantizedForm& form : {nn::QuantizedForm{}, nn::QuantizedForm{.type = QuantType::fp4},
                                        nn::QuantizedForm{.double_quant = true}, nn::QuantizedForm{.bits = 8}}) {
    const auto model = adapted(GetParam()), whole = adapted(GetParam());
    const auto untouched = passes(*whole);
    models::quantize(*model, form, nullptr);
    for (const auto& [name, map] : maps_in(*whole))
      if (const auto& quantized = maps_in(*model).at(name)->quantized) {
        const at::NoGradGuard no_grad;
        const at::Tensor wide = nn::dequantize(*quantized);
        map->weight.copy_(map->layout == nn::WeightLayout::out_in ? wide : wide.t());
      }
    const auto got = passes(*model);
    expect_equal(got, passes(*whole), stores_out_first(*model));
    EXPECT_FALSE(got[0].equal(untouched[0])) << "whole weights would give the same";
    models::dequantize(*model);
    EXPECT_EQ(models::quantized_sizes(*model).maps, 0);
    expect_equal(passes(*model), got, stores_out_first(*model));
  }
}

TEST_P(QuantizedModel, OnlyTheBlocksLinearMapsAreQuantized) {
  const auto model = adapted(GetParam());
  const auto before = parameters_of(*model);
  const std::string trainable = models::describe_trainable(*model);
  std::int64_t elements = 0, maps = 0;
  for (const auto& [name, map] : maps_in(*model)) {
    ++maps;
    elements += map->weight.numel();
  }
  models::quantize(*model, {}, nullptr);
  const models::QuantizedSizes sizes = models::quantized_sizes(*model);
  EXPECT_EQ(sizes.maps, maps);
  EXPECT_EQ(sizes.elements, elements);
  EXPECT_LT(sizes.bytes, elements * 0.5701) << "4.5 bits, and a block that is not full";
  const auto after = parameters_of(*model);
  EXPECT_EQ(after.size() + static_cast<std::size_t>(maps), before.size());
  for (const auto& [name, tensor] : after) {
    EXPECT_TRUE(tensor.is_same(before.at(name))) << name;
    EXPECT_EQ(tensor.requires_grad(), name.find("lora_") != std::string::npos) << name;
  }
  for (const auto& [name, map] : maps_in(*model)) {
    EXPECT_TRUE(map->weight.is_meta()) << name << ": its memory is freed";
    EXPECT_EQ(map->weight.sizes(), before.at(name + ".weight").sizes());
  }
  EXPECT_EQ(models::describe_trainable(*model), trainable) << "parameter counts do not change";
  EXPECT_NE(models::describe_quantized(*model).find("linear maps in nf4: "), std::string::npos);
}

TEST_P(QuantizedModel, MergingAddsAdaptersToWhatTheyWereTrainedBeside) {
  const auto model = adapted(GetParam());
  {
    const at::NoGradGuard no_grad;
    for (auto& [name, tensor] : models::lora_state(*model)) tensor.normal_(0, 0.05);
  }
  models::quantize(*model, {.double_quant = true}, nullptr);
  model->eval();
  const at::Tensor before = model->logits(ids).detach();
  const auto names = parameters_of(*adapted(GetParam()));
  models::merge_lora(*model);
  EXPECT_LT(((model->logits(ids) - before).norm() / before.norm()).item<double>(), 1e-5);
  for (const auto& [name, tensor] : names) {
    const bool adapter = name.find("lora_") != std::string::npos;
    EXPECT_EQ(parameters_of(*model).contains(name), !adapter) << name;
  }
}

TEST_P(QuantizedModel, WeightsAreReadOneByOne) {
  std::string folder;
  const auto model = models::load_model_deferred(from(GetParam()), 0, folder);
  models::apply_lora(*model, everywhere(), 1);
  const models::WeightSource weights(*model, folder,
                                     [](const std::string& name) { return name.find(".lora_") != std::string::npos; });
  models::quantize(*model, {.bits = 8}, &weights);
  models::fill_parameters(*model, &weights);
  const auto whole = adapted(GetParam());
  models::quantize(*whole, {.bits = 8}, nullptr);
  EXPECT_EQ(models::quantized_checksum(*model), models::quantized_checksum(*whole));
  expect_equal(passes(dynamic_cast<models::CausalLm&>(*model)), passes(*whole));
  models::dequantize(*whole);
  models::quantize(*whole, {}, nullptr);
  EXPECT_NE(models::quantized_checksum(*model), models::quantized_checksum(*whole));
}

INSTANTIATE_TEST_SUITE_P(Families, QuantizedModel, ::testing::Values("gpt2_tiny", "llama/llama"));

TEST(QuantizedExperts, ExpertsAndRoutersStayWhole) {
  const auto model = adapted("llama/mixtral");
  models::quantize(*model, {}, nullptr);
  bool experts = false, routers = false;
  for (const auto& [name, tensor] : parameters_of(*model)) {
    EXPECT_FALSE(name.find("self_attn") != std::string::npos && name.ends_with("_proj.weight")) << name;
    experts = experts || name.find(".experts.") != std::string::npos;
    routers = routers || name.ends_with(".gate.weight");
  }
  EXPECT_TRUE(experts);
  EXPECT_TRUE(routers);
}

TEST(QuantizedErrors, SayWhichWeightIsDamagedAndWhatIsTrained) {
  const auto model = adapted("llama/llama");
  auto* const map = maps_in(*model).at("model.layers.0.mlp.up_proj");
  {
    const at::NoGradGuard no_grad;
    map->weight[3][5] = std::numeric_limits<float>::quiet_NaN();
  }
  EXPECT_NE(error_of([&] {
              models::quantize(*model, {}, nullptr);
            }).find("--load_in_4bit: model.layers.0.mlp.up_proj.weight contains numbers that are not finite"),
            std::string::npos);
  const auto trained = models::load_model(from("llama/llama"), 0);
  EXPECT_THROW(models::quantize(*trained, {}, nullptr), Error);
}

}  // namespace
