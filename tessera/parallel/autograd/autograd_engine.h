#pragma once
/// \file
/// parallel/autograd/: functions of autograd that LibTorch's C++ interface lacks.
///
/// This header: callbacks at the exact begin and end of a backward, hooks on finished gradients, and control over the
/// tensors that are saved for backward. All uses of torch::autograd::Node and its engine are behind this header,
/// because their ownership changes between LibTorch releases.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// Called at every outermost backward of the process: backward calls made from inside a backward (re-entrant
/// checkpointing) belong to the outer one. Called on the thread that called backward(), without autograd's own locks
/// held.
class BackwardListener {
 public:
  virtual ~BackwardListener() = default;
  /// Called before the first operation. An exception ends the backward before it starts.
  virtual void backward_begin() = 0;
  /// Called after the last operation, when every gradient is in place. An exception propagates out of the user's
  /// backward().
  virtual void backward_end() = 0;
  /// Called instead of backward_end() when the backward (or another listener) threw.
  virtual void backward_failed() noexcept = 0;
};

/// Ends a registration when destroyed. Movable.
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

/// Registers `listener`, which must outlive the subscription. A subscription must not end while a backward runs. The
/// first call installs our subclass of LibTorch's engine; it throws Error when another one is already installed
/// (Python).
[[nodiscard]] Subscription listen_to_backward(BackwardListener& listener);

/// During its lifetime, backward passes started by the calling thread count as part of one that another thread is
/// running: listeners are not called for them. Destroy it on the same thread.
class PartOfBackward {
 public:
  PartOfBackward();  ///< for the calling thread; nests
  ~PartOfBackward();
  PartOfBackward(const PartOfBackward&) = delete;
  PartOfBackward& operator=(const PartOfBackward&) = delete;

 private:
  bool before_;
};

/// The leaves that require grad from which `outputs` were computed, each once. Undefined outputs are skipped. Visits
/// the whole graph.
std::vector<at::Tensor> leaves_behind(const std::vector<at::Tensor>& outputs);

/// Calls `hook(parameter)` each time a gradient has been accumulated into parameter.grad(). Several hooks of a
/// parameter run in registration order; hooks that existed before are kept. `parameter` must be a leaf that requires
/// grad. On the CPU the hook runs on the thread that called backward(). An exception ends the backward.
[[nodiscard]] Subscription after_gradient(const at::Tensor& parameter, std::function<void(const at::Tensor&)> hook);

/// While the subscription exists, `edit` receives each gradient of `parameter` before it is accumulated and returns its
/// replacement (of the same sizes and type). Nothing remains afterwards, so that in-place accumulation
/// (nn/accumulate.h) works again. Must not end while a backward runs.
[[nodiscard]] Subscription edit_gradient(const at::Tensor& parameter,
                                         std::function<at::Tensor(const at::Tensor& gradient)> edit);

/// Whether an after_gradient() hook is in place.
bool has_gradient_hook(const at::Tensor& parameter);

/// Replaces one tensor that an operation saves for its backward.
class SavedTensorSlot {
 public:
  virtual ~SavedTensorSlot() = default;
  /// Called once, on the thread that runs the operation. Must not keep a tensor whose grad_fn() is set: it may own this
  /// slot.
  virtual void pack(const at::Tensor& saved) = 0;
  /// Called for each use (again after retain_graph), on any thread. Values, sizes, dtype and device as saved; LibTorch
  /// restores the autograd history.
  virtual at::Tensor unpack() = 0;
};

/// Creates the slots of the tensors that one thread saves.
class SavedTensorSource {
 public:
  virtual ~SavedTensorSource() = default;
  /// nullptr: LibTorch keeps the tensor itself.
  virtual std::unique_ptr<SavedTensorSlot> next() = 0;
};

/// Makes `source` (nullptr: none) provide slots for the tensors that the calling thread saves after this call; returns
/// the previous one. Installs our engine as listen_to_backward() does.
SavedTensorSource* exchange_saved_tensor_source(SavedTensorSource* source);

/// A tensor saved by our code as an operation would save an input: through the calling thread's source or, without a
/// source, with LibTorch's own check for in-place changes.
class SavedTensor {
 public:
  SavedTensor();  ///< empty: unpack() returns an undefined tensor
  /// May be undefined.
  explicit SavedTensor(const at::Tensor& tensor);
  SavedTensor(SavedTensor&&) noexcept;
  SavedTensor& operator=(SavedTensor&&) noexcept;
  ~SavedTensor();
  at::Tensor unpack() const;  ///< throws if the tensor was changed in place

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The starting point of a backward pass: the graph of a tensor, without the tensor's own memory.
class BackwardRoot {
 public:
  BackwardRoot();  ///< without a graph: converts to false
  /// `output` must require grad.
  explicit BackwardRoot(const at::Tensor& output);
  BackwardRoot(BackwardRoot&&) noexcept;
  BackwardRoot& operator=(BackwardRoot&&) noexcept;
  ~BackwardRoot();
  explicit operator bool() const { return impl_ != nullptr; }  ///< whether backward() may be called
  /// Runs output.backward(gradient), once: the graph is released. Listeners see an outermost backward like any other.
  void backward(const at::Tensor& gradient);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether the calling thread's current backward keeps its graph (retain_graph). Call only while current_backward() is
/// not -1.
bool current_backward_keeps_graph();

/// Identifies the innermost backward that the calling thread works for; -1 outside of a backward. Every call of
/// backward() or autograd::grad() has its own number.
int current_backward();

/// Calls `then` when the current backward has run all its operations, on the thread that finishes it; not when it
/// fails. Call only while current_backward() is not -1.
void at_end_of_current_backward(std::function<void()> then);

}  // namespace tessera::parallel
