#pragma once
// A small chain of layers that can be cut anywhere, to compare pipelines of real processes with one process.
#include <tests/distributed/harness.h>

#include <torch/torch.h>

#include <tessera/layout/schedule/channels.h>
#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/generators.h>
#include <tessera/layout/schedule/table.h>
#include <tessera/nn/linear.h>
#include <tessera/nn/weight_gradients.h>
#include <tessera/parallel/pipeline/executor.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tessera::testing {

constexpr std::int64_t chain_width = 6, chain_layers = 8, chain_rows = 3;

/// Layer i: our linear map with the weight in either layout, with or without a bias, and tanh. Every fourth one is
/// LibTorch's own module, which does not support divided backward passes.
struct ChainLayer {
  at::Tensor weight, bias;
  torch::nn::Linear module{nullptr};
  bool out_first = false;

  ChainLayer(int index, at::ScalarType type) : out_first(index % 2 == 0) {
    at::Generator generator = at::detail::createCPUGenerator(100 + static_cast<std::uint64_t>(index));
    const auto draw = [&](at::IntArrayRef sizes) {
      return (at::randn(sizes, generator, at::TensorOptions(at::kDouble)) * 0.4).to(type);
    };
    weight = draw({chain_width, chain_width}).requires_grad_();
    if (index % 3 != 0) bias = draw({chain_width}).requires_grad_();
    if (index % 4 == 3) {
      module = torch::nn::Linear(chain_width, chain_width);
      module->to(type);
      const at::NoGradGuard none;
      module->weight.copy_(weight);
      module->bias.copy_(draw({chain_width}));
      weight = module->weight;
      bias = module->bias;
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    if (module) return at::tanh(module->forward(x));
    return at::tanh(nn::linear(x * 1.0, weight, bias, out_first ? nn::WeightLayout::out_in : nn::WeightLayout::in_out));
  }
  std::vector<at::Tensor> parameters() const {
    return bias.defined() ? std::vector<at::Tensor>{weight, bias} : std::vector<at::Tensor>{weight};
  }
};

inline at::Tensor chain_input(int micro_batch, at::ScalarType type, std::int64_t rows = chain_rows) {
  at::Generator generator = at::detail::createCPUGenerator(900 + static_cast<std::uint64_t>(micro_batch));
  return at::randn({rows, 2, chain_width}, generator, at::TensorOptions(at::kDouble)).to(type);
}
inline at::Tensor chain_loss(const at::Tensor& y, int micro_batches) {
  return (y - 0.25).square().mean() / micro_batches;
}

/// The layers of stage s of n: [first, past).
inline std::pair<int, int> chain_part(int stage, int stages) {
  const int layers = static_cast<int>(chain_layers);
  return {stage * layers / stages, (stage + 1) * layers / stages};
}

struct ChainResult {
  std::vector<at::Tensor> losses;
  std::map<std::string, at::Tensor> gradients;  // "3.0": layer 3's weight
};

inline void take_gradients(ChainResult& result, int index, const ChainLayer& layer) {
  const auto parameters = layer.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) result.gradients[concat(index, ".", i)] = parameters[i].grad();
}

/// Runs in one process; layers before `trained` are frozen.
inline ChainResult chain_reference(int micro_batches, at::ScalarType type, int trained = 0,
                                   const std::vector<std::int64_t>& rows = {}) {
  std::vector<ChainLayer> layers;
  for (int i = 0; i < chain_layers; ++i) {
    layers.emplace_back(i, type);
    if (i < trained)
      for (at::Tensor& p : layers.back().parameters()) p.requires_grad_(false);
  }
  ChainResult result;
  for (int m = 0; m < micro_batches; ++m) {
    at::Tensor x = chain_input(m, type, rows.empty() ? chain_rows : rows[static_cast<std::size_t>(m)]);
    for (ChainLayer& layer : layers) x = layer.forward(x);
    const at::Tensor loss = chain_loss(x, micro_batches);
    if (loss.requires_grad()) loss.backward();
    result.losses.push_back(loss.detach());
  }
  for (int i = 0; i < chain_layers; ++i) take_gradients(result, i, layers[static_cast<std::size_t>(i)]);
  return result;
}

