// Multi-token prediction: the formula, which labels count, what is refused, and the contents of a folder.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/models/decoders/prediction.h>
#include <tessera/models/llama.h>
#include <tessera/models/load.h>
#include <tessera/models/lora.h>
#include <tessera/models/overrides.h>
#include <tessera/models/registry.h>
#include <tests/error_of.h>
#include <tests/paths.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using tessera::testing::error_of;

constexpr std::int64_t hidden = 16, heads = 2, size = 8, vocabulary = 21;

Value config(const std::string& more) {
  return parse_json(concat(R"({"model_type": "llama", "hidden_size": 16, "num_attention_heads": 2,
      "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "num_hidden_layers": 1, "vocab_size": 21,
      "max_position_embeddings": 32, "rms_norm_eps": 1e-6, "initializer_range": 0.3, "rope_theta": 100.0,
      "tie_word_embeddings": false)",
                           more, "}"),
                    "config.json");
}

std::shared_ptr<models::Llama> make(const std::string& more) {
  const Value json = config(more);
  auto model = std::dynamic_pointer_cast<models::Llama>(models::build(json, 5));
  model->to(at::kDouble);
  model->train();
  return model;
}

/// Two rows of 12: documents of 7, 5, 1, 2 and 9 tokens; some labels are not scored.
data::Batch batch_of() {
  at::manual_seed(3);
  data::Batch batch;
  batch.ids = at::randint(0, vocabulary, {2, 12}, at::kLong);
  batch.labels = batch.ids.clone();
  batch.document_starts = {0, 7, 12, 13, 15};
  for (const std::int64_t start : batch.document_starts) batch.labels.flatten()[start] = -100;
  batch.labels[0][4] = batch.labels[1][9] = -100;
  return batch;
}

/// The reference: one document at a time, in plain operations with autograd.
class Reference {
 public:
  explicit Reference(const models::Llama& model) {
    for (const auto& item : model.named_parameters())
      weights.emplace(item.key(), item.value().detach().clone().set_requires_grad(true));
  }

  /// The sums of the cross-entropies of the model and of each depth.
  std::vector<at::Tensor> losses(const data::Batch& batch, std::int64_t depths) {
    std::vector<at::Tensor> sums(static_cast<std::size_t>(depths + 1), at::zeros({}, at::kDouble));
    const at::Tensor ids = batch.ids.flatten(), labels = batch.labels.flatten();
    for (std::size_t d = 0; d < batch.document_starts.size(); ++d) {
      const std::int64_t begin = batch.document_starts[d];
      const std::int64_t end = d + 1 < batch.document_starts.size() ? batch.document_starts[d + 1] : ids.numel();
      const std::int64_t length = end - begin;
      const at::Tensor own = at::embedding(at("model.embed_tokens.weight"), ids.slice(0, begin, end));
      at::Tensor h = norm(block(own, "model.layers.0"), "model.norm");
      for (std::int64_t k = 0; k <= depths; ++k) {
        if (k > 0 && length > k) {  // positions with a token k ahead
          const std::string layer = concat("model.layers.", k);
          const at::Tensor both =
              at::cat({norm(own.slice(0, k), layer + ".enorm"), norm(h.slice(0, 0, length - k), layer + ".hnorm")}, -1);
          h = norm(block(linear(both, layer + ".eh_proj"), layer), layer + ".shared_head.norm");
        }
        for (std::int64_t t = 0; t + k + 1 < length; ++t) {
          const auto label = labels[begin + t + k + 1].item<std::int64_t>();
          if (label != -100)
            sums[static_cast<std::size_t>(k)] =
                sums[static_cast<std::size_t>(k)] - linear(h[t], "lm_head").log_softmax(-1)[label];
        }
      }
    }
    return sums;
  }

  std::map<std::string, at::Tensor> weights;

