#pragma once
/// \file
/// Fused functions read parameters by raw pointers, which no dispatcher sees. A sharding engine, which sits above this
/// layer, may have dropped their memory; `Present` asks it to bring it back while the function runs.
///
///   const Present present({weight, bias});   // first line of forward and of backward

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <vector>

namespace tessera::nn {

/// What the engine above does: returns a token for leave(), nullptr when none of the tensors is managed. May throw.
struct PresentHooks {
  void* (*enter)(const at::Tensor* const* tensors, std::size_t count) = nullptr;
  void (*leave)(void* token) noexcept = nullptr;
};
/// Set once, by the engine's library part, before the first managed parameter exists.
void set_present_hooks(const PresentHooks& hooks);

/// Undefined tensors are fine. Without an engine: two comparisons per tensor. Not for tensors of another thread's unit
/// of work: it is a scope of the calling thread.
class Present {
 public:
  Present(std::initializer_list<const at::Tensor*> tensors);
  ~Present();
  Present(const Present&) = delete;
  Present& operator=(const Present&) = delete;

 private:
  void* token_ = nullptr;
};

}  // namespace tessera::nn
