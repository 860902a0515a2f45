#pragma once
/// \file
/// parallel/recompute/: activation checkpointing (Chen et al. 2016): only the inputs of a model region are kept;
/// backward runs the region again to get the rest. Non-re-entrant, like PyTorch's use_reentrant=False: the region's
/// outputs are ordinary autograd results, and recomputation happens inside backward when the first of its saved tensors
/// is needed.
///
///   x = tessera::checkpointed([block](const at::Tensor& h) { return block->forward(h); }, x);
///   auto [a, b] = tessera::checkpointed(
///       [net](const at::Tensor& q, const at::Tensor& k) { return net->pair(q, k); }, q, k);
///   x = tessera::checkpointed({.name = "h.3"}, f, x);
///
/// Losses and gradients are bitwise the same as without it: random state (dropout), autocast and grad mode are restored
/// for the recomputation. Nests; works with retain_graph, double backward, backward inside the region, autograd::grad,
/// managed (sharded) parameters, saved-tensor scopes around it, and exceptions. Recomputation ends as soon as the last
/// needed tensor is rebuilt.
///
/// The function is copied and called again during backward: anything it captures by reference must live until then. It
/// must do the same operations each time; otherwise an Error names the region. Random numbers: while a region that
/// draws from the default generators runs, in forward or recomputation, no other thread may draw from them (they are
/// one per process).

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// How a region that is recomputed in backward is handled.
struct CheckpointOptions {
  std::string name = "checkpointed region";  ///< for messages
  bool preserve_random = true;  ///< false: the recomputation draws new random numbers; wrong if the region draws any
  bool early_stop =
      true;  ///< false: the region always runs to its end, and the number of saved tensors must be the same
};

namespace parallel {

/// One execution of a region; the type-erased part of checkpointed(). Inactive when grad mode is off.
class CheckpointScope {
 public:
  /// While it exists, tensors that the thread saves are dropped; `again` runs the region, given its inputs.
  CheckpointScope(const CheckpointOptions& options, std::vector<at::Tensor> inputs,
                  std::function<void(std::span<const at::Tensor>)> again);
  /// If the region exits by an exception, its record is dropped.
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Counts of checkpointing in this process. Thread-safe.
struct CheckpointCounts {
  std::int64_t regions = 0;     ///< regions executed in grad mode
  std::int64_t dropped = 0;     ///< tensors not kept
  std::int64_t recomputed = 0;  ///< region executions in recomputation
};
CheckpointCounts checkpoint_counts();

}  // namespace parallel

/// PyTorch's checkpoint() (here that name belongs to the checkpoint/ layer): runs f(inputs...) and returns its result
/// (of any type). Undefined inputs are allowed.
template <class F, class... Inputs>
  requires(sizeof...(Inputs) > 0 && (std::same_as<Inputs, at::Tensor> && ...) && std::invocable<F&, const Inputs&...>)
auto checkpointed(const CheckpointOptions& options, F f, const Inputs&... inputs) {
  const auto region = std::make_shared<F>(std::move(f));
  const auto again = [region]<std::size_t... I>(std::span<const at::Tensor> tensors, std::index_sequence<I...>) {
    (void)(*region)(tensors[I]...);
  };
  const parallel::CheckpointScope scope(options, {inputs...}, [again](std::span<const at::Tensor> tensors) {
    again(tensors, std::index_sequence_for<Inputs...>{});
  });
  return (*region)(inputs...);
}

/// For a number of inputs known only at run time: f(const std::vector<at::Tensor>&).
template <class F>
  requires std::invocable<F&, const std::vector<at::Tensor>&>
auto checkpointed(const CheckpointOptions& options, F f, const std::vector<at::Tensor>& inputs) {
  const auto region = std::make_shared<F>(std::move(f));
  const parallel::CheckpointScope scope(options, inputs, [region](std::span<const at::Tensor> tensors) {
    (void)(*region)(std::vector<at::Tensor>(tensors.begin(), tensors.end()));
  });
  return (*region)(inputs);
}

template <class F, class... Inputs>
  requires(!std::convertible_to<F, CheckpointOptions>)
auto checkpointed(F f, const Inputs&... inputs) {
  return checkpointed(CheckpointOptions{}, std::move(f), inputs...);
}

}  // namespace tessera
