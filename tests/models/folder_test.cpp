// Model folders from other programs: different name prefixes, weights that are quantized or declared as such, fewer
// rows than tokens.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/config/model/vocabulary.h>
#include <tessera/config/model/whole_weights.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/models/load.h>
#include <tests/error_of.h>
#include <tests/own_folder.h>
#include <tests/paths.h>

#include <cstring>
#include <functional>

using namespace tessera;

namespace {

using checkpoint::NamedTensors;
using tessera::testing::error_of;

const std::string fixtures = tessera::testing::source_path("tests/fixtures");

class ModelFolder : public ::testing::Test {
 protected:
  /// Writes the fixture's tensors and configuration with changes.
  void write(const std::string& fixture, const std::function<void(NamedTensors&)>& change, Value config = {}) {
    NamedTensors tensors = checkpoint::read_hf_weights(fixtures + "/" + fixture);
    change(tensors);
    if (config.is_null()) config = read_json(path_join(fixtures, fixture + "/config.json"));
    checkpoint::write_hf_folder(folder_.path(), tensors, config, nullptr);
  }
  Value config_of(const std::string& fixture, const std::string& key, Value value) const {
    Value config = read_json(path_join(fixtures, fixture + "/config.json"));
    config.set(key, std::move(value));
    return config;
  }
  void expect_same_weights(const std::string& fixture) const {
    const auto theirs = models::load_language_folder(path_join(fixtures, fixture)),
               ours = models::load_language_folder(folder_.path());
    for (const auto& item : theirs->named_parameters())
      EXPECT_TRUE(at::equal(item.value(), ours->named_parameters()[item.key()])) << item.key();
  }
  std::string error(const models::ConfigEdit& edit = {}) const {
    return error_of<InputError>([&] { models::load_language_folder(folder_.path(), 0, edit); });
  }

