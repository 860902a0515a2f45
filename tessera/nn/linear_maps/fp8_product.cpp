#include <tessera/nn/linear_maps/fp8_product.h>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <tessera/nn/gemm.h>

namespace tessera::nn {
namespace {

/// Whether at::_scaled_mm supports that kind of device: GPUs before Ada have no such products. Tested once.
bool has_scaled_product(const at::Device& device) {
  if (device.is_cpu()) return false;
  static const bool found = [&] {
    try {
      const at::Tensor ones = at::ones({16, 16}, at::TensorOptions(device)), one = at::ones({}, ones.options());
      const Fp8Tensor trial = to_fp8(ones, at::kFloat8_e4m3fn, one);
      scaled_product(trial, trial);
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  }();
  return found;
}

/// Its kernels require rows of a and b, and of the result, to have lengths that are multiples of 16.
bool fits_scaled_product(const Fp8Tensor& a, const Fp8Tensor& b) {
  const bool even = a.values.size(1) % 16 == 0 && b.values.size(0) % 16 == 0;
  return even && a.rows == 0 && b.rows == 0 && has_scaled_product(a.values.device());
}

}  // namespace

at::Tensor scaled_product(const Fp8Tensor& a, const Fp8Tensor& b) {
  // Its second factor must be stored column by column, as the transpose of a contiguous matrix is.
  return at::_scaled_mm(a.values.contiguous(), b.values.contiguous().t(), a.scale.squeeze(), b.scale.squeeze(),
                        /*bias=*/{}, /*scale_result=*/{}, at::kFloat);
}

at::Tensor fp8_product(const Fp8Tensor& a, const Fp8Tensor& b) {
  if (fits_scaled_product(a, b)) return scaled_product(a, b);
  const at::Tensor left = widened(a), right = widened(b).t();
  if (!left.device().is_cpu()) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    return at::mm(left, right);
  }
  const at::Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  multiply(out, left, right);
  return out;
}

void fp8_product_into(const at::Tensor& out, const Fp8Tensor& a, const Fp8Tensor& b, const at::Tensor& bias,
                      bool fast) {
  if (!fits_scaled_product(a, b)) {
    at::Tensor product = fp8_product(a, b);
    if (bias.defined()) product.add_(bias);
    out.copy_(product);
    return;
  }
  at::Tensor result = out;
  const bool wide = out.scalar_type() == at::kFloat;  // at::_scaled_mm cannot add a bias to fp32 results
  const std::optional<at::Tensor> half_bias =
      bias.defined() && !wide ? std::optional(bias.to(out.scalar_type())) : std::nullopt;
  at::_scaled_mm_out(result, a.values, b.values.t(), a.scale.squeeze(), b.scale.squeeze(), half_bias,
                     /*scale_result=*/{}, out.scalar_type(), fast);
  if (bias.defined() && wide) result.add_(bias);
}

}  // namespace tessera::nn
