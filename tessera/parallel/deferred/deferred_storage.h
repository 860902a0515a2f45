#pragma once
/// \file
/// The storage of a deferred tensor: its size, no memory, and what was done to it.

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

/// Where a tensor lies in its storage.
struct TensorGeometry {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;  ///< elements
  caffe2::TypeMeta dtype;
};

/// One operator that changed a deferred storage in place. Holds no tensor of the user's: it keeps no parameter alive.
struct LoggedOperator {
  c10::OperatorHandle op;
  TensorGeometry self;
  std::vector<c10::IValue> arguments;  ///< those after self; tensors among them have one element and are copies
  /// The generator it drew from (the thread's default one unless an argument names another), as it was before;
  /// 2.5 KB. Undefined for operators without.
  at::Generator generator;
  std::size_t generator_argument = 0;  ///< index in arguments
};

/// Hangs on the context of the StorageImpl's DataPtr and dies with it. The StorageImpl keeps its identity when it gets
/// memory, so every alias (the parameter, detached copies, views that a constructor stored) is materialised at once,
/// and views are replayed where they lay. Functions lock one process-wide mutex: rare and slow calls only.
class DeferredStorage {
 public:
  /// A tensor without memory, with the key. Strides as given, or as `format` says when empty.
  static at::Tensor make(at::IntArrayRef sizes, std::optional<at::IntArrayRef> strides, at::MemoryFormat format,
                         at::ScalarType dtype);
  static bool has(const at::Tensor& tensor);
  /// A deferred copy of a deferred tensor: its log, without memory. Undefined when the copy has to be made: `tensor` is
  /// not the whole of its storage, or was written through raw pointers.
  static at::Tensor copy(const at::Tensor& tensor);
  /// Logs `op` on `self`, whose arguments (self first) are `arguments`, and moves the generator that it draws from on
  /// as if it had run. False, with nothing changed, when it has to run instead: the tensor was written through raw
  /// pointers. Throws what the operator throws for such arguments.
  static bool log(const c10::OperatorHandle& op, const at::Tensor& self, std::span<const c10::IValue> arguments,
                  std::optional<std::size_t> generator_argument);
  /// Gives the storage memory. With `replay`, what was logged is run, and what was written through raw pointers stays;
  /// without, its values are undefined. Nothing for other storages.
  static void materialize(const at::Tensor& tensor, bool replay);
  /// Takes the key off a tensor whose storage is not (or no longer) deferred and was not managed in the meantime.
  static void drop_key(const at::Tensor& tensor);

 private:
  static DeferredStorage* of(const at::Tensor& tensor);
  void drop_pages(c10::StorageImpl& storage);

  LazyPages pages_;  ///< until something is logged
  std::vector<LoggedOperator> log_;
};

}  // namespace tessera::parallel
