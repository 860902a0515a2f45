#include <tessera/nn/linear.h>

#include <torch/csrc/autograd/custom_function.h>

#include <tessera/kernels/cpu/rows.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/gemm.h>
#include <tessera/nn/materialized.h>
#include <tessera/nn/redirect.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// bf16, fp16, or nothing.
using Half = std::optional<at::ScalarType>;

/// a b in fp32, in the given shape; with `half`, of a and b rounded to that type. No view of anything: somebody may
/// change it in place (torch::nn::Linear adds its bias so).
at::Tensor product(const at::Tensor& a, const at::Tensor& b, Half half, at::IntArrayRef shape) {
  at::Tensor out = at::empty(shape, a.options().dtype(at::kFloat));
  const at::Tensor rows = out.view({a.size(0), b.size(1)});
  if (half)
    multiply_half(rows, a.to(*half), b.to(*half));
  else
    multiply(rows, a, b);
  return out;
}
at::Tensor product(const at::Tensor& a, const at::Tensor& b, Half half) {
  return product(a, b, half, {a.size(0), b.size(1)});
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

/// Rows of x times the weight, whichever way it is stored. Under autocast x and the weight's gradient pass through bf16
/// or fp16.
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, bool out_first) {
    const Materialized materialized({&x, &weight, pointer(bias)});
    const Half half = autocast_type(at::kCPU);
    const at::Tensor in_out = out_first ? weight.t() : weight;  // [in, out]
    auto shape = x.sizes().vec();
    shape.back() = in_out.size(1);
    at::Tensor rows = x.reshape({-1, in_out.size(0)});
    if (half) rows = rows.to(*half);
    const at::Tensor y = product(rows, in_out, half, shape);
    if (bias) add_rows(y, {}, *bias, y);
    const bool frozen = !weight.requires_grad();  // then nobody needs x again
    ctx->save_for_backward({frozen ? at::Tensor() : rows, weight});
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->saved_data["out_first"] = out_first;
    ctx->saved_data["half"] = static_cast<std::int64_t>(half.value_or(at::kFloat));
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
    at::Tensor dx, dweight, dbias;
    if (ctx->needs_input_grad(0)) dx = product(narrow, out_in, half, shape);
    if (ctx->needs_input_grad(1)) dweight = out_first ? product(narrow.t(), x, half) : product(x.t(), narrow, half);
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2)) dbias = column_sums(rows);
    return {dx, dweight, dbias, at::Tensor()};
  }
};

struct AddBias : torch::autograd::Function<AddBias> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& delta,
                            const std::optional<at::Tensor>& bias) {
    const Materialized materialized({&x, &delta, pointer(bias)});
    const at::Tensor a = x.contiguous(), d = delta.contiguous(), y = at::empty(x.sizes(), x.options());
    add_rows(a, d, bias.value_or(at::Tensor()), y);
    ctx->saved_data["has_bias"] = bias.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor dbias;
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2)) dbias = column_sums(dy);
    return {dy, dy, dbias};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightLayout layout) {
  if (const Redirect* cut = redirect_of(weight)) [[unlikely]]
    return cut->linear(x, weight, bias, layout);
  const bool out_first = layout == WeightLayout::out_in;
  if (fusable({x, weight, bias}) && x.numel() > 0) return Linear::apply(x, weight, maybe(bias), out_first);
  if (out_first) return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
  auto shape = x.sizes().vec();
  shape.back() = weight.size(1);
  const at::Tensor rows = x.reshape({-1, weight.size(0)});
  return (bias.defined() ? at::addmm(bias, rows, weight) : at::mm(rows, weight)).view(shape);
}

at::Tensor add_bias(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& bias) {
  if (fusable({x, delta, bias}) && x.numel() > 0) return AddBias::apply(x, delta, maybe(bias));
  return bias.defined() ? x + (delta + bias) : x + delta;
}

}  // namespace tessera::nn
