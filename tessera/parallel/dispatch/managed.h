#pragma once
/// \file
/// parallel/dispatch/: parameters whose memory is allocated and freed on demand, and how operators handle them.
///
/// Managed parameters: tensors of a user's unmodified module whose memory is allocated and freed on demand. Each
/// carries one extra dispatch key that LibTorch leaves unused, so that exactly the operators that receive one of them
/// pass through our fallback, in forward and in backward (saved tensors and views keep the key), and no others.

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

/// The key; unused in LibTorch 2.11, above Autograd and Autocast. Deferred construction (parallel/deferred/deferred.h)
/// also uses it.
inline constexpr c10::DispatchKey managed_key = c10::DispatchKey::DeferredInit;

/// Makes parameters present. Called on the thread that runs the operator, which may be any.
class Materializer {
 public:
  virtual ~Materializer() = default;
  /// Called before `op` (its full name, for messages) reads the parameters of `units` (ascending, each once), or writes
  /// some of them (`writes`). On return they are present and stay so until leave(). An exception prevents the operator
  /// from running.
  virtual void enter(std::span<const std::size_t> units, bool writes, const char* op) = 0;
  virtual void leave(std::span<const std::size_t> units) noexcept = 0;
};

/// The memory of one flat buffer of one unit: a StorageImpl that never changes its identity, present or absent. When
/// absent it keeps nbytes and throws `absent_text` if its data is read without passing through the key (data_ptr()).
/// Not thread-safe: guarded by the materializer's mutex.
class ManagedStorage {
 public:
  /// `materializer` must outlive the parameters' use; it is called with `unit`. The storage has `numel` elements of
  /// `dtype`.
  ManagedStorage(Materializer& materializer, std::size_t unit, std::int64_t numel, at::ScalarType dtype,
                 c10::Device device, std::string absent_text);
  /// Parameters must have been removed before (abandon).
  ~ManagedStorage();
  ManagedStorage(const ManagedStorage&) = delete;
  ManagedStorage& operator=(const ManagedStorage&) = delete;

  /// Makes `parameter` (any strided leaf tensor) a view of elements [offset, offset + numel) with `sizes` and dense
  /// `strides`, in this storage's dtype, and adds the key. TensorImpl, requires_grad and hooks are kept; its former
  /// memory is released. Does not copy values.
  void adopt(const at::Tensor& parameter, std::int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides);
  /// Whether `parameter` is still as adopt() left it (module->to() and set_data() replace the memory silently).
  bool owns(const at::Tensor& parameter) const;
  /// Gives an adopted parameter its own ordinary memory, `value` (of its sizes), and removes the key.
  static void abandon(const at::Tensor& parameter, const at::Tensor& value);

  /// `buffer`: contiguous, numel elements, plain (without key); kept until detach().
  void attach(at::Tensor buffer);
  /// Returns the buffer; the memory is absent afterwards.
  at::Tensor detach();
  bool present() const { return buffer_.defined(); }
  /// With `cast`, matrix products, convolutions, norms and recurrent cells (operators that require one dtype) that
  /// receive parameters of this storage first convert their other floating-point inputs to its dtype, differentiably:
  /// an unmodified module whose parameters are bf16 accepts fp32 inputs. Off by default.
  void cast_inputs(bool cast);
  /// The buffer; undefined when absent. Operators on it do not pass through the materializer.
  const at::Tensor& buffer() const { return buffer_; }
  /// Number of tensors that alias this storage, besides the adopted parameters: views stored by a user or kept by a
  /// graph.
  std::size_t foreign_uses() const;

  std::size_t unit() const;
  Materializer& materializer() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  at::Tensor buffer_;
};

/// Lets another owner of the key handle an operator. Returns true when it has run the operator and replaced the
/// arguments on the stack by the results; false to let it run as usual (managed arguments are then made present).
using KeyFallback = bool (*)(const c10::OperatorHandle& op, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack);
/// A key has one fallback per process, which is implemented here. It asks deferred construction first when the key is
/// included in this thread's state (c10::impl::IncludeDispatchKeyGuard) or when an argument has the key on a storage
/// that is not managed. To keep nested calls from reaching the fallback again, run an operator under
/// c10::impl::ExcludeDispatchKeyGuard(managed_key). Operators that only make views or read metadata (view, t, detach,
/// set_data, requires_grad_, size, empty_like, reshape and to() as long as they need not copy, ...) never reach the
/// fallback: the key is a fallthrough for them. Their results share the storage and inherit the key, and a factory or
/// copy that they call reaches the fallback itself. Call once, before the first tensor gets the key; registers the
/// key's fallback.
void set_deferred_fallback(KeyFallback fallback);

/// Sits between a thread and the operators that it calls.
class OperatorWatcher {
 public:
  virtual ~OperatorWatcher() = default;
  /// Called when the thread calls `op`, whose arguments are the last on `stack`; they must be replaced by its results.
  /// `run` runs it as usual. Exceptions propagate out of the call.
  virtual void called(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack,
                      const std::function<void()>& run) = 0;
};
/// While it exists, `watcher` is called for every operator that this thread calls, whatever its tensors are, except
/// nested operators and operators that only make views or read metadata. Not inside a DeferredScope.
class WatchOperators {
 public:
  explicit WatchOperators(OperatorWatcher& watcher);
  ~WatchOperators();
  WatchOperators(const WatchOperators&) = delete;
  WatchOperators& operator=(const WatchOperators&) = delete;
};

/// The storage that manages `tensor`; nullptr if none does.
ManagedStorage* managed_storage(const at::Tensor& tensor);
inline bool is_managed(const at::Tensor& tensor) { return tensor.defined() && tensor.key_set().has(managed_key); }

/// Number of tensors that alias the memory of `parameter`, which is not managed yet, besides `parameters` (several of
/// them may share it): a view that a constructor stored would keep the old memory when the parameter is adopted.
/// Includes saved tensors of existing graphs.
std::size_t stored_views(const at::Tensor& parameter, std::span<const at::Tensor> parameters);

/// For code that reads parameters through raw pointers: makes them present while this object exists. Tensors that are
/// not managed cost one check of their key set. (nn/ is below this layer and uses it through nn/materialized.h.)
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
