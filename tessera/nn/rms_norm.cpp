#include <tessera/nn/rms_norm.h>

#include <torch/csrc/autograd/custom_function.h>

#include <tessera/kernels/cpu/rms_norm.h>
#include <tessera/nn/device/norm.h>
#include <tessera/nn/device/served.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/materialized.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Returns {sum, normed}; without delta, sum is x.
struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const std::optional<at::Tensor>& delta,
                               const at::Tensor& weight, double eps, NormReaders readers) {
    const Materialized materialized({&x, pointer(delta), &weight});
    const at::Tensor a = x.contiguous(), d = delta ? delta->contiguous() : at::Tensor();
    const DeviceKernels* const device = device_kernels({a, d, weight});
    const DeviceNormed out =
        device ? device_norm(*device, {.x = a,
                                       .delta = d,
                                       .delta_bias = {},
                                       .weight = weight,
                                       .bias = {},
                                       .eps = eps,
                                       .normed_type = stored_type(
                                           readers, at::promote_types(sum_type(a, d, {}), weight.scalar_type())),
                                       .centred = false})
               : on_cpu(a, d, weight, eps);
    ctx->save_for_backward({out.sum, weight, out.statistics});
    ctx->saved_data["x"] = saved_type(x);
    ctx->saved_data["delta"] = saved_type(d);
    ctx->set_materialize_grads(false);
    return {out.sum, out.normed};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[1], &rstd = saved[2];
    const Materialized materialized({&sum, &weight});
    const GradientType delta = type_of_saved(ctx->saved_data["delta"]);
    const at::Tensor dsum = gradients[0].defined() ? gradients[0].contiguous() : at::Tensor();
    const at::Tensor dy = gradients[1].defined() ? gradients[1].contiguous() : at::zeros(sum.sizes(), sum.options());
    if (const DeviceKernels* const device = device_kernels({sum, weight})) {
      const bool wanted = ctx->needs_input_grad(delta ? 2 : 1);  // the engine counts only the arguments that are
                                                                 // present
      const DeviceNormGradients out =
          device_norm_backward(*device, {.sum = sum,
                                         .dy = dy,
                                         .dsum = dsum,
                                         .weight = weight,
                                         .statistics = rstd,
                                         .x = *type_of_saved(ctx->saved_data["x"]),
                                         .delta = delta,
                                         .delta_bias = {},
                                         .weights = wanted ? GradientType(weight.scalar_type()) : std::nullopt,
                                         .bias = {}});
      return {out.x, out.delta, out.weight, at::Tensor(), at::Tensor()};
    }
    const std::int64_t columns = sum.size(-1), rows = sum.numel() / columns;
    const at::Tensor dx = at::empty(sum.sizes(), sum.options());
    const at::Tensor sums = for_rows_with_sums(rows, columns, 1, [&](std::int64_t begin, std::int64_t end, float* out) {
      const std::int64_t o = begin * columns;
      kernels::rms_norm_backward({data(sum) + o, data(dy) + o, dsum.defined() ? data(dsum) + o : nullptr, data(weight),
                                  data(rstd) + begin, data(dx) + o, out},
                                 end - begin, columns);
    });
    return {dx, delta ? dx : at::Tensor(), sums[0], at::Tensor(), at::Tensor()};
  }

 private:
  static DeviceNormed on_cpu(const at::Tensor& x, const at::Tensor& d, const at::Tensor& weight, double eps) {
    const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
    const DeviceNormed out = {.sum = d.defined() ? at::empty(x.sizes(), x.options()) : x,
                              .normed = at::empty(x.sizes(), x.options()),
                              .statistics = at::empty({1, rows}, x.options())};
    for_rows(rows, columns, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t o = begin * columns;
      kernels::rms_norm({data(x) + o, d.defined() ? data(d) + o : nullptr, data(weight), eps,
                         d.defined() ? data(out.sum) + o : nullptr, data(out.normed) + o, data(out.statistics) + begin},
                        end - begin, columns);
    });
    return out;
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (served({x, weight}) && x.numel() > 0)
    return AddRmsNorm::apply(x, std::optional<at::Tensor>(), weight, eps, NormReaders::any)[1];
  const at::Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  return weight * (wide * at::rsqrt(wide.pow(2).mean({-1}, /*keepdim=*/true) + eps)).to(x.scalar_type());
}

ResidualNorm add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps,
                          NormReaders readers) {
  if (served({x, delta, weight}) && x.numel() > 0) {
    const auto out = AddRmsNorm::apply(x, maybe(delta), weight, eps, readers);
    return {out[0], out[1]};
  }
  const at::Tensor sum = delta.defined() ? x + delta : x;
  return {sum, rms_norm(sum, weight, eps)};
}

}  // namespace tessera::nn