/// This rank's stages of the chain.
struct Chain {
  std::map<int, ChainLayer> layers;
  int stages = 0, micro_batches = 0;
  int first = 0;  // index of the first micro-batch in the whole batch
  at::ScalarType type = at::kDouble;
  std::vector<std::int64_t> rows = {};

  Chain(const layout::schedule::Schedule& schedule, int rank, at::ScalarType the_type, int trained = 0)
      : stages(schedule.stages()), micro_batches(schedule.micro_batches), type(the_type) {
    for (const int stage : stages_of(schedule, rank))
      for (int i = chain_part(stage, stages).first; i < chain_part(stage, stages).second; ++i) {
        layers.emplace(i, ChainLayer(i, type));
        if (i < trained)
          for (at::Tensor& p : layers.at(i).parameters()) p.requires_grad_(false);
      }
  }

  at::Tensor forward(int stage, int m, const at::Tensor& input) {
    at::Tensor x = stage == 0
                       ? chain_input(first + m, type, rows.empty() ? chain_rows : rows[static_cast<std::size_t>(m)])
                       : input;
    for (int i = chain_part(stage, stages).first; i < chain_part(stage, stages).second; ++i)
      x = layers.at(i).forward(x);
    return stage + 1 == stages ? chain_loss(x, micro_batches) : x;
  }

  std::map<int, parallel::PipelineStage> pipeline_stages(const layout::schedule::Schedule& schedule, int rank) {
    std::map<int, parallel::PipelineStage> all;
    for (const int stage : stages_of(schedule, rank))
      all[stage] = {[this, stage](int m, const at::Tensor& input) { return forward(stage, m, input); }};
    return all;
  }

  ChainResult result(std::vector<at::Tensor> losses) const {
    ChainResult mine;
    mine.losses = std::move(losses);
    for (const auto& [index, layer] : layers) take_gradients(mine, index, layer);
    return mine;
  }

  void clear_gradients() {
    for (auto& [index, layer] : layers)
      for (at::Tensor& p : layer.parameters()) p.mutable_grad().reset();
  }
};

/// Largest difference between this rank's results and the reference; undefined gradients must be undefined on both
/// sides.
inline double distance(const ChainResult& mine, const ChainResult& reference) {
  double most = 0;
  for (std::size_t i = 0; i < mine.losses.size(); ++i)
    most = std::max(most, (mine.losses[i] - reference.losses[i]).abs().item<double>());
  for (const auto& [name, gradient] : mine.gradients) {
    const at::Tensor& wanted = reference.gradients.at(name);
    if (gradient.defined() != wanted.defined()) return 1e9;
    if (gradient.defined()) most = std::max(most, (gradient - wanted).abs().max().item<double>());
  }
  return most;
}

inline bool same_bits(const ChainResult& a, const ChainResult& b) {
  const auto equal = [](const at::Tensor& x, const at::Tensor& y) {
    return x.defined() == y.defined() && (!x.defined() || at::equal(x, y));
  };
  if (a.losses.size() != b.losses.size() || a.gradients.size() != b.gradients.size()) return false;
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    if (!equal(a.losses[i], b.losses[i])) return false;
  for (const auto& [name, gradient] : a.gradients)
    if (!equal(gradient, b.gradients.at(name))) return false;
  return true;
}

/// Every schedule of the table that supports the shape.
inline std::vector<layout::schedule::Schedule> schedules_of(int ranks, int stages_per_rank, int micro_batches) {
  std::vector<layout::schedule::Schedule> all;
  for (const auto& row : layout::schedule::schedules()) {
    if (row.least_stages > stages_per_rank || (row.most_stages != 0 && row.most_stages < stages_per_rank)) continue;
    all.push_back(layout::schedule::make_schedule(
        row.name, {.ranks = ranks, .stages_per_rank = stages_per_rank, .micro_batches = micro_batches}));
  }
  return all;
}

}  // namespace tessera::testing
