#pragma once
/// \file
/// Placeholders in grad() of a sharded module's own parameters after a backward: tensors without memory whose use is an
/// error that states where the gradients are. Without them an optimizer or a clipping function that was given
/// module->parameters() would find no gradients and silently skip every parameter.

#include <ATen/core/Tensor.h>

#include <tessera/parallel/dispatch/managed.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::parallel {

/// Not thread-safe: guarded by the engine's mutex.
class MovedGradients {
 public:
  /// `parameters` must be managed; a placeholder has the sizes and strides of its parameter.
  explicit MovedGradients(std::vector<at::Tensor> parameters);
  /// Removes all placeholders.
  ~MovedGradients();
  MovedGradients(const MovedGradients&) = delete;
  MovedGradients& operator=(const MovedGradients&) = delete;

  /// Puts the placeholder into grad() of parameter i.
  void put(std::size_t i);
  /// Removes the placeholder. `none`: it did not exist; `gone`: it was already removed, for example by the module's own
  /// zero_grad().
  enum class Found { none, here, gone };
  Found take(std::size_t i);

 private:
  std::vector<at::Tensor> parameters_, placeholders_;
  std::vector<bool> placed_;  ///< by parameter: between put() and take()
  std::unique_ptr<ManagedStorage> storage_;
};

}  // namespace tessera::parallel
