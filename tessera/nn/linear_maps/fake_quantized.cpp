#include <tessera/nn/linear_maps/fake_quantized.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/nn/accumulate.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/gemm.h>
#include <tessera/nn/linear_maps/late_gradients.h>
#include <tessera/nn/materialized.h>

#include <utility>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Data other than tensors that forward saves for backward.
struct KeptRounding : torch::CustomClassHolder {
  FakeQuantization how;
  at::ScalarType input_type = at::kFloat, product_type = at::kFloat;
  bool fused = false;  ///< fp32 on the CPU, whose products have kernels in nn/
  bool out_first = false, has_bias = false;

  /// The rounded weight [out, in], in the type of the products.
  at::Tensor rounded(const at::Tensor& weight) const {
    return rounded_to_bits(out_first ? weight : weight.t(), how).to(product_type);
  }
  /// a b in the type of the products; in fp32 if fused.
  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const {
    if (!fused) return at::mm(a, b);
    at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options().dtype(at::kFloat));
    (product_type == at::kFloat ? multiply : multiply_half)(out, a, b, /*accumulate=*/false);
    return out;
  }
};

struct FakeQuantizedLinear : torch::autograd::Function<FakeQuantizedLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const c10::intrusive_ptr<KeptRounding>& kept) {
    const Materialized materialized({&x, &weight, pointer(bias)});
    const at::Tensor rounded = kept->rounded(weight);
    const at::Tensor rows = x.reshape({-1, rounded.size(1)}).to(kept->product_type);
    at::Tensor y = kept->product(rows, rounded.t());
    if (bias) y.add_(*bias);
    auto shape = x.sizes().vec();
    shape.back() = rounded.size(0);
    ctx->save_for_backward({weight.requires_grad() ? rows : at::Tensor(), weight});
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    remember_scope(ctx);
    return at::_unsafe_view(y, shape);  // the caller may change the result in place
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const auto kept = c10::static_intrusive_pointer_cast<KeptRounding>(ctx->saved_data["kept"].toCapsule());
    const at::Tensor &x = saved[0], &weight = saved[1], dy = gradients[0].contiguous();
    const Materialized materialized({&weight});
    const at::Tensor rows = dy.view({-1, dy.size(-1)}), narrow = rows.to(kept->product_type);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      const at::Tensor rounded = kept->rounded(weight);
      auto shape = dy.sizes().vec();
      shape.back() = rounded.size(1);
      dx = at::_unsafe_view(kept->product(narrow, rounded), shape).to(kept->input_type);
    }
    const auto form = [kept, weight, rows, narrow, x = x.defined() ? x.detach() : x](bool of_weight, bool of_bias) {
      variable_list formed(2);
      if (of_weight) {
        const at::Tensor product = kept->out_first ? kept->product(narrow.t(), x) : kept->product(x.t(), narrow);
        at::Tensor sum = gradient_to_add_to(weight);
        if (sum.defined())
          sum.add_(product);
        else
          formed[0] = product.to(weight.scalar_type());
      }
      if (of_bias) formed[1] = rows.sum(0);
      return formed;
    };
    const variable_list formed = now_or_later(ctx, kept->has_bias, rows, form);
    return {dx, formed[0], formed[1], at::Tensor()};
  }
};

}  // namespace

at::Tensor fake_quantized_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                 WeightLayout layout, const QuantizedOperands& operands, bool training) {
  if (training && operands.noted.defined() && x.numel() > 0) {
    const at::NoGradGuard no_grad;
    at::Tensor noted = operands.noted;
    const at::Tensor now = at::stack({x.min().neg(), x.max()}).to(at::kFloat);
    noted.copy_(at::maximum(noted, now));
  }
  const at::Tensor input = operands.input ? fake_quantize(x, *operands.input) : x;
  if (!operands.weight || x.numel() == 0) return linear(input, weight, bias, layout);
  auto kept = c10::make_intrusive<KeptRounding>();
  kept->how = *operands.weight;
  kept->input_type = x.scalar_type();
  kept->fused = fusable({x, weight, bias});
  kept->product_type = autocast_type(x.device().type()).value_or(x.scalar_type());
  kept->out_first = layout == WeightLayout::out_in;
  kept->has_bias = bias.defined();
  return FakeQuantizedLinear::apply(input, weight, maybe(bias), kept);
}

}  // namespace tessera::nn
