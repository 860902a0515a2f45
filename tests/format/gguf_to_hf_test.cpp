// GGUF to a Hugging Face folder: names, layouts, configuration, and inconsistent files.

#include "gguf_builder.h"

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/half.h>
#include <tessera/base/text.h>
#include <tessera/format/gguf/gguf_to_hf.h>
#include <tests/paths.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

namespace tessera::format {
namespace {

using testing::GgufBuilder;
using testing::little_endian;
using testing::tiny_gpt2;
using testing::tiny_llama;

const std::string fixtures = tessera::testing::source_path("tests/fixtures/gguf/");

/// A built file that owns its bytes, with its plan and its tensors as floats.
class Converted {
 public:
  explicit Converted(const GgufBuilder& builder, const GgufToHfOptions& options = {})
      : bytes_(builder.build()),
        file_(std::as_bytes(std::span(bytes_)), "m.gguf"),
        plan(plan_gguf_to_hf(file_, options)),
        config(hf_config(plan.model, "float32")) {}

  std::vector<float> values(const std::string& name) const {
    for (const HfTensor& tensor : plan.tensors) {
      if (tensor.name != name) continue;
      std::vector<float> out(static_cast<std::size_t>(tensor.elements()));
      read_gguf_tensor(file_, tensor, DType::f32, std::as_writable_bytes(std::span(out)), 3);
      return out;
    }
    throw Error("no tensor " + name);
  }
  std::map<std::string, std::vector<std::int64_t>> shapes() const {
    std::map<std::string, std::vector<std::int64_t>> out;
    for (const HfTensor& tensor : plan.tensors) out[tensor.name] = tensor.shape;
    return out;
  }

 private:
  std::string bytes_;
  GgufFile file_;