  TemporaryFolder folder_;
};

void rename(NamedTensors& tensors, const std::function<std::string(const std::string&)>& other) {
  for (auto& [name, tensor] : tensors) name = other(name);
}

TEST_F(ModelFolder, NamesMayBeginOtherwise) {
  for (const char* fixture : {"llama/llama", "llama/gpt_neox", "gpt2_tiny", "bert_tiny"}) {
    for (const char* before : {"module.", "_orig_mod.", "model.", "module._orig_mod."}) {
      write(fixture, [&](auto& tensors) { rename(tensors, [&](const auto& name) { return before + name; }); });
      SCOPED_TRACE(::testing::Message() << fixture << " " << before);
      expect_same_weights(fixture);
    }
  }
  write("llama/llama", [](auto& tensors) {  // a base model with the head next to it, and compiled blocks
    rename(tensors, [](const std::string& name) {
      std::string bare = name.starts_with("model.") ? name.substr(6) : name;
      if (const auto at = bare.find("self_attn."); at != std::string::npos) bare.insert(at, "_orig_mod.");
      return bare;
    });
  });
  expect_same_weights("llama/llama");
}

TEST_F(ModelFolder, TwoTensorsForOneParameterAreNotTakenForEachOther) {
  write("llama/llama", [](auto& tensors) { tensors.emplace_back("module.model.norm.weight", at::zeros({48})); });
  EXPECT_NE(error().find("unexpected tensor"), std::string::npos) << error();
}

TEST_F(ModelFolder, QuantizedWeightsAreNamedByTheirMethodWithTheRemedy) {
  struct Case {
    const char *method, *suffix, *remedy;
  };
  for (const Case& c : {Case{"bitsandbytes", ".weight", "model.dequantize()"},
                        Case{"gptq", ".qweight", "--load_in_4bit"}, Case{"awq", ".qweight", "--load_in_4bit"},
                        Case{"compressed-tensors", ".weight_packed", "run_compressed=False"}}) {
    write(
        "llama/llama",
        [&](auto& tensors) {
          for (auto& [name, tensor] : tensors) {
            if (name.find("q_proj.weight") == std::string::npos) continue;
            name = name.substr(0, name.rfind('.')) + c.suffix;
            tensor = at::zeros({tensor.numel() / 2, 1}, at::kByte);
          }
        },
        config_of("llama/llama", "quantization_config", Value::make_object({{"quant_method", Value::of(c.method)}})));
    const std::string text = error();
    EXPECT_NE(text.find(concat("quantization_config: ", c.method)), std::string::npos) << text;
    EXPECT_NE(text.find(c.remedy), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << "one sentence: " << text;
  }
}

TEST_F(ModelFolder, EightBitFloatsAreNamedLikewise) {
  write(
      "llama/llama", [](auto&) {},
      config_of("llama/llama", "quantization_config", Value::make_object({{"quant_method", Value::of("fp8")}})));
  const std::string header = R"({"model.norm.weight":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})";
  std::string file(8, '\0');
  const std::uint64_t size = header.size();
  std::memcpy(file.data(), &size, sizeof size);
  write_file_atomically(path_join(folder_.path(), "model.safetensors"), file + header + std::string(8, '\0'));
  EXPECT_NE(error().find("(quantization_config: fp8)"), std::string::npos) << error();
  EXPECT_NE(error().find("FineGrainedFP8Config(dequantize=True)"), std::string::npos) << error();
}

TEST_F(ModelFolder, WhatIsSaidOfTheFormOfWeightsIsTrueOfThoseThatAreLoaded) {
  Value config =
      config_of("llama/llama", "quantization_config", Value::make_object({{"load_in_4bit", Value::of(true)}}));
  config.set("torch_dtype", Value::of("bfloat16"));
  config.set("dtype", Value::of("bfloat16"));
  config.set("my_own", Value::of("stays"));
  write("llama/llama", [](auto&) {}, config);
  const Value& loaded = models::load_language_folder(folder_.path())->hf_config();
  EXPECT_EQ(loaded.find("quantization_config"), nullptr);
  EXPECT_EQ(loaded.at("torch_dtype").as_string(), "float32");
  EXPECT_EQ(loaded.at("dtype").as_string(), "float32");
  EXPECT_EQ(loaded.at("my_own").as_string(), "stays");
  EXPECT_EQ(config::quantization_of(config), "bitsandbytes");
  const Value nested = config::of_whole_weights(
      parse_json(R"({"model_type": "llava", "text_config": {"torch_dtype": "float16", "quantization_config": {}}})",
                 "config.json"));
  EXPECT_EQ(dump_json(nested, -1), R"({"model_type":"llava","text_config":{"torch_dtype":"float32"}})");
  const Value code = parse_json(R"({"auto_map": {"AutoModel": "modeling_x.X"}})", "config.json");
  EXPECT_FALSE(config::of_whole_weights(code).contains("auto_map")) << "Python files are not copied";
  const Value hub = parse_json(R"({"auto_map": {"AutoModel": "author/model--modeling_x.X"}})", "config.json");
  EXPECT_TRUE(config::of_whole_weights(hub).contains("auto_map"));
}

TEST_F(ModelFolder, RowsThatAreAddedAreTheMeanOfTheOthers) {
  for (const char* fixture : {"llama/llama", "gpt2_tiny", "llama/phi", "bert_tiny"}) {
    SCOPED_TRACE(fixture);
    const std::string place = path_join(fixtures, fixture);
    const auto before = models::load_language_folder(place);
    const std::int64_t tokens = before->vocab_size() + 8;
    const models::ConfigEdit edit = [&](Value json) { return config::with_vocabulary(std::move(json), tokens); };
    const auto after = models::load_language_folder(place, 0, edit);
    EXPECT_EQ(after->vocab_size(), tokens);
    EXPECT_EQ(config::vocabulary_of(after->hf_config()), tokens);
    int grown = 0;
    for (const auto& item : before->named_parameters()) {
      const at::Tensor &old = item.value(), now = after->named_parameters()[item.key()];
      if (now.sizes() == old.sizes()) {
        EXPECT_TRUE(at::equal(now, old)) << item.key();
        continue;
      }
      ++grown;
      EXPECT_TRUE(at::equal(now.narrow(0, 0, old.size(0)), old)) << item.key();
      const at::Tensor added = now.narrow(0, old.size(0), tokens - old.size(0));
      EXPECT_TRUE(at::allclose(added, old.mean(0).expand_as(added), 1e-5, 1e-7)) << item.key();
    }
    EXPECT_GT(grown, 0);
    // The same folder, read in pieces.
    std::string folder;
    ModelConfig config;
    config.model_name_or_path = place;
    const auto deferred = models::load_model_deferred(config, 0, folder, edit);
    const models::WeightSource source(*deferred, folder);
    for (const auto& item : after->named_parameters()) {
      const at::Tensor whole = item.value().reshape({-1});
      const std::int64_t begin = whole.numel() > 7 ? whole.numel() - 7 - whole.numel() / 20 : 0;
      const at::Tensor piece = at::empty({whole.numel() - begin});
      if (!source.read(item.key(), begin, piece)) continue;  // a new head
      EXPECT_TRUE(at::equal(piece, whole.narrow(0, begin, piece.numel()))) << item.key();
    }
  }
}

TEST_F(ModelFolder, RowsAreAddedWhereTheyAreAskedForOnly) {
  const std::int64_t rows = models::load_language_folder(fixtures + "/llama/llama")->vocab_size();
  write("llama/llama", [](auto&) {}, config_of("llama/llama", "vocab_size", Value::of(rows + 3)));
  EXPECT_NE(error().find("has shape"), std::string::npos) << "the folder contradicts itself: " << error();
}

}  // namespace
