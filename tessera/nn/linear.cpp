#include <tessera/nn/linear.h>

#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/kernels/cpu/rows.h>
#include <tessera/nn/accumulate.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/device/norm.h>
#include <tessera/nn/device/served.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/gemm.h>
#include <tessera/nn/linear_maps/fp8_linear.h>
#include <tessera/nn/linear_maps/late_gradients.h>
#include <tessera/nn/materialized.h>
#include <tessera/nn/parameter_semantics.h>

#include <algorithm>
#include <utility>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// bf16, fp16, or nullopt.
using Half = std::optional<at::ScalarType>;

void product_into(const at::Tensor& rows, const at::Tensor& a, const at::Tensor& b, Half half) {
  if (half)
    multiply_half(rows, a.to(*half), b.to(*half));
  else
    multiply(rows, a, b);
}

/// a b in fp32, in the given shape; with `half`, a and b are first rounded to that type. Not a view: the caller may
/// change it in place (torch::nn::Linear adds its bias this way).
at::Tensor product(const at::Tensor& a, const at::Tensor& b, Half half, at::IntArrayRef shape) {
  at::Tensor out = at::empty(shape, a.options().dtype(at::kFloat));
  product_into(out.view({a.size(0), b.size(1)}), a, b, half);
  return out;
}
at::Tensor product(const at::Tensor& a, const at::Tensor& b, Half half) {
  return product(a, b, half, {a.size(0), b.size(1)});
}

/// Calls multiply(begin, end) for the rows of each part of y [n, ..., C] and reports each part. Without `parts`, calls
/// it once for all rows.
template <class Multiply>
void in_parts(const at::Tensor& y, const ProductParts* parts, const Multiply& multiply) {
  const std::int64_t n = y.size(0), rows = y.numel() / y.size(-1), count = parts ? std::min(parts->parts, n) : 1;
  for (std::int64_t p = 0; p < count; ++p) {
    const std::int64_t begin = p * n / count, end = (p + 1) * n / count;
    multiply(begin * (rows / n), end * (rows / n));
    if (parts) parts->computed(y.narrow(0, begin, end - begin));
  }
}

/// a b as the gradient of `weight`; undefined if it was added directly to grad().
at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, Half half) {
  const at::Tensor sum = gradient_to_add_to(weight);
  if (!sum.defined()) return product(a, b, half);
  if (half)
    multiply_half(sum, a.to(*half), b.to(*half), /*accumulate=*/true);
  else
    multiply(sum, a, b, /*accumulate=*/true);
  return {};
}
/// The same by ATen; products of half-precision operands accumulate in fp32 if that is the weight's type.
at::Tensor plain_weight_gradient(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b) {
  const bool widens = a.scalar_type() != weight.scalar_type();
  at::Tensor sum = gradient_to_add_to(weight);
  if (!sum.defined()) return widens ? at::mm(a, b, weight.scalar_type()) : at::mm(a, b);
  if (widens)
    at::addmm_out(sum, sum, a, b, weight.scalar_type());
  else
    sum.addmm_(a, b);
  return {};
}

/// Column sums of x [..., C] -> [C].
at::Tensor column_sums(const at::Tensor& x) {
  const std::int64_t columns = x.size(-1);
  return for_rows_with_sums(x.numel() / columns, columns, 1, [&](std::int64_t begin, std::int64_t end, float* sums) {
    kernels::column_sums(data(x) + begin * columns, sums, end - begin, columns);
  })[0];
}

/// y = x + delta + bias; delta and bias may be undefined.
void add_rows(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& bias, const at::Tensor& y) {
  const std::int64_t columns = x.size(-1);
  for_rows(x.numel() / columns, columns, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t o = begin * columns;
    kernels::add_rows(data(x) + o, delta.defined() ? data(delta) + o : nullptr, data(bias), data(y) + o, end - begin,
                      columns);
  });
}

