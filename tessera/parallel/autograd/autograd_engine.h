#pragma once
/// \file
/// parallel/autograd/: what LibTorch's C++ interface lacks: ends of a backward, hooks on gradients, saved tensors.
///
/// What the engines of parallel/ need from autograd and LibTorch's C++ interface lacks: the exact begin and end of a
/// backward, hooks on finished gradients, and a say in what is kept for backward. Every use of torch::autograd::Node
/// and its engine is behind this header, because their ownership changes between LibTorch releases.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// Is called at every outermost backward of the process: backward calls made from inside a backward (re-entrant
/// checkpointing) belong to the outer one. Called on the thread that called backward(), outside of autograd's own
/// locks.
class BackwardListener {
 public:
  virtual ~BackwardListener() = default;
  /// Before the first operation. An exception ends the backward before it began.
  virtual void backward_begin() = 0;
  /// After the last operation, when every gradient is in place. An exception comes out of the user's backward().
  virtual void backward_end() = 0;
  /// Instead of backward_end() when the backward (or another listener) threw.
  virtual void backward_failed() noexcept = 0;
};

/// Ends what it stands for when destroyed. Movable.
class Subscription {
 public:
  Subscription() = default;
  /// `end` is called once, by the last owner.
  explicit Subscription(std::function<void()> end) : end_(std::move(end)) {}
  Subscription(Subscription&& other) noexcept : end_(std::exchange(other.end_, nullptr)) {}
  Subscription& operator=(Subscription&& other) noexcept {
    std::swap(end_, other.end_);
    return *this;
  }
  ~Subscription() {
    if (end_) end_();
  }

 private:
  std::function<void()> end_;
};

/// Calls `listener` from now on; it must outlive the subscription. Ending a subscription while a backward runs is the
/// caller's error. The first call installs our subclass of LibTorch's engine; it throws Error when another one was
/// installed before (Python).
[[nodiscard]] Subscription listen_to_backward(BackwardListener& listener);

/// While it lives, backwards that the calling thread starts belong to one that another thread is running: listeners are
/// not called for them. Destroy it on its thread.
class PartOfBackward {
 public:
  PartOfBackward();  ///< for the calling thread; nests
  ~PartOfBackward();
  PartOfBackward(const PartOfBackward&) = delete;
  PartOfBackward& operator=(const PartOfBackward&) = delete;

 private:
  bool before_;
};

/// The leaves that require grad from which `outputs` were computed, each once. Undefined outputs are passed over.
/// Visits the whole graph.
std::vector<at::Tensor> leaves_behind(const std::vector<at::Tensor>& outputs);

/// Calls `hook(parameter)` each time that a gradient was accumulated into parameter.grad(). Several hooks of a
/// parameter run in the order of their registration; they keep those that were there before. `parameter` must be a leaf
/// that requires grad. On the CPU the hook runs on the thread that called backward(). An exception ends the backward.
[[nodiscard]] Subscription after_gradient(const at::Tensor& parameter, std::function<void(const at::Tensor&)> hook);

/// While it lives, `edit` is given each gradient of `parameter` before it is accumulated, and returns what takes its
/// place (of the same sizes and type). Nothing of it remains afterwards, so that gradients that are added in place
/// (nn/accumulate.h) are so again. Not ended while a backward runs.
[[nodiscard]] Subscription edit_gradient(const at::Tensor& parameter,
                                         std::function<at::Tensor(const at::Tensor& gradient)> edit);

/// Whether an after_gradient() hook is in place.
bool has_gradient_hook(const at::Tensor& parameter);

/// Takes the place of one tensor that an operation saves for its backward.
class SavedTensorSlot {
 public:
  virtual ~SavedTensorSlot() = default;
  /// Once, on the thread that runs the operation. Keep no tensor whose grad_fn() is set: it may own this slot.
  virtual void pack(const at::Tensor& saved) = 0;
  /// For each use (again after retain_graph), on any thread. Values, sizes, dtype and device as saved; LibTorch puts
  /// the autograd history back.
  virtual at::Tensor unpack() = 0;
};

/// Makes the slots of the tensors that one thread saves.
class SavedTensorSource {
 public:
  virtual ~SavedTensorSource() = default;
  /// nullptr: LibTorch keeps the tensor itself.
  virtual std::unique_ptr<SavedTensorSlot> next() = 0;
};

/// `source` (nullptr: none) serves the tensors that the calling thread saves from now on; returns the one before.
/// Installs our engine as listen_to_backward() does.
SavedTensorSource* exchange_saved_tensor_source(SavedTensorSource* source);

/// A tensor saved by us as an operation would save an input: through the calling thread's source, and with LibTorch's
/// own check that nobody changed it in place when there is none.
class SavedTensor {
 public:
  SavedTensor();  ///< holds none: unpack() gives an undefined tensor
  /// May be undefined.
  explicit SavedTensor(const at::Tensor& tensor);
  SavedTensor(SavedTensor&&) noexcept;
  SavedTensor& operator=(SavedTensor&&) noexcept;
  ~SavedTensor();
  at::Tensor unpack() const;  ///< throws when it was changed in place

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Where a backward pass begins: the graph behind a tensor, without the tensor's own memory.
class BackwardRoot {
 public:
  BackwardRoot();  ///< has no graph: is false
  /// `output` requires grad.
  explicit BackwardRoot(const at::Tensor& output);
  BackwardRoot(BackwardRoot&&) noexcept;
  BackwardRoot& operator=(BackwardRoot&&) noexcept;
  ~BackwardRoot();
  explicit operator bool() const { return impl_ != nullptr; }  ///< backward() may be called
  /// output.backward(gradient), once: the graph is let go. An outermost backward like any other for listeners.
  void backward(const at::Tensor& gradient);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether the calling thread's current backward keeps its graph for another one (retain_graph). Only while
/// current_backward() is not -1.
bool current_backward_keeps_graph();

/// Identifies the innermost backward that the calling thread is working for; -1 when there is none. Every call of
/// backward() or autograd::grad() has its own.
int current_backward();

/// Calls `then` when the current backward has run all its operations, on the thread that finishes it; not when it
/// fails. Only while current_backward() is not -1.
void at_end_of_current_backward(std::function<void()> then);

}  // namespace tessera::parallel
