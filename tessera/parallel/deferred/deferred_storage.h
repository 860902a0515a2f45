#pragma once
/// \file
/// The storage of a deferred tensor: its size, no memory, and the log of its operations.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <tessera/parallel/deferred/deferred_memory.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace tessera::parallel {

/// A tensor's position in its storage.
struct TensorGeometry {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;  ///< elements
  caffe2::TypeMeta dtype;
};

/// One operator that changed a deferred storage in place. Holds none of the user's tensors, so it keeps no parameter
/// alive.
struct LoggedOperator {
  c10::OperatorHandle op;
  TensorGeometry self;
  std::vector<c10::IValue> arguments;  ///< after self; tensors among them have one element and are copies
  /// The generator it drew from (the thread's default one unless an argument names another), in the state before the
  /// draw; 2.5 KB. Undefined for operators without a generator.
  at::Generator generator;
  std::size_t generator_argument = 0;  ///< index in arguments
};

/// Owned by the context of the StorageImpl's DataPtr and destroyed with it. The StorageImpl keeps its identity when it
/// gets memory, so every alias (the parameter, detached copies, views that a constructor stored) is materialised at
/// once, and views are replayed at their positions. Functions lock one process-wide mutex, since calls are rare and
/// slow.
class DeferredStorage {
 public:
  /// A tensor without memory, with the key. `strides` as given, or by `format` when empty.
  static at::Tensor make(at::IntArrayRef sizes, std::optional<at::IntArrayRef> strides, at::MemoryFormat format,
                         at::ScalarType dtype);
  static bool has(const at::Tensor& tensor);
  /// A deferred copy of a deferred tensor: its log, without memory. Undefined when a real copy is necessary: `tensor`
  /// is not the whole of its storage, or was written through raw pointers.
  static at::Tensor copy(const at::Tensor& tensor);
  /// Logs `op` on `self`, whose arguments (self first) are `arguments`, and advances the generator that it draws from
  /// as if it had run. Returns false, with nothing changed, when it has to run instead, because the tensor was written
  /// through raw pointers. Throws the operator's own error for invalid arguments.
  static bool log(const c10::OperatorHandle& op, const at::Tensor& self, std::span<const c10::IValue> arguments,
                  std::optional<std::size_t> generator_argument);
  /// Gives the storage memory. With `replay` the log is run, and values written through raw pointers are kept; without
  /// it the values are undefined. Does nothing for other storages.
  static void materialize(const at::Tensor& tensor, bool replay);
  /// Removes the key from a tensor whose storage is not deferred (any more) and is not managed.
  static void drop_key(const at::Tensor& tensor);

 private:
  static DeferredStorage* of(const at::Tensor& tensor);
  void drop_pages(c10::StorageImpl& storage);

  LazyPages pages_;  ///< the tensor's memory until an operation is logged
  std::vector<LoggedOperator> log_;
};

}  // namespace tessera::parallel