/// Rows of x times the weight, in either layout. Under autocast x and the weight's gradient are rounded to bf16 or
/// fp16.
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, bool out_first, const ProductParts* parts) {
    const Materialized materialized({&x, &weight, pointer(bias)});
    const Half half = autocast_type(at::kCPU);
    const at::Tensor in_out = out_first ? weight.t() : weight;  // [in, out]
    auto shape = x.sizes().vec();
    shape.back() = in_out.size(1);
    at::Tensor rows = x.reshape({-1, in_out.size(0)});
    if (half) rows = rows.to(*half);
    const at::Tensor y = at::empty(shape, rows.options().dtype(at::kFloat));
    const at::Tensor out = y.view({rows.size(0), in_out.size(1)});
    in_parts(y, parts, [&](std::int64_t begin, std::int64_t end) {
      product_into(out.slice(0, begin, end), rows.slice(0, begin, end), in_out, half);
    });
    if (bias) add_rows(y, {}, *bias, y);
    const bool frozen = !weight.requires_grad();  // then backward does not need x
    ctx->save_for_backward({frozen ? at::Tensor() : rows, weight});
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->saved_data["out_first"] = out_first;
    ctx->saved_data["half"] = static_cast<std::int64_t>(half.value_or(at::kFloat));
    remember_scope(ctx);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const bool out_first = ctx->saved_data["out_first"].toBool();
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["half"].toInt());
    const Half half = type == at::kFloat ? Half() : Half(type);
    const at::Tensor &x = saved[0], &weight = saved[1], dy = gradients[0].contiguous();
    const Materialized materialized({&x, &weight});
    const at::Tensor out_in = out_first ? weight : weight.t();
    const at::Tensor rows = dy.view({-1, out_in.size(0)});
    const at::Tensor narrow = half ? rows.to(*half) : rows;
    auto shape = dy.sizes().vec();
    shape.back() = out_in.size(1);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) dx = product(narrow, out_in, half, shape);
    const bool has_bias = ctx->saved_data["has_bias"].toBool();
    const bool keep_rows = has_bias && ctx->needs_input_grad(2);
    const auto form = [x = x.defined() ? x.detach() : x, rows = keep_rows ? rows : at::Tensor(), narrow, half,
                       out_first, weight](bool of_weight, bool of_bias) {
      variable_list formed(2);
      if (of_weight)
        formed[0] =
            out_first ? weight_gradient(weight, narrow.t(), x, half) : weight_gradient(weight, x.t(), narrow, half);
      if (of_bias) formed[1] = column_sums(rows);
      return formed;
    };
    const variable_list formed = now_or_later(ctx, has_bias, rows, form);
    return {dx, formed[0], formed[1], at::Tensor(), at::Tensor()};
  }
};

/// Operands of an ATen product: under autocast all are narrow, except that `weight` may be wider than `factor`.
struct Operands {
  at::Tensor x, weight;              ///< `weight`: the tensor whose gradient is computed
  std::optional<at::Tensor> factor;  ///< the weight as used in products, if it is a different tensor
  at::Tensor bias;                   ///< may be undefined
};

/// Whether gradients of the weight should be fp32 sums of half-precision products, which CUDA's products can return.
bool widens(const at::Tensor& x, const at::Tensor& weight) {
  return x.is_cuda() && weight.scalar_type() == at::kFloat && weight.requires_grad() && at::GradMode::is_enabled() &&
         libtorch_autocast_type(x.device().type());
}

Operands operands(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const c10::DeviceType device = x.device().type();
  const Half half = libtorch_autocast_type(device);
  const auto narrow = [&](const at::Tensor& t) {
    return half && t.defined() ? at::autocast::cached_cast(*half, t, device) : t;
  };
  Operands o{narrow(x), narrow(weight), std::nullopt, narrow(bias)};
  if (widens(x, weight)) o.factor = std::exchange(o.weight, weight).detach();
  return o;
}

/// The rows of x, their factor [in, out], and the shape of the result.
struct RowProduct {
  at::Tensor rows, in_out;
  std::vector<std::int64_t> shape;