 public:
  GgufToHf plan;
  Value config;
};

void expect_refused(const GgufBuilder& builder, const std::vector<std::string>& parts) {
  try {
    const Converted converted(builder);
    FAIL() << "accepted; expected '" << parts[0] << "'";
  } catch (const InputError& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("m.gguf")) << text;
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
  }
}

TEST(GgufToHf, WholeLlamaEqualsTransformersImport) {
  const GgufFile file(fixtures + "llama_tiny.gguf");
  const TemporaryFolder folder;
  const GgufToHfOptions options;
  const GgufToHf plan = plan_gguf_to_hf(file, options);
  write_gguf_to_hf(file, plan, folder.path(), options);
  const SafetensorsFile ours(path_join(folder.path(), "model.safetensors")),
      theirs(fixtures + "llama_tiny.safetensors");
  ASSERT_EQ(ours.tensors().size(), theirs.tensors().size());
  for (const TensorInfo& expected : theirs.tensors()) {
    const TensorInfo* found = ours.find(expected.name);
    ASSERT_NE(found, nullptr) << expected.name;
    EXPECT_EQ(found->shape, expected.shape) << expected.name;
    EXPECT_EQ(found->dtype, DType::f32);
    EXPECT_TRUE(std::ranges::equal(ours.bytes(*found), theirs.bytes(expected))) << expected.name;
  }
  const Value config = read_json(path_join(folder.path(), "config.json"));
  EXPECT_EQ(config.at("model_type").as_string(), "llama");
  EXPECT_EQ(config.at("architectures").items()[0].as_string(), "LlamaForCausalLM");
  EXPECT_EQ(config.at("hidden_size").as_int(), 32);
  EXPECT_EQ(config.at("num_hidden_layers").as_int(), 2);
  EXPECT_EQ(config.at("num_attention_heads").as_int(), 4);
  EXPECT_EQ(config.at("num_key_value_heads").as_int(), 2);
  EXPECT_EQ(config.at("head_dim").as_int(), 8);
  EXPECT_EQ(config.at("max_position_embeddings").as_int(), 128);
  EXPECT_EQ(config.at("rms_norm_eps").as_real(), 1e-5);
  EXPECT_EQ(config.at("rope_theta").as_real(), 50000.0);
  EXPECT_TRUE(config.at("rope_scaling").is_null());
  EXPECT_TRUE(config.at("tie_word_embeddings").as_bool());
  EXPECT_EQ(config.at("torch_dtype").as_string(), "float32");
  EXPECT_EQ(config.at("vocab_size").as_int(), 266);
  EXPECT_EQ(config.at("eos_token_id").as_int(), 2);
  EXPECT_EQ(read_json(path_join(folder.path(), "generation_config.json")).at("eos_token_id").as_int(), 2);
}

TEST(GgufToHf, SixteenBitOutputs) {
  const GgufFile file(fixtures + "llama_tiny.gguf");
  const SafetensorsFile wide(fixtures + "llama_tiny.safetensors");
  for (const DType dtype : {DType::f16, DType::bf16}) {
    GgufToHfOptions options;
    options.dtype = dtype;
    const TemporaryFolder folder;
    write_gguf_to_hf(file, plan_gguf_to_hf(file, options), folder.path(), options);
    const SafetensorsFile narrow(path_join(folder.path(), "model.safetensors"));
    for (const TensorInfo& tensor : wide.tensors()) {
      const TensorInfo* found = narrow.find(tensor.name);
      ASSERT_NE(found, nullptr);
      ASSERT_EQ(found->dtype, dtype);
      const auto a = wide.bytes(tensor), b = narrow.bytes(*found);
      ASSERT_EQ(a.size(), 2 * b.size());
      for (std::size_t i = 0; i < b.size() / 2; ++i) {
        float value;
        std::uint16_t bits;
        std::memcpy(&value, a.data() + 4 * i, 4);
        std::memcpy(&bits, b.data() + 2 * i, 2);
        ASSERT_EQ(bits, dtype == DType::f16 ? to_f16(value) : to_bf16(value)) << tensor.name << " " << i;
      }
    }
    EXPECT_EQ(read_json(path_join(folder.path(), "config.json")).at("torch_dtype").as_string(),
              dtype == DType::f16 ? "float16" : "bfloat16");
  }
}

TEST(GgufToHf, Float16ThatOverflowsIsRefused) {
  GgufBuilder b = tiny_llama();
  b.at("blk.1.ffn_up.weight").data.replace(8, 4, little_endian(70000.0f));
  const std::string bytes = b.build();
  const GgufFile file(std::as_bytes(std::span(bytes)), "m.gguf");
  GgufToHfOptions options;
  options.dtype = DType::f16;
  const TemporaryFolder folder;
  EXPECT_THROW(write_gguf_to_hf(file, plan_gguf_to_hf(file, options), folder.path(), options), InputError);
  EXPECT_FALSE(path_exists(path_join(folder.path(), "model.safetensors")));
  options.dtype = DType::bf16;
  write_gguf_to_hf(file, plan_gguf_to_hf(file, options), folder.path(), options);
}

TEST(GgufToHf, OnlyLlamaHasInterleavedHeads) {
  // Row r of GGUF's q starts with 8 r. In each of its two heads of 4 rows, rows 0 2 1 3 are Hugging Face's
  // 0 1 2 3.
  const std::vector<float> expected = {0, 2, 1, 3, 4, 6, 5, 7};
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    const Converted model(tiny_llama(architecture));
    const auto q = model.values("model.layers.1.self_attn.q_proj.weight");
    const auto k = model.values("model.layers.1.self_attn.k_proj.weight");
    for (std::size_t row = 0; row < 8; ++row) {
      const float source = architecture == "llama" ? expected[row] : static_cast<float>(row);
      for (std::size_t c = 0; c < 8; ++c) {
        EXPECT_EQ(q[row * 8 + c], 8 * source + static_cast<float>(c)) << architecture;
        if (row < 4) {
          EXPECT_EQ(k[row * 8 + c], 8 * source + static_cast<float>(c)) << architecture;
        }
      }
    }
    const auto v = model.values("model.layers.0.self_attn.v_proj.weight");
    for (std::size_t i = 0; i < v.size(); ++i) EXPECT_EQ(v[i], static_cast<float>(i));
  }
}

