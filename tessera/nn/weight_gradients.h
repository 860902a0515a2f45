#pragma once
/// \file
/// Backward in two parts (Qi et al. 2023, "Zero bubble pipeline parallelism"): gradients of activations now, those of
/// the weights of linear maps later: in a pass of their own, or in the same pass while something else is awaited.

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

/// What one backward pass left for later. Linear maps (nn::linear with any layout, device and type) that run under a
/// Scope remember it. If it is deferring when their backward comes, they give no gradient to weight and bias, but leave
/// here what forms it. All other operators (norms, embeddings, linear_cross_entropy, those of user modules) are not
/// concerned. Thread-safe, as far as backward passes use several threads.
class WeightGradients : public torch::CustomClassHolder {
 public:
  WeightGradients();
  ~WeightGradients() override;

  /// While it lives, linear maps that run on this thread remember `gradients`, and with `defer` their backward leaves
  /// its second part there, whichever thread runs it. For the forward pass: without defer. For backward: with it;
  /// what checkpointing runs again then is concerned, too. Nests.
  class Scope {
   public:
    Scope(c10::intrusive_ptr<WeightGradients> gradients, bool defer);
    /// Whether they are deferring stays as it is; nullptr: nothing is remembered. For what runs a forward again.
    explicit Scope(c10::intrusive_ptr<WeightGradients> gradients);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    c10::intrusive_ptr<WeightGradients> gradients_, outer_;
    std::optional<bool> was_deferring_;
  };
  /// This thread's; nullptr: none.
  static const c10::intrusive_ptr<WeightGradients>& current();

  bool deferring() const;
  bool empty() const;
  /// Gradients that it returns go to the same places, through the same casts and hooks, as those of an undivided
  /// backward; several of one parameter are summed first, in the same order. One backward pass of its own
  /// (torch::autograd::Engine::execute), or none where nothing was left. Once: it is empty afterwards.
  void compute();

  /// For backward functions: `form` gives the gradients of the inputs first, first + 1, ... of the function that runs
  /// now (numbered among its tensors; `count` of them), in compute(). It must hold no tensor with a graph behind it.
  /// `like`: a tensor on the device where it runs.
  void leave(std::size_t first, std::size_t count, const at::Tensor& like,
             std::function<std::vector<at::Tensor>()> form);

 private:
  struct Parts;
  mutable std::mutex mutex_;
  std::unique_ptr<Parts> parts_;
  bool deferring_ = false;
};

/// Gradients of one linear map's weight and bias get a node of their own in the graph of the pass, between the
/// function that gave `y` and its inputs 1 and 2 (weight and bias, where they need a gradient). The engine runs it when
/// nothing with a higher number than `place` is left to do, a number of at::sequence_number: nodes made after the
/// number was taken run before it, those from before run after it. What one of the former starts and one of the latter
/// awaits is on its way while the gradients are formed. The function's backward says how: leave_late().
void form_late(const at::Tensor& y, std::uint64_t place);

/// For backward functions: if form_late() was called for the result of the function that runs now, `form` gives the
/// gradients of its inputs 1 and 2 (one of them, or both, as many as it has) when their turn comes, and true is
/// returned. It must hold no tensor with a graph behind it.
bool leave_late(std::function<std::vector<at::Tensor>()> form);

}  // namespace tessera::nn
