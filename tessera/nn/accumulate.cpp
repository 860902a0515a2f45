#include <tessera/nn/accumulate.h>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

namespace tessera::nn {
namespace {

namespace autograd = torch::autograd;

thread_local int scopes = 0;

bool somebody_looks(const at::Tensor& parameter) {
  if (!autograd::impl::hooks(parameter).empty() || autograd::impl::post_acc_grad_hooks(parameter)) return true;
  const auto accumulator = autograd::impl::try_get_grad_accumulator(parameter);
  return accumulator && !(accumulator->pre_hooks().empty() && accumulator->post_hooks().empty());
}

}  // namespace

AccumulateInPlace::AccumulateInPlace() { ++scopes; }
AccumulateInPlace::~AccumulateInPlace() { --scopes; }
bool AccumulateInPlace::active() { return scopes > 0; }

at::Tensor gradient_to_add_to(const at::Tensor& parameter) {
  if (scopes == 0 || at::GradMode::is_enabled() || !parameter.is_leaf() || !parameter.requires_grad()) return {};
  const auto* const chosen = autograd::get_current_graph_task_exec_info();
  if (chosen == nullptr || !chosen->empty() || somebody_looks(parameter)) return {};
  const at::Tensor& sum = parameter.grad();
  const bool fits = sum.defined() && sum.is_contiguous() && sum.layout() == at::kStrided &&
                    sum.scalar_type() == parameter.scalar_type() && sum.sizes() == parameter.sizes() &&
                    sum.device() == parameter.device() && !sum.requires_grad();
  return fits ? sum : at::Tensor();
}

}  // namespace tessera::nn
