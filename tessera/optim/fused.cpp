#include <tessera/optim/fused.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace tessera::optim {

void FusedOptimizer::step(double learning_rate, double gradient_scale) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = state_.gradients();
  const StepFactors factors{learning_rate, gradient_scale};
  ++steps_;
  if (state_.has_kernels()) {
    state_.for_each_block(gradients, [&](const Block& block) {
      update_block(block, gradients[block.slot].const_data_ptr<float>() + block.offset, factors);
    });
    return;
  }
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].defined()) update_slot(i, gradients[i], factors);
}

}  // namespace tessera::optim
