#include <tessera/nn/attention/document_attention.h>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/device/send.h>

#include <algorithm>
#include <optional>

namespace tessera::nn {
namespace {

/// The type requested by autocast, otherwise the type of x.
at::ScalarType type_of(const at::Tensor& x) {
  if (x.scalar_type() == at::kDouble) return at::kDouble;
  return libtorch_autocast_type(x.device().type()).value_or(x.scalar_type());
}

bool is_half(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const at::ScalarType type = type_of(q);
  return (type == at::kHalf || type == at::kBFloat16) && type_of(k) == type && type_of(v) == type;
}

/// Start of each document among the batch's tokens, and the end of the last one.
struct Bounds {
  at::Tensor tokens;         // int32 [documents + 1] on the device
  std::int64_t longest = 0;  // tokens of the longest document
};
Bounds bounds_of(const DocumentStarts& documents, std::int64_t rows, std::int64_t length, c10::Device device) {
  DocumentStarts all = documents;
  if (all.empty()) {
    for (std::int64_t row = 0; row < rows; ++row) all.push_back(row * length);
  }
  all.push_back(rows * length);
  Bounds bounds;
  const at::Tensor here = at::empty({static_cast<std::int64_t>(all.size())}, at::kInt);
  auto* out = here.mutable_data_ptr<std::int32_t>();
  for (std::size_t i = 0; i < all.size(); ++i) {
    out[i] = static_cast<std::int32_t>(all[i]);
    if (i > 0) bounds.longest = std::max(bounds.longest, all[i] - all[i - 1]);
  }
  bounds.tokens = send(here, device);
  return bounds;
}

}  // namespace

bool document_attention_takes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const DocumentStarts& documents) {
  constexpr std::int64_t most = 65535;
  // Backward needs fp32 sums for each query, and for 128 more per document: too much memory for many short documents.
  constexpr std::int64_t few = 1024, least_mean_length = 16;
  const std::int64_t d = q.size(-1), count = static_cast<std::int64_t>(documents.size());
  return q.is_cuda() && q.numel() > 0 && is_half(q, k, v) && d % 8 == 0 && d <= 256 && q.size(0) <= most &&
         count <= most && (count <= few || count * least_mean_length <= q.size(0) * q.size(1)) &&
         at::globalContext().userEnabledFlashSDP();
}

at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const DocumentStarts& documents, double scale, std::int64_t window) {
  const std::int64_t b = q.size(0), t = q.size(1), heads = q.size(2), d = q.size(3);
  const Bounds bounds = bounds_of(documents, b, t, q.device());
  const auto rows = [&](const at::Tensor& x) {
    const at::Tensor all = x.to(type_of(x)).reshape({b * t, x.size(2), d});
    return all.stride(2) == 1 ? all : all.contiguous();  // the kernel requires each head's elements to be contiguous
  };
  // As in torch.nn.attention.varlen: with a window is_causal is false, and the window's right side is 0 instead.
  const bool windowed = window > 0 && window < bounds.longest;
  const std::optional<std::int64_t> left = windowed ? std::optional(window - 1) : std::nullopt,
                                    right = windowed ? std::optional<std::int64_t>(0) : std::nullopt;
  const at::Tensor out = std::get<0>(at::_flash_attention_forward(
      rows(q), rows(k), rows(v), bounds.tokens, bounds.tokens, bounds.longest, bounds.longest, /*dropout_p=*/0,
      /*is_causal=*/!windowed, /*return_debug_mask=*/false, scale, left, right));
  return out.reshape({b, t, heads * d});  // tokens first, like the queries
}

std::optional<at::Tensor> grouped_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                            double scale) {
  if (!q.is_cuda() || k.size(2) == q.size(2) || !is_half(q, k, v)) return std::nullopt;
  // Without the fallback kernel the query below may throw.
  if (!at::globalContext().userEnabledMathSDP()) return std::nullopt;
  const auto by_head = [](const at::Tensor& x) { return x.to(type_of(x)).transpose(1, 2); };
  const at::Tensor queries = by_head(q), keys = by_head(k), values = by_head(v);
  // The same query as in scaled_dot_product_attention; other kernels would need the matrix of all scores for groups.
  const auto kernel = static_cast<at::SDPBackend>(at::_fused_sdp_choice(queries, keys, values, {}, /*dropout_p=*/0,
                                                                        /*is_causal=*/true, scale,
                                                                        /*enable_gqa=*/true));
  if (kernel != at::SDPBackend::flash_attention && kernel != at::SDPBackend::cudnn_attention) return std::nullopt;
  const at::Tensor out = at::scaled_dot_product_attention(queries, keys, values, {}, /*dropout_p=*/0,
                                                          /*is_causal=*/true, scale, /*enable_gqa=*/true);
  return out.transpose(1, 2).reshape({q.size(0), q.size(1), q.size(2) * q.size(3)});
}

}  // namespace tessera::nn