  RowProduct(const at::Tensor& x, const at::Tensor& factor, bool out_first)
      : in_out(out_first ? factor.t() : factor), shape(x.sizes().vec()) {
    shape.back() = in_out.size(1);
    rows = x.reshape({-1, in_out.size(0)});
  }
  void into(const at::Tensor& out, const std::optional<at::Tensor>& bias, std::int64_t begin, std::int64_t end) const {
    at::Tensor part = out.slice(0, begin, end);
    if (bias)
      at::addmm_out(part, *bias, rows.slice(0, begin, end), in_out);
    else
      at::mm_out(part, rows.slice(0, begin, end), in_out);
  }
};

/// The same by ATen, for cases that are not fused and whose weight gradients may be deferred, or are wider than the
/// products' operands: uses the products of ATen's own backward.
struct PlainLinear : torch::autograd::Function<PlainLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& given_factor,
                            bool out_first, const ProductParts* parts) {
    const at::Tensor& factor = given_factor ? *given_factor : weight;
    const RowProduct product(x, factor, out_first);
    ctx->save_for_backward({weight.requires_grad() ? product.rows : at::Tensor(), weight, factor});
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->saved_data["out_first"] = out_first;
    remember_scope(ctx);
    // Not a view, as above.
    const at::Tensor y = at::empty(product.shape, x.options()), out = y.view({product.rows.size(0), -1});
    in_parts(y, parts, [&](std::int64_t begin, std::int64_t end) { product.into(out, bias, begin, end); });
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const bool has_bias = ctx->saved_data["has_bias"].toBool();
    const at::Tensor& dy = gradients[0];
    const auto [dx, formed] = inner_gradients(ctx, dy, has_bias);
    return {dx, formed[0], formed[1], at::Tensor(), at::Tensor(), at::Tensor()};
  }

  /// Gradients of x, and of weight and bias. `has_bias`: the bias's gradient is computed here.
  static std::pair<at::Tensor, variable_list> inner_gradients(AutogradContext* ctx, const at::Tensor& dy,
                                                              bool has_bias) {
    const auto saved = ctx->get_saved_variables();
    const bool out_first = ctx->saved_data["out_first"].toBool();
    const at::Tensor &x = saved[0], &weight = saved[1], &factor = saved[2];
    const at::Tensor out_in = out_first ? factor : factor.t();
    const at::Tensor rows = dy.reshape({-1, out_in.size(0)});
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      auto shape = dy.sizes().vec();
      shape.back() = out_in.size(1);
      dx = at::mm(rows, out_in).view(shape);
    }
    const auto form = [x = x.defined() ? x.detach() : x, rows, out_first, weight](bool of_weight, bool of_bias) {
      variable_list formed(2);
      if (of_weight)
        formed[0] = out_first ? plain_weight_gradient(weight, rows.t(), x) : plain_weight_gradient(weight, x.t(), rows);
      if (of_bias) formed[1] = rows.sum(0);
      return formed;
    };
    return {dx, now_or_later(ctx, has_bias, rows, form)};
  }
};

at::Tensor plain_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool out_first,
                        const ProductParts* parts = nullptr) {
  const Operands o = operands(x, weight, bias);
  return PlainLinear::apply(o.x, o.weight, maybe(o.bias), o.factor, out_first, parts);
}

