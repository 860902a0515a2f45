#pragma once
/// \file
/// Internal to managed*.cpp: the StorageImpl of managed parameters and how to recognise it.

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <tessera/parallel/dispatch/managed.h>

namespace tessera::parallel::detail {

/// A StorageImpl that refers to its manager. Aliases (views of others, saved tensors) may outlive the manager.
struct Memory final : c10::StorageImpl {
  Memory(ManagedStorage& owner, Materializer& materializer, std::size_t unit, std::size_t nbytes, c10::Device device,
         std::string absent_text);

  ManagedStorage* owner;  ///< nullptr once the ManagedStorage is destroyed
  Materializer* materializer;
  std::size_t unit;
  bool cast_inputs = false;
};

/// Identifies Memory: a storage with this allocator is a Memory. Allocates nothing.
c10::Allocator* memory_mark();

/// The Memory of `tensor`, or nullptr. Costs two loads and a comparison.
inline Memory* memory_of(const at::TensorImpl& tensor) {
  c10::StorageImpl* const storage = tensor.unsafe_storage().unsafeGetStorageImpl();
  static c10::Allocator* const mark = memory_mark();
  return storage != nullptr && storage->allocator() == mark ? static_cast<Memory*>(storage) : nullptr;
}

/// Registers the key's fallback and fallthroughs, and the hooks of nn/materialized.h, on the first call.
void register_key();

}  // namespace tessera::parallel::detail
