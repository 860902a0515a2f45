// GGUF files of mixtures of experts, Gemma and Phi-3, converted and opened, must give transformers' logits:
// tests/fixtures/gguf/families, made by tests/parity/gguf_families_fixture.py with gguf-py.
#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/format/gguf/gguf_to_hf.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tessera/models/load.h>
#include <tests/paths.h>

namespace {

using namespace tessera;

class GgufFamilies : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Fixtures, GgufFamilies,
                         ::testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gemma", "gemma2",
                                           "gemma3_text", "phi3", "phi3_longrope"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(GgufFamilies, give_the_logits_of_transformers) {
  const std::string fixture = tessera::testing::source_path(concat("tests/fixtures/gguf/families/", GetParam()));
  const format::GgufFile file(fixture + ".gguf");
  const TemporaryFolder folder;
  format::GgufToHfOptions options;
  options.tokenizer = false;
  format::write_gguf_to_hf(file, format::plan_gguf_to_hf(file, options), folder.path(), options);
  ModelConfig config;
  config.model_name_or_path = folder.path();
  const auto model = models::load_model(config, 0);
  const format::SafetensorsFile expected(fixture + ".safetensors");
  const at::Tensor wanted = checkpoint::read_tensor(expected, *expected.find("logits"));
  at::Tensor ids = at::empty({2, 20}, at::kLong);  // tokens(99) of make_llama_fixtures.py
  std::uint32_t x = 100;
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    x = (1103515245u * x + 12345u) & 0x7fffffffu;
    ids.data_ptr<std::int64_t>()[i] = (x >> 8) % 97;
  }
  const at::Tensor got = model->logits(ids);
  ASSERT_EQ(got.sizes(), wanted.sizes());
  EXPECT_LT(((got - wanted).abs().max() / wanted.abs().max()).item<double>(), 1e-5);
}

}  // namespace