/// linear_apart() with a device's kernels.
struct LinearApart : torch::autograd::Function<LinearApart> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                               const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& given_factor,
                               bool out_first, int parts) {
    const at::Tensor& factor = given_factor ? *given_factor : weight;
    const RowProduct product(x, factor, out_first);
    ctx->save_for_backward({weight.requires_grad() ? product.rows : at::Tensor(), weight, factor});
    ctx->saved_data["bias"] = saved_type(bias.value_or(at::Tensor()));
    ctx->saved_data["out_first"] = out_first;
    remember_scope(ctx);
    const at::Tensor y = at::empty(product.shape, x.options());
    product.into(y.view({product.rows.size(0), -1}), bias, 0, product.rows.size(0));
    return y.chunk(parts, -1);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    variable_list parts;
    for (const at::Tensor& part : gradients) parts.push_back(part.contiguous());
    auto shape = parts[0].sizes().vec();
    const std::int64_t columns = shape.back(), rows = parts[0].numel() / columns, all = shape.back() *= count(parts);
    const auto bias_type = type_of_saved(ctx->saved_data["bias"]);
    const bool of_bias = bias_type && ctx->needs_input_grad(2);
    const auto empty = [&](at::IntArrayRef sizes, at::ScalarType type) {
      return at::empty(sizes, parts[0].options().dtype(type));
    };
    const at::Tensor dy = empty(shape, ctx->get_saved_variables()[2].scalar_type());
    const c10::DeviceGuard guard(dy.device());
    const DeviceKernels& device = *device_kernels({dy});
    at::Tensor dbias, partial;
    if (of_bias) {
      dbias = empty(all, *bias_type);
      partial = empty(device.joined_partial_sums(static_cast<int>(count(parts)), rows, columns), at::kFloat);
    }
    kernels::cuda::ColumnJoin join{.parts = static_cast<int>(count(parts)),
                                   .joined = reals(dy),
                                   .sums = reals(dbias),
                                   .partial = of_bias ? partial.mutable_data_ptr<float>() : nullptr};
    for (std::size_t p = 0; p < parts.size(); ++p) join.part[p] = const_reals(parts[p]);
    device.join_columns(join, rows, columns);
    const auto [dx, formed] = PlainLinear::inner_gradients(ctx, dy, /*has_bias=*/false);
    return {dx, formed[0], dbias, at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  static std::int64_t count(const variable_list& parts) { return static_cast<std::int64_t>(parts.size()); }
};

struct AddBias : torch::autograd::Function<AddBias> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& delta,
                            const std::optional<at::Tensor>& given_bias) {
    const Materialized materialized({&x, &delta, pointer(given_bias)});
    const at::Tensor a = x.contiguous(), d = delta.contiguous(), bias = given_bias.value_or(at::Tensor());
    const at::Tensor y = at::empty(x.sizes(), x.options().dtype(sum_type(a, d, bias)));
    if (const DeviceKernels* const device = device_kernels({a, d, bias})) {
      const c10::DeviceGuard guard(a.device());
      device->add_residual({const_reals(a), const_reals(d), const_reals(bias), reals(y)}, a.numel() / a.size(-1),
                           a.size(-1));
    } else {
      add_rows(a, d, bias, y);
    }
    ctx->saved_data["x"] = saved_type(a);
    ctx->saved_data["delta"] = saved_type(d);
    ctx->saved_data["bias"] = saved_type(bias);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const at::Tensor dy = gradients[0].contiguous();
    const bool of_bias = type_of_saved(ctx->saved_data["bias"]) && ctx->needs_input_grad(2);
    if (const DeviceKernels* const device = device_kernels({dy})) return device_backward(*device, ctx, dy, of_bias);
    return {dy, dy, of_bias ? column_sums(dy) : at::Tensor()};
  }

 private:
  static variable_list device_backward(const DeviceKernels& device, AutogradContext* ctx, const at::Tensor& dy,
                                       bool of_bias) {
    const c10::DeviceGuard guard(dy.device());
    const std::int64_t columns = dy.size(-1), rows = dy.numel() / columns;
    const auto type = [&](const char* of) { return *type_of_saved(ctx->saved_data[of]); };
    const bool other_type = type("delta") != dy.scalar_type();
    at::Tensor ddelta, dbias, partial;
    if (other_type) ddelta = at::empty(dy.sizes(), dy.options().dtype(type("delta")));
    if (of_bias) {
      dbias = at::empty(columns, dy.options().dtype(type("bias")));
      partial = at::empty(device.residual_partial_sums(rows, columns), dy.options().dtype(at::kFloat));
    }
    if (other_type || of_bias) {
      device.add_residual_backward(
          {const_reals(dy), reals(ddelta), reals(dbias), of_bias ? partial.mutable_data_ptr<float>() : nullptr}, rows,
          columns);
    }
    return {dy.to(type("x")), other_type ? ddelta : dy, dbias};
  }
};

