#pragma once
/// \file
/// Small versions of our families, with the same values on every rank, and their training in one process with the whole
/// batch, which any mesh must reproduce.

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/models/registry.h>
#include <tessera/nn/autocast.h>
#include <tessera/optim/norm.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tests/distributed/harness.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tessera::testing {

constexpr std::int64_t vocabulary = 37, batch_rows = 4, batch_tokens = 8;  ///< vocabulary: a prime

struct Family {
  std::string name, block, config;  ///< the block's class; config.json
};
inline const std::vector<Family>& families() {
  static const std::string sizes =
      R"("hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "num_hidden_layers": 2,
         "vocab_size": 37, "max_position_embeddings": 16)";
  static const std::string llama = sizes + R"(, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-6,
         "tie_word_embeddings": )";
  static const std::vector<Family> all = {
      {"gpt2", "Gpt2Block",
       R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 37, "n_positions": 16})"},
      {"llama_tied", "LlamaDecoderLayer", R"({"model_type": "llama", )" + llama + "true}"},
      {"llama_untied", "LlamaDecoderLayer", R"({"model_type": "llama", )" + llama + "false}"},
      {"llama_mtp", "LlamaDecoderLayer", R"({"model_type": "llama", "mtp_num_layers": 2, )" + llama + "false}"},
      {"llama_mtp_tied", "LlamaDecoderLayer", R"({"model_type": "llama", "mtp_num_layers": 1, )" + llama + "true}"},
      {"qwen3", "LlamaDecoderLayer", R"({"model_type": "qwen3", )" + llama + "true}"},
      {"gemma2", "LlamaDecoderLayer",
       R"({"model_type": "gemma2", "initializer_range": 0.2, "sliding_window": 3,
           "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0,
           "query_pre_attn_scalar": 5, )" +
           llama + "true}"},
      {"gemma3", "LlamaDecoderLayer",
       R"({"model_type": "gemma3_text", "initializer_range": 0.2, "sliding_window": 3, "sliding_window_pattern": 2,
           "rope_local_base_freq": 50,
           "query_pre_attn_scalar": 5, )" +
           llama + "true}"},
      {"phi3",
       "LlamaDecoderLayer",  // heads of 4, half of each rotated: twice as many key heads, so that 4 ranks divide them
       R"({"model_type": "phi3", "hidden_size": 32, "num_attention_heads": 8, "num_key_value_heads": 4,
           "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 37, "max_position_embeddings": 16,
           "partial_rotary_factor": 0.5, "sliding_window": 5})"},
      {"olmo", "LlamaDecoderLayer",
       R"({"model_type": "olmo", "clip_qkv": 0.05, )" + sizes + "}"},  // norms without weights
      {"cohere2", "LlamaDecoderLayer",  // attention and MLP in parallel, one layer without rotation
       R"({"model_type": "cohere2", "sliding_window": 3, "sliding_window_pattern": 2, "num_key_value_heads": 2, )" +
           sizes + "}"},
      {"nemotron", "LlamaDecoderLayer",  // an MLP without a gate, biases
       R"({"model_type": "nemotron", "attention_bias": true, "mlp_bias": true, )" + sizes + "}"},
      {"helium", "LlamaDecoderLayer",  // rotation of adjacent pairs, biases of q, k and v only
       R"({"model_type": "helium", "attention_bias": true, )" + llama + "false}"},
      {"ernie4_5", "LlamaDecoderLayer",  // one switch for all biases
       R"({"model_type": "ernie4_5", "use_bias": true, )" + llama + "true}"},
      {"gpt_neox", "LlamaDecoderLayer", R"({"model_type": "gpt_neox", )" + sizes + "}"},
      {"phi", "LlamaDecoderLayer", R"({"model_type": "phi", "qk_layernorm": true, )" + sizes + "}"},  // a head's bias
      {"opt", "LlamaDecoderLayer", R"({"model_type": "opt", "ffn_dim": 48, )" + sizes + "}"},  // learned positions
      {"bert", "BertLayer", R"({"model_type": "bert", "architectures": ["BertForMaskedLM"], )" + sizes + "}"},
  };
  return all;
}
inline const Family& family(const std::string& name) {
  for (const Family& each : families())
    if (each.name == name) return each;
  throw Error("no family " + name);
}

