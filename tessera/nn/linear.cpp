#include <tessera/nn/linear.h>

#include <torch/csrc/autograd/custom_function.h>

#include <tessera/kernels/cpu/rows.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/gemm.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  multiply(out, a, b);
  return out;
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

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    auto shape = x.sizes().vec();
    shape.back() = weight.size(1);
    const at::Tensor rows = x.reshape({-1, weight.size(0)});
    const at::Tensor y = product(rows, weight);
    if (bias) add_rows(y, {}, *bias, y);
    ctx->save_for_backward({rows, weight});
    ctx->saved_data["has_bias"] = bias.has_value();
    return y.view(shape);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], dy = gradients[0].contiguous();
    const at::Tensor rows = dy.view({-1, weight.size(1)});
    auto shape = dy.sizes().vec();
    shape.back() = weight.size(0);
    at::Tensor dx, dweight, dbias;
    if (ctx->needs_input_grad(0)) dx = product(rows, weight.t()).view(shape);
    if (ctx->needs_input_grad(1)) dweight = product(x.t(), rows);
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2)) dbias = column_sums(rows);
    return {dx, dweight, dbias};
  }
};

struct AddBias : torch::autograd::Function<AddBias> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& delta,
                            const std::optional<at::Tensor>& bias) {
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

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (fusable({x, weight, bias}) && x.numel() > 0) return Linear::apply(x, weight, maybe(bias));
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
