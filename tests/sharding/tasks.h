#pragma once
/// \file
/// The tasks of the sharding tests: small unmodified modules with a loss that every rank can compute for any part of a
/// step's batch, and the plain loop in one process that serves as the reference (docs/strategies.md).

#include <examples/user_module.h>
#include <tests/distributed/ddp_models.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/optim/optimizer.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace tessera::testing {

constexpr std::int64_t task_rows = 36;  ///< rows of a global batch: divisible by 1, 2, 3, 4, 6, 9, 12

/// A module and its mean loss on part i of n equal parts of a step's global batch.
struct Trained {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(int step, std::int64_t i, std::int64_t n)> loss;
};

struct Task {
  const char* name;
  Trained (*make)(at::ScalarType dtype);  ///< same values on every call
  std::vector<std::string> units;         ///< class names
  bool has_fp64 = true;                   ///< tessera's own models compute in fp32
};

/// An input that no step uses: [4, 12].
inline at::Tensor probe() { return global_batch(99, 4).x; }

/// For modules x [B, 12] -> [B, 5].
template <class M>
Trained make_vectors(at::ScalarType dtype) {
  at::manual_seed(7);
  auto model = std::make_shared<M>();
  model->to(dtype);
  return {model, [model, dtype](int step, std::int64_t i, std::int64_t n) {
            return mean_loss(*model, part(global_batch(step, task_rows, dtype), i, n));
          }};
}

constexpr std::int64_t vocabulary = 29, sequence = 6;

/// int64 [rows / n, 6].
inline at::Tensor task_ids(int step, std::int64_t i, std::int64_t n) {
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(500 + static_cast<std::uint64_t>(step));
  const at::Tensor all = at::randint(0, vocabulary, {task_rows, sequence}, generator, at::kLong);
  return all.narrow(0, i * (task_rows / n), task_rows / n);
}

inline Trained make_gpt(at::ScalarType dtype) {
  at::manual_seed(7);
  MyTransformer net(MyConfig{.vocabulary = vocabulary, .width = 16, .heads = 2, .layers = 3, .longest = sequence});
  net->to(dtype);
  return {net.ptr(), [model = net.ptr().get()](int step, std::int64_t i, std::int64_t n) {
            const at::Tensor ids = task_ids(step, i, n);
            const at::Tensor logits = model->forward(ids.narrow(1, 0, sequence - 1));
            return at::cross_entropy_loss(logits.reshape({-1, vocabulary}),
                                          ids.narrow(1, 1, sequence - 1).reshape({-1}));
          }};
}

/// Freezes the embeddings, the first block and the second block's attention: whole units, and a part of one.
inline Trained make_frozen(at::ScalarType dtype) {
  Trained made = make_gpt(dtype);
  for (const auto& p : made.module->named_parameters()) {
    const std::string& name = p.key();
    if (name.starts_with("token") || name.starts_with("place") || name.starts_with("blocks.0.") ||
        name.starts_with("blocks.1.attention"))
      at::Tensor(p.value()).requires_grad_(false);
  }
  return made;
}

inline Trained make_causal_lm(const std::string& preset, const std::string& overrides) {
  const auto model = models::make_model(models::with_overrides(models::preset(preset), overrides), 7);
  return {model, [model = model.get()](int step, std::int64_t i, std::int64_t n) {
            const at::Tensor ids = task_ids(step, i, n);
            return model->loss(ids, ids, 1.0 / static_cast<double>(ids.size(0) * (sequence - 1)));
          }};
}
inline Trained make_gpt2(at::ScalarType) {
  return make_causal_lm("gpt2-tiny", "n_layer=2,n_embd=16,n_head=2,vocab_size=29,n_positions=8");
}
inline Trained make_llama(bool tied) {
  return make_causal_lm(
      "llama-tiny",
      std::string("num_hidden_layers=2,hidden_size=16,num_attention_heads=2,num_key_value_heads=1,"
                  "head_dim=8,intermediate_size=24,vocab_size=29,max_position_embeddings=8,tie_word_embeddings=") +
          (tied ? "true" : "false"));
}