/// Dropout wherever the family supports it; 0: none.
inline std::shared_ptr<models::LanguageModel> make(const Family& family, at::ScalarType dtype, double dropout = 0) {
  Value config = parse_json(family.config, family.name);
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "hidden_dropout_prob",
                          "hidden_dropout", "attention_probs_dropout_prob"})
    config.set(key, Value::of(dropout));
  auto model = models::build(config, 11);
  model->to(dtype);
  return model;
}

/// Rows [first, first + rows) of a step's batch.
inline data::Batch batch_of(const models::LanguageModel& model, int step, std::int64_t first, std::int64_t rows,
                            bool documents = false) {
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(900 + static_cast<std::uint64_t>(step));
  const at::Tensor all = at::randint(0, vocabulary, {batch_rows, batch_tokens}, generator, at::kLong);
  data::Batch batch;
  batch.random_key = static_cast<std::uint64_t>(step);
  batch.first_row = first;
  batch.ids = all.narrow(0, first, rows).contiguous();
  batch.labels = batch.ids.clone();
  if (model.objective() == data::Objective::Kind::masked_token) {
    batch.labels.fill_(-100);
    batch.labels.select(1, 2).copy_(batch.ids.select(1, 2));
    batch.labels.select(1, 5).copy_(batch.ids.select(1, 5));
  } else {
    batch.labels.select(1, 3).fill_(-100);  // not scored
  }
  batch.lengths.assign(static_cast<std::size_t>(rows), batch_tokens);
  if (documents)
    for (std::int64_t r = 0; r < rows; ++r)
      for (const std::int64_t start : {std::int64_t{0}, std::int64_t{5}})
        batch.document_starts.push_back(r * batch_tokens + start);
  return batch;
}
inline std::int64_t scored(const data::Batch& batch, const models::LanguageModel& model) {
  const bool next = model.objective() == data::Objective::Kind::next_token;
  return (next ? batch.labels.narrow(1, 1, batch_tokens - 1) : batch.labels).ne(-100).sum().item<std::int64_t>();
}

struct Run {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> gradients;  ///< gradients of the first step
  std::map<std::string, at::Tensor> weights;    ///< after the last step
};
struct Training {
  int steps = 10;
  at::ScalarType dtype = at::kFloat;
  bool bf16 = false, documents = false;
  int accumulation = 1;
  double dropout = 0;
};
constexpr double rate = 0.1;

/// One process, plain SGD.
inline Run train_alone(const Family& family, const Training& training) {
  const auto model = make(family, training.dtype, training.dropout);
  Run run;
  for (int step = 0; step < training.steps; ++step) {
    model->zero_grad();
    const data::Batch batch = batch_of(*model, step, 0, batch_rows, training.documents);
    at::Tensor loss;
    {
      const nn::Autocast precision(training.bf16 ? std::optional(at::kBFloat16) : std::nullopt, at::kCPU);
      loss = model->loss(batch, 1.0 / static_cast<double>(scored(batch, *model)));
    }
    loss.backward();
    run.losses.push_back(loss.item<double>());
    std::vector<at::Tensor> gradients;
    for (const auto& p : model->named_parameters()) {
      gradients.push_back(p.value().grad());
      if (step == 0) run.gradients[p.key()] = p.value().grad().clone();
    }
    run.norms.push_back(optim::gradient_norm(gradients));
    const at::NoGradGuard no_grad;
    for (const at::Tensor& p : model->parameters()) at::Tensor(p).sub_(p.grad(), rate);
  }
  for (const auto& p : model->named_parameters()) run.weights[p.key()] = p.value().detach().clone();
  return run;
}

struct Form {
  std::string mesh;      ///< axes of all ranks
  std::string strategy;  ///< over dp
  bool sequence_parallel = false;
};

