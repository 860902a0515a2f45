#include <tessera/nn/attention/two_way_attention.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include <tessera/base/error.h>
#include <tessera/nn/attention/flash_attention.h>
#include <tessera/nn/fused.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

AttentionRectangle rectangle(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<std::int64_t>& lengths, double scale) {
  return {.q = q.transpose(1, 2), .k = k.transpose(1, 2), .v = v.transpose(1, 2), .scale = scale, .lengths = lengths};
}

struct TwoWayAttention : torch::autograd::Function<TwoWayAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<std::int64_t>& lengths, double scale) {
    const auto [out, log_sums] = flash_attention(rectangle(q, k, v, lengths, scale));
    ctx->save_for_backward({q, k, v, out, log_sums});  // out [B, heads, T, D] is stored as [B, T, heads, D]
    ctx->saved_data["lengths"] = lengths;
    ctx->saved_data["scale"] = scale;
    return out.transpose(1, 2).reshape({q.size(0), q.size(1), q.size(2) * q.size(3)});
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const AttentionRectangle a = rectangle(saved[0], saved[1], saved[2], ctx->saved_data["lengths"].toIntVector(),
                                           ctx->saved_data["scale"].toDouble());
    const at::Tensor dy = gradients[0].contiguous().view(saved[0].sizes()).transpose(1, 2);
    const auto [dq, dk, dv] = flash_attention_backward(dy, a, saved[3], saved[4]);
    return {dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor two_way_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<std::int64_t>& lengths, double scale) {
  TESSERA_CHECK(q.dim() == 4 && k.sizes() == q.sizes() && v.sizes() == q.sizes(),
                "expected q, k and v [B, T, heads, D], got ", c10::str(q.sizes()), ", ", c10::str(k.sizes()), " and ",
                c10::str(v.sizes()));
  TESSERA_CHECK(lengths.empty() || static_cast<std::int64_t>(lengths.size()) == q.size(0), lengths.size(),
                " lengths for ", q.size(0), " rows");
  for (const std::int64_t length : lengths)
    TESSERA_CHECK(length >= 1 && length <= q.size(1), "a length of ", length, " for rows of ", q.size(1), " tokens");
  if (fusable({q, k, v}) && q.numel() > 0) return TwoWayAttention::apply(q, k, v, lengths, scale);
  std::optional<at::Tensor> mask;
  if (!lengths.empty())
    mask = at::arange(q.size(1), q.options().dtype(at::kLong))
               .less(at::tensor(lengths, at::kLong).to(q.device()).view({-1, 1, 1, 1}));
  const at::Tensor out = at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask,
                                                          /*dropout_p=*/0, /*is_causal=*/false, scale);
  return out.transpose(1, 2).flatten(2);
}

}  // namespace tessera::nn
