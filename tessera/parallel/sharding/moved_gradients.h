#pragma once
/// \file
/// What a sharded module's own parameters have in grad() after a backward: tensors without memory that say where the
/// gradients are. Otherwise an optimizer, or a clipping function, that was given module->parameters() would find no
/// gradients, skip every parameter and never be noticed.

#include <ATen/core/Tensor.h>

#include <tessera/parallel/dispatch/managed.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::parallel {

/// Not thread-safe: the engine's mutex.
class MovedGradients {
 public:
  /// `parameters` are managed; a gradient's numbers of elements and sizes are theirs.
  explicit MovedGradients(std::vector<at::Tensor> parameters);
  /// Takes all away.
  ~MovedGradients();
  MovedGradients(const MovedGradients&) = delete;
  MovedGradients& operator=(const MovedGradients&) = delete;

  /// Into grad() of parameter i.
  void put(std::size_t i);
  /// Takes it out again. `gone`: somebody did that already, as the module's own zero_grad() does.
  enum class Found { none, here, gone };
  Found take(std::size_t i);

 private:
  std::vector<at::Tensor> parameters_, signs_;
  std::vector<bool> placed_;
  std::unique_ptr<ManagedStorage> storage_;
};

}  // namespace tessera::parallel