/// The same training on the ranks of a mesh.
inline Run train_on_mesh(comm::World& world, const Family& family, const Form& form, const Training& training) {
  using layout::Axis;
  const layout::Mesh mesh = layout::parse_mesh(form.mesh, world.size());
  const comm::Group tensor = comm::mesh_group(world, mesh, std::vector{Axis::tp});
  const comm::Group data = comm::mesh_group(world, mesh, std::vector{Axis::dp_replicate, Axis::dp_shard});
  const auto model = make(family, training.dtype, training.dropout);
  TensorParallel parts(*model,
                       {.group = tensor, .plan = model->tensor_plan(), .sequence_parallel = form.sequence_parallel});
  Sharded sharded(*model, {.strategy = form.strategy,
                           .group = data,
                           .shard_group_size = form.strategy.starts_with("hybrid") ? mesh.size(Axis::dp_shard) : 0,
                           .wrap = by_class({family.block})});
  std::map<std::string, at::Tensor> own;
  for (const auto& p : model->named_parameters()) own[p.key()] = p.value();
  Run run;
  const std::int64_t rows = batch_rows / data.size() / training.accumulation;
  for (int step = 0; step < training.steps; ++step) {
    sharded.zero_grad();
    double mean = 0;
    for (int m = 0; m < training.accumulation; ++m) {
      std::optional<Sharded::NoSync> pause;
      if (m + 1 < training.accumulation) pause.emplace(sharded);
      const data::Batch batch =
          batch_of(*model, step, (data.rank() * training.accumulation + m) * rows, rows, training.documents);
      at::Tensor loss;
      {
        const nn::Autocast precision(training.bf16 ? std::optional(at::kBFloat16) : std::nullopt, at::kCPU);
        loss = model->loss(batch, 1.0 / static_cast<double>(scored(batch, *model) * training.accumulation));
      }
      loss.backward();
      mean += loss.item<double>();
    }
    at::Tensor shared = at::full({1}, mean / data.size(), at::kDouble);
    data.all_reduce(shared).wait();
    run.losses.push_back(shared.item<double>());
    run.norms.push_back(sharded.grad_norm());
    if (step == 0)
      for (const ShardedParameter& p : sharded.named_parameters()) {
        const at::Tensor part = sharded.gather_like(p, p.local.grad()).view(p.shape);
        run.gradients[p.name] = gather_tensor_parts(own.at(p.name), part);
      }
    const at::NoGradGuard no_grad;
    for (const at::Tensor& p : sharded.parameters()) at::Tensor(p).sub_(p.grad(), rate);
  }
  sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) {
    run.weights[name] = gather_tensor_parts(own.at(name), value).clone();
  });
  sharded.check_replicas();
  return run;
}

inline double relative(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return (x - y).norm().item<double>() / std::max(1e-30, y.norm().item<double>());
}

/// `of`: relative tolerance, per tensor for gradients and weights, per number for losses and norms.
inline void expect_same(const Run& got, const Run& wanted, double of, const std::string& what) {
  ASSERT_EQ(got.losses.size(), wanted.losses.size());
  for (std::size_t i = 0; i < got.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i] / wanted.losses[i], 1, of) << what << ": loss of step " << i;
    EXPECT_NEAR(got.norms[i] / wanted.norms[i], 1, of) << what << ": norm of step " << i;
  }
  ASSERT_EQ(got.gradients.size(), wanted.gradients.size()) << what;
  for (const auto& [name, gradient] : wanted.gradients) {
    ASSERT_TRUE(got.gradients.contains(name)) << what << ": " << name;
    ASSERT_EQ(got.gradients.at(name).sizes(), gradient.sizes()) << what << ": " << name;
    const double scale = std::max(gradient.to(at::kDouble).norm().item<double>(), 1e-3 * wanted.norms[0]);
    const double apart = (got.gradients.at(name).to(at::kDouble) - gradient.to(at::kDouble)).norm().item<double>();
    EXPECT_LE(apart / scale, of) << what << ": gradient of " << name;
  }
  for (const auto& [name, value] : wanted.weights) {
    // Without rotation its true gradient is zero; only rounding noise remains.
    if (name.ends_with("key.bias") || (what.starts_with("opt") && name.ends_with("k_proj.bias"))) continue;
    // Gemma's norms multiply by 1 + weight, with weights that start at 0, so compare the factors.
    const double one = what.starts_with("gemma") && name.ends_with("norm.weight") ? 1 : 0;
    EXPECT_LE(relative(got.weights.at(name) + one, value + one), of) << what << ": " << name;
  }
}

}  // namespace tessera::testing