TEST(GgufToHf, BiasesOfLlamaAreInterleavedToo) {
  GgufBuilder b = tiny_llama();
  for (const std::string p : {"blk.0.", "blk.1."}) {
    b.tensor(p + "attn_q.bias", {8}).tensor(p + "attn_k.bias", {4}).tensor(p + "attn_v.bias", {4});
    b.tensor(p + "attn_output.bias", {8});
  }
  const Converted model(b);
  EXPECT_EQ(model.values("model.layers.0.self_attn.q_proj.bias"), (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(model.values("model.layers.0.self_attn.v_proj.bias"), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_TRUE(model.config.at("attention_bias").as_bool());
}

TEST(GgufToHf, Qwen) {
  const Converted qwen2(tiny_llama("qwen2"));
  EXPECT_EQ(qwen2.config.at("architectures").items()[0].as_string(), "Qwen2ForCausalLM");
  EXPECT_TRUE(qwen2.shapes().contains("model.layers.1.self_attn.k_proj.bias"));
  EXPECT_FALSE(qwen2.config.at("use_sliding_window").as_bool());
  const Converted qwen3(tiny_llama("qwen3"));
  EXPECT_EQ(qwen3.config.at("model_type").as_string(), "qwen3");
  EXPECT_EQ(qwen3.shapes().at("model.layers.0.self_attn.q_norm.weight"), std::vector<std::int64_t>{4});
}

TEST(GgufToHf, Gpt2IsTransposed) {
  const Converted model(tiny_gpt2());
  const auto shapes = model.shapes();
  EXPECT_EQ(shapes.at("transformer.h.1.attn.c_attn.weight"), (std::vector<std::int64_t>{8, 24}));
  EXPECT_EQ(shapes.at("transformer.h.1.mlp.c_proj.weight"), (std::vector<std::int64_t>{12, 8}));
  EXPECT_EQ(shapes.at("transformer.wpe.weight"), (std::vector<std::int64_t>{16, 8}));
  EXPECT_FALSE(shapes.contains("lm_head.weight"));
  const auto c_attn = model.values("transformer.h.0.attn.c_attn.weight");  // [in 8, out 24] of [out 24, in 8]
  for (std::size_t in = 0; in < 8; ++in)
    for (std::size_t out = 0; out < 24; ++out) EXPECT_EQ(c_attn[in * 24 + out], static_cast<float>(out * 8 + in));
  EXPECT_EQ(model.config.at("n_embd").as_int(), 8);
  EXPECT_EQ(model.config.at("n_inner").as_int(), 12);
  EXPECT_EQ(model.config.at("n_positions").as_int(), 16);
  EXPECT_TRUE(model.config.at("tie_word_embeddings").as_bool());
}

TEST(GgufToHf, OutputHead) {
  GgufBuilder b = tiny_llama();
  b.tensor("output.weight", {5, 8});
  const Converted own(b);
  EXPECT_FALSE(own.config.at("tie_word_embeddings").as_bool());
  EXPECT_TRUE(own.shapes().contains("lm_head.weight"));
  // Converters write GPT-2's embedding twice; identical bytes become one weight.
  GgufBuilder twice = tiny_gpt2();
  twice.tensor("output.weight", {5, 8});
  EXPECT_TRUE(Converted(twice).plan.model.tied);
  GgufBuilder other = tiny_gpt2();
  other.tensor("output.weight", {5, 8}, 1);
  EXPECT_FALSE(Converted(other).plan.model.tied);
  EXPECT_TRUE(Converted(other).shapes().contains("lm_head.weight"));
}

TEST(GgufToHf, HeadSizeOfItsOwnAndSlidingWindow) {
  GgufBuilder b = tiny_llama();
  b.add("llama.attention.key_length", 8u).add("llama.attention.value_length", 8u);
  for (auto& t : b.tensors) {
    if (t.name.find("attn_q") != std::string::npos) t.sizes = {8, 16}, t.data.resize(4 * 128);
    if (t.name.find("attn_k") != std::string::npos || t.name.find("attn_v") != std::string::npos)
      t.sizes = {8, 8}, t.data.resize(4 * 64);
    if (t.name.find("attn_output") != std::string::npos) t.sizes = {16, 8}, t.data.resize(4 * 128);
  }
  b.add("llama.attention.sliding_window", 4u);
  const Converted model(b);
  EXPECT_EQ(model.config.at("head_dim").as_int(), 8);
  EXPECT_EQ(model.config.at("model_type").as_string(), "mistral");
  EXPECT_EQ(model.config.at("sliding_window").as_int(), 4);
}

TEST(GgufToHf, RopeScaling) {
  GgufBuilder linear = tiny_llama();
  linear.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", 4.0f);
  const Value scaling = Converted(linear).config.at("rope_scaling");
  EXPECT_EQ(scaling.at("rope_type").as_string(), "linear");
  EXPECT_EQ(scaling.at("factor").as_real(), 4);

  GgufBuilder yarn = tiny_llama("qwen2");
  yarn.add("qwen2.rope.scaling.type", "yarn").add("qwen2.rope.scaling.factor", 2.5f);
  yarn.add("qwen2.rope.scaling.original_context_length", 8u);
  const Value of_yarn = Converted(yarn).config.at("rope_scaling");
  EXPECT_EQ(of_yarn.at("rope_type").as_string(), "yarn");
  EXPECT_EQ(of_yarn.at("factor").as_real(), 2.5);
  EXPECT_EQ(of_yarn.at("original_max_position_embeddings").as_int(), 8);
  EXPECT_EQ(of_yarn.find("attention_factor"), nullptr);

  linear.add("llama.rope.scaling.type", "longrope");
  expect_refused(linear, {"'longrope'", "linear, yarn"});
  linear.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", 0.0f);
  expect_refused(linear, {"rope.scaling.factor", "positive"});
  GgufBuilder partial = tiny_llama();
  partial.add("llama.rope.dimension_count", 2u);
  expect_refused(partial, {"rope.dimension_count 2", "head size 4"});
}

/// Llama-3.1's frequency factors for heads of 128, as in transformers' _compute_llama3_parameters.
std::vector<float> llama3_factors(double factor, double context) {
  std::vector<float> out;
  for (int i = 0; i < 128; i += 2) {
    const double frequency = 1 / std::pow(500000.0, i / 128.0), wavelength = 2 * std::numbers::pi / frequency;
    const double smooth = (context / wavelength - 1) / (4 - 1);
    const double scaled = wavelength > context       ? frequency / factor
                          : wavelength < context / 4 ? frequency
                                                     : (1 - smooth) * frequency / factor + smooth * frequency;
    out.push_back(static_cast<float>(frequency / scaled));
  }
  return out;
}

TEST(GgufToHf, Llama3FactorsBecomeSettings) {
  for (const auto& [factor, context] : {std::pair(8.0, 8192), std::pair(32.0, 8192), std::pair(4.0, 1024)}) {
    GgufBuilder b = testing::tiny_settings("llama");
    b.add("llama.attention.key_length", 128u).add("llama.rope.freq_base", 500000.0f).add("llama.block_count", 1u);
    b.tensor("token_embd.weight", {5, 8}).tensor("output_norm.weight", {8});
    const std::string p = "blk.0.";
    b.tensor(p + "attn_norm.weight", {8}).tensor(p + "ffn_norm.weight", {8});
    for (const char* part : {"attn_q", "attn_k", "attn_v"}) b.tensor(p + part + ".weight", {256, 8});
    b.tensor(p + "attn_output.weight", {8, 256});
    b.tensor(p + "ffn_gate.weight", {12, 8})
        .tensor(p + "ffn_up.weight", {12, 8})
        .tensor(p + "ffn_down.weight", {8, 12});
    b.tensor("rope_freqs.weight", {64});
    std::string data;
    for (float f : llama3_factors(factor, context)) data += little_endian(f);
    b.at("rope_freqs.weight").data = data;
    const Value scaling = Converted(b).config.at("rope_scaling");
    EXPECT_EQ(scaling.at("rope_type").as_string(), "llama3");
    EXPECT_EQ(scaling.at("factor").as_real(), factor);
    EXPECT_EQ(scaling.at("original_max_position_embeddings").as_int(), context);
    EXPECT_EQ(scaling.at("low_freq_factor").as_real(), 1);
    EXPECT_EQ(scaling.at("high_freq_factor").as_real(), 4);
    b.at("rope_freqs.weight").data.replace(4 * 30, 4, little_endian(3.0f));
    expect_refused(b, {"rope_freqs.weight", "Llama-3"});
  }
}

TEST(GgufToHf, ExpertsAreCutOutOfTheirStacks) {
  for (const bool mixtral : {true, false}) {
    const std::string arch = mixtral ? "llama" : "qwen3moe";
    GgufBuilder b = tiny_llama(mixtral ? "llama" : "qwen3");
    b.add("general.architecture", arch.c_str());
    if (!mixtral)
      for (const char* key : {"block_count", "embedding_length", "feed_forward_length", "context_length",
                              "attention.head_count", "attention.head_count_kv"})
        b.add("qwen3moe." + std::string(key), key == std::string("block_count")            ? 2u
                                              : key == std::string("embedding_length")     ? 8u
                                              : key == std::string("feed_forward_length")  ? 12u
                                              : key == std::string("context_length")       ? 16u
                                              : key == std::string("attention.head_count") ? 2u
                                                                                           : 1u);
    if (!mixtral)
      b.add("qwen3moe.attention.layer_norm_rms_epsilon", 1e-5f).add("qwen3moe.expert_feed_forward_length", 6u);
    b.add(arch + ".expert_count", 3u).add(arch + ".expert_used_count", 2u);
    const std::int64_t inner = mixtral ? 12 : 6;
    std::erase_if(b.tensors, [](const auto& t) {
      return t.name.find("ffn_gate") != std::string::npos || t.name.find("ffn_up") != std::string::npos ||
             t.name.find("ffn_down") != std::string::npos;
    });
    for (const std::string& p : {std::string("blk.0."), std::string("blk.1.")})
      b.tensor(p + "ffn_gate_inp.weight", {3, 8})
          .tensor(p + "ffn_gate_exps.weight", {3, inner, 8})
          .tensor(p + "ffn_up_exps.weight", {3, inner, 8}, 1000)
          .tensor(p + "ffn_down_exps.weight", {3, 8, inner}, 2000);
    const Converted model(b);
    EXPECT_EQ(model.config.at("model_type").as_string(), mixtral ? "mixtral" : "qwen3_moe");
    EXPECT_EQ(model.config.at(mixtral ? "num_local_experts" : "num_experts").as_int(), 3);
    const std::string experts = concat("model.layers.1.", mixtral ? "block_sparse_moe" : "mlp", ".experts.");
    const auto up = model.values(concat(experts, 2, mixtral ? ".w3.weight" : ".up_proj.weight"));
    const auto down = model.values(concat(experts, 1, mixtral ? ".w2.weight" : ".down_proj.weight"));
    ASSERT_EQ(up.size(), static_cast<std::size_t>(8 * inner));
    for (std::size_t i = 0; i < up.size(); ++i) {
      EXPECT_EQ(up[i], 1000 + static_cast<float>(2 * up.size() + i));
      EXPECT_EQ(down[i], 2000 + static_cast<float>(down.size() + i));
    }
    EXPECT_EQ(model.shapes().at(concat(experts, 0, mixtral ? ".w2.weight" : ".down_proj.weight")),
              (std::vector<std::int64_t>{8, inner}));
    b.at("blk.0.ffn_up_exps.weight").sizes = {8, static_cast<std::uint64_t>(3 * inner), 1};
    expect_refused(b, {"'blk.0.ffn_up_exps.weight' has shape"});
  }
}

TEST(GgufToHf, NormsOfGemmaAreStoredWithOneAdded) {
  GgufBuilder b = tiny_llama();
  b.add("general.architecture", "gemma");
  for (const auto& [key, n] : {std::pair("block_count", 2u),
                               {"embedding_length", 8u},
                               {"feed_forward_length", 12u},
                               {"context_length", 16u},
                               {"attention.head_count", 2u},
                               {"attention.head_count_kv", 1u}})
    b.add(concat("gemma.", key), n);
  b.add("gemma.attention.layer_norm_rms_epsilon", 1e-6f);
  const Converted model(b);
  EXPECT_EQ(model.config.at("architectures").items()[0].as_string(), "GemmaForCausalLM");
  EXPECT_EQ(model.config.at("hidden_act").as_string(), "gelu_pytorch_tanh");
  EXPECT_EQ(model.values("model.norm.weight"), (std::vector<float>{-1, 0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(model.values("model.layers.0.self_attn.q_proj.weight")[8], 8) << "nothing is interleaved";
  b.add("gemma.final_logit_softcapping", 30.0f);
  expect_refused(b, {"'gemma.final_logit_softcapping' is set"});
}

TEST(GgufToHf, EverythingWrongWithTheTensorsAtOnce) {
  GgufBuilder b = tiny_llama();
  b.at("blk.0.attn_q.weight").name = "blk.0.attn_p.weight";
  b.at("blk.1.ffn_down.weight").sizes = {8, 12};
  b.at("output_norm.weight").name = "blk.9.attn_norm.weight";
  auto& quantised = b.at("blk.1.ffn_up.weight");
  quantised.type = 24;  // I8
  expect_refused(b, {"missing tensor 'blk.0.attn_q.weight' [8, 8]", "missing tensor 'output_norm.weight' [8]",
                     "'blk.1.ffn_down.weight' has shape [12, 8], but the metadata requires [8, 12]",
                     "'blk.1.ffn_up.weight' has type I8", "supported are F32, F16", "Q6_K",
                     "unexpected tensor 'blk.0.attn_p.weight'", "did you mean 'blk.0.attn_q.weight'?",
                     "unexpected tensor 'blk.9.attn_norm.weight'", "(6 problems)"});
}

TEST(GgufToHf, SenselessSettings) {
  const auto with = [](auto change) {
    GgufBuilder b = tiny_llama();
    change(b);
    return b;
  };
  using B = GgufBuilder;
  expect_refused(with([](B& b) { b.add("general.architecture", "mamba"); }), {"'mamba'", "llama, qwen2, qwen3, gpt2"});
  expect_refused(with([](B& b) { b.drop("general.architecture"); }), {"general.architecture"});
  expect_refused(with([](B& b) { b.drop("llama.block_count"); }), {"'llama.block_count'"});
  expect_refused(with([](B& b) { b.add("llama.block_count", 0u); }), {"'llama.block_count' is 0"});
  expect_refused(with([](B& b) { b.add("llama.block_count", 2000000000u); }), {"2000000000", "only 20 tensors"});
  expect_refused(with([](B& b) { b.add("llama.block_count", "2"); }), {"'llama.block_count'", "string", "integer"});
  expect_refused(with([](B& b) { b.add("llama.embedding_length", 4000000000u); }), {"4000000000"});
  expect_refused(with([](B& b) { b.add("llama.attention.head_count", 3u); }), {"8", "3"});
  expect_refused(with([](B& b) { b.add("llama.attention.head_count_kv", 3u); }), {"2 attention heads", "3 key"});
  expect_refused(with([](B& b) { b.add("llama.attention.layer_norm_rms_epsilon", -1.0f); }), {"epsilon", "positive"});
  expect_refused(with([](B& b) { b.drop("llama.attention.layer_norm_rms_epsilon"); }), {"layer_norm_rms_epsilon"});
  expect_refused(with([](B& b) { b.add("llama.rope.freq_base", std::nanf("")); }), {"rope.freq_base"});
  expect_refused(with([](B& b) { b.add("llama.expert_count", 8u); }), {"'llama.expert_used_count'"});
  expect_refused(with([](B& b) { b.add("llama.expert_count", 2u).add("llama.expert_used_count", 3u); }),
                 {"expert_used_count is 3, but there are only 2 experts"});
  expect_refused(with([](B& b) { b.raw("split.count", GgufType::u16, little_endian(std::uint16_t{3})); }), {"3 parts"});
  expect_refused(with([](B& b) { b.add("llama.vocab_size", 7u); }), {"vocab_size is 7", "5 rows"});
  expect_refused(with([](B& b) { b.add("tokenizer.ggml.tokens", std::vector<std::string>{"a"}); }),
                 {"1 tokens", "5 rows"});
  expect_refused(with([](B& b) { b.add("tokenizer.ggml.eos_token_id", 5u); }), {"eos_token_id' is 5", "5 tokens"});
  GgufBuilder fine = tiny_llama();
  fine.add("llama.expert_count", 0u).add("llama.rope.dimension_count", 4u);
  EXPECT_EQ(Converted(fine).plan.tensors.size(), 20u);
  GgufBuilder gpt2 = tiny_gpt2();
  gpt2.add("gpt2.attention.head_count_kv", 1u);
  expect_refused(gpt2, {"as many key heads"});
}

}  // namespace
}  // namespace tessera::format