 private:
  const at::Tensor& at(const std::string& name) const { return weights.at(name); }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, at(name + ".weight").t());
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return x * (x.square().mean(-1, true) + 1e-6).rsqrt() * at(name + ".weight");
  }
  static at::Tensor rotated(const at::Tensor& x) {  // [T, H, D]
    const at::Tensor frequencies = at::pow(100.0, at::arange(0, size, 2, at::kDouble) / -static_cast<double>(size));
    const at::Tensor angles = at::outer(at::arange(x.size(0), at::kDouble), frequencies).unsqueeze(1);
    const at::Tensor a = x.slice(-1, 0, size / 2), b = x.slice(-1, size / 2);
    return at::cat({a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()}, -1);
  }
  at::Tensor block(const at::Tensor& x, const std::string& name) const {
    const at::Tensor y = norm(x, name + ".input_layernorm");
    const auto split = [&](const char* matrix) {
      return linear(y, concat(name, ".self_attn.", matrix)).view({-1, heads, size});
    };
    const at::Tensor q = rotated(split("q_proj")).transpose(0, 1), k = rotated(split("k_proj")).transpose(0, 1);
    const at::Tensor mask = at::ones({x.size(0), x.size(0)}, at::kBool).triu(1);
    const at::Tensor scores = (at::matmul(q, k.transpose(1, 2)) / std::sqrt(8.0)).masked_fill(mask, -1e30);
    const at::Tensor mixed = at::matmul(scores.softmax(-1), split("v_proj").transpose(0, 1));
    const at::Tensor sum = x + linear(mixed.transpose(0, 1).reshape({-1, hidden}), name + ".self_attn.o_proj");
    const at::Tensor z = norm(sum, name + ".post_attention_layernorm");
    return sum + linear(at::silu(linear(z, name + ".mlp.gate_proj")) * linear(z, name + ".mlp.up_proj"),
                        name + ".mlp.down_proj");
  }
};

void expect_gradients(const models::Llama& model, const Reference& reference, const std::string& what = "") {
  for (const auto& item : model.named_parameters()) {
    const at::Tensor wanted = reference.weights.at(item.key()).grad();
    ASSERT_TRUE(item.value().grad().defined()) << what << item.key();
    // Rotation tables are fp32 here.
    EXPECT_LE((item.value().grad() - wanted).norm().item<double>(), 1e-5 * wanted.norm().item<double>() + 1e-9)
        << what << item.key();
  }
}

TEST(Prediction, LossAndGradientsAreThoseOfTheFormula) {
  const auto model = make(R"(, "mtp_num_layers": 2)");
  ASSERT_EQ(model->prediction_depths(), 2);
  const data::Batch batch = batch_of();
  const double scale = 1.0 / 17;
  for (const double weight : {0.1, 0.7}) {
    model->set_prediction_weight(weight);
    model->zero_grad();
    const at::Tensor loss = model->loss(batch, scale);
    (loss * 3).backward();  // as gradient accumulation scales the loss
    const std::vector<at::Tensor> told = model->take_prediction_losses();
    Reference reference(*model);
    const std::vector<at::Tensor> sums = reference.losses(batch, 2);
    EXPECT_NEAR(loss.item<double>(), sums[0].item<double>() * scale, 1e-6) << "the value is the main loss";
    ((sums[0] + (sums[1] + sums[2]) * (weight / 2)) * (3 * scale)).backward();
    expect_gradients(*model, reference, concat(weight, ": "));
    ASSERT_EQ(told.size(), 2U);
    for (std::size_t k = 0; k < 2; ++k)
      EXPECT_NEAR(told[k].item<double>(), sums[k + 1].item<double>() * scale, 1e-6) << k;
    EXPECT_FALSE(told[0].requires_grad());
    EXPECT_TRUE(model->take_prediction_losses().empty());
  }
}

