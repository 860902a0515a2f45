#pragma once
/// \file
/// parallel/recompute/: activation checkpointing (Chen et al. 2016): of a region of the model only the inputs are kept;
/// backward runs the region again to get the rest. Non-re-entrant, as PyTorch's use_reentrant=False: the region's
/// outputs are ordinary autograd results, recomputation happens inside backward when the first of its saved tensors is
/// asked for.
///
///   x = tessera::checkpointed([block](const at::Tensor& h) { return block->forward(h); }, x);
///   auto [a, b] = tessera::checkpointed([net](const at::Tensor& q, const at::Tensor& k) { return net->pair(q, k); },
///   q, k); x = tessera::checkpointed({.name = "h.3"}, f, x);
///
/// Bitwise the same losses and gradients as without: random state (dropout), autocast and grad mode are restored for
/// the recomputation. Nests; works with retain_graph, double backward, backward inside the region, autograd::grad,
/// managed (sharded) parameters, saved-tensor scopes around it, exceptions. Recomputation ends as soon as the last
/// needed tensor is rebuilt.
///
/// The function is copied and called again during backward: what it captures by reference must live until then. It must
/// do the same operations each time; otherwise an Error names the region. Random numbers: while a region that draws
/// from the default generators runs, forward or again, no other thread may draw from them (they are one per process).

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// How a part that is computed again in backward is treated.
struct CheckpointOptions {
  std::string name = "checkpointed region";  ///< for messages
  bool preserve_random = true;  ///< false: dropout of the recomputation draws anew (wrong unless nothing draws)
  bool early_stop =
      true;  ///< false: the region always runs to its end, and the number of saved tensors must be the same
};

namespace parallel {

/// One execution of a region; the type-erased part of checkpointed(). Inert when grad mode is off.
class CheckpointScope {
 public:
  /// From here on tensors that the thread saves are dropped; `again` runs the region, given its inputs.
  CheckpointScope(const CheckpointOptions& options, std::vector<at::Tensor> inputs,
                  std::function<void(std::span<const at::Tensor>)> again);
  /// When the region left by an exception, it forgets what it recorded.
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What checkpointing did in this process. Thread-safe.
struct CheckpointCounts {
  std::int64_t regions = 0;     ///< executed under grad mode
  std::int64_t dropped = 0;     ///< tensors not kept
  std::int64_t recomputed = 0;  ///< regions run again
};
CheckpointCounts checkpoint_counts();

}  // namespace parallel

/// PyTorch's checkpoint() (that name is the checkpoint/ layer's here): runs f(inputs...) and returns what it returns
/// (any type). Undefined inputs are fine.
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

/// For a number of inputs that is known when it runs: f(const std::vector<at::Tensor>&).
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
