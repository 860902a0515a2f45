// CUDA's own operators: fused attention, and softmax that widens its input. Both run the CPU's kernels on the mirrors.
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <ATen/native/transformers/attention.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tests/double/mirrors.h>
#include <tests/double/operators.h>
#include <tests/double/products.h>

namespace cuda_double {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Runs `kernel` on the mirrors of `inputs` and returns its results on the device.
template <class Kernel>
Tensors on_mirrors(const char* name, const Tensors& inputs, Kernel kernel, double flops = 0) {
  const c10::Device device = inputs.front().device();
  const c10::DeviceGuard guard(device);
  const BelowAutograd below;
  Mirrors mirrors;
  std::vector<Access> accesses;
  Tensors seen;
  for (const at::Tensor& t : inputs) {
    add_accesses(t, false, accesses);
    seen.push_back(t.defined() ? mirrors.of(t) : t);
  }
  Tensors results = kernel(seen);
  for (at::Tensor& t : results) t = mirrors.back(t);
  for (const at::Tensor& t : mirrors.made()) add_accesses(t, true, accesses);
  start(name, device, accesses);
  count_operation(name, {.bytes = bytes_of(accesses), .flops = flops});
  return results;
}

/// The kernel that LibTorch 2.11 takes on compute capability 9.0 with cuDNN 9.19, in outline: alignment and the
/// environment's switches are not modelled.
at::SDPBackend kernel_for(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool masked, double dropout) {
  const bool half = q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16;
  const std::int64_t head = q.size(-1);
  if (q.dim() != 4 || dropout != 0.0 || k.size(-1) != head || v.size(-1) != head) return at::SDPBackend::math;
  if (half && head % 8 == 0 && head <= 128) return at::SDPBackend::cudnn_attention;
  if (half && !masked && head <= 256) return at::SDPBackend::flash_attention;
  if (half || q.scalar_type() == at::kFloat) return at::SDPBackend::efficient_attention;
  return at::SDPBackend::math;
}

std::int64_t choose_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::optional<at::Tensor>& mask, double dropout, bool, std::optional<double>,
                              bool) {
  return static_cast<std::int64_t>(kernel_for(q, k, v, mask.has_value(), dropout));
}

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// Two products of [queries, keys] with D columns, for every head; a causal one forms half of them.
double attention_flops(const at::Tensor& q, const at::Tensor& k, bool causal) {
  return 4.0 * static_cast<double>(q.numel()) * static_cast<double>(k.size(2)) * (causal ? 0.5 : 1.0);
}

/// {output, logsumexp}
Tensors attend(const char* name, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
               bool causal, std::optional<double> scale) {
  const auto kernel = [&](const Tensors& in) {
    if (products_are_skipped())
      return Tensors{at::zeros_like(in[0]), at::zeros({q.size(0), q.size(1), q.size(2)}, at::kFloat)};
    auto [output, logsumexp] =
        at::_scaled_dot_product_flash_attention_for_cpu(in[0], in[1], in[2], 0.0, causal, optional(in[3]), scale);
    return Tensors{output, logsumexp};
  };
  return on_mirrors(name, {q, k, v, mask}, kernel, attention_flops(q, k, causal));
}

/// {gradient of q, of k, of v}
Tensors attend_backward(const char* name, const Tensors& inputs, bool causal, std::optional<double> scale) {
  const auto kernel = [&](const Tensors& in) {
    if (products_are_skipped()) return Tensors{at::zeros_like(in[1]), at::zeros_like(in[2]), at::zeros_like(in[3])};
    auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(in[0], in[1], in[2], in[3], in[4], in[5],
                                                                              0.0, causal, optional(in[6]), scale);
    return Tensors{q, k, v};
  };
  return on_mirrors(name, inputs, kernel, 2.5 * attention_flops(inputs[1], inputs[2], causal));
}

using Fused = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                         at::Tensor, at::Tensor>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Fused cudnn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& bias, bool,
            double, bool causal, bool, std::optional<double> scale) {
  const Tensors r = attend("cudnn_attention", q, k, v, bias.value_or(at::Tensor()), causal, scale);
  return {r[0], r[1], {}, {}, q.size(2), k.size(2), {}, {}, {}};
}

Gradients cudnn_backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& output, const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&,
                         const at::Tensor& bias, const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double,
                         bool causal, std::optional<double> scale) {
  const Tensors r =
      attend_backward("cudnn_attention_backward", {gradient, q, k, v, output, logsumexp, bias}, causal, scale);
  return {r[0], r[1], r[2]};
}

Fused flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double, bool causal, bool,
            std::optional<double> scale) {
  const Tensors r = attend("flash_attention", q, k, v, {}, causal, scale);
  return {r[0], r[1], {}, {}, q.size(2), k.size(2), {}, {}, {}};
}

Gradients flash_backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& output, const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&,
                         c10::SymInt, c10::SymInt, double, bool causal, const at::Tensor&, const at::Tensor&,
                         std::optional<double> scale) {
  const Tensors r =
      attend_backward("flash_attention_backward", {gradient, q, k, v, output, logsumexp, {}}, causal, scale);
  return {r[0], r[1], r[2]};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient(const at::Tensor& q, const at::Tensor& k,
                                                                     const at::Tensor& v,
                                                                     const std::optional<at::Tensor>& bias, bool,
                                                                     double, bool causal, std::optional<double> scale) {
  const Tensors r = attend("efficient_attention", q, k, v, bias.value_or(at::Tensor()), causal, scale);
  return {r[0], r[1], {}, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_backward(
    const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
    const at::Tensor& output, const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&, double,
    std::array<bool, 4>, bool causal, std::optional<double> scale) {
  if (!gradient.defined()) return {};
  const Tensors r =
      attend_backward("efficient_attention_backward", {gradient, q, k, v, output, logsumexp, bias}, causal, scale);
  return {r[0], r[1], r[2], {}};
}

// half_to_float: CUDA's kernels widen inside, the CPU's refuse.
at::Tensor& softmax_out(const at::Tensor& self, std::int64_t dim, bool widen, at::Tensor& out) {
  const Tensors r = on_mirrors("aten::_softmax.out", {widen ? self.to(at::kFloat) : self},
                               [&](const Tensors& in) { return Tensors{at::_softmax(in[0], dim, false)}; });
  return out.copy_(r[0]);
}

at::Tensor& log_softmax_out(const at::Tensor& self, std::int64_t dim, bool widen, at::Tensor& out) {
  const Tensors r = on_mirrors("aten::_log_softmax.out", {widen ? self.to(at::kFloat) : self},
                               [&](const Tensors& in) { return Tensors{at::_log_softmax(in[0], dim, false)}; });
  return out.copy_(r[0]);
}

const bool choice_registered = [] {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
  return true;
}();

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("_softmax.out", &softmax_out);
  m.impl("_log_softmax.out", &log_softmax_out);
  m.impl("_scaled_dot_product_cudnn_attention", &cudnn);
  m.impl("_scaled_dot_product_cudnn_attention_backward", &cudnn_backward);
  m.impl("_scaled_dot_product_flash_attention", &flash);
  m.impl("_scaled_dot_product_flash_attention_backward", &flash_backward);
  m.impl("_scaled_dot_product_efficient_attention", &efficient);
  m.impl("_scaled_dot_product_efficient_attention_backward", &efficient_backward);
}

}  // namespace cuda_double
