#pragma once
/// \file
/// Optimizers that update every element independently: one pass over blocks, with bitwise identical results wherever a
/// parameter is cut.

#include <tessera/optim/fused.h>

#include <vector>

namespace tessera::optim {

class ElementwiseOptimizer : public FusedOptimizer {
 protected:
  using FusedOptimizer::FusedOptimizer;

  /// Updates a block of float32 on the CPU; called in parallel. `gradient` points to the block's first element.
  virtual void update_block(const Block& block, const float* gradient, const StepFactors& factors) = 0;
  /// Updates a slot of any other dtype or device. `gradient` is contiguous; `states` are the slot's states, as float32
  /// copies if they are bfloat16. The new values must be written into them.
  virtual void update_slot(std::size_t slot, const at::Tensor& gradient, const std::vector<at::Tensor>& states,
                           const StepFactors& factors) = 0;

  /// Updates all slots at once. Returns false if that is not possible; update_slot() is then called for each.
  virtual bool update_together(const std::vector<at::Tensor>& gradients, const StepFactors& factors) {
    (void)gradients, (void)factors;
    return false;
  }

  /// Returns how the states of a block are rounded in this step.
  kernels::Bf16Rounding rounding(const Block& block) const;

 private:
  void update(const std::vector<at::Tensor>& gradients, const StepFactors& factors) final;
};

}  // namespace tessera::optim
