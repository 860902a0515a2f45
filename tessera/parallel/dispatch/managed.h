#pragma once
/// \file
/// parallel/dispatch/: parameters whose memory comes and goes, and what operators do with them.
///
/// Managed parameters: tensors of somebody's unedited module whose memory comes and goes. Each carries one extra
/// dispatch key that LibTorch leaves unused, so that exactly the operators that receive one of them pass through us, in
/// forward and in backward (saved tensors and views keep the key), and no others.

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/DispatchKeySet.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace tessera::parallel {

/// The key; free in LibTorch 2.11, above Autograd and Autocast. Deferred construction (parallel/deferred/deferred.h)
/// uses it, too.
inline constexpr c10::DispatchKey managed_key = c10::DispatchKey::DeferredInit;

/// Who makes parameters present. Called on the thread that runs the operator, which may be any.
class Materializer {
 public:
  virtual ~Materializer() = default;
  /// `op` (its full name, for messages) is about to read the parameters of `units` (ascending, each once), or to write
  /// some of them (`writes`). On return they are present and stay so until leave(). An exception keeps the operator
  /// from running.
  virtual void enter(std::span<const std::size_t> units, bool writes, const char* op) = 0;
  virtual void leave(std::span<const std::size_t> units) noexcept = 0;
};

/// The memory of one flat buffer of one unit: a StorageImpl that never changes its identity, present or absent. Absent
/// keeps nbytes and throws `absent_text` when its data is read without passing through the key (data_ptr()). Not
/// thread-safe: the materializer's mutex.
class ManagedStorage {
 public:
  /// `materializer` outlives the parameters' use; it is called with `unit`. numel elements of `dtype`.
  ManagedStorage(Materializer& materializer, std::size_t unit, std::int64_t numel, at::ScalarType dtype,
                 c10::Device device, std::string absent_text);
  /// Parameters must have been taken out (abandon) before.
  ~ManagedStorage();
  ManagedStorage(const ManagedStorage&) = delete;
  ManagedStorage& operator=(const ManagedStorage&) = delete;

  /// Makes `parameter` (any strided tensor with a grad slot of its own: a leaf) a view of elements [offset, offset +
  /// numel) with `sizes` and dense `strides`, in this storage's dtype, and gives it the key. TensorImpl, requires_grad
  /// and hooks survive; its former memory is let go. Does not copy values.
  void adopt(const at::Tensor& parameter, std::int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides);
  /// True while `parameter` is still what adopt() made of it (module->to() and set_data replace the memory silently).
  bool owns(const at::Tensor& parameter) const;
  /// Gives an adopted parameter ordinary memory of its own, `value` (its sizes), and takes the key away.
  static void abandon(const at::Tensor& parameter, const at::Tensor& value);

  /// `buffer`: contiguous, numel elements, plain (without key); kept until detach().
  void attach(at::Tensor buffer);
  /// Returns the buffer; absent from now on.
  at::Tensor detach();
  bool present() const { return buffer_.defined(); }
  /// With `cast`, matrix products, convolutions, norms and recurrent cells (operators that want one dtype) that receive
  /// parameters of this storage get their other floating-point inputs converted to its dtype first, differentiably: an
  /// unedited module whose parameters compute in bf16 takes fp32 inputs. Off at first.
  void cast_inputs(bool cast);
  /// The buffer; undefined when absent. Operators on it do not pass through the materializer.
  const at::Tensor& buffer() const { return buffer_; }
  /// Tensors of others that alias this storage, besides the adopted parameters: views that somebody stored, or that a
  /// graph keeps.
  std::size_t foreign_uses() const;

  std::size_t unit() const;
  Materializer& materializer() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  at::Tensor buffer_;
};

/// What another owner of the key does with an operator: true when it has run it and left the results on the stack in
/// place of the arguments; false to let it run as usual (managed arguments are then made present).
using KeyFallback = bool (*)(const c10::OperatorHandle& op, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack);
/// A key has one fallback in the whole process, and it lives here; deferred construction is asked first by it, when the
/// key is included in this thread's state (c10::impl::IncludeDispatchKeyGuard) or when an argument carries the key over
/// a storage that is not managed. To keep calls nested in an operator from coming back, run it under
/// c10::impl::ExcludeDispatchKeyGuard(managed_key). Operators that only make views or look at metadata (view, t,
/// detach, set_data, requires_grad_, size, empty_like, reshape and to() as long as they need not copy, ...) never get
/// here: the key is registered as a fallthrough for them; what they make shares the storage and inherits the key, and a
/// factory or a copy that they end in comes here by itself. Call once, before the first tensor gets the key; registers
/// the key's fallback.
void set_deferred_fallback(KeyFallback fallback);

/// Stands between a thread and the operators that it calls.
class OperatorWatcher {
 public:
  virtual ~OperatorWatcher() = default;
  /// The thread called `op`, whose arguments are the last on `stack`; its results are to take their place. `run` runs
  /// it as usual. An exception comes out of the call.
  virtual void called(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack,
                      const std::function<void()>& run) = 0;
};
/// While it lives, `watcher` is asked about every operator that this thread calls, whatever its tensors are: not about
/// those nested in others, nor about those that only make views or look at metadata. Not inside a DeferredScope.
class WatchOperators {
 public:
  explicit WatchOperators(OperatorWatcher& watcher);
  ~WatchOperators();
  WatchOperators(const WatchOperators&) = delete;
  WatchOperators& operator=(const WatchOperators&) = delete;
};

/// The storage that manages `tensor`, if any.
ManagedStorage* managed_storage(const at::Tensor& tensor);
inline bool is_managed(const at::Tensor& tensor) { return tensor.defined() && tensor.key_set().has(managed_key); }

/// Tensors that alias the memory of `parameter`, which is not managed yet, besides `parameters` (several of them may
/// share it): a view that a constructor stored would keep the old memory when the parameter is adopted. Saved tensors
/// of a graph that still lives count, too.
std::size_t stored_views(const at::Tensor& parameter, std::span<const at::Tensor> parameters);

/// For code that reads parameters by raw pointers: makes them present while it lives. Tensors that are not managed cost
/// a look at their key set. (nn/ reaches it through nn/materialized.h, being below this layer.)
class Materialized {
 public:
  explicit Materialized(std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors,
                        const char* op = "data_ptr");
  ~Materialized();
  Materialized(const Materialized&) = delete;
  Materialized& operator=(const Materialized&) = delete;

 private:
  void* token_ = nullptr;
};

}  // namespace tessera::parallel
