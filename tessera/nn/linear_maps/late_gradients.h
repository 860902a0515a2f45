#pragma once
/// \file
/// Shared by the backward functions of linear maps: gradients of weight and bias are computed now, or deferred
/// (weight_gradients.h). Only for sources of nn/: it needs torch's custom functions.

#include <torch/csrc/autograd/custom_function.h>

#include <tessera/nn/weight_gradients.h>

namespace tessera::nn {

/// Saves the current scope in forward, so that backward can check whether weight gradients are deferred.
inline void remember_scope(torch::autograd::AutogradContext* ctx) {
  if (const auto& current = WeightGradients::current()) [[unlikely]]
    ctx->saved_data["late"] = c10::IValue::make_capsule(current);
}

/// The scope saved by forward, if it is currently deferring.
inline c10::intrusive_ptr<WeightGradients> deferring_scope(torch::autograd::AutogradContext* ctx) {
  const auto found = ctx->saved_data.find("late");
  if (found == ctx->saved_data.end()) return {};
  auto late = c10::static_intrusive_pointer_cast<WeightGradients>(found->second.toCapsule());
  return late->deferring() ? late : c10::intrusive_ptr<WeightGradients>();
}

/// Gradients of weight and bias, inputs 1 and 2 of the running function: computed now, or in
/// WeightGradients::compute(). Returns those of this backward.
template <class Form>
torch::autograd::variable_list now_or_later(torch::autograd::AutogradContext* ctx, bool has_bias, const at::Tensor& dy,
                                            const Form& form) {
  using torch::autograd::variable_list;
  const bool bias = has_bias && ctx->needs_input_grad(2), weight = ctx->needs_input_grad(1);
  variable_list gradients(2);
  if (!weight && !bias) return gradients;
  const auto both = [form, weight, bias, has_bias] {
    variable_list formed = form(weight, bias);
    formed.resize(has_bias ? 2 : 1);
    return formed;
  };
  if (const auto late = deferring_scope(ctx)) {
    late->leave(1, has_bias ? 2 : 1, dy, both);
    return gradients;
  }
  if (leave_late(both)) return gradients;
  return form(weight, bias);
}

}  // namespace tessera::nn
