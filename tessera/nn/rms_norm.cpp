#include <tessera/nn/rms_norm.h>

#include <torch/csrc/autograd/custom_function.h>

#include <tessera/kernels/cpu/rms_norm.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/materialized.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Returns {sum, normed}; without delta, sum is x.
struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const std::optional<at::Tensor>& delta,
                               const at::Tensor& weight, double eps) {
    const Materialized materialized({&x, pointer(delta), &weight});
    const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
    const at::Tensor a = x.contiguous(), d = delta ? delta->contiguous() : at::Tensor();
    const at::Tensor sum = d.defined() ? at::empty(x.sizes(), x.options()) : a;
    const at::Tensor y = at::empty(x.sizes(), x.options()), rstd = at::empty({rows}, x.options());
    for_rows(rows, columns, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t o = begin * columns;
      kernels::rms_norm({data(a) + o, d.defined() ? data(d) + o : nullptr, data(weight), eps,
                         d.defined() ? data(sum) + o : nullptr, data(y) + o, data(rstd) + begin},
                        end - begin, columns);
    });
    ctx->save_for_backward({sum, weight, rstd});
    ctx->saved_data["has_delta"] = d.defined();
    ctx->set_materialize_grads(false);
    return {sum, y};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[1], &rstd = saved[2];
    const Materialized materialized({&sum, &weight});
    const std::int64_t columns = sum.size(-1), rows = sum.numel() / columns;
    const at::Tensor dsum = gradients[0].defined() ? gradients[0].contiguous() : at::Tensor();
    const at::Tensor dy = gradients[1].defined() ? gradients[1].contiguous() : at::zeros(sum.sizes(), sum.options());
    const at::Tensor dx = at::empty(sum.sizes(), sum.options());
    const at::Tensor sums = for_rows_with_sums(rows, columns, 1, [&](std::int64_t begin, std::int64_t end, float* out) {
      const std::int64_t o = begin * columns;
      kernels::rms_norm_backward({data(sum) + o, data(dy) + o, dsum.defined() ? data(dsum) + o : nullptr, data(weight),
                                  data(rstd) + begin, data(dx) + o, out},
                                 end - begin, columns);
    });
    return {dx, ctx->saved_data["has_delta"].toBool() ? dx : at::Tensor(), sums[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (fusable({x, weight}) && x.numel() > 0) return AddRmsNorm::apply(x, std::optional<at::Tensor>(), weight, eps)[1];
  const at::Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  return weight * (wide * at::rsqrt(wide.pow(2).mean({-1}, /*keepdim=*/true) + eps)).to(x.scalar_type());
}

ResidualNorm add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps) {
  if (fusable({x, delta, weight}) && x.numel() > 0) {
    const auto out = AddRmsNorm::apply(x, maybe(delta), weight, eps);
    return {out[0], out[1]};
  }
  const at::Tensor sum = delta.defined() ? x + delta : x;
  return {sum, rms_norm(sum, weight, eps)};
}

}  // namespace tessera::nn
