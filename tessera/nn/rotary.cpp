#include <tessera/nn/rotary.h>

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/kernels/cpu/rotary.h>
#include <tessera/nn/device/served.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/materialized.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// True if the heads of a token are contiguous and tokens are one stride apart: a part of a packed tensor.
bool has_token_stride(const at::Tensor& x) {
  return x.stride(3) == 1 && x.stride(2) == x.size(3) && x.stride(0) == x.size(1) * x.stride(1);
}

at::Tensor turned_on_device(const DeviceKernels& device, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin, float direction) {
  const c10::DeviceGuard guard(x.device());
  const at::Tensor in = has_token_stride(x) ? x : x.contiguous(), c = cos.contiguous(), s = sin.contiguous();
  const at::Tensor out = at::empty(x.sizes(), x.options());
  device.rotary({.x = const_reals(in),
                 .cos = c.const_data_ptr<float>(),
                 .sin = s.const_data_ptr<float>(),
                 .y = reals(out),
                 .x_stride = in.stride(1),
                 .period = c.size(0),
                 .direction = direction},
                x.size(0) * x.size(1), x.size(2), x.size(3));
  return out;
}

/// x [B, T, heads, D] rotated by +-1 times the angle.
at::Tensor turned(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, float direction) {
  const Materialized materialized({&x, &cos, &sin});
  if (const DeviceKernels* const device = device_kernels({x, cos, sin}))
    return turned_on_device(*device, x, cos, sin, direction);
  const at::Tensor in = x.contiguous(), out = at::empty(x.sizes(), x.options());
  const std::int64_t tokens = x.size(0) * x.size(1), heads = x.size(2), d = x.size(3);
  const kernels::Rotary arguments{data(in),  data(cos), data(sin),   data(out),
                                  heads * d, heads * d, cos.size(0), direction};
  for_rows(tokens, heads * d,
           [&](std::int64_t begin, std::int64_t end) { kernels::rotary(arguments, begin, end, heads, d); });
  return out;
}

struct Rotate : torch::autograd::Function<Rotate> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
    ctx->saved_data["cos"] = cos;  // constants: no check for changes is needed
    ctx->saved_data["sin"] = sin;
    return turned(x, cos, sin, 1);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    return {turned(gradients[0], ctx->saved_data["cos"].toTensor(), ctx->saved_data["sin"].toTensor(), -1),
            at::Tensor(), at::Tensor()};
  }
};

}  // namespace

RotaryTable rotary_table(const at::Tensor& positions, const at::Tensor& inverse_frequencies, double scale) {
  const at::Tensor angles = positions.to(at::kFloat).unsqueeze(1) * inverse_frequencies.unsqueeze(0);  // [N, D/2]
  if (scale == 1) return {angles.cos(), angles.sin()};
  return {angles.cos() * scale, angles.sin() * scale};
}

at::Tensor rotary(const at::Tensor& x, const RotaryTable& table) {
  TESSERA_CHECK(x.dim() == 4 && x.size(3) == 2 * table.cos.size(1), "expected x [B, T, heads, ", 2 * table.cos.size(1),
                "]");
  TESSERA_CHECK(table.cos.size(0) == x.size(1) || table.cos.size(0) == x.size(0) * x.size(1), "a table of ",
                table.cos.size(0), " positions for ", x.size(0), " rows of ", x.size(1), " tokens");
  if (served({x, table.cos, table.sin}) && table.cos.scalar_type() == at::kFloat && x.numel() > 0)
    return Rotate::apply(x, table.cos, table.sin);
  const std::int64_t half = x.size(3) / 2;
  const auto spread = [&](const at::Tensor& t) {  // [1 or B, T, 1, D/2] in x's type
    return t.view({-1, x.size(1), 1, half}).to(x.scalar_type());
  };
  const at::Tensor cos = spread(table.cos), sin = spread(table.sin);
  const at::Tensor low = x.narrow(3, 0, half), high = x.narrow(3, half, half);
  return at::cat({low * cos - high * sin, high * cos + low * sin}, 3);
}

}  // namespace tessera::nn
