#include <tessera/nn/linear_maps/fp8_linear.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/nn/accumulate.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/linear_maps/fp8_device_linear.h>
#include <tessera/nn/linear_maps/late_gradients.h>
#include <tessera/nn/materialized.h>

#include <algorithm>
#include <memory>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Data other than tensors that forward saves for backward.
struct Kept : torch::CustomClassHolder {
  std::shared_ptr<const Fp8Map> map;
  at::ScalarType input_type = at::kFloat;
  bool out_first = false, has_bias = false, training = false;
};

/// [R, C] -> [C, R]: the transpose of a rounded matrix or, if neighbours share scales, its rounded transpose.
Fp8Tensor turned(const Fp8Map& map, const Fp8Tensor& rounded, const at::Tensor& x, Fp8Operand operand) {
  return map.one_scale() ? transposed(rounded) : map.rounded(x.t(), operand, /*note=*/false);
}

/// A product as the gradient of `weight`; undefined if it was added directly to grad().
at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& product) {
  at::Tensor sum = gradient_to_add_to(weight);
  if (!sum.defined()) return product.to(weight.scalar_type());
  sum.add_(product);
  return {};
}

struct Fp8Linear : torch::autograd::Function<Fp8Linear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const c10::intrusive_ptr<Kept>& kept,
                            const ProductParts* parts) {
    const Materialized materialized({&x, &weight, pointer(bias)});
    const Fp8Map& map = *kept->map;
    const at::Tensor out_in = kept->out_first ? weight : weight.t(), rows = x.reshape({-1, out_in.size(1)});
    const Fp8Tensor input = map.rounded(rows, Fp8Operand::input, kept->training);
    const Fp8Tensor factor = map.rounded(out_in, Fp8Operand::weight, kept->training);
    const auto half = fusable({x}) ? std::nullopt : libtorch_autocast_type(x.device().type());
    auto shape = x.sizes().vec();
    shape.back() = out_in.size(0);
    const at::Tensor y = at::empty(shape, x.options().dtype(half.value_or(x.scalar_type())));
    const std::int64_t n = y.size(0), of_one = rows.size(0) / n, count = parts ? std::min(parts->parts, n) : 1;
    for (std::int64_t p = 0; p < count; ++p) {
      const std::int64_t begin = p * n / count, end = (p + 1) * n / count;
      Fp8Tensor part = input;
      if (count > 1) {
        part.values = input.values.slice(0, begin * of_one, end * of_one);
        if (part.rows != 0) part.scale = input.scale.slice(0, begin * of_one, end * of_one);
      }
      at::Tensor product = fp8_product(part, factor);
      if (bias) product.add_(*bias);
      y.narrow(0, begin, end - begin).view({-1, product.size(1)}).copy_(product);
      if (parts) parts->computed(y.narrow(0, begin, end - begin));
    }
    // If the transpose of x is rounded separately, backward needs the original x.
    const bool frozen = !weight.requires_grad(), eight = map.one_scale();
    ctx->save_for_backward({weight,
                            frozen  ? at::Tensor()
                            : eight ? input.values
                                    : rows,
                            frozen || !eight ? at::Tensor() : input.scale});
    kept->input_type = x.scalar_type();
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    remember_scope(ctx);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(ctx->saved_data["kept"].toCapsule());
    const at::Tensor weight = saved[0], dy = gradients[0].contiguous();
    const Materialized materialized({&weight});
    const at::Tensor out_in = kept->out_first ? weight : weight.t();
    const at::Tensor rows = dy.view({-1, out_in.size(0)});
    const Fp8Tensor gradient = kept->map->rounded(rows, Fp8Operand::gradient, kept->training);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      auto shape = dy.sizes().vec();
      shape.back() = out_in.size(1);
      // The weight's largest values are known from forward; with one scale, the result is the same as in forward.
      const Fp8Tensor factor = kept->map->rounded(out_in.t(), Fp8Operand::weight, /*note=*/false);
      dx = fp8_product(gradient, factor).view(shape).to(kept->input_type);
    }
    const auto form = [kept, weight, gradient, rows, x = saved[1].defined() ? saved[1].detach() : at::Tensor(),
                       scale = saved[2].defined() ? saved[2].detach() : at::Tensor()](bool of_weight, bool of_bias) {
      variable_list formed(2);
      if (of_weight) formed[0] = weight_gradient(weight, product_of_weight(*kept, gradient, rows, x, scale));
      if (of_bias) formed[1] = rows.sum(0);
      return formed;
    };
    const variable_list formed = now_or_later(ctx, kept->has_bias, rows, form);
    return {dx, formed[0], formed[1], at::Tensor(), at::Tensor()};
  }

  /// dy^T x, or its transpose, depending on the weight's layout. `x`: the rows of the input, rounded with `scale`.
  static at::Tensor product_of_weight(const Kept& kept, const Fp8Tensor& gradient, const at::Tensor& rows,
                                      const at::Tensor& x, const at::Tensor& scale) {
    const Fp8Map& map = *kept.map;
    const Fp8Tensor left = turned(map, gradient, rows, Fp8Operand::gradient);
    const Fp8Tensor right = turned(map, {x, scale}, x, Fp8Operand::input);
    return kept.out_first ? fp8_product(left, right) : fp8_product(right, left);
  }
};

}  // namespace

at::Tensor fp8_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightLayout layout,
                      const Fp8Scope& scope, const ProductParts* parts) {
  if (const DeviceKernels* const device = fp8_device_kernels(x, weight, *scope.map()))
    return fp8_device_linear(*device, x, weight, bias, layout, scope, parts);
  auto kept = c10::make_intrusive<Kept>();
  kept->map = scope.map();
  kept->out_first = layout == WeightLayout::out_in;
  kept->has_bias = bias.defined();
  kept->training = scope.training();
  return Fp8Linear::apply(x, weight, maybe(bias), kept, parts);
}

}  // namespace tessera::nn
