// CUDA's own operators: fused attention, and softmax that widens its input. Both run the CPU's kernels on the mirrors.
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <ATen/Functions.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tests/double/mirrors.h>
#include <tests/double/operators.h>
#include <tests/double/products.h>

#include <algorithm>
#include <limits>
#include <vector>

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
  // The speed of products depends on the head size.
  const std::string counted = flops > 0 ? name + (" d" + std::to_string(inputs.front().size(-1))) : name;
  count_operation(counted, {.bytes = bytes_of(accesses), .flops = flops});
  return results;
}

/// The kernel that LibTorch 2.11 chooses on compute capability 9.0 with cuDNN 9.19, in outline: alignment and
/// environment switches are not modelled.
at::SDPBackend kernel_for(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool masked, double dropout,
                          bool groups) {
  const bool half = q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16;
  const std::int64_t head = q.size(-1);
  for (const at::Tensor* t : {&q, &k, &v}) {
    if (t->stride(-1) != 1) return at::SDPBackend::math;
  }
  if (q.dim() != 4 || dropout != 0.0 || k.size(-1) != head || v.size(-1) != head) return at::SDPBackend::math;
  if (half && head % 8 == 0 && head <= 128) return at::SDPBackend::cudnn_attention;
  if (half && !masked && head <= 256) return at::SDPBackend::flash_attention;
  const bool takes_heads = !groups || k.size(1) == q.size(1);
  if (takes_heads && (half || q.scalar_type() == at::kFloat)) return at::SDPBackend::efficient_attention;
  return at::SDPBackend::math;
}

std::int64_t choose_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::optional<at::Tensor>& mask, double dropout, bool, std::optional<double>,
                              bool groups) {
  return static_cast<std::int64_t>(kernel_for(q, k, v, mask.has_value(), dropout, groups));
}

/// [B, key heads, T, D] -> [B, heads, T, D]
at::Tensor spread(const at::Tensor& x, std::int64_t heads) {
  return x.size(1) == heads ? x : x.repeat_interleave(heads / x.size(1), 1);
}
/// Its transpose.
at::Tensor gathered(const at::Tensor& x, std::int64_t heads) {
  if (x.size(1) == heads) return x;
  return x.reshape({x.size(0), heads, x.size(1) / heads, x.size(2), x.size(3)}).sum(2);
}

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// FLOP of two products of [queries, keys] with D columns per head; causal attention computes half of them.
double attention_flops(const at::Tensor& q, const at::Tensor& k, bool causal) {
  return 4.0 * static_cast<double>(q.numel()) * static_cast<double>(k.size(2)) * (causal ? 0.5 : 1.0);
}

/// {output, logsumexp}
Tensors attend(const char* name, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
               bool causal, std::optional<double> scale) {
  const auto kernel = [&](const Tensors& in) {
    if (products_are_skipped())
      return Tensors{at::zeros_like(in[0]), at::zeros({q.size(0), q.size(1), q.size(2)}, at::kFloat)};
    const std::int64_t heads = in[0].size(1);
    auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        in[0], spread(in[1], heads), spread(in[2], heads), 0.0, causal, optional(in[3]), scale);
    return Tensors{output, logsumexp};
  };
  return on_mirrors(name, {q, k, v, mask}, kernel, attention_flops(q, k, causal));
}

/// {gradient of q, of k, of v}
Tensors attend_backward(const char* name, const Tensors& inputs, bool causal, std::optional<double> scale) {
  const auto kernel = [&](const Tensors& in) {
    if (products_are_skipped()) return Tensors{at::zeros_like(in[1]), at::zeros_like(in[2]), at::zeros_like(in[3])};
    const std::int64_t heads = in[1].size(1), own = in[2].size(1);
    auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        in[0], in[1], spread(in[2], heads), spread(in[3], heads), in[4], in[5], 0.0, causal, optional(in[6]), scale);
    return Tensors{q, gathered(k, own), gathered(v, own)};
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

using Numbers = std::optional<c10::SymInt>;

/// One document of packed rows: tokens [begin, end) and, with a window, a mask with 0 where a query sees a key and
/// -infinity elsewhere.
struct Document {
  std::int64_t begin, end;
  at::Tensor mask;
};

std::vector<Document> documents_of(const at::Tensor& bounds, const Numbers& left, const at::Tensor& q) {
  std::vector<Document> all;
  const auto* at = bounds.const_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i + 1 < bounds.numel(); ++i) {
    const std::int64_t length = at[i + 1] - at[i];
    at::Tensor mask;
    if (left) {
      const at::Tensor seen = at::ones({length, length}, at::kBool).tril().triu(-left->expect_int());
      mask = at::zeros({length, length}, q.options())
                 .masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
    }
    all.push_back({at[i], at[i + 1], mask});
  }
  return all;
}

/// FLOP of two products with D columns per head, over the keys that each query sees.
double documents_flops(const at::Tensor& q, const at::Tensor& bounds, const Numbers& left) {
  const at::Tensor here = host_view(bounds);
  const auto* at = here.const_data_ptr<std::int32_t>();
  double seen = 0;
  for (std::int64_t i = 0; i + 1 < here.numel(); ++i) {
    const auto length = static_cast<double>(at[i + 1] - at[i]);
    const double window = left ? std::min(static_cast<double>(left->expect_int()) + 1, length) : length;
    seen += length * window - (left ? window * (window - 1) / 2 : length * length / 2);
  }
  return 4.0 * static_cast<double>(q.size(1) * q.size(2)) * seen;
}