inline const std::vector<Task>& tasks() {
  static const std::vector<Task> all = {
      {"mlp", make_vectors<SimpleModel>, {"Linear"}},
      {"gpt", make_gpt, {"MyBlock"}},
      {"gpt2", make_gpt2, {"Gpt2Block"}, false},
      {"llama_tied", [](at::ScalarType) { return make_llama(true); }, {"LlamaDecoderLayer"}, false},
      {"llama_untied", [](at::ScalarType) { return make_llama(false); }, {"LlamaDecoderLayer"}, false},
      {"frozen_half", make_frozen, {"MyBlock"}},
      {"used_twice", make_vectors<SharedModel>, {"Linear"}},
      {"sequence", make_vectors<SequenceModel>, {"LSTM", "MultiheadAttention"}},
  };
  return all;
}
inline const Task& task(const std::string& name) {
  for (const Task& t : tasks())
    if (name == t.name) return t;
  throw Error("no task " + name);
}

enum class Rule { sgd, adamw };
inline double learning_rate(Rule rule) { return rule == Rule::sgd ? 0.05 : 2e-3; }
inline std::unique_ptr<optim::Optimizer> make_rule(Rule rule, std::vector<optim::Slot> slots) {
  if (rule == Rule::adamw) return optim::make_adamw(std::move(slots), {});
  return optim::make_sgd(std::move(slots), {.momentum = 0.9});
}
/// Weight decay for tensors of two dimensions, whole or in parts.
inline void set_decay(optim::Slot& slot) {
  slot.weight_decay =
      (slot.shape.empty() ? static_cast<std::size_t>(slot.parameter.dim()) : slot.shape.size()) > 1 ? 0.01 : 0.0;
}
constexpr double max_norm = 1.0;

/// The results of a training run.
struct Record {
  std::vector<std::vector<double>> losses;  ///< [step][micro-batch]
  std::vector<double> norms;                ///< [step]
  std::map<std::string, at::Tensor> weights;
};

/// A module's trainable parameters, tied ones once.
inline std::vector<std::pair<std::string, at::Tensor>> trained_parameters(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  std::set<const void*> seen;
  for (const auto& p : module.named_parameters())
    if (p.value().requires_grad() && seen.insert(p.value().unsafeGetTensorImpl()).second)
      result.emplace_back(p.key(), p.value());
  return result;
}

/// The plain loop: V micro-batches; each gradient is computed separately, divided by V and added in order, then clipped
/// and applied.
inline Record train_alone(const Task& task, Rule rule, std::int64_t V, int steps, at::ScalarType dtype = at::kFloat) {
  const Trained net = task.make(dtype);
  const auto parameters = trained_parameters(*net.module);
  std::vector<optim::Slot> slots;
  for (const auto& [name, p] : parameters) {
    slots.push_back({.name = name, .parameter = p});
    set_decay(slots.back());
  }
  const auto optimizer = make_rule(rule, slots);
  Record record;
  for (int step = 0; step < steps; ++step) {
    std::vector<at::Tensor> sums;
    record.losses.emplace_back();
    for (std::int64_t i = 0; i < V; ++i) {
      for (const auto& [name, p] : parameters) p.mutable_grad().reset();
      const at::Tensor loss = net.loss(step, i, V);
      loss.backward();
      record.losses.back().push_back(loss.item<double>());
      for (std::size_t j = 0; j < parameters.size(); ++j) {
        at::Tensor grad = parameters[j].second.grad();
        if (V > 1) grad.mul_(1.0 / static_cast<double>(V));
        if (i == 0)
          sums.push_back(grad);
        else
          sums[j].add_(grad);
      }
    }
    for (std::size_t j = 0; j < parameters.size(); ++j) parameters[j].second.mutable_grad() = sums[j];
    record.norms.push_back(optim::gradient_norm(sums));
    const double coefficient = optim::clip_coefficient(record.norms.back(), max_norm);
    if (coefficient != 1)
      for (at::Tensor& sum : sums) sum.mul_(coefficient);
    optimizer->step(learning_rate(rule));
  }
  for (const auto& p : net.module->named_parameters()) record.weights[p.key()] = p.value().detach().clone();
  return record;
}

}  // namespace tessera::testing