TEST(Prediction, WithoutWeightAndInEvaluationThereAreNoDepths) {
  const auto model = make(R"(, "mtp_num_layers": 1)");
  const data::Batch batch = batch_of();
  model->set_prediction_weight(0);
  model->loss(batch, 1).backward();
  for (const auto& item : model->named_parameters())
    EXPECT_EQ(item.value().grad().defined(), !item.key().starts_with("model.layers.1.")) << item.key();
  EXPECT_TRUE(model->take_prediction_losses().empty());
  const double without = model->loss(batch, 1).item<double>(), flops = model->flops_per_token(12);
  model->set_prediction_weight(0.1);
  EXPECT_EQ(model->loss(batch, 1).item<double>(), without);
  EXPECT_EQ(model->take_prediction_losses().size(), 1U);
  EXPECT_GT(model->flops_per_token(12), 1.5 * flops) << "a block more of two, and a head more";
  model->eval();
  EXPECT_EQ(model->loss(batch, 1).item<double>(), without);
  EXPECT_TRUE(model->take_prediction_losses().empty());
}

TEST(Prediction, LabelsEndWithTheirDocument) {
  data::Batch batch;
  batch.ids = at::arange(10, 18, at::kLong).view({1, 8});
  batch.labels = batch.ids.clone();
  batch.labels[0][0] = batch.labels[0][6] = -100;
  const auto numbers = [](const at::Tensor& x) {
    const at::Tensor flat = x.contiguous().flatten();
    return std::vector<std::int64_t>(flat.const_data_ptr<std::int64_t>(),
                                     flat.const_data_ptr<std::int64_t>() + flat.numel());
  };
  using Numbers = std::vector<std::int64_t>;
  models::Predictions one = models::further_tokens(batch, 2);
  EXPECT_EQ(numbers(one.depths[0].ids), (Numbers{11, 12, 13, 14, 15, 16, 17, 0}));
  EXPECT_EQ(numbers(one.depths[0].labels), (Numbers{12, 13, 14, 15, -100, 17, -100, -100}));
  EXPECT_EQ(numbers(one.depths[1].labels), (Numbers{13, 14, 15, -100, 17, -100, -100, -100}));
  batch.document_starts = {0, 3};
  one = models::further_tokens(batch, 9);  // rows may have fewer tokens than there are depths
  EXPECT_EQ(numbers(one.depths[0].labels), (Numbers{12, -100, -100, 15, -100, 17, -100, -100}));
  EXPECT_EQ(numbers(one.depths[8].labels), Numbers(8, -100));
}

TEST(Prediction, DepthsAreComputedAgainAsBlocksAre) {
  const auto model = make(R"(, "mtp_num_layers": 1)");
  const data::Batch batch = batch_of();
  model->loss(batch, 0.1).backward();
  std::map<std::string, at::Tensor> wanted;
  for (const auto& item : model->named_parameters()) wanted[item.key()] = item.value().grad().clone();
  model->zero_grad();
  parallel::CheckpointPlan plan;
  plan.names = "model.layers.1";  // throws if it matches nothing
  models::checkpoint_blocks(*model, plan);
  model->loss(batch, 0.1).backward();
  for (const auto& item : model->named_parameters())
    EXPECT_TRUE(at::equal(item.value().grad(), wanted.at(item.key()))) << item.key();
}

