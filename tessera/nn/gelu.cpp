#include <tessera/nn/gelu.h>

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/kernels/cpu/gelu.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/materialized.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const std::optional<at::Tensor>& bias) {
    const Materialized materialized({&x, pointer(bias)});
    const at::Tensor rows = x.contiguous();
    const std::int64_t columns = x.size(-1);
    at::Tensor y = at::empty(x.sizes(), x.options());
    if (const DeviceKernels* const device = device_kernels({rows, bias.value_or(at::Tensor())})) {
      const c10::DeviceGuard guard(x.device());
      device->gelu_tanh(const_reals(rows), const_reals(bias.value_or(at::Tensor())), reals(y), rows.numel() / columns,
                        columns);
    } else {
      for_rows(rows.numel() / columns, columns, [&](std::int64_t begin, std::int64_t end) {
        kernels::gelu_tanh(data(rows) + begin * columns, data(bias), data(y) + begin * columns, end - begin, columns);
      });
    }
    ctx->save_for_backward({rows, bias.value_or(at::Tensor())});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &bias = saved[1], dy = gradients[0].contiguous();
    const Materialized materialized({&x, &bias});
    const std::int64_t columns = x.size(-1);
    at::Tensor dx = at::empty(x.sizes(), x.options());
    if (const DeviceKernels* const device = device_kernels({x, bias})) {
      const c10::DeviceGuard guard(x.device());
      const std::int64_t rows = x.numel() / columns;
      at::Tensor dbias, partial;
      if (bias.defined() && ctx->needs_input_grad(1)) {
        dbias = at::empty(columns, bias.options());
        partial = at::empty(device->gelu_partial_sums(rows, columns), x.options().dtype(at::kFloat));
      }
      device->gelu_tanh_backward({.x = const_reals(x),
                                  .bias = const_reals(bias),
                                  .dy = const_reals(dy),
                                  .dx = reals(dx),
                                  .dbias = reals(dbias),
                                  .partial = partial.defined() ? partial.mutable_data_ptr<float>() : nullptr},
                                 rows, columns);
      return {dx, dbias};
    }
    const at::Tensor dbias =
        for_rows_with_sums(x.numel() / columns, columns, 1, [&](std::int64_t begin, std::int64_t end, float* sums) {
          const std::int64_t o = begin * columns;
          kernels::gelu_tanh_backward(data(x) + o, data(bias), data(dy) + o, data(dx) + o, sums, end - begin, columns);
        });
    return {dx, bias.defined() ? dbias[0] : at::Tensor()};
  }
};

}  // namespace

at::Tensor bias_gelu_tanh(const at::Tensor& x, const at::Tensor& bias) {
  if (served({x, bias}) && x.numel() > 0) return BiasGelu::apply(x, maybe(bias));
  return at::gelu(bias.defined() ? x + bias : x, "tanh");
}

}  // namespace tessera::nn
