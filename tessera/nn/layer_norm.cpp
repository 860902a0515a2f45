#include <tessera/nn/layer_norm.h>

#include <torch/csrc/autograd/custom_function.h>

#include <tessera/kernels/cpu/layer_norm.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/device/norm.h>
#include <tessera/nn/device/served.h>
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
                               const at::Tensor& bias, double eps, NormReaders readers) {
    const Materialized materialized({&x, pointer(delta), pointer(delta_bias), &weight, &bias});
    DeviceNorm a = {.x = x.contiguous(),
                    .delta = delta ? delta->contiguous() : at::Tensor(),
                    .delta_bias = delta_bias.value_or(at::Tensor()),
                    .weight = weight,
                    .bias = bias,
                    .eps = eps,
                    .centred = true};
    // The type that at::layer_norm returns.
    const bool autocast = libtorch_autocast_type(x.device().type()).has_value();
    a.normed_type = stored_type(readers, autocast ? at::kFloat : sum_type(a.x, a.delta, a.delta_bias));
    const DeviceKernels* const device = device_kernels({a.x, a.delta, a.delta_bias, weight, bias});
    const DeviceNormed out = device ? device_norm(*device, a) : on_cpu(a);
    ctx->save_for_backward({out.sum, weight, out.statistics});
    ctx->saved_data["x"] = saved_type(x);
    ctx->saved_data["delta"] = saved_type(a.delta);
    ctx->saved_data["delta_bias"] = saved_type(a.delta_bias);
    ctx->saved_data["bias"] = saved_type(bias);
    ctx->set_materialize_grads(false);
    return {out.sum, out.normed};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[1], &statistics = saved[2];
    const Materialized materialized({&sum, &weight});
    const bool has_delta = type_of_saved(ctx->saved_data["delta"]).has_value(),
               has_delta_bias = type_of_saved(ctx->saved_data["delta_bias"]).has_value();
    const at::Tensor dsum = gradients[0].defined() ? gradients[0].contiguous() : at::Tensor();
    const at::Tensor dy = gradients[1].defined() ? gradients[1].contiguous() : at::zeros(sum.sizes(), sum.options());
    if (const DeviceKernels* const device = device_kernels({sum, weight})) {
      // The engine counts only the arguments that are present.
      const std::size_t first = 1 + (has_delta ? 1 : 0), second = first + (has_delta_bias ? 1 : 0);
      const auto wanted = [&](const char* name, std::size_t argument) {
        const GradientType type = type_of_saved(ctx->saved_data[name]);
        return type && ctx->needs_input_grad(argument) ? type : std::nullopt;
      };
      const DeviceNormGradients out = device_norm_backward(
          *device, {.sum = sum,
                    .dy = dy,
                    .dsum = dsum,
                    .weight = weight,
                    .statistics = statistics,
                    .x = *type_of_saved(ctx->saved_data["x"]),
                    .delta = wanted("delta", 1),
                    .delta_bias = wanted("delta_bias", first),
                    .weights = ctx->needs_input_grad(second) ? GradientType(weight.scalar_type()) : std::nullopt,
                    .bias = wanted("bias", second + 1)});
      return {out.x, out.delta, out.delta_bias, out.weight, out.bias, at::Tensor(), at::Tensor()};
    }
    const std::int64_t columns = sum.size(-1), rows = sum.numel() / columns;
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
            at::Tensor(),
            at::Tensor()};
  }

 private:
  static DeviceNormed on_cpu(const DeviceNorm& a) {
    const std::int64_t columns = a.x.size(-1), rows = a.x.numel() / columns;
    const bool adds = a.delta.defined();
    const DeviceNormed out = {.sum = adds ? at::empty(a.x.sizes(), a.x.options()) : a.x,
                              .normed = at::empty(a.x.sizes(), a.x.options()),
                              .statistics = at::empty({2, rows}, a.x.options())};  // mean, rstd
    float *mean = data(out.statistics), *rstd = mean + rows;
    for_rows(rows, columns, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t o = begin * columns;
      kernels::layer_norm(
          {data(a.x) + o, adds ? data(a.delta) + o : nullptr, data(a.delta_bias), data(a.weight), data(a.bias), a.eps,
           adds ? data(out.sum) + o : nullptr, data(out.normed) + o, mean + begin, rstd + begin},
          end - begin, columns);
    });
    return out;
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  if (served({x, weight, bias}) && x.numel() > 0)
    return AddLayerNorm::apply(x, std::optional<at::Tensor>(), std::optional<at::Tensor>(), weight, bias, eps,
                               NormReaders::any)[1];
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

ResidualNorm add_layer_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& delta_bias,
                            const at::Tensor& weight, const at::Tensor& bias, double eps, NormReaders readers) {
  if (served({x, delta, delta_bias, weight, bias}) && x.numel() > 0) {
    const auto out = AddLayerNorm::apply(x, maybe(delta), maybe(delta_bias), weight, bias, eps, readers);
    return {out[0], out[1]};
  }
  const at::Tensor sum = delta.defined() ? add_bias(x, delta, delta_bias) : x;
  return {sum, layer_norm(sum, weight, bias, eps)};
}

}  // namespace tessera::nn
