#include <tessera/nn/attention.h>

#include <ATen/ATen.h>

namespace tessera::nn {

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads, double scale, double dropout) {
  const std::int64_t b = qkv.size(0), t = qkv.size(1), c = qkv.size(2) / 3;
  const at::Tensor parts = qkv.view({b, t, 3, heads, c / heads}).permute({2, 0, 3, 1, 4});  // [3, B, heads, T, D], no copy
  const at::Tensor out = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], /*attn_mask=*/{}, dropout,
                                                          /*is_causal=*/true, scale);
  return out.transpose(1, 2).reshape({b, t, c});
}

at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values, double scale) {
  const std::int64_t b = q.size(0), heads = q.size(1), t = q.size(2), d = q.size(3), past = keys.size(2) - t;
  at::Tensor mask;  // query i sees keys 0 .. past + i
  if (t > 1) mask = at::ones({t, past + t}, q.options().dtype(at::kBool)).tril(past);
  const at::Tensor out = at::scaled_dot_product_attention(q, keys, values, mask.defined() ? std::optional(mask) : std::nullopt,
                                                          /*dropout=*/0.0, /*is_causal=*/false, scale);
  return out.transpose(1, 2).reshape({b, t, heads * d});
}

}  // namespace tessera::nn
