#include <tessera/models/latent_attention.h>

#include <ATen/ATen.h>

#include <tessera/nn/nn.h>

#include <algorithm>

namespace tessera::models {
namespace {

/// Pads the heads of x [B, T, H, d] with zeros up to `size`: they change no product, and attention needs queries, keys
/// and values of the same size.
at::Tensor padded(const at::Tensor& x, std::int64_t size) {
  return x.size(3) == size ? x : at::constant_pad_nd(x, {0, size - x.size(3)});
}

}  // namespace

LatentAttention::LatentAttention(const ModelSpec& c, std::int64_t index)
    : sizes(*c.latent), index(index), heads(c.heads), dropout(c.attention_dropout) {
  const std::int64_t queries = heads * (sizes.plain + sizes.rotated);
  if (sizes.query_rank == 0) {
    q_proj = register_module("q_proj", std::make_shared<Linear>(c.hidden, queries, false));
  } else {
    q_a_proj = register_module("q_a_proj", std::make_shared<Linear>(c.hidden, sizes.query_rank, c.query_bias));
    if (sizes.normed)
      q_a_layernorm = register_module("q_a_layernorm", std::make_shared<RmsNorm>(sizes.query_rank, sizes.norm_eps));
    q_b_proj = register_module("q_b_proj", std::make_shared<Linear>(sizes.query_rank, queries, false));
  }
  kv_a_proj_with_mqa = register_module(
      "kv_a_proj_with_mqa", std::make_shared<Linear>(c.hidden, sizes.key_rank + sizes.rotated, c.query_bias));
  if (sizes.normed)
    kv_a_layernorm = register_module("kv_a_layernorm", std::make_shared<RmsNorm>(sizes.key_rank, sizes.norm_eps));
  kv_b_proj = register_module("kv_b_proj",
                              std::make_shared<Linear>(sizes.key_rank, heads * (sizes.plain + sizes.value), false));
  o_proj = register_module("o_proj", std::make_shared<Linear>(heads * sizes.value, c.hidden, c.output_bias));
}

/// The checkpoints store the two numbers of a pair next to each other; our rotation needs first halves, then second
/// halves.
at::Tensor LatentAttention::rotated(const at::Tensor& x, const LlamaContext& context) const {
  if (!sizes.interleaved) return nn::rotary(x, context.rotary);
  const at::Tensor halves = x.unflatten(3, {sizes.rotated / 2, 2}).transpose(3, 4).flatten(3);
  return nn::rotary(halves, context.rotary);
}

at::Tensor LatentAttention::forward(const at::Tensor& x, const LlamaContext& context) {
  const auto by_head = [](const at::Tensor& y, std::int64_t size) {
    return y.view({y.size(0), y.size(1), -1, size});  // [B, T, H, size], for the tokens that the projections return
  };
  const auto normed = [](const at::Tensor& y, const std::shared_ptr<RmsNorm>& norm) {
    return norm ? nn::rms_norm(y.contiguous(), norm->weight, norm->eps) : y.contiguous();
  };
  const nn::RandomPlace place = context.between_layers();
  const std::int64_t both = sizes.plain + sizes.rotated;
  const at::Tensor queries = by_head(
      q_proj ? q_proj->forward(x, place) : q_b_proj->forward(normed(q_a_proj->forward(x, place), q_a_layernorm), place),
      both);
  const at::Tensor latent = kv_a_proj_with_mqa->forward(x, place);                           // [B, T, rank + R]
  const at::Tensor shared = rotated(latent.slice(2, sizes.key_rank).unsqueeze(2), context);  // [B, T, 1, R]
  const at::Tensor pairs = by_head(
      kv_b_proj->forward(normed(latent.slice(2, 0, sizes.key_rank), kv_a_layernorm), place), sizes.plain + sizes.value);
  const std::int64_t own_heads = pairs.size(2), widest = std::max(both, sizes.value);
  const at::Tensor q = at::cat({queries.slice(3, 0, sizes.plain), rotated(queries.slice(3, sizes.plain), context)}, 3);
  const at::Tensor k = at::cat({pairs.slice(3, 0, sizes.plain), shared.expand({-1, -1, own_heads, -1})}, 3);
  const at::Tensor wide_q = padded(q, widest), wide_k = padded(k, widest),
                   wide_v = padded(pairs.slice(3, sizes.plain), widest);
  const nn::AttentionOptions options{
      .scale = sizes.scale, .dropout = is_training() ? dropout : 0, .random = context.of_weights(index, 0)};
  at::Tensor mixed;  // [B, T, H widest]
  if (context.cache) {
    const auto [keys, values] =
        context.cache->append(static_cast<std::size_t>(index), wide_k.transpose(1, 2), wide_v.transpose(1, 2));
    mixed = nn::cached_attention(wide_q, keys, values, options);
  } else {
    mixed = context.attend(wide_q, wide_k, wide_v.contiguous(), options);
  }
  if (widest != sizes.value) mixed = by_head(mixed, widest).slice(3, 0, sizes.value).flatten(2);
  return o_proj->forward(mixed, context.random);
}

}  // namespace tessera::models