/// Uses a function whose backward can defer gradients: one of the two above or, inside an Fp8Scope, the fp8 one.
at::Tensor own_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightLayout layout,
                      const ProductParts* parts = nullptr) {
  const bool out_first = layout == WeightLayout::out_in;
  if (const Fp8Scope* const fp8 = Fp8Scope::current()) [[unlikely]]
    return fp8_linear(x, weight, bias, layout, *fp8, parts);
  if (fusable({x, weight, bias})) return Linear::apply(x, weight, maybe(bias), out_first, parts);
  return plain_linear(x, weight, bias, out_first, parts);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightLayout layout) {
  if (const ParameterSemantics* cut = semantics_of(weight)) [[unlikely]]
    return cut->linear(x, weight, bias, layout);
  const bool out_first = layout == WeightLayout::out_in;
  if (x.numel() > 0 && fusable({x, weight, bias})) return own_linear(x, weight, bias, layout);
  const bool own = WeightGradients::current() || Fp8Scope::current() != nullptr || widens(x, weight);
  if (own && weight.dim() == 2 && x.dim() >= 1 && x.numel() > 0) [[unlikely]]
    return own_linear(x, weight, bias, layout);
  if (out_first) return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
  auto shape = x.sizes().vec();
  shape.back() = weight.size(1);
  const at::Tensor rows = x.reshape({-1, weight.size(0)});
  return (bias.defined() ? at::addmm(bias, rows, weight) : at::mm(rows, weight)).view(shape);
}

std::optional<std::vector<at::Tensor>> linear_apart(const at::Tensor& x, const at::Tensor& weight,
                                                    const at::Tensor& bias, WeightLayout layout, int parts) {
  const bool own = semantics_of(weight) == nullptr && Fp8Scope::current() == nullptr && weight.dim() == 2 &&
                   x.numel() > 0 && device_kernels({x, weight, bias}) != nullptr;
  if (!own) return std::nullopt;
  const Operands o = operands(x, weight, bias);
  const at::Tensor& factor = o.factor ? *o.factor : o.weight;
  if (device_kernels({o.x, factor}) == nullptr || o.x.scalar_type() != factor.scalar_type()) return std::nullopt;
  TESSERA_CHECK(parts >= 1 && parts <= kernels::cuda::ColumnJoin::most &&
                    weight.size(layout == WeightLayout::out_in ? 0 : 1) % parts == 0,
                parts, " parts for the results of a weight ", c10::str(weight.sizes()));
  return LinearApart::apply(o.x, o.weight, maybe(o.bias), o.factor, layout == WeightLayout::out_in, parts);
}

at::Tensor linear_late(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightLayout layout,
                       std::uint64_t place) {
  if (!at::GradMode::is_enabled() || weight.dim() != 2 || x.numel() == 0 || WeightGradients::current())
    return linear(x, weight, bias, layout);
  const at::Tensor y = own_linear(x, weight, bias, layout);
  form_late(y, place);
  return y;
}

at::Tensor linear_in_parts(const at::Tensor& x, const at::Tensor& weight, WeightLayout layout,
                           const ProductParts& parts) {
  if (x.numel() > 0 && x.dim() >= 2 && weight.dim() == 2) return own_linear(x, weight, {}, layout, &parts);
  const at::Tensor y = linear(x, weight, {}, layout);
  const at::NoGradGuard no_grad;
  parts.computed(y.detach());
  return y;
}

at::Tensor add_bias(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& bias) {
  if (served({x, delta, bias}) && x.sizes() == delta.sizes() && x.numel() > 0)
    return AddBias::apply(x, delta, maybe(bias));
  return bias.defined() ? x + (delta + bias) : x + delta;
}

}  // namespace tessera::nn
