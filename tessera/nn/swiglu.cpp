#include <tessera/nn/swiglu.h>

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/kernels/cpu/swiglu.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/gelu.h>
#include <tessera/nn/materialized.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SwiGlu : torch::autograd::Function<SwiGlu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up) {
    const Materialized materialized({&gate, &up});
    const at::Tensor g = gate.contiguous(), u = up.contiguous();
    const at::Tensor y = at::empty(g.sizes(), g.options().dtype(at::promote_types(g.scalar_type(), u.scalar_type())));
    if (const DeviceKernels* const device = device_kernels({g, u})) {
      const c10::DeviceGuard guard(g.device());
      device->swiglu(const_reals(g), const_reals(u), reals(y), g.numel());
    } else {
      for_rows(g.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
        kernels::swiglu(data(g) + begin, data(u) + begin, data(y) + begin, end - begin);
      });
    }
    ctx->save_for_backward({g, u});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &g = saved[0], &u = saved[1], dy = gradients[0].contiguous();
    const Materialized materialized({&g, &u});
    const at::Tensor dg = at::empty(g.sizes(), g.options()), du = at::empty(u.sizes(), u.options());
    if (const DeviceKernels* const device = device_kernels({g, u})) {
      const c10::DeviceGuard guard(g.device());
      device->swiglu_backward({const_reals(g), const_reals(u), const_reals(dy), reals(dg), reals(du)}, g.numel());
      return {dg, du};
    }
    for_rows(g.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      kernels::swiglu_backward(data(g) + begin, data(u) + begin, data(dy) + begin, data(dg) + begin, data(du) + begin,
                               end - begin);
    });
    return {dg, du};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  if (served({gate, up}) && gate.sizes() == up.sizes() && gate.numel() > 0) return SwiGlu::apply(gate, up);
  return at::silu(gate) * up;
}

at::Tensor geglu_tanh(const at::Tensor& gate, const at::Tensor& up) { return bias_gelu_tanh(gate, {}) * up; }

at::Tensor gated(GateKind kind, const at::Tensor& gate, const at::Tensor& up) {
  return kind == GateKind::silu ? swiglu(gate, up) : geglu_tanh(gate, up);
}

}  // namespace tessera::nn
