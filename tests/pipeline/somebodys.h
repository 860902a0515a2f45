#pragma once
// User modules made only of torch::nn, and their training in one process, the reference for PipelineParallel.
#include <tests/distributed/harness.h>

#include <torch/torch.h>

#include <tessera/base/error.h>
#include <tessera/parallel/pipeline/pipeline_parallel.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tessera::testing {

constexpr std::int64_t width = 6, rows = 8;

inline at::Tensor batch_inputs(int step, std::int64_t count = rows) {
  at::Generator generator = at::detail::createCPUGenerator(70 + static_cast<std::uint64_t>(step));
  return at::randn({count, 3, width}, generator, at::TensorOptions(at::kDouble));
}
inline at::Tensor batch_targets(int step, std::int64_t count = rows) {
  at::Generator generator = at::detail::createCPUGenerator(90 + static_cast<std::uint64_t>(step));
  return at::randn({count, 3, width}, generator, at::TensorOptions(at::kDouble));
}
inline at::Tensor squares(const at::Tensor& output, const at::Tensor& target) {
  return (output - target).square().mean();
}

/// Eight layers of several kinds, one without parameters, one with buffers.
inline torch::nn::Sequential small_sequential() {
  at::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(width, 2 * width), torch::nn::Tanh(), torch::nn::Linear(2 * width, width),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})), torch::nn::Linear(width, width),
                            torch::nn::BatchNorm1d(3), torch::nn::GELU(), torch::nn::Linear(width, width));
  net->to(at::kDouble);
  return net;
}

struct Trained {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> weights, gradients;  // weights after the last step; gradients before its update

  void take_gradients(const torch::nn::Module& module) {
    for (const auto& item : module.named_parameters())
      if (item.value().grad().defined()) gradients[item.key()] = item.value().grad().clone();
  }
  void take_weights(const torch::nn::Module& module) {
    for (const auto& item : module.named_parameters()) weights[item.key()] = item.value().detach().clone();
    for (const auto& item : module.named_buffers()) weights[item.key()] = item.value().detach().clone();
  }
};

inline std::vector<at::Tensor> once(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors)
    if (std::none_of(result.begin(), result.end(), [&](const at::Tensor& t) { return t.is_same(tensor); }))
      result.push_back(tensor);
  return result;
}

/// Accumulation over micro-batches with AdamW, in one process.
inline Trained train_alone(torch::nn::Module& module, const std::function<at::Tensor(const at::Tensor&)>& forward,
                           int micro_batches, int steps, std::int64_t count = rows) {
  Trained result;
  torch::optim::AdamW optimizer(once(module.parameters()), torch::optim::AdamWOptions(0.02));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    double sum = 0;
    const auto inputs = batch_inputs(step, count).tensor_split(micro_batches),
               targets = batch_targets(step, count).tensor_split(micro_batches);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const double weight = static_cast<double>(inputs[i].size(0)) / static_cast<double>(count);
      at::Tensor loss = squares(forward(inputs[i]), targets[i]);
      if (weight != 1) loss = loss * weight;
      loss.backward();
      sum += loss.item<double>();
    }
    result.losses.push_back(sum);
    result.gradients.clear();
    result.take_gradients(module);
    optimizer.step();
  }
  result.take_weights(module);
  return result;
}

/// The same through a pipeline; returns this rank's results.
inline Trained train_in_pipeline(PipelineParallel& pipe, torch::nn::Module& module, int steps,
                                 std::int64_t count = rows) {
  Trained result;
  torch::optim::AdamW optimizer(once(module.parameters()), torch::optim::AdamWOptions(0.02));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    result.losses.push_back(pipe.train_batch(batch_inputs(step, count), batch_targets(step, count)));
    result.gradients.clear();
    result.take_gradients(module);
    optimizer.step();
  }
  result.take_weights(module);
  return result;
}

/// "" if everything in `mine` is in `whole` with the same bits (or within a bound).
inline std::string differs(const Trained& mine, const Trained& whole, double bound = 0) {
  if (mine.losses.size() != whole.losses.size()) return "numbers of losses";
  for (std::size_t i = 0; i < mine.losses.size(); ++i)
    if (!(std::abs(mine.losses[i] - whole.losses[i]) <= bound))
      return concat("loss ", i, ": ", mine.losses[i], " and ", whole.losses[i]);
  for (const auto& [mine_of, whole_of, what] : {std::tuple(&mine.gradients, &whole.gradients, "gradient of "),
                                                std::tuple(&mine.weights, &whole.weights, "weight ")})
    for (const auto& [name, tensor] : *mine_of) {
      const auto found = whole_of->find(name);
      if (found == whole_of->end()) return concat(what, name, " is nowhere in the whole");
      if (tensor.sizes() != found->second.sizes()) return concat(what, name, ": sizes");
      if (bound == 0 ? !at::equal(tensor, found->second) : (tensor - found->second).abs().max().item<double>() > bound)
        return concat(what, name, " by ", (tensor - found->second).abs().max().item<double>());
    }
  return "";
}

}  // namespace tessera::testing