/// [tokens, own heads, D] -> [1, `heads`, the document's tokens, D]
at::Tensor of_document(const at::Tensor& x, const Document& document, std::int64_t heads) {
  return spread(x.slice(0, document.begin, document.end).transpose(0, 1).unsqueeze(0), heads);
}

/// Checks that the product uses only what the flash kernel supports: causal documents, with at most a window to the
/// left.
void check_documents_form(const std::optional<at::Tensor>& q_bounds, const std::optional<at::Tensor>& k_bounds,
                          double dropout, bool causal, const Numbers& left, const Numbers& right, const at::Tensor& q) {
  TORCH_CHECK(q_bounds && k_bounds && q_bounds->is_same(*k_bounds) && dropout == 0,
              "the double's flash attention has documents and no dropout");
  TORCH_CHECK(q_bounds->scalar_type() == at::kInt && q_bounds->dim() == 1, "cu_seqlens must be int32 [documents + 1]");
  TORCH_CHECK(q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16,
              "FlashAttention only support fp16 and bf16 data type");
  TORCH_CHECK(q.stride(-1) == 1, "Input tensor must have contiguous last dimension");
  TORCH_CHECK(q.size(-1) % 8 == 0 && q.size(-1) <= 256, "flash attention of heads of ", q.size(-1));
  TORCH_CHECK(causal ? !left && !right : left && right && right->expect_int() == 0, "not causal");
}

using FlashResults = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

FlashResults flash_documents(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::optional<at::Tensor>& q_bounds, const std::optional<at::Tensor>& k_bounds,
                             c10::SymInt, c10::SymInt, double dropout, bool causal, bool, std::optional<double> scale,
                             Numbers left, Numbers right, const std::optional<at::Tensor>&,
                             const std::optional<at::Tensor>&) {
  check_documents_form(q_bounds, k_bounds, dropout, causal, left, right, q);
  const auto kernel = [&](const Tensors& in) {
    const std::int64_t heads = q.size(1);
    const at::Tensor out = at::zeros_like(in[0]), sums = at::zeros({heads, q.size(0)}, at::kFloat);
    for (const Document& d : documents_of(in[3], left, in[0])) {
      if (products_are_skipped()) break;
      const auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
          of_document(in[0], d, heads), of_document(in[1], d, heads), of_document(in[2], d, heads), 0.0, causal,
          optional(d.mask), scale);
      out.slice(0, d.begin, d.end).copy_(output.squeeze(0).transpose(0, 1));
      sums.slice(1, d.begin, d.end).copy_(logsumexp.squeeze(0));
    }
    // The last two tensors are used only by dropout.
    return Tensors{out, sums, at::zeros({2}, at::kLong), at::empty({0}, at::kLong)};
  };
  const Tensors r =
      on_mirrors("flash_attention_forward", {q, k, v, *q_bounds}, kernel, documents_flops(q, *q_bounds, left));
  return {r[0], r[1], r[2], r[3], {}};
}

Gradients flash_documents_backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& output, const at::Tensor& logsumexp,
                                   const at::Tensor& q_bounds, const at::Tensor& k_bounds, c10::SymInt, c10::SymInt,
                                   double dropout, bool causal, const at::Tensor&, const at::Tensor&,
                                   std::optional<double> scale, Numbers left, Numbers right) {
  check_documents_form(q_bounds, q_bounds, dropout, causal, left, right, q);
  const Tensors inputs = {gradient, q, k, v, output, logsumexp, q_bounds, k_bounds};
  const auto kernel = [&](const Tensors& in) {
    const std::int64_t heads = q.size(1), own = k.size(1);
    const at::Tensor dq = at::zeros_like(in[1]), dk = at::zeros_like(in[2]), dv = at::zeros_like(in[3]);
    for (const Document& d : documents_of(in[6], left, in[1])) {
      if (products_are_skipped()) break;
      const auto part = [&](const at::Tensor& x) { return of_document(x, d, heads); };
      const auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          part(in[0]), part(in[1]), part(in[2]), part(in[3]), part(in[4]), in[5].slice(1, d.begin, d.end).unsqueeze(0),
          0.0, causal, optional(d.mask), scale);
      dq.slice(0, d.begin, d.end).copy_(gq.squeeze(0).transpose(0, 1));
      dk.slice(0, d.begin, d.end).copy_(gathered(gk, own).squeeze(0).transpose(0, 1));
      dv.slice(0, d.begin, d.end).copy_(gathered(gv, own).squeeze(0).transpose(0, 1));
    }
    return Tensors{dq, dk, dv};
  };
  const Tensors r = on_mirrors("flash_attention_backward", inputs, kernel, 2.5 * documents_flops(q, q_bounds, left));
  return {r[0], r[1], r[2]};
}

// half_to_float: CUDA's kernels widen internally; the CPU's refuse.
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
  m.impl("_fused_sdp_choice", &choose_attention);
  m.impl("_flash_attention_forward", &flash_documents);
  m.impl("_flash_attention_backward", &flash_documents_backward);
  m.impl("_scaled_dot_product_efficient_attention", &efficient);
  m.impl("_scaled_dot_product_efficient_attention_backward", &efficient_backward);
}

}  // namespace cuda_double
