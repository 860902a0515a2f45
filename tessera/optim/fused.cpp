#include <tessera/optim/fused.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>

namespace tessera::optim {

void Optimizer::step_by(const at::Tensor&, double) {
  throw Error("this optimizer cannot read its scalars from the device");
}

void FusedOptimizer::step_by(const at::Tensor& scalars, double learning_rate) {
  TESSERA_CHECK(takes_step_scalars(), "this optimizer cannot read its scalars from the device");
  take_step({learning_rate, 1, static_cast<const kernels::cuda::StepScalars*>(scalars.const_data_ptr())});
}

void FusedOptimizer::take_step(const StepFactors& factors) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = state_.gradients();
  ++steps_;
  update(gradients, factors);
  // Kernels write through raw pointers, so autograd and the sharding engine notice a change only by the version.
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].defined() && !slot(i).parameter.is_inference())
      slot(i).parameter.unsafeGetTensorImpl()->bump_version();
}

void check_betas(const char* name, double beta1, double beta2) {
  if (!(beta1 >= 0 && beta1 < 1) || !(beta2 >= 0 && beta2 < 1))
    throw InputError(concat(name, ": beta1 = ", beta1, ", beta2 = ", beta2, "; each beta must be in [0, 1)"));
}

void refuse_eight_bits(const CommonOptions& common, const char* optimizer) {
  if (common.eight_bit_state)
    throw InputError(
        concat(optimizer, ": states of 8 bits are available only for AdamW, Adam and Lion; turn them off"));
}

void refuse_bf16(const CommonOptions& common, const char* optimizer) {
  refuse_eight_bits(common, optimizer);
  if (common.bf16_state)
    throw InputError(
        concat(optimizer, ": bfloat16 states are available only for AdamW, Adam, SGD and Lion; turn them off"));
}

}  // namespace tessera::optim
