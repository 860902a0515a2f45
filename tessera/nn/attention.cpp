#include <tessera/nn/attention.h>

#include <torch/csrc/autograd/custom_function.h>

#include <tessera/nn/fused.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// ATen's flash attention kernels on views of qkv. Differentiating through the views instead would cost three
/// zero-filled gradients of qkv's size and their sum; here each part of the gradient is copied into its place once.
struct FlashAttention : torch::autograd::Function<FlashAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv, std::int64_t heads, double scale) {
    const std::int64_t b = qkv.size(0), t = qkv.size(1), c = qkv.size(2) / 3;
    const at::Tensor packed = qkv.contiguous(),
                     parts = packed.view({b, t, 3, heads, c / heads}).permute({2, 0, 3, 1, 4});
    auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(parts[0], parts[1], parts[2], /*dropout_p=*/0,
                                                                          /*is_causal=*/true, /*attn_mask=*/{}, scale);
    ctx->save_for_backward({packed, out, log_sum});  // out [B, heads, T, D] lies as [B, T, heads, D]
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["scale"] = scale;
    return out.transpose(1, 2).reshape({b, t, c});
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const std::int64_t b = qkv.size(0), t = qkv.size(1), heads = ctx->saved_data["heads"].toInt(),
                       d = qkv.size(2) / 3 / heads;
    const at::Tensor parts = qkv.view({b, t, 3, heads, d}).permute({2, 0, 3, 1, 4});
    const at::Tensor dy = gradients[0].contiguous().view({b, t, heads, d}).transpose(1, 2);
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dy, parts[0], parts[1], parts[2], saved[1], saved[2], /*dropout_p=*/0, /*is_causal=*/true, /*attn_mask=*/{},
        ctx->saved_data["scale"].toDouble());
    const at::Tensor dqkv = at::empty(qkv.sizes(), qkv.options()),
                     places = dqkv.view({b, t, 3, heads, d}).permute({2, 0, 3, 1, 4});
    places[0].copy_(dq), places[1].copy_(dk), places[2].copy_(dv);
    return {dqkv, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads, double scale, double dropout) {
  if (dropout == 0 && fusable({qkv}) && qkv.numel() > 0) return FlashAttention::apply(qkv, heads, scale);
  const std::int64_t b = qkv.size(0), t = qkv.size(1), c = qkv.size(2) / 3;
  const at::Tensor parts =
      qkv.view({b, t, 3, heads, c / heads}).permute({2, 0, 3, 1, 4});  // [3, B, heads, T, D], no copy
  const at::Tensor out = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], /*attn_mask=*/{}, dropout,
                                                          /*is_causal=*/true, scale);
  return out.transpose(1, 2).reshape({b, t, c});
}

at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values, double scale) {
  const std::int64_t b = q.size(0), heads = q.size(1), t = q.size(2), d = q.size(3), past = keys.size(2) - t;
  at::Tensor mask;  // query i sees keys 0 .. past + i
  if (t > 1) mask = at::ones({t, past + t}, q.options().dtype(at::kBool)).tril(past);
  const at::Tensor out =
      at::scaled_dot_product_attention(q, keys, values, mask.defined() ? std::optional(mask) : std::nullopt,
                                       /*dropout=*/0.0, /*is_causal=*/false, scale);
  return out.transpose(1, 2).reshape({b, t, heads * d});
}

}  // namespace tessera::nn
