#include <tessera/nn/layer_norm.h>

#include <torch/csrc/autograd/custom_function.h>

#include <tessera/kernels/cpu/layer_norm.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/linear.h>
#include <tessera/nn/materialized.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Returns {sum, normed}; without delta, sum is x.
struct AddLayerNorm : torch::autograd::Function<AddLayerNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const std::optional<at::Tensor>& delta,
                               const std::optional<at::Tensor>& delta_bias, const at::Tensor& weight,
                               const at::Tensor& bias, double eps) {
    const Materialized materialized({&x, pointer(delta), pointer(delta_bias), &weight, &bias});
    const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
    const at::Tensor a = x.contiguous(), d = delta ? delta->contiguous() : at::Tensor();
    const at::Tensor sum = d.defined() ? at::empty(x.sizes(), x.options()) : a;
    const at::Tensor y = at::empty(x.sizes(), x.options()),
                     statistics = at::empty({2, rows}, x.options());  // mean, rstd
    float *mean = data(statistics), *rstd = mean + rows;
    for_rows(rows, columns, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t o = begin * columns;
      kernels::layer_norm({data(a) + o, d.defined() ? data(d) + o : nullptr, data(delta_bias), data(weight), data(bias),
                           eps, d.defined() ? data(sum) + o : nullptr, data(y) + o, mean + begin, rstd + begin},
                          end - begin, columns);
    });
    ctx->save_for_backward({sum, weight, statistics});
    ctx->saved_data["has_delta"] = d.defined();
    ctx->saved_data["has_delta_bias"] = delta_bias.has_value();
    ctx->set_materialize_grads(false);
    return {sum, y};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[1], &statistics = saved[2];
    const Materialized materialized({&sum, &weight});
    const bool has_delta = ctx->saved_data["has_delta"].toBool(),
               has_delta_bias = ctx->saved_data["has_delta_bias"].toBool();
    const std::int64_t columns = sum.size(-1), rows = sum.numel() / columns;
    const at::Tensor dsum = gradients[0].defined() ? gradients[0].contiguous() : at::Tensor();
    const at::Tensor dy = gradients[1].defined() ? gradients[1].contiguous() : at::zeros(sum.sizes(), sum.options());
    const at::Tensor dx = at::empty(sum.sizes(), sum.options());
    const float *mean = data(statistics), *rstd = mean + rows;
    const at::Tensor sums = for_rows_with_sums(rows, columns, 3, [&](std::int64_t begin, std::int64_t end, float* out) {
      const std::int64_t o = begin * columns;
      kernels::layer_norm_backward(
          {data(sum) + o, data(dy) + o, dsum.defined() ? data(dsum) + o : nullptr, data(weight), mean + begin,
           rstd + begin, data(dx) + o, out, out + columns, has_delta_bias ? out + 2 * columns : nullptr},
          end - begin, columns);
    });
    return {dx,
            has_delta ? dx : at::Tensor(),
            has_delta_bias ? sums[2].clone() : at::Tensor(),
            sums[0].clone(),
            sums[1].clone(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  if (fusable({x, weight, bias}) && x.numel() > 0)
    return AddLayerNorm::apply(x, std::optional<at::Tensor>(), std::optional<at::Tensor>(), weight, bias, eps)[1];
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

ResidualNorm add_layer_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& delta_bias,
                            const at::Tensor& weight, const at::Tensor& bias, double eps) {
  if (fusable({x, delta, delta_bias, weight, bias}) && x.numel() > 0) {
    const auto out = AddLayerNorm::apply(x, maybe(delta), maybe(delta_bias), weight, bias, eps);
    return {out[0], out[1]};
  }
  const at::Tensor sum = delta.defined() ? add_bias(x, delta, delta_bias) : x;
  return {sum, layer_norm(sum, weight, bias, eps)};
}

}  // namespace tessera::nn