TEST(Prediction, AFolderKeepsTheDepths) {
  const std::string names = "enorm hnorm eh_proj shared_head.norm input_layernorm";
  for (const char* type : {"llama", "deepseek_v3"}) {
    Value json = config(R"(, "mtp_num_layers": 1)");
    if (std::string_view(type) == "deepseek_v3") {
      json = read_json(tessera::testing::source_path("tests/fixtures/llama/deepseek_v3/config.json"));
      json.set("mtp_num_layers", Value::of(1));
    }
    const auto model = models::build(json, 4);
    const std::int64_t layers = model->shape().blocks;
    checkpoint::NamedTensors weights;
    for (const auto& item : model->named_parameters()) weights.emplace_back(item.key(), item.value().detach());
    for (const std::string& name : split(names, ' '))
      EXPECT_TRUE(model->named_parameters().contains(concat("model.layers.", layers, ".", name, ".weight"))) << name;
    // DeepSeek's own folders additionally contain copies of the embedding and the head.
    for (const char* copy : {"embed_tokens", "shared_head.head"})
      weights.emplace_back(concat("model.layers.", layers, ".", copy, ".weight"),
                           model->named_parameters()["model.embed_tokens.weight"].detach().clone());
    const TemporaryFolder out;
    checkpoint::write_hf_folder(out.path(), weights, model->hf_config(), nullptr);
    EXPECT_EQ(read_json(out.path() + "/config.json").at("num_nextn_predict_layers").as_int(), 1);
    const auto again = models::load_language_folder(out.path());
    EXPECT_EQ(again->prediction_depths(), 1);
    for (const auto& item : again->named_parameters())
      EXPECT_TRUE(at::equal(item.value(), model->named_parameters()[item.key()])) << item.key();
    // Without mtp_num_layers the weights are skipped for types where transformers skips them, and are unexpected for
    // others.
    const auto without = [](Value edited) {
      edited.set("mtp_num_layers", Value::of(0));
      return edited;
    };
    if (std::string_view(type) == "llama") {
      EXPECT_NE(error_of([&] { models::load_language_folder(out.path(), 0, without); }).find("unexpected tensor"),
                std::string::npos);
      continue;
    }
    ::testing::internal::CaptureStderr();
    const auto plain = models::load_language_folder(out.path(), 0, without);
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("set \"mtp_num_layers\": 1"), std::string::npos);
    EXPECT_FALSE(plain->named_parameters().contains(concat("model.layers.", layers, ".eh_proj.weight")));
  }
}

TEST(Prediction, ExpertsOfDepthsAreSharedOutAndCounted) {
  Value json = read_json(tessera::testing::source_path("tests/fixtures/llama/deepseek_v3/config.json"));
  json.set("mtp_num_layers", Value::of(1));
  const auto model = std::dynamic_pointer_cast<models::Llama>(models::build(json, 4));
  const std::int64_t layers = model->shape().blocks;
  model->train();
  const at::Tensor ids = at::randint(0, model->vocab_size(), {2, 9}, at::kLong);
  model->loss(ids, ids, 0.1).backward();
  EXPECT_TRUE(model->take_router_statistics().load.contains(layers));
  const std::string expert = concat("model.layers.", layers, ".mlp.experts.3.up_proj.weight");
  EXPECT_TRUE(model->named_parameters()[expert].grad().defined());
  EXPECT_EQ(model->expert_of(expert), 3);
  model->keep_experts(0, 2);
  EXPECT_TRUE(model->lies_elsewhere(expert));
}

// The depths belong to the last stage, which has its own embeddings for their input tokens.
TEST(Prediction, TheLastStageHasTheDepthsAndReadsTheEmbeddings) {
  const layout::StagePart begin{.embeddings = true, .end = false, .first_block = 0, .blocks = 1},
      end{.embeddings = false, .end = true, .first_block = 1, .blocks = 0};
  const std::string depths = R"(, "mtp_num_layers": 2)", table = "model.embed_tokens.weight";
  const auto whole = make(depths), first = make(depths), last = make(depths);
  for (const auto& model : {whole, first, last}) model->set_prediction_weight(0.7);
  EXPECT_EQ(last->tied_parameter(), table);
  first->keep_stages({begin});
  last->keep_stages({end});
  for (const auto& item : whole->named_parameters()) {
    const bool of_depth = item.key().starts_with("model.layers.1.") || item.key().starts_with("model.layers.2.");
    const bool of_block = item.key().starts_with("model.layers.0.");
    EXPECT_EQ(first->named_parameters().contains(item.key()), of_block || item.key() == table) << item.key();
    EXPECT_EQ(last->named_parameters().contains(item.key()), !of_block) << item.key() << (of_depth ? ", a depth" : "");
  }
  const data::Batch batch = batch_of();
  const at::Tensor loss = whole->loss(batch, 0.1);
  loss.backward();
  const at::Tensor sent = first->run_stage(batch, begin, {}, 0.1), cut = sent.detach().set_requires_grad(true);
  const at::Tensor same = last->run_stage(batch, end, cut, 0.1);
  same.backward();
  sent.backward(cut.grad());
  EXPECT_EQ(same.item<double>(), loss.item<double>());
  const auto wanted = whole->take_prediction_losses(), told = last->take_prediction_losses();
  ASSERT_EQ(told.size(), 2U);
  for (std::size_t k = 0; k < 2; ++k) EXPECT_TRUE(at::equal(told[k], wanted[k])) << k;
  EXPECT_TRUE(first->take_prediction_losses().empty());
  for (const auto& item : whole->named_parameters()) {
    at::Tensor gradient = at::zeros_like(item.value());
    for (const auto& stage : {first, last}) {
      const auto parameters = stage->named_parameters();
      const at::Tensor* const own = parameters.find(item.key());
      if (own == nullptr) continue;
      EXPECT_GT(own->grad().abs().sum().item<double>(), 0) << item.key();
      gradient += own->grad();
    }
    EXPECT_LE((gradient - item.value().grad()).norm().item<double>(), 1e-12 * item.value().grad().norm().item<double>())
        << item.key();
  }
  last->eval();
  EXPECT_EQ(last->run_stage(batch, end, cut, 0.1).item<double>(), loss.item<double>());
  EXPECT_TRUE(last->take_prediction_losses().empty());
  // Depths that are not computed read no embeddings.
  const auto idle = make(depths);
  idle->set_prediction_weight(0);
  EXPECT_EQ(idle->tied_parameter(), "");
  idle->keep_stages({end});
  EXPECT_FALSE(idle->named_parameters().contains(table));
  EXPECT_TRUE(idle->named_parameters().contains("model.layers.2.eh_proj.weight"));
  EXPECT_EQ(idle->run_stage(batch, end, cut, 0.1).item<double>(), loss.item<double>());
}

