#pragma once
/// \file
/// Fused functions read parameters through raw pointers, which the dispatcher does not see. A sharding engine, which is
/// above this layer, may have freed their memory; `Materialized` makes it restore the memory while the function runs.
///
///   const Materialized materialized({&weight, &bias});   // first line of forward and of backward

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <vector>

namespace tessera::nn {

/// The dispatch key of tensors with such memory (parallel/dispatch/managed.h).
inline constexpr c10::DispatchKey managed_key = c10::DispatchKey::DeferredInit;

/// The engine's functions: enter returns a token for leave(), or nullptr if none of the tensors is managed. May throw.
/// Some of the tensors may be nullptr or undefined.
struct MaterializeHooks {
  void* (*enter)(const at::Tensor* const* tensors, std::size_t count) = nullptr;
  void (*leave)(void* token) noexcept = nullptr;
};
/// Set once, by the engine's library part, before the first managed parameter exists.
void set_materialize_hooks(const MaterializeHooks& hooks);

/// nullptr and undefined tensors are allowed. Tensors without the key cost two comparisons each. Applies to the calling
/// thread; only the constructor reads the list of tensors. Throws the engine's exceptions, and Error if a tensor has
/// the key but no engine is installed.
class Materialized {
 public:
  Materialized(std::initializer_list<const at::Tensor*> tensors) {
    for (const at::Tensor* t : tensors)
      if (t != nullptr && t->defined() && t->key_set().has(managed_key)) [[unlikely]] {
        enter(tensors.begin(), tensors.size());
        return;
      }
  }
  explicit Materialized(const std::vector<const at::Tensor*>& tensors) {
    for (const at::Tensor* t : tensors)
      if (t != nullptr && t->defined() && t->key_set().has(managed_key)) [[unlikely]] {
        enter(tensors.data(), tensors.size());
        return;
      }
  }
  ~Materialized() {
    if (token_ != nullptr) [[unlikely]]
      leave();
  }
  Materialized(const Materialized&) = delete;
  Materialized& operator=(const Materialized&) = delete;

 private:
  void enter(const at::Tensor* const* tensors, std::size_t count);
  void leave() noexcept;

  void* token_ = nullptr;
};

/// The tensor in an optional, for Materialized's list.
inline const at::Tensor* pointer(const std::optional<at::Tensor>& tensor) { return tensor ? &*tensor : nullptr; }

}  // namespace tessera::nn
