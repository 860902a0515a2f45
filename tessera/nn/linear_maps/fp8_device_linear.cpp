#include <tessera/nn/linear_maps/fp8_device_linear.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/nn/accumulate.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/device/kernels.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/linear_maps/fp8_product.h>
#include <tessera/nn/linear_maps/late_gradients.h>
#include <tessera/nn/materialized.h>

#include <algorithm>
#include <memory>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Forward's sums may be less exact, but those of gradients may not, as in Transformer Engine
// (common/recipe/__init__.py: use_split_accumulator is False for fprop, True for dgrad and wgrad) and in torchao.
constexpr bool fast_in_forward = true, fast_in_backward = false;

at::ScalarType result_type(const at::Tensor& x) {
  return libtorch_autocast_type(x.device().type()).value_or(x.scalar_type());
}

/// Data other than tensors that forward saves for backward.
struct Kept : torch::CustomClassHolder {
  std::shared_ptr<const Fp8Map> map;
  const DeviceKernels* kernels = nullptr;
  at::ScalarType input_type = at::kFloat;
  bool out_first = false, has_bias = false, training = false;
  bool graph = false;  ///< backward may follow
};

/// The weight as factor of forward's product, [out, in], and of backward's, [in, out].
struct Factors {
  Fp8Tensor forward, backward;
};
Factors factors(const Kept& kept, const at::Tensor& weight, bool note, bool forward, bool backward) {
  const Fp8Ways ways = kept.map->rounded_ways(*kept.kernels, weight, Fp8Operand::weight, note,
                                              kept.out_first ? forward : backward, kept.out_first ? backward : forward);
  return kept.out_first ? Factors{ways.straight, ways.turned} : Factors{ways.turned, ways.straight};
}

at::Tensor saved_part(const at::Tensor& saved) { return saved.defined() ? saved.detach() : at::Tensor(); }

struct Fp8DeviceLinear : torch::autograd::Function<Fp8DeviceLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const c10::intrusive_ptr<Kept>& kept,
                            const ProductParts* parts) {
    const Materialized materialized({&x, &weight, pointer(bias)});
    const std::int64_t in = weight.size(kept->out_first ? 1 : 0), out = weight.size(kept->out_first ? 0 : 1);
    const at::Tensor rows = x.reshape({-1, in});
    const bool trained = kept->graph && weight.requires_grad();
    const Fp8Ways input = kept->map->rounded_input(*kept->kernels, rows, kept->training, /*turned=*/trained);
    // A sharded weight's memory is freed after forward, so its rounded form is computed again rather than kept
    // (torchao's force_recompute_fp8_weight_in_bwd).
    const bool keep_weight = kept->graph && x.requires_grad() && !weight.key_set().has(managed_key);
    const Factors factor = factors(*kept, weight, kept->training, /*forward=*/true, /*backward=*/keep_weight);
    auto shape = x.sizes().vec();
    shape.back() = out;
    const at::Tensor y = at::empty(shape, x.options().dtype(result_type(x)));
    const std::int64_t n = y.size(0), of_one = rows.size(0) / n, count = parts ? std::min(parts->parts, n) : 1;
    for (std::int64_t p = 0; p < count; ++p) {
      const std::int64_t begin = p * n / count, end = (p + 1) * n / count;
      const at::Tensor part = y.narrow(0, begin, end - begin);
      fp8_product_into(part.view({-1, out}),
                       {input.straight.values.slice(0, begin * of_one, end * of_one), input.straight.scale},
                       factor.forward, bias.value_or(at::Tensor()), fast_in_forward);
      if (parts) parts->computed(part);
    }
    ctx->save_for_backward({weight, input.turned.values, trained ? input.turned.scale : at::Tensor(),
                            factor.backward.values, keep_weight ? factor.backward.scale : at::Tensor()});
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
    const std::int64_t in = weight.size(kept->out_first ? 1 : 0), out = weight.size(kept->out_first ? 0 : 1);
    const at::Tensor rows = dy.view({-1, out});
    const bool of_input = ctx->needs_input_grad(0);
    const Fp8Ways gradient = kept->map->rounded_ways(*kept->kernels, rows, Fp8Operand::gradient, kept->training,
                                                     of_input, /*turned=*/ctx->needs_input_grad(1));
    at::Tensor dx;
    if (of_input) {
      const Fp8Tensor factor =
          saved[3].defined() ? Fp8Tensor{saved[3], saved[4]}
                             : factors(*kept, weight, /*note=*/false, /*forward=*/false, /*backward=*/true).backward;
      dx = at::empty({rows.size(0), in}, rows.options().dtype(kept->input_type));
      fp8_product_into(dx, gradient.straight, factor, {}, fast_in_backward);
      auto shape = dy.sizes().vec();
      shape.back() = in;
      dx = dx.view(shape);
    }
    const auto form = [kept, weight, rows = kept->has_bias ? rows : at::Tensor(), gradient = gradient.turned,
                       x = Fp8Tensor{saved_part(saved[1]), saved_part(saved[2])}](bool of_weight, bool of_bias) {
      variable_list formed(2);
      if (of_weight)
        formed[0] = weight_gradient(weight, kept->out_first ? gradient : x, kept->out_first ? x : gradient);
      if (of_bias) formed[1] = rows.sum({0}, /*keepdim=*/false, at::kFloat);
      return formed;
    };
    const variable_list formed = now_or_later(ctx, kept->has_bias, rows, form);
    return {dx, formed[0], formed[1], at::Tensor(), at::Tensor()};
  }

  /// a b^T as the gradient of `weight`; undefined if it was added directly to grad().
  static at::Tensor weight_gradient(const at::Tensor& weight, const Fp8Tensor& a, const Fp8Tensor& b) {
    at::Tensor sum = gradient_to_add_to(weight);
    const at::Tensor product = at::empty({a.values.size(0), b.values.size(0)},
                                         a.scale.options().dtype(sum.defined() ? at::kFloat : weight.scalar_type()));
    fp8_product_into(product, a, b, {}, fast_in_backward);
    if (!sum.defined()) return product;
    sum.add_(product);
    return {};
  }
};

}  // namespace

const DeviceKernels* fp8_device_kernels(const at::Tensor& x, const at::Tensor& weight, const Fp8Map& map) {
  const DeviceKernels* const found = map.kernels(x);
  if (found == nullptr || device_kernels({x, weight}) == nullptr) return nullptr;
  const at::ScalarType type = result_type(x);  // also the type of its gradient
  return type == at::kFloat || type == at::kBFloat16 ? found : nullptr;
}

at::Tensor fp8_device_linear(const DeviceKernels& kernels, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias, WeightLayout layout, const Fp8Scope& scope,
                             const ProductParts* parts) {
  auto kept = c10::make_intrusive<Kept>();
  kept->map = scope.map();
  kept->kernels = &kernels;
  kept->out_first = layout == WeightLayout::out_in;
  kept->has_bias = bias.defined();
  kept->training = scope.training();
  kept->graph = at::GradMode::is_enabled();
  return Fp8DeviceLinear::apply(x, weight, maybe(bias), kept, parts);
}

}  // namespace tessera::nn