TEST(Prediction, AdaptersStandInDepthsToo) {
  const auto model = make(R"(, "mtp_num_layers": 1)");
  checkpoint::LoraConfig lora;
  lora.target_modules = {"q_proj", "eh_proj"};
  models::apply_lora(*model, lora, 3);
  model->to(at::kDouble);
  const data::Batch batch = batch_of();
  model->loss(batch, 1).backward();
  for (const char* name : {"model.layers.1.self_attn.q_proj", "model.layers.1.eh_proj"})
    EXPECT_GT(model->named_parameters()[concat(name, ".lora_B.weight")].grad().abs().sum().item<double>(), 0) << name;
}

TEST(Prediction, WhatDoesNotGoIsRefused) {
  const auto refused = [](const std::string& text, const std::string& part) {
    const Value json = parse_json(text, "config.json");
    const TemporaryFolder out;
    make_folders(out.path());
    write_file_atomically(out.path() + "/config.json", text);
    ModelConfig config;
    config.config_name = out.path() + "/config.json";
    EXPECT_NE(error_of([&] { models::load_language_model(config, 0); }).find(part), std::string::npos)
        << error_of([&] { models::load_language_model(config, 0); });
  };
  refused(R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 1, "vocab_size": 9, "n_positions": 8,
              "mtp_num_layers": 1})",
          "a model of type \"gpt2\" has no multi-token prediction; supported types: llama");
  refused(R"({"model_type": "megatron_gpt", "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24,
              "num_hidden_layers": 1, "vocab_size": 21, "max_position_embeddings": 32, "mtp_num_layers": 1})",
          "use position_embedding_type rope");
  refused(dump_json(config(R"(, "mtp_num_layers": -1)"), -1), "it must be in [0, 16]");
  const auto model = make(R"(, "mtp_num_layers": 1)");
  data::Batch batch = batch_of();
  batch.part = std::make_shared<data::SequencePart>();
  EXPECT_NE(error_of([&] { model->loss(batch, 1); }).find("use --cp_size 1"), std::string::npos);
  EXPECT_EQ(error_of([] { models::with_overrides(models::preset("llama-tiny"), "mtp_num_layers=1"); }), "");
  EXPECT_NE(error_of([] { models::with_overrides(models::preset("gpt2"), "mtp_num_layers=1"); }).find("gpt2"),
            std::string::npos);
}

}  // namespace
