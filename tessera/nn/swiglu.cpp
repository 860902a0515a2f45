#include <tessera/nn/swiglu.h>

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
    const at::Tensor g = gate.contiguous(), u = up.contiguous(), y = at::empty(g.sizes(), g.options());
    for_rows(g.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      kernels::swiglu(data(g) + begin, data(u) + begin, data(y) + begin, end - begin);
    });
    ctx->save_for_backward({g, u});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &g = saved[0], &u = saved[1], dy = gradients[0].contiguous();
    const Materialized materialized({&g, &u});
    const at::Tensor dg = at::empty(g.sizes(), g.options()), du = at::empty(g.sizes(), g.options());
    for_rows(g.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      kernels::swiglu_backward(data(g) + begin, data(u) + begin, data(dy) + begin, data(dg) + begin, data(du) + begin,
                               end - begin);
    });
    return {dg, du};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  if (fusable({gate, up}) && gate.numel() > 0) return SwiGlu::apply(gate, up);
  return at::silu(gate) * up;
}

at::Tensor geglu_tanh(const at::Tensor& gate, const at::Tensor& up) { return bias_gelu_tanh(gate, {}) * up; }

at::Tensor gated(GateKind kind, const at::Tensor& gate, const at::Tensor& up) {
  return kind == GateKind::silu ? swiglu(gate, up) : geglu_tanh(gate, up);
}

}  // namespace tessera::nn
