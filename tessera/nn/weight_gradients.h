#pragma once
/// \file
/// Backward in two parts (Qi et al. 2023, "Zero bubble pipeline parallelism"): gradients of activations now, those of
/// the weights of linear maps later: in a separate pass, or in the same pass while something else is waited for.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace tessera::nn {

/// The deferred work of one backward pass. Linear maps (nn::linear with any layout, device and type) that run under a
/// Scope remember it. If it is deferring when their backward runs, they return no gradient for weight and bias, but
/// store the computation here. All other operators (norms, embeddings, linear_cross_entropy, those of user modules) are
/// not affected. Thread-safe for backward passes on several threads.
class WeightGradients : public torch::CustomClassHolder {
 public:
  WeightGradients();
  ~WeightGradients() override;

  /// During its lifetime, linear maps that run on this thread remember `gradients`, and with `defer` their backward
  /// defers its second part to it, on any thread. For the forward pass: without defer. For backward: with it; this also
  /// covers forward passes repeated by checkpointing. Nests.
  class Scope {
   public:
    Scope(c10::intrusive_ptr<WeightGradients> gradients, bool defer);
    /// Does not change whether `gradients` is deferring; nullptr: nothing is remembered. For recomputing a forward.
    explicit Scope(c10::intrusive_ptr<WeightGradients> gradients);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    c10::intrusive_ptr<WeightGradients> gradients_, outer_;
    std::optional<bool> was_deferring_;
  };
  /// This thread's current object, or nullptr.
  static const c10::intrusive_ptr<WeightGradients>& current();

  bool deferring() const;
  bool empty() const;
  /// Computes the deferred gradients. They are accumulated in the same places, through the same casts and hooks, as
  /// those of an undivided backward; several of one parameter are summed first, in the same order. Runs one separate
  /// backward pass (torch::autograd::Engine::execute), or none if nothing was deferred. Empty afterwards.
  void compute();

  /// For backward functions: in compute(), `form` computes the gradients of the inputs first, first + 1, ... of the
  /// running function (numbered among its tensors; `count` of them). It must not hold a tensor with a graph. `like`: a
  /// tensor on the device where it runs.
  void leave(std::size_t first, std::size_t count, const at::Tensor& like,
             std::function<std::vector<at::Tensor>()> form);

 private:
  struct Parts;
  mutable std::mutex mutex_;
  std::unique_ptr<Parts> parts_;
  bool deferring_ = false;
};

/// Gives the gradients of one linear map's weight and bias their own node in the graph of the pass, between the
/// function that returned `y` and its inputs 1 and 2 (weight and bias, if they need a gradient). The engine runs it
/// when no node with a higher number than `place`, a number of at::sequence_number, is left: nodes created after the
/// number was taken run before it, those created earlier run after it. Work started by the former and awaited by the
/// latter is in flight while the gradients are computed. The function's backward provides the computation by
/// leave_late().
void form_late(const at::Tensor& y, std::uint64_t place);

/// For backward functions: if form_late() was called for the result of the running function, defers `form`, which
/// computes the gradients of its inputs 1 and 2 (those that exist), and returns true. `form` must not hold a tensor
/// with a graph.
bool leave_late(std::function<std::vector<at::Tensor>()> form);

}  // namespace tessera::nn
